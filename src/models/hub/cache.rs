//! The files of hubs that are kept: `<folder>/<open or keyed>/<endpoint>/<organisation>/<name>/<commit>/`.
//!
//! A file has its name when it is whole and was checked; before, it ends in `.part`. What came with a token is apart from what anybody may have, since who
//! asks without one must not find it here. A commit's folder is one statement's at a time.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as FolderMutex, OwnedMutexGuard};

use super::part::on_disk;
use super::repository::Repository;
use crate::error::{Error, Result};

/// Folders between the cache and the files of a commit.
const DEPTH: usize = 5;

/// The files of hubs in a data directory.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    folders: Mutex<HashMap<PathBuf, Weak<FolderMutex<()>>>>,
}

/// The folder of a commit, which others wait for until the last clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub folder: PathBuf,
    _mine: Arc<OwnedMutexGuard<()>>,
}

/// What [`super::Hub::remove_unused`] has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub files: u64,
    pub bytes: u64,
}

impl Cache {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), folders: Mutex::default() }
    }

    /// Waits for the folder of a commit, and makes it if it is not there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub async fn open(&self, repository: &Repository, commit: &str, is_keyed: bool) -> Result<Kept> {
        let (options, kind) = (repository.options(), if is_keyed { "keyed" } else { "open" });
        let endpoint = folder_name(repository.endpoint());
        let folder =
            [kind, &endpoint, &options.organisation, &options.name, commit].iter().fold(self.folder.clone(), |path, name| path.join(name));
        let mutex = self.mutex(&folder);
        let kept = Kept { folder, _mine: Arc::new(mutex.lock_owned().await) };
        let path = kept.folder.clone();
        on_disk(move || std::fs::create_dir_all(&path).map_err(|source| Error::Io { path, source })).await?;
        Ok(kept)
    }

    /// As [`super::Hub::remove_unused`].
    pub fn remove_unused(&self, older_than: Duration) -> Result<Removed> {
        let mut folders = vec![self.folder.clone()];
        for _ in 0..DEPTH {
            folders = folders.iter().map(|folder| entries(folder)).collect::<Result<Vec<_>>>()?.concat();
        }
        let mut removed = Removed::default();
        for folder in folders {
            // A statement is at work in it otherwise.
            let Ok(_mine) = self.mutex(&folder).try_lock_owned() else { continue };
            clean(&folder, older_than, &mut removed)?;
        }
        Ok(removed)
    }

    fn mutex(&self, folder: &Path) -> Arc<FolderMutex<()>> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = folders.get(folder).and_then(Weak::upgrade) {
            return known;
        }
        folders.retain(|_, mutex| mutex.strong_count() > 0);
        let mutex = Arc::new(FolderMutex::new(()));
        folders.insert(folder.to_owned(), Arc::downgrade(&mutex));
        mutex
    }
}

/// A text as the name of a folder; two texts never have one.
fn folder_name(text: &str) -> String {
    let byte = |byte: u8| {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        if is_plain { char::from(byte).to_string() } else { format!("_{byte:02x}") }
    };
    text.trim_end_matches('/').bytes().map(byte).collect()
}

/// Removes the old files of a folder and of those in it that no model has too, and the folders that are empty then.
fn clean(folder: &Path, older_than: Duration, removed: &mut Removed) -> Result<()> {
    for path in entries(folder)? {
        let io = |source| Error::Io { path: path.clone(), source };
        let metadata = std::fs::symlink_metadata(&path).map_err(io)?;
        if metadata.is_dir() {
            clean(&path, older_than, removed)?;
        } else if is_unused(&metadata, older_than) {
            std::fs::remove_file(&path).map_err(io)?;
            removed.files += 1;
            removed.bytes += metadata.len();
        }
    }
    // Fails while something is in it.
    let _ = std::fs::remove_dir(folder);
    Ok(())
}

fn is_unused(metadata: &Metadata, older_than: Duration) -> bool {
    let age = metadata.modified().ok().and_then(|modified| modified.elapsed().ok()).unwrap_or_default();
    metadata.nlink() == 1 && age >= older_than
}

/// Paths in a folder; none if it is not there.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |source| Error::Io { path: folder.to_owned(), source };
    match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>().map_err(io),
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(source) => Err(io(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_two_endpoints_are_two() {
        assert_eq!(folder_name("https://huggingface.co/"), "https_3a_2f_2fhuggingface.co");
        let names = ["http://a:80", "http://a_80", "http://a/80", "http://a.80", "http://a-80"].map(folder_name);
        assert!(names.iter().all(|name| super::super::names::is_name(name)), "{names:?}");
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn what_is_old_and_in_no_model_is_removed() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let cache = Cache::new(&home.path().join("hub"));
        assert_eq!(cache.remove_unused(Duration::ZERO).expect("there is nothing"), Removed::default());
        let commit = |name: &str| home.path().join("hub/open/host/org/model").join(name);
        for name in ["first", "second"] {
            std::fs::create_dir_all(commit(name).join("1_Pooling")).expect("folders");
            for file in ["config.json", "1_Pooling/config.json", "model.safetensors.part"] {
                std::fs::write(commit(name).join(file), "abc").expect("a file");
            }
        }
        std::fs::hard_link(commit("first").join("config.json"), home.path().join("config.json")).expect("a model has it");
        assert_eq!(cache.remove_unused(Duration::from_secs(3600)).expect("all is young"), Removed::default());
        let held = cache.mutex(&commit("second")).try_lock_owned().expect("nobody else");
        assert_eq!(cache.remove_unused(Duration::ZERO).expect("it is removed"), Removed { files: 2, bytes: 6 });
        assert!(commit("first").join("config.json").exists() && !commit("first").join("1_Pooling").exists());
        drop(held);
        assert_eq!(cache.remove_unused(Duration::ZERO).expect("it is removed"), Removed { files: 3, bytes: 9 });
        assert!(!commit("second").exists());
    }
}
