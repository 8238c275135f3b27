//! The data directory: its lock, its folders, and how datasets in it are opened, made and removed.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::{WriteMode, WriteParams};
use lance::session::Session;
use lance_io::object_store::{ObjectStoreParams, ObjectStoreRegistry};

use crate::durability::{Durability, DurableStores, create_directory, sync_directory};
use crate::error::without_location;
use crate::manifests::{SetAside, Warnings, Which, set_torn_aside, skip_numbers, warning};
use crate::names::{from_directory, to_directory};
use crate::register::Register;
use crate::resident::Budget;
use crate::temporary::is_temporary_schema;
use crate::{Error, Result};

const LOCK: &str = "LOCK";
const TABLE_SUFFIX: &str = ".lance";
const VIEW_SUFFIX: &str = ".view";
/// Holds the schemas of sessions. No schema has a folder of this name: see [`to_directory`].
const TEMPORARY_SCHEMAS: &str = ".temporary";
/// Folders that are being made or removed. A crash leaves them; [`Storage::open`] removes them.
const TEMPORARY_PREFIX: &str = ".tmp-";

/// What all tables together may hold in memory beyond the queries that run, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Columns, words and graphs of tables that are searched often.
    pub resident_bytes: usize,
    /// Opened indexes.
    pub index_cache_bytes: usize,
    /// Manifests, and where things are in data files.
    pub metadata_cache_bytes: usize,
}

impl Default for MemoryLimits {
    /// 4 GiB, 1 GiB, 256 MiB.
    fn default() -> Self {
        Self { resident_bytes: 4 << 30, index_cache_bytes: 1 << 30, metadata_cache_bytes: 256 << 20 }
    }
}

/// A data directory that this process owns.
#[derive(Debug)]
pub(crate) struct Storage {
    root: PathBuf,
    /// Of the schemas of sessions.
    temporary: PathBuf,
    session: Arc<Session>,
    store_params: ObjectStoreParams,
    durability: Arc<Durability>,
    budget: Budget,
    warnings: Warnings,
    register: Register,
    num_temporaries: AtomicU64,
    /// Grows with every table, view and schema that is made, renamed or dropped.
    names_epoch: AtomicU64,
    /// Held, not read: closing the file gives the directory back.
    _lock: File,
}

impl Storage {
    /// Takes the directory, making it when it does not exist.
    ///
    /// # Errors
    /// [`Error::Locked`] when another process has it, [`Error::Io`].
    pub(crate) fn open(root: &Path, memory: MemoryLimits) -> Result<Self> {
        create_directory(root).map_err(|source| Error::io(root, source))?;
        let root = root.canonicalize().map_err(|source| Error::io(root, source))?;
        let lock = lock(&root)?;
        let warnings = Warnings::default();
        let register = Register::open(&root, &warnings)?;
        let temporary = root.join(TEMPORARY_SCHEMAS);
        remove_left_schemas(&temporary)?;
        register.forget_temporary();
        let durability = Durability::new(temporary.clone());
        let store_params =
            ObjectStoreParams { object_store_wrapper: Some(Arc::new(DurableStores(durability.clone()))), ..Default::default() };
        let registry = Arc::new(ObjectStoreRegistry::default());
        let session = Arc::new(Session::new(memory.index_cache_bytes, memory.metadata_cache_bytes, registry));
        Ok(Self {
            root,
            temporary,
            session,
            store_params,
            durability,
            budget: Budget::new(memory.resident_bytes),
            warnings,
            register,
            num_temporaries: AtomicU64::new(0),
            names_epoch: AtomicU64::new(0),
            _lock: lock,
        })
    }

    pub(crate) fn names_epoch(&self) -> u64 {
        self.names_epoch.load(Ordering::Acquire)
    }

