//! `vector_search`, `text_search`, `hybrid_search`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{DataType, Field, Float32Type, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use rolloutdb_catalogs::Table;

use super::search_options::{candidates, fusion, rerank_column, text_options};
use crate::engine::apply::arguments::{Arguments, Names, Parameter};
use crate::engine::apply::planner::{Bound, TableFunction};
use crate::engine::apply::{Applied, ApplyFunction};
use crate::engine::retrieval::{QUERY_INDEX, Queries, Retrieval, RetrievalOptions, RetrieverKind};
use crate::engine::row_conditions::{RowCondition, rows_of_equal_values};
use crate::engine::versions::VERSION;
use crate::error::{Error, Result};
use crate::models::Runtime;

const DEFAULT_K: i64 = 10;
const K_MAX: i64 = 1_000_000;
/// Rows that one call keeps at once, over all its queries.
const HITS_AT_ONCE: usize = 1 << 20;
/// A model reads a hundred passages for each: few enough that rows come out now and then.
const QUERIES_RERANKED_AT_ONCE: usize = 8;

pub fn functions(models: &Arc<Runtime>) -> Vec<Arc<dyn TableFunction>> {
    let search =
        |name, kind, parameters| -> Arc<dyn TableFunction> { Arc::new(Search { name, kind, parameters, models: Arc::clone(models) }) };
    vec![
        search("vector_search", RetrieverKind::Vector, VECTOR_PARAMETERS),
        search("text_search", RetrieverKind::Text, TEXT_PARAMETERS),
        search("hybrid_search", RetrieverKind::Hybrid, HYBRID_PARAMETERS),
    ]
}

const VECTOR_PARAMETERS: &[Parameter] = &[
    Parameter::table("corpus"),
    Parameter::text_or_vector("query"),
    Parameter::constant("k", DataType::Int64),
    Parameter::constant("column", DataType::Utf8),
    Parameter::naming("model", Names::Model),
    Parameter::constant("metric", DataType::Utf8),
    Parameter::constant("exact", DataType::Boolean),
    Parameter::filter("filter"),
    Parameter::naming("rerank", Names::Model),
    Parameter::constant("rerank_column", DataType::Utf8),
    Parameter::constant("candidates", DataType::Int64),
    Parameter::naming(VERSION, Names::Version),
];

const TEXT_PARAMETERS: &[Parameter] = &[
    Parameter::table("corpus"),
    Parameter::text_or_vector("query"),
    Parameter::constant("k", DataType::Int64),
    Parameter::constant("column", DataType::Utf8),
    Parameter::constant("mode", DataType::Utf8),
    Parameter::constant("operator", DataType::Utf8),
    Parameter::constant("slop", DataType::Int64),
    Parameter::constant("fuzziness", DataType::Int64),
    Parameter::constant("prefix_length", DataType::Int64),
    Parameter::filter("filter"),
    Parameter::naming("rerank", Names::Model),
    Parameter::constant("rerank_column", DataType::Utf8),
    Parameter::constant("candidates", DataType::Int64),
    Parameter::naming(VERSION, Names::Version),
];

const HYBRID_PARAMETERS: &[Parameter] = &[
    Parameter::table("corpus"),
    Parameter::text_or_vector("query"),
    Parameter::constant("k", DataType::Int64),
    Parameter::constant("column", DataType::Utf8),
    Parameter::naming("model", Names::Model),
    Parameter::constant("metric", DataType::Utf8),
    Parameter::constant("exact", DataType::Boolean),
    Parameter::constant("candidates", DataType::Int64),
    Parameter::constant("fusion", DataType::Utf8),
    Parameter::constant("rrf_k", DataType::Float64),
    Parameter::constant("vector_weight", DataType::Float64),
    Parameter::constant("mode", DataType::Utf8),
    Parameter::constant("operator", DataType::Utf8),
    Parameter::constant("slop", DataType::Int64),
    Parameter::constant("fuzziness", DataType::Int64),
    Parameter::constant("prefix_length", DataType::Int64),
    Parameter::filter("filter"),
    Parameter::naming("rerank", Names::Model),
    Parameter::constant("rerank_column", DataType::Utf8),
    Parameter::naming(VERSION, Names::Version),
];

#[derive(Debug)]
struct Search {
    name: &'static str,
    kind: RetrieverKind,
    parameters: &'static [Parameter],
    models: Arc<Runtime>,
}

impl TableFunction for Search {
    fn name(&self) -> &'static str {
        self.name
    }

    fn parameters(&self) -> &'static [Parameter] {
        self.parameters
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        let row_filter = arguments.filter("filter").map(RowCondition::of).transpose()?.flatten();
        let options = RetrievalOptions {
            column: arguments.text("column"),
            model: arguments.text("model"),
            metric: arguments.text("metric"),
            exact: arguments.boolean("exact"),
            effort: arguments.effort(),
            text: text_options(arguments)?,
            filter: arguments.filter("filter").filter(|_| row_filter.is_none()),
            fusion: fusion(arguments)?,
            candidates: candidates(arguments, self.kind)?,
            rerank: arguments.text("rerank"),
            rerank_column: rerank_column(arguments)?,
        };
        let k = arguments.integer_within("k", DEFAULT_K, 1..=K_MAX)? as usize;
        let table = Arc::clone(arguments.table("corpus")?);
        let retrieval = Retrieval::new(Arc::clone(&table), self.kind, Arc::clone(&self.models), &options)?;
        if let Some(model) = retrieval.query_model() {
            arguments.gate()?.access().require_model(model)?;
        }
        let is_of_array = arguments.has_array();
        if is_of_array && table.definition().schema.index_of(QUERY_INDEX).is_ok() {
            return Err(Error::NotSupported(format!(
                "table \"{}\" has a column \"{QUERY_INDEX}\", which a search for an array adds: search for its elements one by one",
                table.name()
            )));
        }
        Ok(Bound::Apply(Arc::new(SearchCall { name: self.name, retrieval, k, is_of_array, row_filter })))
    }
}

