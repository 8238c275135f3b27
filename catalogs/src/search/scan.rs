//! The rows nearest to a vector as a table: what `ORDER BY v <=> $1 LIMIT k` reads in place of all rows.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Float32Type, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::filter::FilterExecBuilder;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt, stream};

use super::counts::SearchCounts;
use super::row_filter::Condition;
use super::vector::{SCANNED_ROWS_MAX, SearchEffort, VectorSearch};
use crate::index::in_single_precision;
use crate::parameters::Parameters;
use crate::pushdown::can_push_down;
use crate::resident::FILTERED_ROWS_MIN;
use crate::{IndexDefinition, IndexKind, Metric, Result, Table};

/// A vector that is known when the scan runs, and not before.
#[async_trait]
pub trait LateVector: fmt::Debug + Send + Sync {
    /// What it is made of, for EXPLAIN.
    fn text(&self) -> &str;

    /// `None`: there is no vector, and nothing is near to it. `context`: of the statement that wants it.
    async fn vector(&self, context: &TaskContext) -> DataFusionResult<Option<Vec<f32>>>;

    /// The same in a physical plan, if it is another there. `state`: of the planner.
    ///
    /// # Errors
    /// Those of planning an expression.
    fn planned(&self, _state: &dyn Session) -> DataFusionResult<Option<Arc<dyn LateVector>>> {
        Ok(None)
    }

    /// Whether it keeps its value, so that a plan with it is good for one run.
    fn is_of_one_run(&self) -> bool {
        true
    }
}

/// The vector that is searched for.
#[derive(Debug, Clone)]
pub enum QueryVector {
    Constant(Vec<f32>),
    /// The value of a placeholder, a vector.
    Parameter(String),
    Later(Arc<dyn LateVector>),
}

impl QueryVector {
    /// `None`: a NULL, to which no row has a distance.
    async fn value(&self, parameters: &Parameters, context: &TaskContext) -> DataFusionResult<Option<Vec<f32>>> {
        match self {
            Self::Constant(vector) => Ok(Some(vector.clone())),
            Self::Parameter(id) => match parameters.get(id) {
                Some(ScalarValue::FixedSizeList(list)) if list.is_null(0) => Ok(None),
                Some(ScalarValue::FixedSizeList(list)) => {
                    let numbers = in_single_precision(&list)?.value(0);
                    let numbers = numbers.as_primitive_opt::<Float32Type>().filter(|numbers| numbers.null_count() == 0);
                    let numbers =
                        numbers.ok_or_else(|| DataFusionError::Internal(format!("parameter {id} has elements without a number")))?;
                    Ok(Some(numbers.values().to_vec()))
                }
                other => datafusion::common::internal_err!("parameter {id} is {other:?}, not a vector"),
            },
            Self::Later(later) => later.vector(context).await,
        }
    }
}

/// Rows that a sort by distance puts first, though they have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowsWithoutDistance {
    /// NULL is before everything.
    pub no_vector: bool,
    /// A vector of zeros, whose cosine distance is NaN.
    pub zero_vector: bool,
}

/// The `k` rows of a table that are nearest to a vector, and are let through by the filters of the scan; all rows that these let through, if fewer have
/// a vector. Their order is open.
#[derive(Debug)]
pub struct NearestRows {
    table: Table,
    column: String,
    query: QueryVector,
    k: usize,
    metric: Metric,
    effort: SearchEffort,
    first_come: RowsWithoutDistance,
    /// Where the values of placeholders come from, in the query and in the filters.
    parameters: Parameters,
}

impl NearestRows {
    #[must_use]
    pub fn new(table: &Table, column: &str, query: QueryVector, k: usize, metric: Metric, effort: SearchEffort) -> Self {
        let (first_come, parameters) = (RowsWithoutDistance::default(), Parameters::default());
        Self { table: table.clone(), column: column.to_owned(), query, k, metric, effort, first_come, parameters }
    }

    /// The same rows; all rows of the table if there are some of these in it. An index has no vectors of zeros, as in pgvector: with one, they are no reason.
    #[must_use]
    pub fn unless(self, first_come: RowsWithoutDistance) -> Self {
        Self { first_come, ..self }
    }

    /// The same rows, with placeholders that have these values when the plan runs.
    #[must_use]
    pub fn with_parameters(&self, parameters: &Parameters) -> Self {
        let Self { table, column, query, k, metric, effort, first_come, .. } = self;
        Self { parameters: parameters.clone(), ..Self::new(table, column, query.clone(), *k, *metric, *effort).unless(*first_come) }
    }

    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Whether the vector comes from elsewhere when the scan runs, and is kept there: such a plan is good for one run.
    #[must_use]
    pub fn has_late_query(&self) -> bool {
        matches!(&self.query, QueryVector::Later(late) if late.is_of_one_run())
    }

    /// The same rows of another vector.
    #[must_use]
    pub fn with_query(&self, query: QueryVector) -> Self {
        Self { query, ..self.with_parameters(&self.parameters) }
    }

