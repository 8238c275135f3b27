//! When the rows of a table come into memory, and who waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::logical_expr::Expr;
use tokio::sync::OwnedRwLockWriteGuard;

use super::{Resident, ResidentTable};
use crate::index::TextIndex;
use crate::search::TextQuery;
use crate::search::ranking::Hit;
use crate::{Error, Result, Table};

/// Searches after which a table becomes resident: a table that is asked once or twice is read from disk.
const HOT_SEARCHES: usize = 8;
/// A file's columns in memory, in bytes per byte on disk: texts are stored plainly, numbers a little packed.
const GROWTH: u64 = 2;

/// Counts the searches of a table.
#[derive(Debug, Default)]
pub(crate) struct Heat(AtomicUsize);

impl Heat {
    /// As after many searches.
    pub(crate) fn raise(&self) {
        self.0.fetch_max(HOT_SEARCHES, Ordering::Relaxed);
    }

    /// As before the first search.
    pub(crate) fn cool(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether there were enough, with these.
    fn add(&self, searches: usize) -> bool {
        self.0.fetch_add(searches, Ordering::Relaxed) + searches > HOT_SEARCHES
    }
}

impl Table {
    /// The resident rows of this version with `columns`; `None` when the table is not searched often enough, does not fit into memory, or has moved on
    /// to a later version.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) async fn resident(&self, columns: &[&str], num_searches: usize) -> Result<Option<Resident>> {
        if !self.state.heat.add(num_searches) {
            return Ok(None);
        }
        let lock = Arc::clone(&self.state.resident);
        let read = Arc::clone(&lock).read_owned().await;
        if read.version > Some(self.version()) {
            return Ok(None);
        }
        if read.has(self, columns) {
            return Ok(Some(read));
        }
        drop(read);
        let mut write = lock.write_owned().await;
        if write.version > Some(self.version()) {
            return Ok(None);
        }
        if !self.fits_into_memory() {
            *write = ResidentTable::default();
            return Ok(None);
        }
        write.follow(self).await?;
        if !write.can_load(self, columns) {
            *write = ResidentTable::default();
            write.follow(self).await?;
        }
        write.load(self, columns).await?;
        self.note_memory(&write);
        Ok(Some(write.downgrade()))
    }

    pub(in crate::resident) fn note_memory(&self, resident: &ResidentTable) {
        self.schema_state.storage.budget().note(&self.state, resident.memory_bytes());
    }

    fn fits_into_memory(&self) -> bool {
        self.schema_state.storage.budget().make_room(&self.state, self.expected_bytes())
    }

    fn expected_bytes(&self) -> usize {
        let files = self.dataset.fragments().iter().flat_map(|fragment| &fragment.files);
        let bytes: u64 = files.map(|file| file.file_size_bytes.get().map_or(0, u64::from)).sum();
        usize::try_from(bytes.saturating_mul(GROWTH)).unwrap_or(usize::MAX)
    }

    /// As [`Self::resident`], with the words of a text column.
    pub(crate) async fn resident_words(&self, index: &TextIndex, columns: &[&str], num_searches: usize) -> Result<Option<Resident>> {
        let Some(resident) = self.resident(columns, num_searches).await? else { return Ok(None) };
        if resident.has_words(index) {
            return Ok(Some(resident));
        }
        drop(resident);
        let mut write = Arc::clone(&self.state.resident).write_owned().await;
        if !write.has(self, columns) {
            return Ok(None);
        }
        let table = self.clone();
        let index = index.clone();
        // Splitting texts is work for a thread that may take its time.
        let load = move || {
            write.load_words(&table, &index)?;
            table.note_memory(&write);
            Ok(write.downgrade())
        };
        let read = tokio::task::spawn_blocking(load).await;
        match read {
            Ok(read) => read.map(Some),
            Err(error) => Err(Error::NotReady(format!("the words of table \"{}\" could not be read: {error}", self.name()))),
        }
    }

    /// The resident rows of this version with `columns`, and the rows of each value of the column `key`, if they are there by now. What is missing is read
    /// beside the statement, which Lance answers meanwhile: it waits for nobody, and nothing is dropped for it.
    pub(crate) fn resident_by_now(&self, columns: &[&str], key: Option<&str>) -> Option<Resident> {
        if !self.state.heat.add(1) {
            return None;
        }
        let resident = Arc::clone(&self.state.resident).try_read_owned().ok()?;
        if resident.version > Some(self.version()) {
            return None;
        }
        if resident.has(self, columns) && key.is_none_or(|key| resident.has_keys(self, key)) {
            return Some(resident);
        }
        if resident.version.is_none() && !self.schema_state.storage.budget().has_room(self.expected_bytes()) {
            return None;
        }
        drop(resident);
        let write = Arc::clone(&self.state.resident).try_write_owned().ok()?;
        let (table, key) = (self.clone(), key.map(str::to_owned));
        let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
        tokio::spawn(async move {
            let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
            if table.load_beside(write, &columns, key.as_deref()).await.is_err() {
                // As a column that is too large for one array; it is not tried again at once.
                table.state.heat.cool();
            }
        });
        None
    }

    async fn load_beside(&self, mut resident: OwnedRwLockWriteGuard<ResidentTable>, columns: &[&str], key: Option<&str>) -> Result<()> {
        if !self.fits_into_memory() {
            *resident = ResidentTable::default();
            return Ok(());
        }
        resident.follow(self).await?;
        if !resident.can_load(self, columns) {
            return Ok(());
        }
        resident.load(self, columns).await?;
        if let Some(key) = key {
            resident.load_keys(self, key);
        }
        self.note_memory(&resident);
        Ok(())
    }

    /// As [`ResidentTable::best_texts`], for a version that is not the one in memory: its rows are read for this call alone. `None`: there is no room.
    pub(crate) async fn best_texts_of_version(
        &self,
        index: &TextIndex,
        queries: &[TextQuery],
        k: usize,
        filter: Option<&Expr>,
    ) -> Result<Option<Vec<Vec<Hit>>>> {
        if !self.schema_state.storage.budget().has_room(self.expected_bytes()) {
            return Ok(None);
        }
        let mut rows = ResidentTable::default();
        rows.follow(self).await?;
        rows.load(self, &self.column_names()).await?;
        rows.load_words(self, index)?;
        rows.best_texts(self, index, queries, k, filter).map(Some)
    }
}

/// A table in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInMemory {
    pub version: u64,
    /// Deleted ones too.
    pub num_rows: usize,
    pub bytes: usize,
}

impl Table {
    /// What is in memory of this table; `None`: nothing.
    pub async fn in_memory(&self) -> Option<TableInMemory> {
        let resident = self.state.resident.read().await;
        resident.version.map(|version| TableInMemory { version, num_rows: resident.num_rows, bytes: resident.memory_bytes() })
    }
}
