//! Retrieval over one table snapshot: vector search, full text, or both fused. Search functions and agents use the same one.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Float32Type, Int32Type, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use rolloutdb_catalogs::Table;
use rolloutdb_udfs::model::{EmbedKind, ModelRuntime};

use super::fusion::fuse;
use super::retrieval_columns::{VectorColumn, searched_columns};
use crate::error::{Error, Result};
use crate::models::Runtime;

/// Each list gives at least this many candidates to the fusion.
const FUSION_CANDIDATES: usize = 100;

pub const QUERY_INDEX: &str = "query_index";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetrieverKind {
    Vector,
    Text,
    Hybrid,
}

impl RetrieverKind {
    /// The column that ranks the results.
    pub fn score_column(self) -> &'static str {
        match self {
            Self::Vector => "distance",
            Self::Text | Self::Hybrid => "score",
        }
    }
}

/// The queries of one call.
#[derive(Debug, Clone)]
pub enum Queries {
    Texts(Vec<String>),
    Vectors(Vec<Vec<f32>>),
}

impl Queries {
    fn is_empty(&self) -> bool {
        match self {
            Self::Texts(texts) => texts.is_empty(),
            Self::Vectors(vectors) => vectors.is_empty(),
        }
    }
}

/// How to search one table.
#[derive(Debug, Clone)]
pub struct Retrieval {
    table: Arc<Table>,
    kind: RetrieverKind,
    vector: Option<VectorColumn>,
    text_column: Option<String>,
    models: Arc<Runtime>,
}

/// What a caller may leave open.
#[derive(Debug, Default)]
pub struct RetrievalOptions<'a> {
    pub column: Option<&'a str>,
    pub model: Option<&'a str>,
    pub metric: Option<&'a str>,
    /// Default true: search every row, which is right. False: use the index when there is one.
    pub exact: Option<bool>,
}