    /// Whether the vector is known when the scan runs, and not before.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self.query, QueryVector::Later(_))
    }

    /// How the rows are found, for EXPLAIN: with the index, and when it is passed over; or without one, and why.
    async fn way(&self, has_filter: bool) -> Result<String> {
        let mut indexes = self.table.vector_indexes().await?;
        indexes.retain(|index| index.column == self.column);
        let num_rows = self.table.row_count().await?;
        if let Some(IndexDefinition { name, kind, .. }) = indexes.iter().find(|index| index.metric == Some(self.metric)) {
            let measured = if *kind == IndexKind::Hnsw { FILTERED_ROWS_MIN } else { SCANNED_ROWS_MAX };
            let unless = match has_filter && *kind == IndexKind::Hnsw {
                true => " (in memory, few matching rows are measured without it)".to_owned(),
                false if num_rows <= measured as u64 => format!(" (in memory, up to {measured} rows are measured without it)"),
                false => String::new(),
            };
            return Ok(format!("index {name}{unless}"));
        }
        let metric = self.metric.name();
        let others = indexes.iter().filter_map(|index| Some(format!("{} is for {}", index.name, index.metric?.name())));
        let others = others.collect::<Vec<_>>().join(", ");
        Ok(if others.is_empty() {
            format!("every vector, no {metric} index")
        } else {
            format!("every vector, no {metric} index: {others}")
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
        let filter = conjunction(filters.to_vec());
        let query = match &self.query {
            QueryVector::Later(late) => late.planned(state)?.map_or_else(|| self.query.clone(), QueryVector::Later),
            known => known.clone(),
        };
        let schema = match projection {
            Some(projection) => Arc::new(TableProvider::schema(&self.table).project(projection)?),
            None => TableProvider::schema(&self.table),
        };
        let search = VectorSearch {
            table: self.table.clone(),
            column: self.column.clone(),
            k: self.k,
            metric: self.metric,
            filter,
            effort: self.effort,
            counts: SearchCounts::default(),
        };
        let all_columns = || (0..TableProvider::schema(&self.table).fields().len()).collect();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Arc::new(NearestRowsExec {
            search,
            query,
            way: self.way(!filters.is_empty()).await?,
            first_come: self.first_come,
            parameters: self.parameters.clone(),
            projection: projection.cloned().unwrap_or_else(all_columns),
            properties: Arc::new(properties),
        }))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        self.table.supports_filters_pushdown(filters)
    }
}

/// All rows that meet the conditions, those that Lance does not evaluate among them.
async fn matching_rows(
    table: &Table,
    state: &dyn Session,
    projection: &[usize],
    filters: &[Expr],
) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    let schema = TableProvider::schema(table);
    let (of_scan, others): (Vec<Expr>, Vec<Expr>) = filters.iter().cloned().partition(|filter| can_push_down(filter, &schema));
    let Some(condition) = conjunction(others) else {
        return table.scan(state, Some(&projection.to_vec()), filters, None).await;
    };
    let mut columns = projection.to_vec();
    for column in condition.column_refs() {
        let index = schema.index_of(&column.name)?;
        if !columns.contains(&index) {
            columns.push(index);
        }
    }
    let rows = table.scan(state, Some(&columns), &of_scan, None).await?;
    let predicate = Condition::new(table, &condition)?.over(&rows.schema())?;
    let wanted: Vec<usize> = (0..projection.len()).collect();
    Ok(Arc::new(FilterExecBuilder::new(predicate, rows).apply_projection(Some(wanted))?.build()?))
}

struct NearestRowsExec {
    search: VectorSearch,
    query: QueryVector,
    parameters: Parameters,
    way: String,
    first_come: RowsWithoutDistance,
    projection: Vec<usize>,
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
        write!(f, "NearestRowsExec: {name}, k={k}, {column} by {}", metric.name())?;
        if let QueryVector::Later(later) = &self.query {
            write!(f, " to {}", later.text())?;
        }
        write!(f, ", {}", self.way)?;
        match self.first_come {
            RowsWithoutDistance { no_vector: true, .. } => write!(f, ", all rows if one has no vector")?,
            RowsWithoutDistance { zero_vector: true, .. } => write!(f, ", all rows if a vector is zero and there is no index")?,
            _ => {}
        }
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

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.search.counts.metrics())
    }

    fn execute(&self, _partition: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let schema = self.schema();
        let mut search = self.search.clone();
        search.filter = search.filter.map(|filter| self.parameters.bind(filter)).transpose()?;
        let (query, parameters, first_come) = (self.query.clone(), self.parameters.clone(), self.first_come);
        let (projection, row_schema) = (self.projection.clone(), Arc::clone(&schema));
        let rows = stream::once(async move {
            let found = match query.value(&parameters, &context).await? {
                Some(query) if !search.may_find(first_come).await? => {
                    Self::rows(search.clone(), query, projection.clone(), row_schema).await?
                }
                _ => None,
            };
            if let Some(rows) = found {
                return Ok(stream::once(std::future::ready(Ok(rows))).boxed());
            }
            // Too few rows have a vector, or others come first. Planned for this run: a scan of Lance's gives its rows once, and this plan may run again.
            let filters: Vec<Expr> = search.filter.into_iter().collect();
            let all_rows = matching_rows(&search.table, &SessionContext::new().state(), &projection, &filters).await?;
            Ok::<_, DataFusionError>(CoalescePartitionsExec::new(all_rows).execute(0, context)?.boxed())
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows.try_flatten())))
    }
}
