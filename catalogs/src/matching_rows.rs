//! The rows of a table that meet conditions, found when the plan runs: what a plan that is kept reads of a table, whose conditions have other values
//! in each run.
//!
//! A table that is asked often is in memory. There a row is found by its key at once, and few rows by looking at the columns of the conditions alone; what is
//! not in memory, or many rows, Lance scans.

use std::fmt;
use std::sync::{Arc, LazyLock};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt, stream};

use crate::parameters::Parameters;
use crate::resident::Keys;
use crate::{Result, Table};

/// More rows than these, or more bytes, are scanned: they would be copied at once, while nobody can bring a later version into memory.
const ROWS_MAX: usize = 65_536;
const BYTES_MAX: usize = 64 << 20;

/// For scans that Lance plans, which have nothing to do with a session.
static STATE: LazyLock<SessionState> = LazyLock::new(|| SessionContext::new().state());

/// A table whose scans read the values of placeholders when they run.
#[derive(Debug)]
pub struct MatchingRows {
    table: Table,
    parameters: Parameters,
}

impl MatchingRows {
    #[must_use]
    pub fn new(table: &Table, parameters: &Parameters) -> Self {
        Self { table: table.clone(), parameters: parameters.clone() }
    }
}

#[async_trait]
impl TableProvider for MatchingRows {
    fn schema(&self) -> SchemaRef {
        TableProvider::schema(&self.table)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let all_columns = || (0..TableProvider::schema(&self.table).fields().len()).collect();
        let projection = projection.cloned().unwrap_or_else(all_columns);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(TableProvider::schema(&self.table).project(&projection)?)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Arc::new(MatchingRowsExec {
            table: self.table.clone(),
            parameters: self.parameters.clone(),
            filters: filters.to_vec(),
            projection,
            limit,
            properties: Arc::new(properties),
        }))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        self.table.supports_filters_pushdown(filters)
    }
}

struct MatchingRowsExec {
    table: Table,
    parameters: Parameters,
    /// All of them have to be met; Lance and memory evaluate them exactly.
    filters: Vec<Expr>,
    projection: Vec<usize>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for MatchingRowsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for MatchingRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "MatchingRowsExec: {}.{}@{}", self.table.schema_name(), self.table.name(), self.table.version())?;
        match conjunction(self.filters.clone()) {
            Some(filter) => write!(f, ", where {filter}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for MatchingRowsExec {
    fn name(&self) -> &str {
        "MatchingRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _partition: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let schema = self.schema();
        let filters = self.filters.iter().map(|filter| self.parameters.bind(filter.clone())).collect::<DataFusionResult<Vec<_>>>()?;
        let (table, projection, limit, row_schema) = (self.table.clone(), self.projection.clone(), self.limit, Arc::clone(&schema));
        let rows = stream::once(async move {
            if let Some(rows) = table.matching_in_memory(&filters, &projection, limit, &row_schema)? {
                let batch_size = context.session_config().batch_size();
                let starts = (0..rows.num_rows()).step_by(batch_size);
                let batches: Vec<_> = starts.map(|start| Ok(rows.slice(start, batch_size.min(rows.num_rows() - start)))).collect();
                return Ok(stream::iter(batches).boxed());
            }
            // Planned for this run: a scan of Lance's gives its rows once, and this plan may run again.
            let scan = table.scan(&*STATE, Some(&projection), &filters, limit).await?;
            Ok::<_, DataFusionError>(CoalescePartitionsExec::new(scan).execute(0, context)?.boxed())
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows.try_flatten())))
    }
}

impl Table {
    /// The rows that meet all `filters`, from memory; `None`: they are not there, or too many for one batch.
    fn matching_in_memory(
        &self,
        filters: &[Expr],
        projection: &[usize],
        limit: Option<usize>,
        schema: &SchemaRef,
    ) -> Result<Option<RecordBatch>> {
        let Some(filter) = conjunction(filters.to_vec()) else { return Ok(None) };
        let fields = self.definition().schema.fields();
        let wanted: Vec<&str> = projection.iter().map(|position| fields[*position].name().as_str()).collect();
        let mut columns = wanted.clone();
        columns.extend(filter.column_refs().into_iter().map(|column| column.name.as_str()));
        let key = self.sought_key(filters);
        let Some(resident) = self.resident_by_now(&columns, key.map(|(column, _)| column)) else { return Ok(None) };
        let rows_max = ROWS_MAX.min(BYTES_MAX / resident.row_bytes(self, &wanted).max(1));
        let by_key = match key {
            Some((column, value)) => resident.rows_of_key(self, column, value)?,
            None => None,
        };
        let limit = limit.unwrap_or(usize::MAX);
        let rows: Vec<usize> = match by_key {
            Some(rows) => rows.into_iter().take(limit).collect(),
            None => {
                let matching = resident.matching(self, &filter)?;
                if matching.count().min(limit) > rows_max {
                    return Ok(None);
                }
                matching.rows().take(limit).collect()
            }
        };
        if rows.is_empty() {
            return Ok(Some(RecordBatch::new_empty(Arc::clone(schema))));
        }
        let taken = resident.take(self, &wanted, &rows)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(Some(RecordBatch::try_new_with_options(Arc::clone(schema), taken.columns().to_vec(), &options)?))
    }

    /// Column and value, where the only condition is that the primary key, which is one column, has this value.
    fn sought_key<'a>(&'a self, filters: &'a [Expr]) -> Option<(&'a str, &'a ScalarValue)> {
        let ([key], [Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })]) = (self.definition().primary_key.as_slice(), filters)
        else {
            return None;
        };
        let (column, value) = match (left.as_ref(), right.as_ref()) {
            (Expr::Column(column), Expr::Literal(value, _)) | (Expr::Literal(value, _), Expr::Column(column)) => (column, value),
            _ => return None,
        };
        let is_key = column.name == *key && Keys::are_of(self.definition().schema.field_with_name(key).ok()?.data_type());
        is_key.then_some((key.as_str(), value))
    }
}
