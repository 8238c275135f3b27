//! The catalog: a data directory of schemas and tables, and the statements that make and remove them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use arrow::array::RecordBatch;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;

use crate::append::write_new;
use crate::lineage;
use crate::names::{nearest, to_directory};
use crate::state::{SchemaState, TableState};
use crate::storage::{MemoryLimits, Storage};
use crate::system::SYSTEM_SCHEMA;
use crate::temporary::is_temporary_schema;
use crate::{Error, ObjectKey, Result, RolloutSchema, Table, TableDefinition, View, system};

/// The schema of unqualified names.
pub(crate) const PUBLIC_SCHEMA: &str = "public";

/// A data directory that this process owns, as schemas of tables. One per process and directory; sessions share it.
#[derive(Debug)]
pub struct Catalog {
    pub(crate) storage: Arc<Storage>,
    pub(crate) schemas: RwLock<BTreeMap<String, RolloutSchema>>,
    /// Schemas of others (`pg_catalog`), in memory only.
    foreign: RwLock<BTreeMap<String, Arc<dyn SchemaProvider>>>,
}

impl Catalog {
    /// Opens the data directory `root`, making it and the schemas `public` and `rollout` when they do not exist.
    /// Folders that a crash left half made or half removed go away.
    ///
    /// # Errors
    /// [`Error::Locked`] when another process (or another catalog of this one) has the directory, [`Error::Io`].
    pub async fn open(root: &Path) -> Result<Arc<Self>> {
        Self::open_with(root, MemoryLimits::default()).await
    }

