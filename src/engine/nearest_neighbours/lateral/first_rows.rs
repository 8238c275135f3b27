//! For each row before LATERAL the first rows of one table, in an order that hangs on the row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, ListArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Float32Type, Int32Type, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, SortExpr, ident};
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use rolloutdb_catalogs::{AskedEffort, Table};

use super::super::distance::Distance;
use crate::engine::apply::{Applied, ApplyFunction};
use crate::engine::retrieval::{QUERY_INDEX, column, groups};
use crate::engine::row_conditions::{rows_of_equal_values, typed};
use crate::error::{Error, Result};

/// A column that is true for each row, and NULL where an outer join has none.
pub const FOUND: &str = "__found";

/// Queries that are searched for at once, and the rows that they find together.
const QUERIES_AT_ONCE: usize = 256;
const ROWS_AT_ONCE: usize = 1 << 16;

/// Arguments of a call: the values of `outer`, then the query vector as a list of real, if there is a `search`.
#[derive(Debug)]
pub struct FirstRows {
    pub table: Arc<Table>,
    /// Positions of the table's columns that it gives.
    pub columns: Vec<usize>,
    pub keys: Vec<SortExpr>,
    /// Which rows come into question, by their own values and those of the outer columns.
    pub conditions: Vec<Expr>,
    /// Limits of the distance, which the nearest rows keep before all others; none without a `search`.
    pub bounds: Vec<Expr>,
    pub outer: Vec<Column>,
    /// `None`: all rows that come into question are sorted, for each row before.
    pub search: Option<Search>,
    pub runtime: SortRuntime,
    pub skip: usize,
    pub fetch: usize,
}

/// What sorts run in: the memory of the database's queries.
#[derive(Debug, Clone)]
pub struct SortRuntime {
    pub config: SessionConfig,
    pub env: Arc<RuntimeEnv>,
}

#[derive(Debug)]
pub struct Search {
    pub distance: Distance,
    pub effort: AskedEffort,
}

/// The values that one row before LATERAL gives to the expressions.
struct Values<'a> {
    outer: &'a [Column],
    values: &'a [ScalarValue],
    /// What the distance is to, in keys and bounds.
    query: Option<(&'a Expr, ScalarValue)>,
}

impl Values<'_> {
    fn bind(&self, expression: &Expr) -> Result<Expr> {
        let literal = |value: &ScalarValue| Expr::Literal(value.clone(), None);
        let bound = expression.clone().transform_down(|inner| {
            if let Some((query, value)) = &self.query
                && inner == **query
            {
                return Ok(Transformed::yes(literal(value)));
            }
            let Expr::OuterReferenceColumn(_, column) = &inner else { return Ok(Transformed::no(inner)) };
            let position = self.outer.iter().position(|outer| outer == column);
            Ok(position.map_or(Transformed::no(inner), |position| Transformed::yes(literal(&self.values[position]))))
        })?;
        Ok(bound.data)
    }

    fn bind_all(&self, expressions: &[Expr]) -> Result<Vec<Expr>> {
        expressions.iter().map(|expression| self.bind(expression)).collect()
    }
}

#[async_trait]
impl ApplyFunction for FirstRows {
    fn name(&self) -> &str {
        "nearest_rows"
    }

    fn details(&self) -> String {
        let way = match &self.search {
            Some(Search { distance, .. }) => format!("{} by {}", distance.column, distance.metric.name()),
            None => "every row sorted".to_owned(),
        };
        let conditions: Vec<String> = self.conditions.iter().chain(&self.bounds).map(ToString::to_string).collect();
        let condition = if conditions.is_empty() { String::new() } else { format!(", where {}", conditions.join(" AND ")) };
        format!("{}.{}, k={}, {way}{condition}", self.table.schema_name(), self.table.name(), self.skip + self.fetch)
    }

    fn schema(&self) -> SchemaRef {
        let fields = &self.table.definition().schema.fields;
        let mut given: Vec<Field> = self.columns.iter().map(|position| fields[*position].as_ref().clone()).collect();
        given.push(Field::new(FOUND, DataType::Boolean, false));
        Arc::new(Schema::new(given))
    }