    /// Called by whoever holds the lock on the names that change, before they do: who reads the number and then the names misses no change.
    pub(crate) fn names_change(&self) {
        self.names_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Schemas on disk, by name.
    pub(crate) fn schemas(&self) -> Result<Vec<String>> {
        let folders = folders(&self.root)?;
        Ok(folders.iter().filter_map(|(folder, _)| from_directory(folder)).collect())
    }

    /// Makes the folder of a schema; there may be one.
    pub(crate) fn create_schema(&self, schema: &str) -> Result<()> {
        let directory = self.schema_directory(schema)?;
        create_directory(&directory).map_err(|source| Error::io(&directory, source))?;
        self.sync_parent(&directory)
    }

    fn schema_directory(&self, schema: &str) -> Result<PathBuf> {
        let parent = if is_temporary_schema(schema) { &self.temporary } else { &self.root };
        Ok(parent.join(to_directory("schema", schema)?))
    }

    /// Removes the folder of the schema of a session, with all that is in it.
    pub(crate) fn remove_temporary_schema(&self, schema: &str) {
        let Ok(directory) = self.schema_directory(schema) else { return };
        // What can not be removed now is tried again when the directory is opened.
        let _ = fs::remove_dir_all(&directory);
        self.durability.forget_schema(&directory);
    }

    /// Removes the folder of a schema without tables.
    pub(crate) fn remove_schema(&self, schema: &str) -> Result<()> {
        let directory = self.schema_directory(schema)?;
        fs::remove_dir(&directory).map_err(|source| Error::io(&directory, source))?;
        self.sync(&self.root)
    }

    /// Tables of a schema. What a crash left half made has a temporary name and is removed. A table appears under its own by one rename, so
    /// a folder of that name is never removed here; whatever is wrong with it shows when it is opened.
    pub(crate) fn tables(&self, schema: &str) -> Result<Vec<String>> {
        let directory = self.schema_directory(schema)?;
        let mut tables = Vec::new();
        for (folder, path) in folders(&directory)? {
            let table = folder.strip_suffix(TABLE_SUFFIX).and_then(from_directory);
            match table {
                Some(table) => tables.push(table),
                None if folder.starts_with(TEMPORARY_PREFIX) => self.remove_folder(&path)?,
                None => {}
            }
        }
        Ok(tables)
    }

    /// Views of a schema, with their files. A view that a crash left half written goes away.
    pub(crate) fn views(&self, schema: &str) -> Result<Vec<(String, PathBuf)>> {
        let directory = self.schema_directory(schema)?;
        let failed = |source| Error::io(&directory, source);
        let mut views = Vec::new();
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let file = path.file_name().and_then(|name| name.to_str());
            if file.is_some_and(|file| file.starts_with(TEMPORARY_PREFIX) && file.ends_with(VIEW_SUFFIX)) {
                fs::remove_file(&path).map_err(failed)?;
                continue;
            }
            if let Some(name) = file.and_then(|name| name.strip_suffix(VIEW_SUFFIX)).and_then(from_directory) {
                views.push((name, path));
            }
        }
        Ok(views)
    }

    pub(crate) fn view_file(&self, schema: &str, view: &str) -> Result<PathBuf> {
        let file = format!("{}{VIEW_SUFFIX}", to_directory("view", view)?);
        Ok(self.schema_directory(schema)?.join(file))
    }

