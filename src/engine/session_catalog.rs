//! The shared catalog as one session sees it: with schemas of its own beside it.
//!
//! `pg_catalog` answers with the session's own settings and user, so it must not be registered in the catalog that all sessions share.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use datafusion::catalog::{CatalogProvider, SchemaProvider};
use datafusion::error::Result;
use rolloutdb_catalogs::Catalog;

#[derive(Debug)]
pub struct SessionCatalog {
    shared: Arc<Catalog>,
    own: RwLock<BTreeMap<String, Arc<dyn SchemaProvider>>>,
}

impl SessionCatalog {
    pub fn new(shared: Arc<Catalog>) -> Self {
        Self { shared, own: RwLock::default() }
    }
}

impl CatalogProvider for SessionCatalog {
    fn schema_names(&self) -> Vec<String> {
        let mut names = self.shared.schema_names();
        names.extend(self.own.read().unwrap_or_else(PoisonError::into_inner).keys().cloned());
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        own.or_else(|| self.shared.schema(name))
    }

    fn register_schema(&self, name: &str, schema: Arc<dyn SchemaProvider>) -> Result<Option<Arc<dyn SchemaProvider>>> {
        Ok(self.own.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), schema))
    }
}