    /// As [`Self::open`], with other limits of memory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn open_with(root: &Path, memory: MemoryLimits) -> Result<Arc<Self>> {
        let storage = Arc::new(Storage::open(root, memory)?);
        for schema in [PUBLIC_SCHEMA, SYSTEM_SCHEMA] {
            storage.create_schema(schema)?;
        }
        let mut schemas = BTreeMap::new();
        for schema in storage.schemas()? {
            schemas.insert(schema.clone(), RolloutSchema(SchemaState::open(&schema, &storage)?));
        }
        Ok(Arc::new(Self { storage, schemas: RwLock::new(schemas), foreign: RwLock::default() }))
    }

    /// Makes the tables of [`system::tables`] that do not exist yet, and changes those of older versions. One of which no version can be read is set
    /// aside and made anew, with a warning: the database would not open without it, and nobody could drop it.
    ///
    /// # Errors
    /// As [`Self::create_table`].
    pub async fn create_system_tables(&self) -> Result<()> {
        for table in system::tables() {
            let stored = match self.create_table(SYSTEM_SCHEMA, table.name, (table.definition)(), true).await {
                Err(Error::Damaged { reason, .. }) => {
                    let aside = self.set_table_aside(SYSTEM_SCHEMA, table.name)?;
                    self.storage.warnings().push(format!(
                        "table \"{SYSTEM_SCHEMA}.{}\" is damaged ({reason}) and is made anew; what it was is kept in {}",
                        table.name,
                        aside.display()
                    ));
                    self.create_table(SYSTEM_SCHEMA, table.name, (table.definition)(), true).await?
                }
                made => made?,
            };
            // A database opens with a table as it was: its rows are read, and who writes new ones is told.
            if let Err(error) = system::upgrade(table.name, &stored).await {
                self.storage.warnings().push(format!(
                    "table \"{SYSTEM_SCHEMA}.{}\" is of an older version and could not be changed, so that no rows are added to it: {error}",
                    table.name
                ));
            }
        }
        Ok(())
    }

    fn set_table_aside(&self, schema: &str, name: &str) -> Result<PathBuf> {
        let schema = self.rollout_schema(schema)?;
        let state = schema.0.find(name)?;
        let mut tables = schema.0.tables_mut();
        let aside = self.storage.set_folder_aside(&state.directory)?;
        state.mark_dropped();
        tables.remove(name);
        Ok(aside)
    }

    /// What went wrong without stopping anything since the last call, for the person at a client: versions that outside damage took.
    pub fn take_warnings(&self) -> Vec<String> {
        self.storage.warnings().take()
    }

    /// Makes a schema.
    ///
    /// # Errors
    /// [`Error::DuplicateSchema`] unless `if_not_exists`, [`Error::InvalidName`], [`Error::Io`].
    pub fn create_schema(&self, name: &str, if_not_exists: bool) -> Result<()> {
        let mut schemas = self.schemas.write().unwrap_or_else(PoisonError::into_inner);
        self.storage.names_change();
        if schemas.contains_key(name) || self.foreign_schema(name).is_some() {
            let duplicate = Error::DuplicateSchema { name: name.to_owned() };
            return if if_not_exists { Ok(()) } else { Err(duplicate) };
        }
        self.storage.create_schema(name)?;
        schemas.insert(name.to_owned(), RolloutSchema(SchemaState::open(name, &self.storage)?));
        Ok(())
    }

    /// Removes a schema that has no tables.
    ///
    /// # Errors
    /// [`Error::UnknownSchema`], [`Error::StillNeeded`] when it has tables, [`Error::NotSupported`] for the two
    /// schemas that are always there, [`Error::Io`].
    pub fn drop_schema(&self, name: &str) -> Result<()> {
        self.check_droppable(name)?;
        let tables = self.rollout_schema(name)?.table_names();
        if !tables.is_empty() {
            let reason = format!("schema \"{name}\" has tables: {}; drop them first", tables.join(", "));
            return Err(Error::StillNeeded(reason));
        }
        let mut schemas = self.schemas.write().unwrap_or_else(PoisonError::into_inner);
        self.storage.names_change();
        self.storage.remove_schema(name)?;
        schemas.remove(name);
        self.storage.register().forget_schema(name);
        Ok(())
    }

    /// Whether there is a schema of this name that may go.
    ///
    /// # Errors
    /// [`Error::UnknownSchema`], [`Error::NotSupported`] for the two schemas that are always there, and for those of sessions.
    pub fn check_droppable(&self, name: &str) -> Result<()> {
        if is_temporary_schema(name) {
            return Err(Error::NotSupported(format!("schema \"{name}\" goes with its session; DISCARD TEMP drops what is in it")));
        }
        if matches!(name, PUBLIC_SCHEMA | SYSTEM_SCHEMA) {
            return Err(Error::NotSupported(format!("schema \"{name}\" can not be dropped")));
        }
        self.rollout_schema(name).map(|_| ())
    }

    /// Another number as soon as a name may stand for something else: a table, a view or a schema was made, renamed or dropped, or a table has other
    /// columns.
    #[must_use]
    pub fn names_epoch(&self) -> u64 {
        self.storage.names_epoch()
    }

    /// Called after the columns of a table may have changed.
    pub fn columns_changed(&self) {
        self.storage.names_change();
    }

    /// All stored tables of all schemas but those of sessions.
    ///
    /// # Errors
    /// As [`Self::table`].
    pub async fn all_tables(&self) -> Result<Vec<Arc<Table>>> {
        let schemas: Vec<RolloutSchema> = self.schemas.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let mut tables = Vec::new();
        for schema in schemas.into_iter().filter(|schema| !is_temporary_schema(&schema.0.name)) {
            tables.extend(self.stored_tables(&schema).await?);
        }
        Ok(tables)
    }

    /// Those of [`Self::all_tables`] that can be opened.
    pub async fn readable_tables(&self) -> Vec<Table> {
        let schemas: Vec<RolloutSchema> = self.schemas.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let mut tables = Vec::new();
        for schema in schemas.into_iter().filter(|schema| !is_temporary_schema(&schema.0.name)) {
            let states: Vec<Arc<TableState>> = schema.0.tables().values().cloned().collect();
            for state in states {
                tables.extend(Table::open(&schema.0, &state).await.ok());
            }
        }
        tables
    }

    /// The schema `name` of this catalog.
    ///
    /// # Errors
    /// [`Error::UnknownSchema`].
    pub fn rollout_schema(&self, name: &str) -> Result<RolloutSchema> {
        let schemas = self.schemas.read().unwrap_or_else(PoisonError::into_inner);
        schemas
            .get(name)
            .cloned()
            .ok_or_else(|| Error::UnknownSchema { name: name.to_owned(), known: nearest(name, schemas.keys().cloned()) })
    }

    /// Names of all tables of a schema, virtual ones too, sorted.
    ///
    /// # Errors
    /// [`Error::UnknownSchema`].
    pub fn tables(&self, schema: &str) -> Result<Vec<String>> {
        Ok(self.rollout_schema(schema)?.table_names())
    }

    /// The newest version of a stored table.
    ///
    /// # Errors
    /// [`Error::UnknownSchema`], [`Error::UnknownTable`] with the nearest names, [`Error::NotATable`] for a virtual one, [`Error::Damaged`].
    pub async fn table(&self, schema: &str, name: &str) -> Result<Arc<Table>> {
        let schema = self.rollout_schema(schema)?;
        if schema.0.virtual_table(name).is_some() {
            return Err(Error::NotATable { name: name.to_owned() });
        }
        schema.stored_table(name).await
    }

    /// Makes an empty table.
    ///
    /// # Errors
    /// [`Error::DuplicateTable`] unless `if_not_exists` (then the existing table is the answer), [`Error::InvalidName`],
    /// [`Error::UnknownSchema`], [`Error::Storage`].
    pub async fn create_table(&self, schema: &str, name: &str, definition: TableDefinition, if_not_exists: bool) -> Result<Arc<Table>> {
        if if_not_exists && self.rollout_schema(schema)?.0.tables().contains_key(name) {
            return self.table(schema, name).await;
        }
        let no_rows = stream::empty::<DataFusionResult<RecordBatch>>();
        let no_rows = RecordBatchStreamAdapter::new(definition.schema.clone(), no_rows);
        match self.create_table_from(schema, name, definition, Box::pin(no_rows)).await {
            Err(Error::DuplicateTable { .. }) if if_not_exists => self.table(schema, name).await,
            result => result,
        }
    }

    /// Makes a table and fills it, as one step: the rows are written under a hidden name, and the table appears by one
    /// rename. On an error, or when the future is dropped, nothing is left.
    ///
    /// # Errors
    /// As [`Self::create_table`] and [`Table::append`]; an error of `rows` comes back as it is.
    pub async fn create_table_from(
        &self,
        schema: &str,
        name: &str,
        definition: TableDefinition,
        rows: SendableRecordBatchStream,
    ) -> Result<Arc<Table>> {
        self.create_table_with(schema, name, definition, rows, std::future::ready(None)).await
    }

    /// As [`Self::create_table_from`]; `lineage` is asked for when the rows are written, and appears with the table ([`Table::note_lineage`]).
    ///
    /// # Errors
    /// As [`Self::create_table_from`].
    pub async fn create_table_with(
        &self,
        schema: &str,
        name: &str,
        definition: TableDefinition,
        rows: SendableRecordBatchStream,
        lineage: impl Future<Output = Option<serde_json::Value>>,
    ) -> Result<Arc<Table>> {
        let schema = self.rollout_schema(schema)?;
        let target = self.storage.table_directory(&schema.0.name, name)?;
        if schema.0.contains(name) {
            return Err(Error::DuplicateTable { name: name.to_owned() });
        }
        let temporary = self.storage.temporary(&schema.0.name)?;
        write_new(&self.storage, (&schema.0.name, name), &temporary, &definition, rows).await?;
        if let Some(record) = lineage.await {
            lineage::begin(temporary.path(), &record)?;
        }
        let state = Arc::new(TableState::new(name, target.clone()));
        {
            // No await from here: the rename and the entry in the list happen together or not at all.
            let mut tables = schema.0.tables_mut();
            temporary.rename(name, &target)?;
            tables.insert(name.to_owned(), state.clone());
        }
        Ok(Arc::new(Table::open(&schema.0, &state).await?))
    }

    /// Removes a table and its files. Statements that are reading it may fail.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], [`Error::NotSupported`] for a virtual or a system table, [`Error::InUse`] while a column is being filled, [`Error::Io`].
    pub async fn drop_table(&self, schema: &str, name: &str) -> Result<()> {
        let schema = self.rollout_schema(schema)?;
        self.refuse_system_table(&schema, name)?;
        let state = schema.0.find(name)?;
        let _no_backfill = state.refuse_backfill().await?;
        let _alone = state.definition.write().await;
        let _writer = state.lock_writer(&self.storage).await;
        state.check_exists()?;
        {
            // The counters' file would be that of the next table of the name.
            let _no_new_numbers = state.counters.lock().unwrap_or_else(PoisonError::into_inner);
            self.storage.remove_table(&schema.0.name, &state.directory)?;
            state.mark_dropped();
        }
        schema.0.tables_mut().remove(name);
        state.drop_resident();
        self.storage.register().forget_relation(&schema.0.name, name);
        Ok(())
    }

    /// Gives a table another name in its schema. Statements that are reading it may fail.
    ///
    /// # Errors
    /// As [`Self::drop_table`]; [`Error::DuplicateTable`], [`Error::InvalidName`].
    pub async fn rename_table(&self, schema: &str, name: &str, new_name: &str) -> Result<()> {
        let schema = self.rollout_schema(schema)?;
        self.refuse_system_table(&schema, name)?;
        let state = schema.0.find(name)?;
        let target = self.storage.table_directory(&schema.0.name, new_name)?;
        let _no_backfill = state.refuse_backfill().await?;
        let _alone = state.definition.write().await;
        let _writer = state.lock_writer(&self.storage).await;
        state.check_exists()?;
        // No await from here: the rename and the entries in the list happen together or not at all.
        let mut tables = schema.0.tables_mut();
        if tables.contains_key(new_name) || schema.0.virtual_table(new_name).is_some() || target.exists() {
            return Err(Error::DuplicateTable { name: new_name.to_owned() });
        }
        let no_new_numbers = state.counters.lock().unwrap_or_else(PoisonError::into_inner);
        self.storage.rename_table(&state.directory, &target)?;
        state.mark_dropped();
        drop(no_new_numbers);
        state.drop_resident();
        tables.remove(name);
        tables.insert(new_name.to_owned(), Arc::new(TableState::new(new_name, target)));
        self.storage.register().rename_table(&schema.0.name, name, new_name);
        Ok(())
    }

    /// Makes a view, or replaces it; it is kept over restarts.
    ///
    /// # Errors
    /// [`Error::DuplicateTable`] when there is a table of the name, or a view and not `replace`; [`Error::UnknownSchema`], [`Error::InvalidName`],
    /// [`Error::Io`].
    pub fn create_view(&self, schema: &str, name: &str, view: View, replace: bool) -> Result<()> {
        let schema = self.rollout_schema(schema)?;
        let path = self.storage.view_file(&schema.0.name, name)?;
        let replaced = schema.0.virtual_table(name);
        let replaced = replaced.as_ref().and_then(|table| View::of(table.as_ref()));
        if schema.0.contains(name) && !(replaced.is_some() && replace) {
            return Err(Error::DuplicateTable { name: name.to_owned() });
        }
        let view = match replaced {
            Some(replaced) => view.with_comments_of(replaced),
            None => view,
        };
        view.write(&path)?;
        schema.0.set_virtual_table(name, Arc::new(view));
        Ok(())
    }

    /// Removes a view.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], [`Error::NotAView`] for a table and for a view of the system, [`Error::Io`].
    pub fn drop_view(&self, schema: &str, name: &str) -> Result<()> {
        let schema = self.rollout_schema(schema)?;
        match schema.0.virtual_table(name) {
            Some(table) if View::of(table.as_ref()).is_some() => {}
            None if !schema.0.contains(name) => return Err(schema.0.unknown_table(name)),
            _ => return Err(Error::NotAView { name: name.to_owned() }),
        }
        self.storage.remove_view(&self.storage.view_file(&schema.0.name, name)?)?;
        schema.0.remove_virtual_table(name);
        self.storage.register().forget_relation(&schema.0.name, name);
        Ok(())
    }

    /// The text of the query of a view; `None` for a table and for a name that is not known.
    #[must_use]
    pub fn view_query(&self, schema: &str, name: &str) -> Option<String> {
        let table = self.rollout_schema(schema).ok()?.0.virtual_table(name)?;
        View::of(table.as_ref()).map(|view| view.query().to_owned())
    }

    fn refuse_system_table(&self, schema: &RolloutSchema, name: &str) -> Result<()> {
        let is_system = schema.0.name == SYSTEM_SCHEMA && system::tables().iter().any(|table| table.name == name);
        match schema.0.virtual_table(name) {
            Some(table) if View::of(table.as_ref()).is_some() => Err(Error::NotATable { name: name.to_owned() }),
            None if !is_system => Ok(()),
            _ => Err(Error::NotSupported(format!("\"{}.{name}\" is a system table: it stays", schema.0.name))),
        }
    }

    /// Shows a table of the engine's own under `schema`.`name`: it is not stored, and can not be dropped.
    ///
    /// # Errors
    /// [`Error::UnknownSchema`], [`Error::InvalidName`], [`Error::DuplicateTable`] when a stored table has the name.
    pub fn register_virtual(&self, schema: &str, name: &str, table: Arc<dyn TableProvider>) -> Result<()> {
        to_directory("table", name)?;
        let schema = self.rollout_schema(schema)?;
        if schema.0.tables().contains_key(name) {
            return Err(Error::DuplicateTable { name: name.to_owned() });
        }
        schema.0.set_virtual_table(name, table);
        Ok(())
    }

    /// The numbers that clients know objects by, in the order of `keys`: an object keeps its own while it exists, over restarts and new names.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn object_numbers(&self, keys: &[ObjectKey]) -> Result<Vec<u32>> {
        self.storage.register().numbers(keys)
    }

    /// The table of `schema` that has the index `name`.
    ///
    /// # Errors
    /// [`Error::UnknownIndex`] with the nearest names, [`Error::UnknownSchema`].
    pub async fn find_index(&self, schema: &str, name: &str) -> Result<Arc<Table>> {
        let schema = self.rollout_schema(schema)?;
        let mut known = Vec::new();
        for table in self.stored_tables(&schema).await? {
            for index in table.index_names().await? {
                if index == name {
                    return Ok(table);
                }
                known.push(index);
            }
        }
        Err(Error::UnknownIndex { name: name.to_owned(), known: nearest(name, known) })
    }

    async fn stored_tables(&self, schema: &RolloutSchema) -> Result<Vec<Arc<Table>>> {
        let states: Vec<Arc<TableState>> = schema.0.tables().values().cloned().collect();
        let mut tables = Vec::with_capacity(states.len());
        for state in states {
            tables.push(Arc::new(Table::open(&schema.0, &state).await?));
        }
        Ok(tables)
    }

    fn foreign_schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        self.foreign.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.schemas.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        names.extend(self.foreign.read().unwrap_or_else(PoisonError::into_inner).keys().cloned());
        names.sort();
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match self.rollout_schema(name) {
            Ok(schema) => Some(Arc::new(schema)),
            Err(_) => self.foreign_schema(name),
        }
    }

    /// Adds a schema of another provider, in memory only.
    fn register_schema(&self, name: &str, schema: Arc<dyn SchemaProvider>) -> DataFusionResult<Option<Arc<dyn SchemaProvider>>> {
        if self.rollout_schema(name).is_ok() {
            return Err(Error::DuplicateSchema { name: name.to_owned() }.into());
        }
        let mut foreign = self.foreign.write().unwrap_or_else(PoisonError::into_inner);
        Ok(foreign.insert(name.to_owned(), schema))
    }
}
