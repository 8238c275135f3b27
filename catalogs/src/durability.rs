//! Makes a commit durable: when Lance acknowledges a version, its files and directories are on the disk.
//!
//! Lance writes data and index files of a local dataset directly (create, write, rename; no fsync), and publishes a
//! version by one `put` of its manifest through the object store. So the wrapper acts at that one point: before the
//! manifest is put, every file of the dataset that is not known to be synced is synced, with its directories; the put
//! itself goes to a store that syncs the manifest before it gets its name. A crash leaves the old version or the new one.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use lance_io::object_store::WrappingObjectStore;
use object_store::list::PaginatedListStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, Result,
};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tokio::task::JoinHandle;

use crate::manifests::VERSIONS;

/// Writes that are over sooner have no early sync.
const EARLY_SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// Lance's note of the newest version. It may be absent, old or torn: then the folder is listed, as it always is here.
const VERSION_HINT: &str = "latest_version_hint.json";

/// What the wrapped stores of all datasets of a catalog share.
#[derive(Debug)]
pub(crate) struct Durability {
    writer: LocalFileSystem,
    /// What is below goes with its session: nothing of it is synced.
    temporary: PathBuf,
    /// Files are written once and never changed, so a file that was synced stays so.
    synced: Mutex<HashSet<PathBuf>>,
    num_commits: AtomicU64,
    /// By dataset: held while a version is put, which goes on when the statement that waits for it is cancelled.
    in_flight: Mutex<HashMap<DatasetKey, Arc<RwLock<()>>>>,
}

/// The folders of schema and table, which the paths of the catalog and of Lance end with.
type DatasetKey = (OsString, OsString);

fn key_of(dataset: &FilePath) -> DatasetKey {
    let name = |path: Option<&FilePath>| path.and_then(FilePath::file_name).unwrap_or_default().to_owned();
    (name(dataset.parent()), name(Some(dataset)))
}

impl Durability {
    pub(crate) fn new(temporary: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            writer: LocalFileSystem::new().with_fsync(true),
            temporary,
            synced: Mutex::default(),
            num_commits: AtomicU64::new(0),
            in_flight: Mutex::default(),
        })
    }

    /// Waits until every version of a dataset that is being put is there, or has failed.
    pub(crate) async fn settled(&self, dataset: &FilePath) {
        let puts = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).get(&key_of(dataset)).cloned();
        if let Some(puts) = puts {
            drop(puts.write().await);
        }
    }

    /// Held while something is put; `None`: it is no version.
    async fn put_guard(&self, location: &Path) -> Result<Option<OwnedRwLockReadGuard<()>>> {
        let path = self.writer.path_to_filesystem(location)?;
        let versions = path.parent().filter(|parent| parent.ends_with(VERSIONS));
        let Some(dataset) = versions.and_then(FilePath::parent) else { return Ok(None) };
        let puts = Arc::clone(self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).entry(key_of(dataset)).or_default());
        Ok(Some(puts.read_owned().await))
    }

    /// Versions published through this wrapper.
    #[cfg(test)]
    pub(crate) fn num_commits(&self) -> u64 {
        self.num_commits.load(Ordering::Relaxed)
    }

    /// Files synced ahead of a manifest.
    #[cfg(test)]
    pub(crate) fn num_files_synced(&self) -> usize {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Forgets the files of a dataset that is gone.
    pub(crate) fn forget(&self, directory: &FilePath) {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner).retain(|file| !file.starts_with(directory));
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).remove(&key_of(directory));
    }

    /// Forgets the datasets of a schema that is gone.
    pub(crate) fn forget_schema(&self, directory: &FilePath) {
        let folder = directory.file_name().unwrap_or_default();
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).retain(|(schema, _), _| schema != folder);
    }

    fn is_temporary(&self, location: &Path) -> Result<bool> {
        Ok(self.writer.path_to_filesystem(location)?.starts_with(&self.temporary))
    }

    fn sync_dataset(&self, dataset: &FilePath) -> io::Result<()> {
        self.sync_folder(dataset)?;
        self.num_commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Syncs new files below `folder`, then the folder itself when one of its entries was new. Files that vanish meanwhile are temporary ones of
    /// [`write_durably`], which syncs by itself.
    fn sync_folder(&self, folder: &FilePath) -> io::Result<()> {
        let mut news = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            let is_directory = match entry.file_type() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                kind => kind?.is_dir(),
            };
            if is_directory && entry.file_name() != VERSIONS {
                unless_gone(self.sync_folder(&path))?;
            }
            if self.is_synced(&path) {
                continue;
            }
            if !is_directory && unless_gone(File::open(&path).and_then(|file| file.sync_all()))?.is_none() {
                continue;
            }
            news.push(path);
        }
        if !news.is_empty() {
            sync_directory(folder)?;
            // Not before: another commit, which finds them here, may be acknowledged at once.
            self.synced.lock().unwrap_or_else(PoisonError::into_inner).extend(news);
        }
        Ok(())
    }

    fn is_synced(&self, path: &FilePath) -> bool {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner).contains(path)
    }
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Makes a directory and those above it that are missing, so that a crash does not take them back.
pub(crate) fn create_directory(directory: &FilePath) -> io::Result<()> {
    let missing: Vec<&FilePath> = directory.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
    std::fs::create_dir_all(directory)?;
    for created in missing {
        match created.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => sync_directory(parent)?,
            None => sync_directory(FilePath::new("."))?,
        }
    }
    Ok(())
}