    fn tables(&self) -> Option<Vec<Arc<Table>>> {
        Some(vec![Arc::clone(&self.table)])
    }

    fn batch_rows(&self) -> usize {
        (ROWS_AT_ONCE / (self.skip + self.fetch).max(1)).clamp(1, QUERIES_AT_ONCE)
    }

    async fn call(&self, arguments: Vec<ArrayRef>, num_rows: usize) -> Result<Applied> {
        let mut found: Vec<Option<RecordBatch>> = vec![None; num_rows];
        let memory = MemoryConsumer::new(self.name()).register(&self.runtime.env.memory_pool);
        // Their searches have one condition.
        for (values, rows) in rows_of_equal_values(&arguments[..self.outer.len()], num_rows)? {
            match &self.search {
                Some(search) => {
                    let queries = arguments[self.outer.len()].as_list::<i32>();
                    for (row, batch) in self.nearest(search, &values, queries, &rows, &memory).await? {
                        found[row] = Some(batch);
                    }
                }
                None => {
                    let sorted = self.sorted(&Values { outer: &self.outer, values: &values, query: None }).await?;
                    memory.try_grow(rows.len() * sorted.get_array_memory_size())?;
                    rows.iter().for_each(|row| found[*row] = Some(sorted.clone()));
                }
            }
        }
        let schema = self.schema();
        let (mut batches, mut input_rows) = (Vec::with_capacity(num_rows), Vec::new());
        for (row, batch) in found.into_iter().enumerate() {
            let Some(batch) = batch else { continue };
            input_rows.extend(std::iter::repeat_n(row as u32, batch.num_rows()));
            batches.push(batch);
        }
        // Together they are there once more.
        memory.try_grow(memory.size())?;
        let batch = concat_batches(&schema, &batches).map_err(DataFusionError::from)?;
        Ok(Applied { batch, input_rows: UInt32Array::from(input_rows) })
    }
}