    pub(crate) fn remove_view(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|source| Error::io(path, source))?;
        self.sync_parent(path)
    }

    /// Gives the folder of a table another name, in one step.
    pub(crate) fn rename_table(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|source| Error::io(from, source))?;
        self.durability.forget(from);
        self.sync_parent(to)
    }

    pub(crate) fn table_directory(&self, schema: &str, table: &str) -> Result<PathBuf> {
        let folder = format!("{}{TABLE_SUFFIX}", to_directory("table", table)?);
        Ok(self.schema_directory(schema)?.join(folder))
    }

    /// A folder beside the tables that no listing shows and that goes away when the guard is dropped.
    pub(crate) fn temporary(self: &Arc<Self>, schema: &str) -> Result<Temporary> {
        let number = self.num_temporaries.fetch_add(1, Ordering::Relaxed);
        let folder = format!("{TEMPORARY_PREFIX}{}-{number}{TABLE_SUFFIX}", std::process::id());
        let path = self.schema_directory(schema)?.join(folder);
        Ok(Temporary { path: Some(path), storage: self.clone() })
    }

    /// The newest version of a table that is whole. A newer one whose manifest is torn is set aside, with a warning.
    ///
    /// # Errors
    /// [`Error::Damaged`] when no version can be read, [`Error::Io`], [`Error::Storage`].
    pub(crate) async fn open_dataset(&self, table: &str, directory: &Path) -> Result<Dataset> {
        let Some(SetAside { newest, highest, .. }) = self.set_torn_aside(table, directory, Which::Newest)? else {
            return self.load(table, directory).await;
        };
        let dataset = self.load(table, directory).await?;
        if highest <= newest {
            return Ok(dataset);
        }
        match skip_numbers(table, &dataset, highest).await {
            Ok(()) => self.load(table, directory).await,
            // The rows can be read all the same; opening the table again tries again.
            Err(error) => {
                self.warnings.push(format!("table \"{table}\": the number of a lost version could not be taken out of use: {error}"));
                Ok(dataset)
            }
        }
    }

    /// Gives torn manifests of a table another name, with a warning for each. `None`: it has no whole one.
    pub(crate) fn set_torn_aside(&self, table: &str, directory: &Path, which: Which) -> Result<Option<SetAside>> {
        let found = set_torn_aside(directory, which).map_err(|source| Error::io(directory, source))?;
        if let Some(SetAside { torn, newest, .. }) = &found {
            torn.iter().for_each(|(torn, fault)| self.warnings.push(warning(table, torn, fault, *newest)));
        }
        Ok(found)
    }

    async fn load(&self, table: &str, directory: &Path) -> Result<Dataset> {
        DatasetBuilder::from_uri(uri(directory)?)
            .with_session(self.session.clone())
            .with_store_params(self.store_params.clone())
            .load()
            .await
            .map_err(|source| opening_failed(table, source))
    }

    /// To write files in the format that those of a dataset have.
    pub(crate) fn write_params_for(&self, dataset: &Dataset) -> WriteParams {
        let version = dataset.manifest().data_storage_format.lance_file_format();
        WriteParams { data_storage_version: Some(version.to_selector()), ..self.write_params(WriteMode::Append) }
    }

    pub(crate) fn write_params(&self, mode: WriteMode) -> WriteParams {
        WriteParams { mode, store_params: Some(self.store_params.clone()), session: Some(self.session.clone()), ..Default::default() }
    }

    /// Removes the folder of a table: it loses its name first, so that a crash does not leave half a table.
    pub(crate) fn remove_table(self: &Arc<Self>, schema: &str, directory: &Path) -> Result<()> {
        let grave = self.temporary(schema)?;
        let path = grave.path.clone().expect("a new guard has its path");
        fs::rename(directory, &path).map_err(|source| Error::io(directory, source))?;
        self.sync_parent(&path)?;
        self.durability.forget(directory);
        drop(grave);
        Ok(())
    }

    pub(crate) fn register(&self) -> &Register {
        &self.register
    }

    /// What the next client shall be told.
    pub(crate) fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    /// Gives the file of a view that can not be read another name, with a warning: the other tables of the schema are whole.
    pub(crate) fn set_view_aside(&self, schema: &str, view: &str, path: &Path, reason: &str) -> Result<()> {
        let aside = path.with_extension("view.torn");
        fs::rename(path, &aside).map_err(|source| Error::io(path, source))?;
        self.warnings.push(format!("view \"{schema}.{view}\" is lost: {reason}; the file is kept as {}", aside.display()));
        self.sync_parent(path)
    }

    /// Gives the folder of a table a name that no listing shows, so that another can be made in its place. Returns where it is.
    pub(crate) fn set_folder_aside(&self, directory: &Path) -> Result<PathBuf> {
        let mut number = 0;
        let aside = loop {
            let candidate = directory.with_extension(format!("lance.torn{number}"));
            if !candidate.exists() {
                break candidate;
            }
            number += 1;
        };
        fs::rename(directory, &aside).map_err(|source| Error::io(directory, source))?;
        self.durability.forget(directory);
        self.sync_parent(directory)?;
        Ok(aside)
    }

    /// What tables in memory may take.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Waits until no version of the table in `directory` is being put.
    pub(crate) async fn commits_settled(&self, directory: &Path) {
        self.durability.settled(directory).await;
    }

    #[cfg(test)]
    pub(crate) fn durability(&self) -> &Durability {
        &self.durability
    }

    /// Removes a folder after making sure that it is `<root>/<schema>/<folder>`, or the same below the folder of the schemas of sessions, and no link.
    fn remove_folder(&self, path: &Path) -> Result<()> {
        let inside = path.parent().and_then(Path::parent).is_some_and(|schemas| schemas == self.root || schemas == self.temporary);
        if !inside || path.is_symlink() {
            return Err(Error::io(path, io::Error::other("not removed: it is outside of the data directory")));
        }
        fs::remove_dir_all(path).map_err(|source| Error::io(path, source))
    }

    /// What goes with its session needs no sync.
    fn sync(&self, directory: &Path) -> Result<()> {
        if directory.starts_with(&self.temporary) {
            return Ok(());
        }
        sync_directory(directory).map_err(|source| Error::io(directory, source))
    }

    fn sync_parent(&self, path: &Path) -> Result<()> {
        path.parent().map_or(Ok(()), |parent| self.sync(parent))
    }
}

