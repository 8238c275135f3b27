//! The catalog as one statement sees it: a table that a search function of it has opened is that very version everywhere in it.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::TableType;
use rolloutdb_catalogs::Table;

use super::session::CATALOG_NAME;

/// Tables by schema and name.
pub type OpenedTables = HashMap<(String, String), Arc<Table>>;

/// `state`, in which these tables are as they were opened.
pub fn with_opened_tables(mut state: SessionState, opened: OpenedTables) -> SessionState {
    let catalogs = StatementCatalogs { inner: Arc::clone(state.catalog_list()), opened: Arc::new(opened) };
    state.register_catalog_list(Arc::new(catalogs));
    state
}

#[derive(Debug)]
struct StatementCatalogs {
    inner: Arc<dyn CatalogProviderList>,
    opened: Arc<OpenedTables>,
}

impl CatalogProviderList for StatementCatalogs {
    fn register_catalog(&self, name: String, catalog: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        self.inner.register_catalog(name, catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        self.inner.catalog_names()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let inner = self.inner.catalog(name)?;
        if name != CATALOG_NAME {
            return Some(inner);
        }
        Some(Arc::new(StatementCatalog { inner, opened: Arc::clone(&self.opened) }))
    }
}

#[derive(Debug)]
struct StatementCatalog {
    inner: Arc<dyn CatalogProvider>,
    opened: Arc<OpenedTables>,
}

impl CatalogProvider for StatementCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.inner.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let inner = self.inner.schema(name)?;
        Some(Arc::new(StatementSchema { inner, name: name.to_owned(), opened: Arc::clone(&self.opened) }))
    }
}

#[derive(Debug)]
struct StatementSchema {
    inner: Arc<dyn SchemaProvider>,
    name: String,
    opened: Arc<OpenedTables>,
}

#[async_trait]
impl SchemaProvider for StatementSchema {
    fn table_names(&self) -> Vec<String> {
        self.inner.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.opened.get(&(self.name.clone(), name.to_owned())) {
            Some(opened) => Ok(Some(Arc::clone(opened) as Arc<dyn TableProvider>)),
            None => self.inner.table(name).await,
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        self.inner.table_type(name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        self.inner.table_exist(name)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::tree_node::TreeNodeRecursion;
    use datafusion::datasource::source_as_provider;
    use datafusion::logical_expr::LogicalPlan;
    use futures::TryStreamExt;
    use rolloutdb_sql::Statement;

    use super::*;
    use crate::engine::apply::Apply;
    use crate::engine::planning::plan_query;
    use crate::{Database, Result};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_search_and_a_scan_of_one_statement_read_one_table() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        session.sql("CREATE TABLE t (id bigint PRIMARY KEY, v vector(2))").await?.try_collect::<Vec<_>>().await?;
        let sql = "SELECT s.id FROM vector_search(t, '[1,0]') s JOIN t ON t.id = s.id WHERE s.id IN (SELECT id FROM public.t)";
        let Some(Statement::Query(query)) = session.parse(sql)?.pop() else { panic!("a query") };
        let planned = plan_query(&session, &query, &[]).await?;
        let mut tables: Vec<usize> = Vec::new();
        planned.plan.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::TableScan(scan) => tables.push(Arc::as_ptr(&source_as_provider(&scan.source)?).cast::<()>().addr()),
                LogicalPlan::Extension(extension) => {
                    let apply = extension.node.as_any().downcast_ref::<Apply>();
                    let searched = apply.and_then(|apply| apply.function.tables()).unwrap_or_default();
                    tables.extend(searched.iter().map(|table| Arc::as_ptr(table).cast::<()>().addr()));
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        assert_eq!(tables.len(), 3);
        tables.dedup();
        assert_eq!(tables.len(), 1, "one opened table");
        Ok(())
    }
}
