//! Files as tables of a query.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

use super::scan::{TextFiles, scan};
use crate::engine::progress::Notices;

/// Text files. A scan reads the columns that the query names, in one partition, so that the rows come in the order of the files.
#[derive(Debug)]
pub struct TextTable {
    files: Arc<TextFiles>,
    notices: Notices,
}

impl TextTable {
    pub fn new(files: TextFiles, notices: &Notices) -> Self {
        Self { files: Arc::new(files), notices: notices.clone() }
    }
}

#[async_trait]
impl TableProvider for TextTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.files.columns.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = projection.cloned().unwrap_or_else(|| (0..self.schema().fields().len()).collect());
        let schema = Arc::new(self.schema().project(&projection)?);
        let scan = TextScan { files: Arc::clone(&self.files), notices: self.notices.clone(), projection, schema: Arc::clone(&schema) };
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![Arc::new(scan)], None, [], false, limit)?))
    }
}

#[derive(Debug)]
struct TextScan {
    files: Arc<TextFiles>,
    notices: Notices,
    projection: Vec<usize>,
    schema: SchemaRef,
}

impl PartitionStream for TextScan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        scan(Arc::clone(&self.files), self.projection.clone(), Arc::clone(&self.schema), self.notices.clone())
    }
}