/// Keeps the disk at work while a long write goes on, so that little is left for the sync before its commit; ends when it is dropped.
pub(crate) struct EarlySync(JoinHandle<()>);

impl EarlySync {
    /// Of the files directly in `folder`, which need not exist yet.
    pub(crate) fn of(folder: PathBuf) -> Self {
        Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(EARLY_SYNC_INTERVAL).await;
                let folder = folder.clone();
                let _ = tokio::task::spawn_blocking(move || sync_files(&folder)).await;
            }
        }))
    }
}

impl Drop for EarlySync {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Errors are left to the sync that counts.
fn sync_files(folder: &FilePath) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let _ = File::open(entry.path()).and_then(|file| file.sync_data());
    }
}

/// Makes the entries of a directory durable: creations, renames and removals in it.
pub(crate) fn sync_directory(directory: &FilePath) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Puts a file in place at once: after a crash it is the old one or the new one, whole.
pub(crate) fn write_durably(path: &FilePath, bytes: &[u8]) -> crate::Result<()> {
    let failed = |source| crate::Error::io(path, source);
    let directory = path.parent().ok_or_else(|| failed(io::Error::other("it has no folder")))?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let temporary = directory.join(format!(".tmp-{name}"));
    let write = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        sync_directory(directory)
    };
    write().map_err(failed)
}

/// The wrapper that Lance calls: `wrap` has no way to share its own `self`, so it hands on the part inside.
#[derive(Debug)]
pub(crate) struct DurableStores(pub(crate) Arc<Durability>);

impl WrappingObjectStore for DurableStores {
    fn wrap(&self, _store_prefix: &str, original: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(DurableStore { reader: original, durability: self.0.clone() })
    }

    fn wrap_paginated(&self, _store_prefix: &str, original: Arc<dyn PaginatedListStore>) -> Option<Arc<dyn PaginatedListStore>> {
        Some(original)
    }
}

#[derive(Debug)]
struct DurableStore {
    reader: Arc<dyn ObjectStore>,
    durability: Arc<Durability>,
}

impl Durability {
    /// Before a manifest `<dataset>/_versions/<name>` is put: everything that it refers to.
    async fn before_put(self: &Arc<Self>, location: &Path) -> Result<()> {
        let path = self.writer.path_to_filesystem(location)?;
        let Some(versions) = path.parent().filter(|parent| parent.ends_with(VERSIONS)) else { return Ok(()) };
        let Some(dataset) = versions.parent().map(FilePath::to_owned) else { return Ok(()) };
        if !dataset.exists() {
            return Ok(());
        }
        let durability = Arc::clone(self);
        let synced = tokio::task::spawn_blocking(move || durability.sync_dataset(&dataset)).await;
        match synced {
            Ok(result) => result.map_err(failed),
            Err(error) => Err(failed(error)),
        }
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
    object_store::Error::Generic { store: "durable", source: Box::new(error) }
}

impl std::fmt::Display for DurableStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "durable {}", self.reader)
    }
}

#[async_trait]
impl ObjectStore for DurableStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if location.filename() == Some(VERSION_HINT) {
            return self.reader.put_opts(location, payload, options).await;
        }
        let (durability, reader, location) = (Arc::clone(&self.durability), Arc::clone(&self.reader), location.clone());
        let in_flight = durability.put_guard(&location).await?;
        // A task of its own: a put that is given up half-way may be there later all the same.
        let put = tokio::spawn(async move {
            let _in_flight = in_flight;
            if durability.is_temporary(&location)? {
                return reader.put_opts(&location, payload, options).await;
            }
            durability.before_put(&location).await?;
            durability.writer.put_opts(&location, payload, options).await
        });
        put.await.map_err(failed)?
    }

    async fn put_multipart_opts(&self, location: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.durability.writer.put_multipart_opts(location, options).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.durability.writer.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.durability.writer.rename_opts(from, to, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.reader.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.reader.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.reader.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.reader.list_with_delimiter(prefix).await
    }
}
