//! The rows nearest to a vector as a table: what `ORDER BY v <=> $1 LIMIT k` reads in place of all rows.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};

use super::vector::VectorSearch;
use crate::{IndexKind, Metric, Result, Table};

/// The `k` rows of a table that are nearest to a vector, and are let through by the filters of the scan; all rows that these let through, if fewer have
/// a vector. Their order is open.
#[derive(Debug)]
pub struct NearestRows {
    table: Table,
    column: String,
    query: Vec<f32>,
    k: usize,
    metric: Metric,
    ef_search: usize,
}

impl NearestRows {
    /// `ef_search`: rows that a walk through an hnsw graph in memory keeps; at least k.
    #[must_use]
    pub fn new(table: &Table, column: &str, query: Vec<f32>, k: usize, metric: Metric, ef_search: usize) -> Self {
        Self { table: table.clone(), column: column.to_owned(), query, k, metric, ef_search }
    }

    /// How the rows are found, for EXPLAIN.
    async fn way(&self) -> Result<String> {
        let kinds = [IndexKind::Hnsw, IndexKind::IvfFlat];
        Ok(match self.table.index_on(&self.column, &kinds, Some(self.metric)).await? {
            Some(name) => format!("index {name}"),
            None => format!("every vector, no {} index", self.metric.name()),
        })
    }
}

#[async_trait]
impl TableProvider for NearestRows {
    fn schema(&self) -> SchemaRef {
        TableProvider::schema(&self.table)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let all_rows = self.table.scan(state, projection, filters, None).await?;
        let search = VectorSearch {
            table: self.table.clone(),
            column: self.column.clone(),
            k: self.k,
            metric: self.metric,
            filter: conjunction(filters.to_vec()),
            ef_search: self.ef_search,
        };
        let all_columns = || (0..TableProvider::schema(&self.table).fields().len()).collect();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(all_rows.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Arc::new(NearestRowsExec {
            search,
            query: self.query.clone(),
            way: self.way().await?,
            projection: projection.cloned().unwrap_or_else(all_columns),
            all_rows: Arc::new(CoalescePartitionsExec::new(all_rows)),
            properties: Arc::new(properties),
        }))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        self.table.supports_filters_pushdown(filters)
    }
}

struct NearestRowsExec {
    search: VectorSearch,
    query: Vec<f32>,
    way: String,
    projection: Vec<usize>,
    /// Read when too few rows have a vector.
    all_rows: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl NearestRowsExec {
    async fn rows(
        search: VectorSearch,
        query: Vec<f32>,
        projection: Vec<usize>,
        schema: SchemaRef,
    ) -> DataFusionResult<Option<RecordBatch>> {
        let hits = search.find(&[query], false).await?;
        let row_ids: Vec<u64> = hits.iter().flatten().map(|hit| hit.row_id).collect();
        if row_ids.len() < search.k {
            return Ok(None);
        }
        let columns = search.table.take_columns(&row_ids, &projection).await?;
        let options = RecordBatchOptions::new().with_row_count(Some(row_ids.len()));
        Ok(Some(RecordBatch::try_new_with_options(schema, columns, &options)?))
    }
}

impl fmt::Debug for NearestRowsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for NearestRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let VectorSearch { table, column, k, metric, filter, .. } = &self.search;
        let name = format!("{}.{}@{}", table.schema_name(), table.name(), table.version());
        write!(f, "NearestRowsExec: {name}, k={k}, {column} by {}, {}", metric.name(), self.way)?;
        match filter {
            Some(filter) => write!(f, ", where {filter}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for NearestRowsExec {
    fn name(&self) -> &str {
        "NearestRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// The plan of all rows is not a child: it runs only when it is needed, and no rule may change it.
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _partition: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let schema = self.schema();
        let found = Self::rows(self.search.clone(), self.query.clone(), self.projection.clone(), Arc::clone(&schema));
        let all_rows = Arc::clone(&self.all_rows);
        let rows = stream::once(async move {
            match found.await? {
                Some(rows) => Ok(stream::once(std::future::ready(Ok(rows))).boxed()),
                None => Ok::<_, datafusion::error::DataFusionError>(all_rows.execute(0, context)?.boxed()),
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows.try_flatten())))
    }
}
