//! Retrieval over one table snapshot: vector search, full text, or both fused. Search functions and agents use the same one.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, Int32Type, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use rolloutdb_catalogs::{AskedEffort, Edits, Operator, Table, TextQuery};
use rolloutdb_udfs::model::{EmbedKind, ModelRuntime};

use super::fusion::{Fusion, fuse, fused_fields};
use super::reranking::Reranking;
use super::retrieval_columns::{VectorColumn, reranked_column, searched_columns};
use crate::error::{Error, Result};
use crate::models::{Runtime, Task};

/// Rows that each list of a hybrid search gives to the fusion, and that a model ranks anew, unless the caller says otherwise; never fewer than k.
const CANDIDATES: usize = 100;
/// The constant of the paper on reciprocal rank fusion.
const RRF_CONSTANT: f64 = 60.0;

pub const QUERY_INDEX: &str = "query_index";
const RANK: &str = "rank";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetrieverKind {
    Vector,
    Text,
    Hybrid,
}

/// How a text becomes a query for words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextMode {
    #[default]
    Words,
    Phrase,
    Boolean,
    Fuzzy,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct TextOptions {
    pub mode: TextMode,
    pub operator: Operator,
    /// Of phrases: other words between each two.
    pub slop: u32,
    /// Of fuzzy words.
    pub edits: Edits,
}