#[derive(Debug)]
struct SearchCall {
    name: &'static str,
    retrieval: Retrieval,
    k: usize,
    /// Whether each row has an array of queries; a column says which of them, from 1, a row was found for.
    is_of_array: bool,
    /// A filter that hangs on the row before LATERAL.
    row_filter: Option<RowCondition>,
}

#[async_trait]
impl ApplyFunction for SearchCall {
    fn name(&self) -> &str {
        self.name
    }

    fn details(&self) -> String {
        let filter = self.row_filter.as_ref().map(|filter| format!(", where {}", filter.condition)).unwrap_or_default();
        format!("{}, k={}{filter}", self.retrieval.table().name(), self.k)
    }

    fn schema(&self) -> SchemaRef {
        let schema = self.retrieval.schema();
        if !self.is_of_array {
            return schema;
        }
        let added = Arc::new(Field::new(QUERY_INDEX, DataType::Int64, false));
        Arc::new(Schema::new(schema.fields().iter().cloned().chain([added]).collect::<Vec<_>>()))
    }

    fn tables(&self) -> Option<Vec<Arc<Table>>> {
        Some(vec![Arc::clone(self.retrieval.table())])
    }

    fn retrieves(&self) -> bool {
        true
    }

    fn batch_rows(&self) -> usize {
        if self.is_of_array { 1 } else { self.queries_at_once() }
    }

    /// A NULL query finds nothing.
    async fn call(&self, arguments: Vec<ArrayRef>, num_rows: usize) -> Result<Applied> {
        let Some(filter) = &self.row_filter else { return self.search(&self.retrieval, &arguments[0]).await };
        let schema = &self.retrieval.table().definition().schema;
        let (mut batches, mut input_rows) = (Vec::new(), Vec::new());
        // Rows that agree in what the filter reads have one filter, and are one search.
        for (values, rows) in rows_of_equal_values(&arguments[1..], num_rows)? {
            let retrieval = self.retrieval.filtered(filter.with_values(&values, schema)?);
            let rows = UInt32Array::from_iter_values(rows.into_iter().map(|row| row as u32));
            let found = self.search(&retrieval, &take(&arguments[0], &rows, None).map_err(DataFusionError::from)?).await?;
            input_rows.extend(found.input_rows.values().iter().map(|row| rows.value(*row as usize)));
            batches.push(found.batch);
        }
        Applied::in_input_order(concat_batches(&self.schema(), &batches).map_err(DataFusionError::from)?, input_rows)
    }
}

impl SearchCall {
    fn queries_at_once(&self) -> usize {
        match self.retrieval.is_reranked() {
            true => QUERIES_RERANKED_AT_ONCE,
            false => (HITS_AT_ONCE / self.k).clamp(1, 256),
        }
    }

    async fn search(&self, retrieval: &Retrieval, given: &ArrayRef) -> Result<Applied> {
        match self.is_of_array {
            true => self.search_arrays(retrieval, given.as_list()).await,
            false => self.search_queries(retrieval, given).await,
        }
    }

    /// One query per row.
    async fn search_queries(&self, retrieval: &Retrieval, given: &ArrayRef) -> Result<Applied> {
        let rows: Vec<u32> = (0..given.len() as u32).filter(|row| given.is_valid(*row as usize)).collect();
        let queries = match given.as_list_opt::<i32>() {
            Some(lists) => Queries::Vectors(rows.iter().map(|row| vector(&lists.value(*row as usize))).collect::<Result<_>>()?),
            None => Queries::Texts(rows.iter().map(|row| given.as_string::<i32>().value(*row as usize).to_owned()).collect()),
        };
        let (batch, query_rows) = retrieval.search(&queries, self.k).await?;
        let input_rows = UInt32Array::from_iter_values(query_rows.values().iter().map(|query| rows[*query as usize]));
        Ok(Applied { batch, input_rows })
    }

    /// An array of queries per row.
    async fn search_arrays(&self, retrieval: &Retrieval, given: &ListArray) -> Result<Applied> {
        let schema = self.schema();
        let (mut batches, mut input_rows) = (Vec::new(), Vec::new());
        for row in (0..given.len()).filter(|row| given.is_valid(*row)) {
            let queries = given.value(row);
            for start in (0..queries.len()).step_by(self.queries_at_once()) {
                let slice = queries.slice(start, self.queries_at_once().min(queries.len() - start));
                let found = self.search_queries(retrieval, &slice).await?;
                let position = |query: &u32| (start + *query as usize) as i64 + 1;
                let query_index: ArrayRef = Arc::new(found.input_rows.values().iter().map(position).collect::<Int64Array>());
                input_rows.extend(std::iter::repeat_n(row as u32, found.batch.num_rows()));
                let columns = found.batch.columns().iter().cloned().chain([query_index]).collect();
                batches.push(RecordBatch::try_new(Arc::clone(&schema), columns).map_err(DataFusionError::from)?);
            }
        }
        let batch = concat_batches(&schema, &batches).map_err(DataFusionError::from)?;
        Ok(Applied { batch, input_rows: UInt32Array::from(input_rows) })
    }
}

/// The elements of a query vector; NULL is none.
fn vector(elements: &ArrayRef) -> Result<Vec<f32>> {
    if elements.null_count() > 0 {
        return Err(Error::InvalidParameter {
            name: "query".to_owned(),
            found: "a vector with a NULL in it".to_owned(),
            expected: "numbers".to_owned(),
        });
    }
    Ok(elements.as_primitive::<Float32Type>().values().to_vec())
}