impl FirstRows {
    pub fn column_names(&self) -> Vec<String> {
        self.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The nearest rows for each of `rows`; `memory` holds those that had to be sorted.
    async fn nearest(
        &self,
        search: &Search,
        values: &[ScalarValue],
        queries: &ListArray,
        rows: &[usize],
        memory: &MemoryReservation,
    ) -> Result<Vec<(usize, RecordBatch)>> {
        let Distance { column: searched, metric, query } = &search.distance;
        let k = self.skip + self.fetch;
        let with_query = |value: ScalarValue| Values { outer: &self.outer, values, query: Some((query, value)) };
        let filter = self.filter(values)?;
        // Elements that are NULL make no vector either.
        let is_vector = |row: &usize| queries.is_valid(*row) && queries.value(*row).null_count() == 0;
        let (with_vector, without): (Vec<usize>, Vec<usize>) = rows.iter().copied().partition(is_vector);
        let vector = |row: &usize| queries.value(*row).as_primitive::<Float32Type>().values().to_vec();
        let vectors: Vec<Vec<f32>> = with_vector.iter().map(vector).collect();
        let hits = self.table.vector_search_with(searched, &vectors, k, *metric, Some(search.effort), filter.clone()).await?;
        let mut found = vec![hits.slice(0, 0); with_vector.len()];
        let query_index = column(&hits, QUERY_INDEX)?.as_primitive::<Int32Type>();
        for group in groups(query_index.values()) {
            found[query_index.value(group.start) as usize] = hits.slice(group.start, group.len());
        }
        let has_fewer = found.iter().any(|batch| batch.num_rows() < k);
        let num_matching = if has_fewer { Some(self.matching(filter)?.count().await?) } else { None };
        let vector_type = self.table.definition().schema.field_with_name(searched).map_err(DataFusionError::from)?.data_type();
        let mut nearest = Vec::with_capacity(rows.len());
        for (row, batch) in with_vector.into_iter().zip(found) {
            let values = with_query(vector_value(queries.value(row))?);
            // Rows without a distance fill what is left.
            let batch = match num_matching.is_some_and(|matching| batch.num_rows() < k.min(matching)) {
                true => {
                    let sorted = self.sorted(&values).await?;
                    memory.try_grow(sorted.get_array_memory_size())?;
                    sorted
                }
                false => self.within_bounds(&values, &batch)?,
            };
            nearest.push((row, batch));
        }
        if !without.is_empty() {
            let null = ScalarValue::try_from(vector_type)?;
            let sorted = self.sorted(&with_query(null)).await?;
            memory.try_grow(without.len() * sorted.get_array_memory_size())?;
            nearest.extend(without.into_iter().map(|row| (row, sorted.clone())));
        }
        Ok(nearest)
    }

    /// Of the nearest rows, without those that OFFSET skips, the ones within the bounds.
    fn within_bounds(&self, values: &Values, nearest: &RecordBatch) -> Result<RecordBatch> {
        let mut kept = nearest.clone();
        if let Some(bounds) = conjunction(values.bind_all(&self.bounds)?) {
            let schema = DFSchema::try_from(nearest.schema().as_ref().clone())?;
            let is_within =
                SessionContext::new().create_physical_expr(bounds, &schema)?.evaluate(nearest)?.into_array(nearest.num_rows())?;
            kept = filter_record_batch(nearest, is_within.as_boolean()).map_err(DataFusionError::from)?;
        }
        let skip = self.skip.min(kept.num_rows());
        self.given(&kept.slice(skip, kept.num_rows() - skip))
    }

    /// As a plan of DataFusion's would do it.
    async fn sorted(&self, values: &Values<'_>) -> Result<RecordBatch> {
        let keys = self.keys.iter().map(|key| Ok(SortExpr { expr: values.bind(&key.expr)?, ..key.clone() }));
        let mut keys = keys.collect::<Result<Vec<_>>>()?;
        keys.extend(self.table.definition().primary_key.iter().map(|name| ident(name.as_str()).sort(true, false)));
        let mut rows = self.matching(self.filter(values.values)?)?;
        if let Some(bounds) = conjunction(values.bind_all(&self.bounds)?) {
            rows = rows.filter(bounds)?;
        }
        let rows = rows.sort(keys)?.limit(self.skip, Some(self.fetch))?;
        let schema = Arc::clone(&self.table.definition().schema);
        self.given(&concat_batches(&schema, &rows.collect().await?).map_err(DataFusionError::from)?)
    }

    fn matching(&self, filter: Option<Expr>) -> Result<DataFrame> {
        let context = SessionContext::new_with_config_rt(self.runtime.config.clone(), Arc::clone(&self.runtime.env));
        let rows = context.read_table(Arc::clone(&self.table) as Arc<dyn datafusion::catalog::TableProvider>)?;
        Ok(match filter {
            Some(filter) => rows.filter(filter)?,
            None => rows,
        })
    }

    /// The conditions with the values of outer columns, in the types of the table's.
    fn filter(&self, values: &[ScalarValue]) -> Result<Option<Expr>> {
        let values = Values { outer: &self.outer, values, query: None };
        let Some(condition) = conjunction(values.bind_all(&self.conditions)?) else { return Ok(None) };
        typed(condition, &self.table.definition().schema).map(Some)
    }

    /// The columns that the call gives, of rows of the table.
    fn given(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = self.columns.iter().map(|position| Arc::clone(rows.column(*position))).collect();
        columns.push(Arc::new(BooleanArray::from(vec![true; rows.num_rows()])));
        Ok(RecordBatch::try_new(self.schema(), columns).map_err(DataFusionError::from)?)
    }
}

/// A query vector, in single precision whatever the column's is.
fn vector_value(numbers: ArrayRef) -> Result<ScalarValue> {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let width = i32::try_from(numbers.len()).map_err(|error| Error::Internal(error.to_string()))?;
    let vector = FixedSizeListArray::try_new(item, width, numbers, None).map_err(DataFusionError::from)?;
    Ok(ScalarValue::FixedSizeList(Arc::new(vector)))
}
