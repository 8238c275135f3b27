//! `vector_search`, `text_search`, `hybrid_search`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::datatypes::{DataType, Float32Type, SchemaRef};
use async_trait::async_trait;
use rolloutdb_catalogs::Table;

use super::search_options::{candidates, fusion, rerank_column, text_options};
use crate::engine::apply::planner::{Arguments, Bound, Parameter, TableFunction};
use crate::engine::apply::{Applied, ApplyFunction};
use crate::engine::retrieval::{Queries, Retrieval, RetrievalOptions, RetrieverKind};
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
    Parameter::constant("model", DataType::Utf8),
    Parameter::constant("metric", DataType::Utf8),
    Parameter::constant("exact", DataType::Boolean),
    Parameter::filter("filter"),
    Parameter::constant("rerank", DataType::Utf8),
    Parameter::constant("rerank_column", DataType::Utf8),
    Parameter::constant("candidates", DataType::Int64),
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
    Parameter::constant("rerank", DataType::Utf8),
    Parameter::constant("rerank_column", DataType::Utf8),
    Parameter::constant("candidates", DataType::Int64),
];

const HYBRID_PARAMETERS: &[Parameter] = &[
    Parameter::table("corpus"),
    Parameter::text_or_vector("query"),
    Parameter::constant("k", DataType::Int64),
    Parameter::constant("column", DataType::Utf8),
    Parameter::constant("model", DataType::Utf8),
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
    Parameter::constant("rerank", DataType::Utf8),
    Parameter::constant("rerank_column", DataType::Utf8),
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
        let options = RetrievalOptions {
            column: arguments.text("column"),
            model: arguments.text("model"),
            metric: arguments.text("metric"),
            exact: arguments.boolean("exact"),
            effort: arguments.effort(),
            text: text_options(arguments)?,
            filter: arguments.filter("filter"),
            fusion: fusion(arguments)?,
            candidates: candidates(arguments, self.kind)?,
            rerank: arguments.text("rerank"),
            rerank_column: rerank_column(arguments)?,
        };
        let k = arguments.integer_within("k", DEFAULT_K, 1..=K_MAX)? as usize;
        let table = Arc::clone(arguments.table("corpus")?);
        let retrieval = Retrieval::new(table, self.kind, Arc::clone(&self.models), &options)?;
        Ok(Bound::Apply(Arc::new(SearchCall { name: self.name, retrieval, k })))
    }
}

#[derive(Debug)]
struct SearchCall {
    name: &'static str,
    retrieval: Retrieval,
    k: usize,
}

#[async_trait]
impl ApplyFunction for SearchCall {
    fn name(&self) -> &str {
        self.name
    }

    fn details(&self) -> String {
        format!("{}, k={}", self.retrieval.table().name(), self.k)
    }

    fn schema(&self) -> SchemaRef {
        self.retrieval.schema()
    }

    fn tables(&self) -> Option<Vec<Arc<Table>>> {
        Some(vec![Arc::clone(self.retrieval.table())])
    }

    fn batch_rows(&self) -> usize {
        match self.retrieval.is_reranked() {
            true => QUERIES_RERANKED_AT_ONCE,
            false => (HITS_AT_ONCE / self.k).clamp(1, 256),
        }
    }

    /// A NULL query finds nothing.
    async fn call(&self, arguments: Vec<ArrayRef>, num_rows: usize) -> Result<Applied> {
        let given = &arguments[0];
        let rows: Vec<u32> = (0..num_rows as u32).filter(|row| given.is_valid(*row as usize)).collect();
        let queries = match given.as_list_opt::<i32>() {
            Some(lists) => Queries::Vectors(rows.iter().map(|row| vector(&lists.value(*row as usize))).collect::<Result<_>>()?),
            None => Queries::Texts(rows.iter().map(|row| given.as_string::<i32>().value(*row as usize).to_owned()).collect()),
        };
        let (batch, query_rows) = self.retrieval.search(&queries, self.k).await?;
        let input_rows = UInt32Array::from_iter_values(query_rows.values().iter().map(|query| rows[*query as usize]));
        Ok(Applied { batch, input_rows })
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
