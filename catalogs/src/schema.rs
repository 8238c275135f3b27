//! A schema as DataFusion sees it.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::TableType;

use crate::state::SchemaState;
use crate::{Result, Table};

/// The tables of one schema: stored ones on Lance and virtual ones of the engine. Names come from memory; `table`
/// opens one version, which the statement keeps.
#[derive(Debug, Clone)]
pub struct RolloutSchema(pub(crate) Arc<SchemaState>);

impl RolloutSchema {
    /// The newest version of a stored table.
    ///
    /// # Errors
    /// [`crate::Error::UnknownTable`], [`crate::Error::Damaged`], [`crate::Error::Storage`].
    pub async fn stored_table(&self, name: &str) -> Result<Arc<Table>> {
        let state = self.0.find(name)?;
        Ok(Arc::new(Table::open(&self.0, &state).await?))
    }
}

#[async_trait]
impl SchemaProvider for RolloutSchema {
    fn table_names(&self) -> Vec<String> {
        self.0.names()
    }

    async fn table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if let Some(table) = self.0.virtual_table(name) {
            return Ok(Some(table));
        }
        let Ok(state) = self.0.find(name) else { return Ok(None) };
        Ok(Some(Arc::new(Table::open(&self.0, &state).await?)))
    }

    /// Without opening the table, so that listings stay cheap.
    async fn table_type(&self, name: &str) -> DataFusionResult<Option<TableType>> {
        Ok(match self.0.virtual_table(name) {
            Some(table) => Some(table.table_type()),
            None => self.0.tables().contains_key(name).then_some(TableType::Base),
        })
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}
