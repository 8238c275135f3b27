//! Work on a table that is not in it yet: files that a statement keeps beside the rows, for the one that goes on after a cancel or a kill.
//!
//! They lie in `_unfinished` of the table's folder, so that they go with the table and move when it gets another name. What they hold is the
//! statement's affair. TRUNCATE removes them, and VACUUM those that nobody has taken up.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::OwnedMutexGuard;

use crate::state::TableState;
use crate::{Error, Result, Table};

const FOLDER: &str = "_unfinished";

/// The files of a table's unfinished work, in the hands of one statement until this is dropped.
#[derive(Debug)]
pub struct UnfinishedWork {
    folder: PathBuf,
    state: Arc<TableState>,
    _alone: OwnedMutexGuard<()>,
}

impl Table {
    /// Takes up what an earlier statement left, or begins with nothing. Waits for another that has it.
    ///
    /// # Errors
    /// [`Error::UnknownTable`] when the table was dropped, [`Error::Io`].
    pub async fn unfinished_work(&self) -> Result<UnfinishedWork> {
        let alone = Arc::clone(&self.state.unfinished).lock_owned().await;
        // The folder may be another table's by now.
        let _stays = self.state.counters.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.check_exists()?;
        let folder = self.state.directory.join(FOLDER);
        match fs::create_dir(&folder) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => Err(Error::io(&folder, source)),
            _ => Ok(UnfinishedWork { folder, state: Arc::clone(&self.state), _alone: alone }),
        }
    }

    /// Removes the files that have not changed for `keep`. None while a statement has them. The caller is the table's only writer.
    pub(crate) fn remove_unfinished(&self, keep: Duration) -> Result<()> {
        let Ok(_alone) = self.state.unfinished.try_lock() else { return Ok(()) };
        let folder = self.state.directory.join(FOLDER);
        let failed = |source| Error::io(&folder, source);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let changed = entry.metadata().and_then(|metadata| metadata.modified()).map_err(failed)?;
            if keep.is_zero() || SystemTime::now().duration_since(changed).is_ok_and(|age| age >= keep) {
                fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        // Fails, as it should, when there is something in it.
        let _ = fs::remove_dir(&folder);
        Ok(())
    }
}

impl UnfinishedWork {
    /// Where the files are, without folders below it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The work is done: its files go.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(&self) -> Result<()> {
        let _stays = self.state.counters.lock().unwrap_or_else(PoisonError::into_inner);
        // A table that was dropped has taken its folder along.
        if self.state.check_exists().is_err() {
            return Ok(());
        }
        match fs::remove_dir_all(&self.folder) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::io(&self.folder, source)),
            _ => Ok(()),
        }
    }
}