/// A folder that is removed on drop unless it got its name.
#[derive(Debug)]
pub(crate) struct Temporary {
    path: Option<PathBuf>,
    storage: Arc<Storage>,
}

impl Temporary {
    pub(crate) fn uri(&self) -> Result<String> {
        uri(self.path())
    }

    pub(crate) fn path(&self) -> &Path {
        self.path.as_deref().expect("only `rename` and `remove` take the path, and they take the guard too")
    }

    /// Removes a folder that no version was written in, so that nothing is known of its files.
    pub(crate) fn remove(mut self) {
        if let Some(path) = self.path.take() {
            // What can not be removed now is tried again when the directory is opened, as below.
            let _ = self.storage.remove_folder(&path);
        }
    }

    /// Gives the folder its name in one step; nothing can be half visible.
    ///
    /// # Errors
    /// [`Error::DuplicateTable`] when `target` exists.
    pub(crate) fn rename(mut self, table: &str, target: &Path) -> Result<()> {
        if let Some(path) = &self.path {
            // Rename would silently replace an empty folder.
            if target.exists() {
                return Err(Error::DuplicateTable { name: table.to_owned() });
            }
            fs::rename(path, target).map_err(|source| Error::io(target, source))?;
            self.storage.durability.forget(path);
            self.path = None;
        }
        self.storage.sync_parent(target)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && path.exists()
        {
            // What can not be removed now stays invisible and is tried again when the directory is opened.
            let _ = self.storage.remove_folder(path);
            self.storage.durability.forget(path);
        }
    }
}

/// The folder had a manifest when it was listed. So unless the system refused to read (permissions, the disk), what is
/// there is not what was written.
fn opening_failed(table: &str, source: lance::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&source);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() != io::ErrorKind::NotFound) {
            return Error::storage(table, source);
        }
        cause = error.source();
    }
    Error::Damaged { table: table.to_owned(), reason: without_location(&source) }
}

/// Removes the schemas of sessions that a process which was killed has left.
fn remove_left_schemas(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::io(directory, source)),
        _ => Ok(()),
    }
}

/// The file is left behind, with the number of the process that had it last: it is the lock on it that counts, and the system takes that back from a
/// process that dies.
fn lock(root: &Path) -> Result<File> {
    let path = root.join(LOCK);
    let failed = |source| Error::io(&path, source);
    let mut file = File::options().create(true).truncate(false).read(true).write(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let process = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
            return Err(Error::Locked { directory: root.to_owned(), process });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    // Only for the message: a disk without room for it is no reason to stay closed.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Folders of `directory` by name; files and links are not ours.
fn folders(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let failed = |source| Error::io(directory, source);
    let mut folders = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            folders.push((name, entry.path()));
        }
    }
    folders.sort();
    Ok(folders)
}

/// Lance takes a plain path as it is, without percent decoding, so spaces and signs in the root are safe.
fn uri(directory: &Path) -> Result<String> {
    let text = directory.to_str();
    let not_utf8 = || Error::io(directory, io::Error::other("the path is not UTF-8"));
    text.map(str::to_owned).ok_or_else(not_utf8)
}
