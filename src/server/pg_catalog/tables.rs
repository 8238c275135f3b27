//! The tables of `pg_catalog`: the library's, with a few of them amended.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Field, FieldRef, Int32Type};
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, Session, TableProvider};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::{PgCatalogSchemaProvider, PgCatalogStaticTables};

use rolloutdb_catalogs::system::SYSTEM_SCHEMA;

use super::amend::{Amended, Amendment, column};
use super::roles::{NAMES as ROLE_TABLES, RoleTables};
use super::{SCHEMA, activity, internal};
use crate::engine::SessionSettings;

/// Schemas whose tables are found without naming them.
const SEARCH_PATH: &[&str] = &["public", "pg_catalog"];

type Library = PgCatalogSchemaProvider<Arc<dyn CatalogProviderList>, EmptyContextProvider>;

/// The tables that `pg_table_is_visible` says no to: kept up to date by every read of `pg_class`, which such a query joins.
#[derive(Debug, Clone, Default)]
pub(super) struct Visibility(Arc<Mutex<HashSet<i32>>>);

impl Visibility {
    /// Object ids of tables outside the search path.
    pub(super) fn hidden(&self) -> HashSet<i32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, hidden: HashSet<i32>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = hidden;
    }
}

/// The schema `pg_catalog` of one catalog.
#[derive(Debug)]
pub(super) struct CatalogSchema {
    library: Arc<Library>,
    reader: Reader,
    settings: SessionSettings,
    roles: RoleTables,
}

/// What the amendments read to do their work.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    library: Arc<Library>,
    catalogs: Arc<dyn CatalogProviderList>,
    catalog_name: String,
    visibility: Visibility,
}

impl CatalogSchema {
    pub(super) fn try_new(
        catalogs: &Arc<dyn CatalogProviderList>,
        catalog_name: &str,
        statics: Arc<PgCatalogStaticTables>,
        settings: SessionSettings,
        roles: RoleTables,
    ) -> Result<Self> {
        let catalogs: Arc<dyn CatalogProviderList> = Arc::new(WeakCatalogs(Arc::downgrade(catalogs)));
        let library = Arc::new(PgCatalogSchemaProvider::try_new(catalogs.clone(), statics, EmptyContextProvider)?);
        let reader =
            Reader { library: library.clone(), catalogs, catalog_name: catalog_name.to_string(), visibility: Visibility::default() };
        Ok(Self { library, reader, settings, roles })
    }

    pub(super) fn visibility(&self) -> Visibility {
        self.reader.visibility.clone()
    }
}

#[async_trait]
impl SchemaProvider for CatalogSchema {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.library.table_names();
        names.extend(activity::names());
        names.extend(ROLE_TABLES.iter().filter(|name| !self.library.table_exist(name)).map(|name| (*name).to_owned()));
        names
    }

    fn table_exist(&self, name: &str) -> bool {
        activity::is_here(name) || ROLE_TABLES.contains(&name) || self.library.table_exist(name)
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if activity::is_here(name) {
            return self.reader.of_schema(SYSTEM_SCHEMA, name).await;
        }
        if let Some(table) = self.roles.table(name)? {
            return Ok(Some(table));
        }
        let Some(table) = self.library.table(name).await? else { return Ok(None) };
        let amendment = match name {
            "pg_attribute" => Amendment::Attributes,
            "pg_class" => Amendment::Classes,
            "pg_type" => Amendment::Types,
            "pg_settings" => return activity::settings_table(&self.settings).map(Some),
            _ => return Ok(Some(table)),
        };
        Ok(Some(Arc::new(Amended { inner: table, amendment, reader: self.reader.clone() })))
    }
}

/// The session's catalogs without a hold on them: one of them holds this schema, and the session would never be freed.
#[derive(Debug)]
struct WeakCatalogs(Weak<dyn CatalogProviderList>);

impl CatalogProviderList for WeakCatalogs {
    fn register_catalog(&self, name: String, catalog: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        self.0.upgrade()?.register_catalog(name, catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        self.0.upgrade().map(|catalogs| catalogs.catalog_names()).unwrap_or_default()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        self.0.upgrade()?.catalog(name)
    }
}

impl Reader {
    /// A table of another schema of the catalog.
    async fn of_schema(&self, schema: &str, table: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.catalogs.catalog(&self.catalog_name).and_then(|catalog| catalog.schema(schema)) {
            Some(schema) => schema.table(table).await,
            None => Ok(None),
        }
    }

    /// The columns of all tables of the catalog, by object id of the table.
    pub(super) async fn fields(&self) -> Result<HashMap<i32, HashMap<String, FieldRef>>> {
        let Some(catalog) = self.catalogs.catalog(&self.catalog_name) else { return Ok(HashMap::new()) };
        let mut fields = HashMap::new();
        for (oid, (schema_name, table_name)) in self.relations().await? {
            let Some(schema) = catalog.schema(&schema_name).filter(|_| schema_name != SCHEMA) else { continue };
            let Some(table) = schema.table(&table_name).await? else { continue };
            let by_name = |field: &Arc<Field>| (field.name().clone(), field.clone());
            fields.insert(oid, table.schema().fields().iter().map(by_name).collect());
        }
        Ok(fields)
    }

    /// Notes which of the tables in `classes` are outside the search path.
    pub(super) async fn note_visibility(&self, classes: &RecordBatch) -> Result<()> {
        let relations = relations_of(classes, &self.namespaces().await?)?;
        let hidden = relations.into_iter().filter(|(_, (schema, _))| !SEARCH_PATH.contains(&schema.as_str()));
        self.visibility.set(hidden.map(|(oid, _)| oid).collect());
        Ok(())
    }

    /// Schema and name of every table, by object id.
    async fn relations(&self) -> Result<HashMap<i32, (String, String)>> {
        relations_of(&self.read("pg_class").await?, &self.namespaces().await?)
    }

    async fn namespaces(&self) -> Result<HashMap<i32, String>> {
        let batch = self.read("pg_namespace").await?;
        let oids = column(&batch, "oid")?.as_primitive::<Int32Type>().clone();
        let names = column(&batch, "nspname")?.as_string::<i32>().clone();
        Ok(oids.values().iter().copied().zip(names.iter().map(|name| name.unwrap_or_default().to_string())).collect())
    }

    async fn read(&self, table_name: &str) -> Result<RecordBatch> {
        let table = self.library.table(table_name).await?.ok_or_else(|| internal(format!("no table {table_name}")))?;
        // A bare session: catalog tables are made in memory and need nothing of the client's.
        let session = SessionContext::new();
        read_all(&table, &session.state(), session.task_ctx()).await
    }
}

fn relations_of(classes: &RecordBatch, namespaces: &HashMap<i32, String>) -> Result<HashMap<i32, (String, String)>> {
    let oids = column(classes, "oid")?.as_primitive::<Int32Type>();
    let schemas = column(classes, "relnamespace")?.as_primitive::<Int32Type>();
    let names = column(classes, "relname")?.as_string::<i32>();
    let schema_name = |row: usize| namespaces.get(&schemas.value(row)).cloned().unwrap_or_default();
    Ok((0..classes.num_rows()).map(|row| (oids.value(row), (schema_name(row), names.value(row).to_string()))).collect())
}

/// All rows of a table as one batch.
pub(super) async fn read_all(table: &Arc<dyn TableProvider>, session: &dyn Session, task: Arc<TaskContext>) -> Result<RecordBatch> {
    let plan = table.scan(session, None, &[], None).await?;
    let batches = collect(plan, task).await?;
    Ok(concat_batches(&table.schema(), &batches)?)
}