impl TextOptions {
    fn query(self, text: &str) -> TextQuery {
        let (words, operator) = (text.to_owned(), self.operator);
        match self.mode {
            TextMode::Words => TextQuery::Words { words, operator },
            TextMode::Phrase => TextQuery::Phrase { words, slop: self.slop },
            TextMode::Boolean => TextQuery::boolean(text, operator),
            TextMode::Fuzzy => TextQuery::Fuzzy { words, operator, edits: self.edits },
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
    text: TextOptions,
    filter: Option<Expr>,
    fusion: Fusion,
    candidates: usize,
    effort: AskedEffort,
    reranking: Option<Reranking>,
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
    /// Of a search that is not exact.
    pub effort: AskedEffort,
    pub text: TextOptions,
    /// A condition that rows have to meet before the best are taken.
    pub filter: Option<&'a Expr>,
    pub fusion: Option<Fusion>,
    /// Rows that each list of a hybrid search gives to the fusion, and those that a model ranks anew.
    pub candidates: Option<usize>,
    /// The model that ranks the best rows anew.
    pub rerank: Option<&'a str>,
    /// What that model reads of a row.
    pub rerank_column: Option<&'a str>,
}

impl Retrieval {
    /// Finds the columns to search.
    ///
    /// # Errors
    /// [`Error::NotReady`] if the table has no column of the kind, [`Error::InvalidParameter`] if it has several or the metric is unknown,
    /// [`Error::NotSupported`] if it has a column with the name of one that the search adds.
    pub fn new(table: Arc<Table>, kind: RetrieverKind, models: Arc<Runtime>, options: &RetrievalOptions) -> Result<Self> {
        let (vector, text_column) = searched_columns(&table, kind, options)?;
        let reranking = match options.rerank {
            None => None,
            Some(model) => {
                models.find(model, Task::Rerank)?;
                let column = reranked_column(&table, text_column.as_deref(), vector.as_ref(), options.rerank_column)?;
                Some(Reranking { model: model.to_owned(), column })
            }
        };
        let retrieval = Self {
            table,
            kind,
            vector,
            text_column,
            text: options.text,
            filter: options.filter.cloned(),
            fusion: options.fusion.unwrap_or(Fusion::ReciprocalRank { constant: RRF_CONSTANT }),
            candidates: options.candidates.unwrap_or(CANDIDATES),
            effort: options.effort,
            reranking,
            models,
        };
        retrieval.check_names()?;
        Ok(retrieval)
    }

    fn check_names(&self) -> Result<()> {
        let schema = &self.table.definition().schema;
        match self.added_fields().iter().find(|field| schema.index_of(field.name()).is_ok()) {
            None => Ok(()),
            Some(field) => {
                let (table, name) = (self.table.name(), field.name());
                Err(Error::NotSupported(format!("table \"{table}\" has a column \"{name}\", which a search adds: it can not be searched")))
            }
        }
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The model that embeds queries that are texts.
    pub fn query_model(&self) -> Option<&str> {
        self.vector.as_ref()?.model.as_deref()
    }

    /// The same with another condition on rows.
    pub fn filtered(&self, filter: Expr) -> Self {
        Self { filter: Some(filter), ..self.clone() }
    }

    /// All that decides what a search of this version of the table finds, beside the query and k, with the versions of its models.
    ///
    /// # Errors
    /// [`Error::UnknownObject`] for a model that was dropped.
    pub fn fingerprint(&self) -> Result<String> {
        let Self { table: _, kind, vector, text_column, text, filter, fusion, candidates, effort, reranking, models } = self;
        let version = |name: &str, task| Ok::<_, Error>(models.find(name, task)?.reference());
        let embedder = self.query_model().map(|name| version(name, Task::Embed)).transpose()?;
        let reranker = reranking.as_ref().map(|reranking| version(&reranking.model, Task::Rerank)).transpose()?;
        let ranked = format!("{kind:?} {vector:?} {embedder:?} {text_column:?} {text:?} {filter:?} {effort:?}");
        Ok(format!("{ranked} {fusion:?} {candidates} {reranking:?} {reranker:?}"))
    }

    pub fn is_reranked(&self) -> bool {
        self.reranking.is_some()
    }

    /// The table's columns and those that the search adds, `rank` last: 1 for the best row of its query.
    pub fn schema(&self) -> SchemaRef {
        let mut fields: Vec<_> = self.table.definition().schema.fields().iter().cloned().collect();
        fields.extend(self.added_fields().into_iter().map(Arc::new));
        Arc::new(Schema::new(fields))
    }

    fn added_fields(&self) -> Vec<Field> {
        let mut fields = match self.kind {
            RetrieverKind::Vector => vec![Field::new("distance", DataType::Float64, false)],
            RetrieverKind::Text => vec![Field::new("score", DataType::Float64, false)],
            RetrieverKind::Hybrid => fused_fields(),
        };
        fields.extend(self.reranking.as_ref().map(|_| Reranking::field()));
        fields.push(Field::new(RANK, DataType::Int64, false));
        fields
    }

    /// The best `k` rows for each query, best first, ties by primary key (by row where two lists are fused): [`Self::schema`]'s columns, and the number of the query of each row.
    pub async fn search(&self, queries: &Queries, k: usize) -> Result<(RecordBatch, UInt32Array)> {
        if queries.is_empty() {
            return Ok((RecordBatch::new_empty(self.schema()), UInt32Array::from_iter_values([])));
        }
        let num_candidates = if self.reranking.is_some() { k.max(self.candidates) } else { k };
        let found = self.first_ranking(queries, num_candidates).await?;
        let found = match (&self.reranking, queries) {
            (None, _) => found,
            (Some(reranking), Queries::Texts(texts)) => reranking.rank(&found, texts, k, self.models.as_ref()).await?,
            (Some(_), Queries::Vectors(_)) => return Err(not_a_text("a text, which the model of rerank => reads")),
        };
        self.split_query_index(found)
    }

    /// The best `k` rows for each query, before a model ranks them anew.
    async fn first_ranking(&self, queries: &Queries, k: usize) -> Result<RecordBatch> {
        match (self.kind, queries) {
            (RetrieverKind::Vector, _) => self.search_vectors(queries, k).await,
            (RetrieverKind::Text, Queries::Texts(texts)) => self.search_text(texts, k).await,
            (RetrieverKind::Hybrid, Queries::Texts(texts)) => self.search_both(queries, texts, k).await,
            (_, Queries::Vectors(_)) => Err(not_a_text("a text, which is searched for by its words")),
        }
    }

    async fn search_vectors(&self, queries: &Queries, k: usize) -> Result<RecordBatch> {
        let column = self.vector.as_ref().ok_or_else(|| Error::Internal("vector search without a vector column".to_owned()))?;
        let vectors: Cow<[Vec<f32>]> = match (queries, &column.model) {
            (Queries::Vectors(vectors), _) => vectors.into(),
            (Queries::Texts(texts), Some(model)) => self.embed(model, texts).await?.into(),
            (Queries::Texts(texts), None) => texts.iter().map(|text| parse_vector(text, &column.name)).collect::<Result<_>>()?,
        };
        let effort = (!column.is_exact).then_some(self.effort);
        Ok(self.table.vector_search_with(&column.name, &vectors, k, column.metric, effort, self.filter.clone()).await?)
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
        let queries: Vec<TextQuery> = queries.iter().map(|query| self.text.query(query)).collect();
        Ok(self.table.text_search(column, &queries, k, self.filter.as_ref()).await?)
    }

    async fn search_both(&self, queries: &Queries, texts: &[String], k: usize) -> Result<RecordBatch> {
        let depth = k.max(self.candidates);
        let (vectors, texts) = futures::try_join!(self.search_vectors(queries, depth), self.search_text(texts, depth))?;
        fuse(&[vectors, texts], self.fusion, k, &self.table.definition().schema)
    }

    fn split_query_index(&self, found: RecordBatch) -> Result<(RecordBatch, UInt32Array)> {
        let index = column(&found, QUERY_INDEX)?.as_primitive::<Int32Type>();
        let input_rows = UInt32Array::from_iter_values(index.values().iter().map(|value| *value as u32));
        let ranks: ArrayRef = Arc::new(ranks(&input_rows));
        let schema = self.schema();
        let value = |field: &Arc<Field>| -> Result<ArrayRef> {
            match field.name().as_str() {
                RANK => Ok(Arc::clone(&ranks)),
                name => Ok(cast(column(&found, name)?, field.data_type()).map_err(DataFusionError::from)?),
            }
        };
        let columns = schema.fields().iter().map(value).collect::<Result<Vec<ArrayRef>>>()?;
        Ok((RecordBatch::try_new(schema, columns).map_err(DataFusionError::from)?, input_rows))
    }
}

fn not_a_text(expected: &str) -> Error {
    Error::InvalidParameter { name: "query".to_owned(), found: "a vector".to_owned(), expected: expected.to_owned() }
}

/// A column that every search gives.
pub fn column<'a>(found: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    found.column_by_name(name).ok_or_else(|| Error::Internal(format!("a search gave no column {name}")))
}

/// The rows of each query, which stand together.
pub fn groups(queries: &[i32]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    queries.chunk_by(|a, b| a == b).map(move |group| {
        start += group.len();
        start - group.len()..start
    })
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

/// `[1, 2, 3]` as a vector, for columns without an embedding model.
fn parse_vector(text: &str, column: &str) -> Result<Vec<f32>> {
    let parsed = match rolloutdb_udfs::vector::parse_vector(text) {
        Err(rolloutdb_udfs::Error::VectorText { .. }) => None,
        read => Some(read?),
    };
    parsed.ok_or_else(|| Error::InvalidParameter {
        name: format!("query for column {column}, which has no embedding model"),
        found: format!("'{text}'"),
        expected: "a vector such as '[1, 2, 3]', or model => 'name' to embed the text".to_owned(),
    })
}
