//! What all statements share about a schema and about one table.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::{Duration, SystemTime};

use datafusion::catalog::TableProvider;
use lance::Dataset;
use tokio::sync::{Mutex, MutexGuard};

use crate::backfill::Running;
use crate::constraint::StoredKeys;
use crate::identity::Counters;
use crate::manifests::VERSIONS;
use crate::names::nearest;
use crate::resident::{Heat, ResidentTable};
use crate::storage::Storage;
use crate::{Error, Result, View};

/// The tables of one schema.
#[derive(Debug)]
pub(crate) struct SchemaState {
    pub(crate) name: String,
    pub(crate) storage: Arc<Storage>,
    tables: RwLock<BTreeMap<String, Arc<TableState>>>,
    virtual_tables: RwLock<BTreeMap<String, Arc<dyn TableProvider>>>,
    /// CREATE INDEX looks at all tables of the schema, because a name is unique in it; one at a time.
    pub(crate) index_ddl: Mutex<()>,
}

impl SchemaState {
    pub(crate) fn open(name: &str, storage: &Arc<Storage>) -> Result<Arc<Self>> {
        let mut tables = BTreeMap::new();
        for table in storage.tables(name)? {
            let directory = storage.table_directory(name, &table)?;
            tables.insert(table.clone(), Arc::new(TableState::new(&table, directory)));
        }
        let mut virtual_tables: BTreeMap<String, Arc<dyn TableProvider>> = BTreeMap::new();
        for (view, path) in storage.views(name)? {
            match View::read(&view, &path) {
                Ok(read) => drop(virtual_tables.insert(view, Arc::new(read))),
                Err(Error::Damaged { reason, .. }) => storage.set_view_aside(name, &view, &path, &reason)?,
                Err(error) => return Err(error),
            }
        }
        Ok(Arc::new(Self {
            name: name.to_owned(),
            storage: storage.clone(),
            tables: RwLock::new(tables),
            virtual_tables: RwLock::new(virtual_tables),
            index_ddl: Mutex::default(),
        }))
    }

    pub(crate) fn tables(&self) -> RwLockReadGuard<'_, BTreeMap<String, Arc<TableState>>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tables_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Arc<TableState>>> {
        let tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        self.storage.names_change();
        tables
    }

    pub(crate) fn virtual_table(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        self.virtual_tables.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn set_virtual_table(&self, name: &str, table: Arc<dyn TableProvider>) {
        self.virtual_tables_mut().insert(name.to_owned(), table);
    }

    pub(crate) fn remove_virtual_table(&self, name: &str) {
        self.virtual_tables_mut().remove(name);
    }

    fn virtual_tables_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Arc<dyn TableProvider>>> {
        let virtual_tables = self.virtual_tables.write().unwrap_or_else(PoisonError::into_inner);
        self.storage.names_change();
        virtual_tables
    }

    /// Stored and virtual tables, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.tables().keys().cloned().collect();
        names.extend(self.virtual_tables.read().unwrap_or_else(PoisonError::into_inner).keys().cloned());
        names.sort();
        names.dedup();
        names
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.tables().contains_key(name) || self.virtual_table(name).is_some()
    }

    pub(crate) fn find(&self, name: &str) -> Result<Arc<TableState>> {
        self.tables().get(name).cloned().ok_or_else(|| self.unknown_table(name))
    }

    pub(crate) fn unknown_table(&self, name: &str) -> Error {
        Error::UnknownTable { name: name.to_owned(), known: nearest(name, self.names()) }
    }
}

/// The newest version of a table, as far as it is known.
#[derive(Default)]
struct Latest {
    dataset: Option<Arc<Dataset>>,
    /// When the folder of versions had last changed as it was looked through: while it has not changed since, there is no later version.
    unchanged_since: Option<SystemTime>,
}

/// The clock of a file system ticks every few milliseconds: a change within the same tick as another is not seen.
const CLOCK_TICK: Duration = Duration::from_millis(100);

/// One table: where it is, its newest known version, and the right to write it.
pub(crate) struct TableState {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    latest: Mutex<Latest>,
    /// The versions that statements have open.
    open: std::sync::Mutex<Vec<Weak<Dataset>>>,
    /// The newest version when old ones were last looked for in this process.
    pub(crate) last_removal: AtomicU64,
    /// Held for reading by statements that write rows, and alone by those that change the columns or the name, or drop the table: these wait for
    /// rows that are still computed, as in PostgreSQL. Taken before `writer`.
    pub(crate) definition: tokio::sync::RwLock<()>,
    /// The right to write: commits of one table queue here instead of conflicting.
    pub(crate) writer: Mutex<StoredKeys>,
    dropped: AtomicBool,
    /// Its rows in memory, when it is searched often.
    pub(crate) resident: Arc<tokio::sync::RwLock<ResidentTable>>,
    pub(crate) heat: Heat,
    /// Held while files of graphs are written or removed.
    pub(crate) graph_files: Mutex<()>,
    /// Of the columns that the table numbers; read when first needed.
    pub(crate) counters: std::sync::Mutex<Option<Counters>>,
    /// Held while a column is filled, which lets other writers through.
    pub(crate) backfill: Arc<Mutex<()>>,
    pub(crate) running_backfill: std::sync::Mutex<Weak<Running>>,
    /// Held by the statement whose unfinished work lies in the folder.
    pub(crate) unfinished: Arc<Mutex<()>>,
}

