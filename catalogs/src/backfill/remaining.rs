//! The rows of a version that have no value yet, to be read.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use lance_table::format::Fragment;

use crate::dml::ROW_ADDRESS;
use crate::{Error, Table};

/// The rows of one version that have no value yet.
#[derive(Debug, Clone)]
pub struct RemainingRows {
    pub(super) table: Table,
    pub(super) fragments: Vec<Fragment>,
    /// First and last address of rows in these fragments that have one.
    pub(super) staged: Vec<(u64, u64)>,
    pub(super) num_rows: u64,
}

impl RemainingRows {
    #[must_use]
    pub fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Ranges of addresses, both ends inclusive, of rows that [`Self::provider`] gives though they have a value.
    #[must_use]
    pub fn staged(&self) -> &[(u64, u64)] {
        &self.staged
    }

    /// The table with [`ROW_ADDRESS`] as its last column, without the fragments that are done.
    #[must_use]
    pub fn provider(&self) -> Arc<dyn TableProvider> {
        let mut fields: Vec<Arc<Field>> = self.table.schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(ROW_ADDRESS, DataType::UInt64, true)));
        Arc::new(SomeFragments { rows: self.clone(), schema: Arc::new(Schema::new(fields)) })
    }
}

#[derive(Debug)]
struct SomeFragments {
    rows: RemainingRows,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for SomeFragments {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let table = &self.rows.table;
        let failed = |source| DataFusionError::from(Error::storage(table.name(), source));
        let address = self.schema.fields().len() - 1;
        let asked: Vec<usize> = projection.cloned().unwrap_or_else(|| (0..=address).collect());
        if asked.last() != Some(&address) {
            return Err(Error::NotSupported("rows to fill are read with their addresses, which come last".to_owned()).into());
        }
        let names: Vec<&str> =
            asked.iter().filter(|index| **index < address).map(|index| self.schema.field(*index).name().as_str()).collect();
        let mut scanner = table.dataset.scan();
        scanner.with_fragments(self.rows.fragments.clone()).scan_in_order(true).with_row_address();
        scanner.project(&names).map_err(failed)?;
        table.named_scan(scanner.create_plan().await.map_err(failed)?)
    }
}