impl Retrieval {
    /// Finds the columns to search.
    ///
    /// # Errors
    /// [`Error::NotReady`] if the table has no column of the kind, [`Error::InvalidParameter`] if it has several or the metric is unknown.
    pub fn new(table: Arc<Table>, kind: RetrieverKind, models: Arc<Runtime>, options: &RetrievalOptions) -> Result<Self> {
        let (vector, text_column) = searched_columns(&table, kind, options)?;
        Ok(Self { table, kind, vector, text_column, models })
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The table's columns, the score column, and `rank`: 1 for the best row of its query.
    pub fn schema(&self) -> SchemaRef {
        let mut fields: Vec<_> = self.scored_schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new("rank", DataType::Int64, false)));
        Arc::new(Schema::new(fields))
    }

    fn scored_schema(&self) -> SchemaRef {
        let table_schema = &self.table.definition().schema;
        let mut fields: Vec<_> = table_schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(self.kind.score_column(), DataType::Float64, false)));
        Arc::new(Schema::new(fields))
    }

    /// The best `k` rows for each query, best first, ties by primary key (by row where two lists are fused): [`Self::schema`]'s columns, and the number of the query of each row.
    pub async fn search(&self, queries: &Queries, k: usize) -> Result<(RecordBatch, UInt32Array)> {
        if queries.is_empty() {
            return Ok((RecordBatch::new_empty(self.schema()), UInt32Array::from_iter_values([])));
        }
        let found = match (self.kind, queries) {
            (RetrieverKind::Vector, _) => self.search_vectors(queries, k).await?,
            (RetrieverKind::Text, Queries::Texts(texts)) => self.search_text(texts, k).await?,
            (RetrieverKind::Hybrid, Queries::Texts(texts)) => self.search_both(queries, texts, k).await?,
            (_, Queries::Vectors(_)) => {
                return Err(Error::InvalidParameter {
                    name: "query".to_owned(),
                    found: "a vector".to_owned(),
                    expected: "a text, which is searched for by its words".to_owned(),
                });
            }
        };
        self.split_query_index(found)
    }

    async fn search_vectors(&self, queries: &Queries, k: usize) -> Result<RecordBatch> {
        let column = self.vector.as_ref().ok_or_else(|| Error::Internal("vector search without a vector column".to_owned()))?;
        let vectors: Cow<[Vec<f32>]> = match (queries, &column.model) {
            (Queries::Vectors(vectors), _) => vectors.into(),
            (Queries::Texts(texts), Some(model)) => self.embed(model, texts).await?.into(),
            (Queries::Texts(texts), None) => texts.iter().map(|text| parse_vector(text, &column.name)).collect::<Result<_>>()?,
        };
        Ok(self.table.vector_search(&column.name, &vectors, k, column.metric, column.is_exact, None).await?)
    }

    async fn embed(&self, model: &str, queries: &[String]) -> Result<Vec<Vec<f32>>> {
        let texts = StringArray::from_iter_values(queries);
        let embedded = self.models.embed(model, &texts, EmbedKind::Query).await?;
        let values = embedded.values().as_primitive::<Float32Type>();
        let width = embedded.value_length() as usize;
        Ok(values.values().chunks(width).map(<[f32]>::to_vec).collect())
    }

    async fn search_text(&self, queries: &[String], k: usize) -> Result<RecordBatch> {
        let column = self.text_column.as_ref().ok_or_else(|| Error::Internal("text search without a text column".to_owned()))?;
        let searches = queries.iter().map(|query| self.table.text_search(column, query, k, None));
        let mut found = Vec::with_capacity(queries.len());
        for (index, batch) in futures::future::try_join_all(searches).await?.into_iter().enumerate() {
            found.push(with_query_index(&batch, index as i32)?);
        }
        Ok(concat_batches(&found[0].schema(), &found).map_err(DataFusionError::from)?)
    }

    async fn search_both(&self, queries: &Queries, texts: &[String], k: usize) -> Result<RecordBatch> {
        let depth = k.max(FUSION_CANDIDATES);
        let (vectors, texts) = futures::try_join!(self.search_vectors(queries, depth), self.search_text(texts, depth))?;
        fuse(&[vectors, texts], k, &self.scored_schema())
    }

    fn split_query_index(&self, found: RecordBatch) -> Result<(RecordBatch, UInt32Array)> {
        let index = column(&found, QUERY_INDEX)?.as_primitive::<Int32Type>();
        let input_rows = UInt32Array::from_iter_values(index.values().iter().map(|value| *value as u32));
        let scored = self.scored_schema();
        let mut columns = scored
            .fields()
            .iter()
            .map(|field| Ok(cast(column(&found, field.name())?, field.data_type()).map_err(DataFusionError::from)?))
            .collect::<Result<Vec<ArrayRef>>>()?;
        columns.push(Arc::new(ranks(&input_rows)));
        Ok((RecordBatch::try_new(self.schema(), columns).map_err(DataFusionError::from)?, input_rows))
    }
}

/// A column that every search gives.
pub fn column<'a>(found: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    found.column_by_name(name).ok_or_else(|| Error::Internal(format!("a search gave no column {name}")))
}

/// Rows of one query stand together, best first: their ranks from 1.
fn ranks(query_rows: &UInt32Array) -> Int64Array {
    let (mut last, mut rank) = (None, 0);
    let next = |query: &u32| {
        rank = if last == Some(*query) { rank + 1 } else { 1 };
        last = Some(*query);
        rank
    };
    query_rows.values().iter().map(next).collect()
}

fn with_query_index(batch: &RecordBatch, index: i32) -> Result<RecordBatch> {
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(QUERY_INDEX, DataType::Int32, false)));
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(Int32Array::from(vec![index; batch.num_rows()])));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(DataFusionError::from)?)
}

/// `[1, 2, 3]` as a vector, for columns without an embedding model.
fn parse_vector(text: &str, column: &str) -> Result<Vec<f32>> {
    let inner = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let parsed = inner.and_then(|inner| inner.split(',').map(|part| part.trim().parse::<f32>().ok()).collect::<Option<Vec<f32>>>());
    parsed.ok_or_else(|| Error::InvalidParameter {
        name: format!("query for column {column}, which has no embedding model"),
        found: format!("'{text}'"),
        expected: "a vector such as '[1, 2, 3]', or model => 'name' to embed the text".to_owned(),
    })
}