impl fmt::Debug for TableState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableState({})", self.directory.display())
    }
}

impl TableState {
    pub(crate) fn new(name: &str, directory: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            directory,
            latest: Mutex::default(),
            open: std::sync::Mutex::default(),
            last_removal: AtomicU64::new(0),
            definition: tokio::sync::RwLock::default(),
            writer: Mutex::default(),
            dropped: AtomicBool::new(false),
            resident: Arc::default(),
            heat: Heat::default(),
            graph_files: Mutex::default(),
            counters: std::sync::Mutex::default(),
            backfill: Arc::default(),
            running_backfill: std::sync::Mutex::default(),
            unfinished: Arc::default(),
        }
    }

    /// The newest version. Another program may write to the dataset too, so that the folder of versions is looked at every time.
    pub(crate) async fn snapshot(&self, storage: &Storage) -> Result<Arc<Dataset>> {
        let mut latest = self.latest.lock().await;
        self.check_exists()?;
        let now = SystemTime::now();
        let changed = std::fs::metadata(self.directory.join(VERSIONS)).and_then(|folder| folder.modified()).ok();
        if let Some(known) = latest.dataset.as_ref().filter(|_| changed.is_some() && latest.unchanged_since == changed) {
            return Ok(known.clone());
        }
        let dataset = match latest.dataset.as_ref() {
            None => Arc::new(storage.open_dataset(&self.name, &self.directory).await?),
            Some(known) if self.is_newest(known).await? => known.clone(),
            Some(_) => Arc::new(storage.open_dataset(&self.name, &self.directory).await?),
        };
        let is_settled = |changed: &SystemTime| now.duration_since(*changed).is_ok_and(|age| age > CLOCK_TICK);
        *latest = Latest { dataset: Some(dataset.clone()), unchanged_since: changed.filter(is_settled) };
        Ok(dataset)
    }

    /// A statement has this version open until it lets go of it.
    pub(crate) fn opened(&self, dataset: &Arc<Dataset>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|known| known.strong_count() > 0);
        if !open.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(dataset))) {
            open.push(Arc::downgrade(dataset));
        }
    }

    pub(crate) fn versions_in_use(&self) -> HashSet<u64> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().filter_map(Weak::upgrade).map(|dataset| dataset.version().version).collect()
    }

    async fn is_newest(&self, known: &Dataset) -> Result<bool> {
        let newest = known.latest_version_id().await.map_err(|source| Error::storage(&self.name, source))?;
        Ok(newest == known.version().version)
    }

    /// Publishes the version that a write of ours made.
    pub(crate) async fn publish(&self, dataset: Arc<Dataset>) {
        *self.latest.lock().await = Latest { dataset: Some(dataset), unchanged_since: None };
    }

    /// The right to write. Commits of statements that were cancelled while they were being written are through then, and seen by [`Self::snapshot`].
    pub(crate) async fn lock_writer(&self, storage: &Storage) -> MutexGuard<'_, StoredKeys> {
        let keys = self.writer.lock().await;
        storage.commits_settled(&self.directory).await;
        keys
    }

    /// Gives the memory of its rows back; false while they are being searched.
    pub(crate) fn drop_resident(&self) -> bool {
        let resident = self.resident.try_write();
        resident.map(|mut resident| *resident = ResidentTable::default()).is_ok()
    }

    /// Held against back-fills of columns: what these have done stays in the table's folder.
    ///
    /// # Errors
    /// [`Error::InUse`] while one runs.
    pub(crate) async fn refuse_backfill(&self) -> Result<MutexGuard<'_, ()>> {
        if self.running_backfill.lock().unwrap_or_else(PoisonError::into_inner).upgrade().is_some() {
            let reason = format!("a column of table \"{}\" is being filled; cancel that first, see rollout.backfills", self.name);
            return Err(Error::InUse(reason));
        }
        // Else it is OPTIMIZE that has it, and soon ends.
        Ok(self.backfill.lock().await)
    }

    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    pub(crate) fn check_exists(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::UnknownTable { name: self.name.clone(), known: Vec::new() });
        }
        Ok(())
    }
}
