//! Retrieval over one table snapshot: vector search, full text, or both fused. Search functions and agents use the same one.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Float32Type, Int32Type, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use rolloutdb_catalogs::{Metric, Table};
use rolloutdb_sql::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments, SelectItem, SetExpr, Value};
use rolloutdb_udfs::model::{EmbedKind, ModelRuntime};

use crate::error::{Error, Result};
use crate::models::Runtime;

/// The constant of reciprocal rank fusion: `score = Σ 1 / (60 + rank)` (Cormack, Clarke and Büttcher, SIGIR 2009).
const RRF_CONSTANT: f64 = 60.0;

/// Each list gives at least this many candidates to the fusion.
const FUSION_CANDIDATES: usize = 100;

const QUERY_INDEX: &str = "query_index";

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

/// How to search one table.
#[derive(Debug, Clone)]
pub struct Retrieval {
    table: Arc<Table>,
    kind: RetrieverKind,
    vector: Option<VectorColumn>,
    text_column: Option<String>,
    models: Arc<Runtime>,
}

#[derive(Debug, Clone)]
struct VectorColumn {
    name: String,
    /// Embeds query texts; without one a query must be a vector's text.
    model: Option<String>,
    metric: Metric,
    is_exact: bool,
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
        let wants_vector = matches!(kind, RetrieverKind::Vector | RetrieverKind::Hybrid);
        let wants_text = matches!(kind, RetrieverKind::Text | RetrieverKind::Hybrid);
        let vector = wants_vector.then(|| vector_column(&table, options)).transpose()?;
        let text_column = wants_text.then(|| text_column(&table, options, kind)).transpose()?;
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

    /// The best `k` rows for each query, best first, ties by primary key: [`Self::schema`]'s columns, and the number of the query of each row.
    pub async fn search(&self, queries: &Queries, k: usize) -> Result<(RecordBatch, UInt32Array)> {
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
        let schema = match found.first() {
            Some(batch) => batch.schema(),
            None => with_query_index(&RecordBatch::new_empty(self.scored_schema()), 0)?.schema(),
        };
        Ok(concat_batches(&schema, &found).map_err(DataFusionError::from)?)
    }

    async fn search_both(&self, queries: &Queries, texts: &[String], k: usize) -> Result<RecordBatch> {
        let depth = k.max(FUSION_CANDIDATES);
        let (vectors, texts) = futures::try_join!(self.search_vectors(queries, depth), self.search_text(texts, depth))?;
        let keys = self.key_columns();
        let mut fusion = Fusion::default();
        fusion.add(0, &vectors, &keys)?;
        fusion.add(1, &texts, &keys)?;
        let ranked = fusion.ranked(k);
        let columns = self.table.definition().schema.fields().len();
        let lists = [self.project(&vectors, columns)?, self.project(&texts, columns)?];
        take_fused(&lists, &ranked, &self.scored_schema())
    }

    /// The columns that tell rows apart: the primary key, or all of them.
    fn key_columns(&self) -> Vec<String> {
        let definition = self.table.definition();
        if definition.primary_key.is_empty() {
            definition.schema.fields().iter().map(|field| field.name().clone()).collect()
        } else {
            definition.primary_key.clone()
        }
    }

    fn project(&self, batch: &RecordBatch, columns: usize) -> Result<RecordBatch> {
        let names = &self.table.definition().schema;
        let indices = names.fields().iter().map(|field| batch.schema().index_of(field.name())).collect::<Result<Vec<_>, _>>();
        debug_assert_eq!(columns, names.fields().len());
        Ok(batch.project(&indices.map_err(DataFusionError::from)?).map_err(DataFusionError::from)?)
    }

    fn split_query_index(&self, found: RecordBatch) -> Result<(RecordBatch, UInt32Array)> {
        let index = found
            .column_by_name(QUERY_INDEX)
            .ok_or_else(|| Error::Internal("a search gave no query_index".to_owned()))?
            .as_primitive::<Int32Type>();
        let input_rows = UInt32Array::from_iter_values(index.values().iter().map(|value| *value as u32));
        let scored = self.scored_schema();
        let mut columns = scored
            .fields()
            .iter()
            .map(|field| {
                let column =
                    found.column_by_name(field.name()).ok_or_else(|| Error::Internal(format!("a search gave no {}", field.name())))?;
                Ok(cast(column, field.data_type()).map_err(DataFusionError::from)?)
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        columns.push(Arc::new(ranks(&input_rows)));
        Ok((RecordBatch::try_new(self.schema(), columns).map_err(DataFusionError::from)?, input_rows))
    }
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

/// Where a fused row is: its list, and its row in it.
type Place = (usize, u32);

/// Reciprocal rank fusion of two ranked lists per query.
#[derive(Default)]
struct Fusion {
    /// By query and key.
    scores: BTreeMap<(i32, Vec<String>), (f64, Place)>,
}

impl Fusion {
    fn add(&mut self, list: usize, batch: &RecordBatch, keys: &[String]) -> Result<()> {
        let queries = batch.column_by_name(QUERY_INDEX).ok_or_else(|| Error::Internal("no query_index".to_owned()))?;
        let queries = queries.as_primitive::<Int32Type>();
        let key_columns = keys
            .iter()
            .map(|key| {
                let column = batch.column_by_name(key).ok_or_else(|| Error::Internal(format!("no column {key}")))?;
                Ok(cast(column, &DataType::Utf8).map_err(DataFusionError::from)?)
            })
            .collect::<Result<Vec<_>>>()?;
        let mut ranks: HashMap<i32, usize> = HashMap::new();
        for row in 0..batch.num_rows() {
            let query = queries.value(row);
            let rank = ranks.entry(query).and_modify(|rank| *rank += 1).or_insert(1);
            let key = key_columns.iter().map(|column| column.as_string::<i32>().value(row).to_owned()).collect();
            let entry = self.scores.entry((query, key)).or_insert((0.0, (list, row as u32)));
            entry.0 += 1.0 / (RRF_CONSTANT + *rank as f64);
        }
        Ok(())
    }

    /// The best `k` of each query: (query, score, place), ties by key.
    fn ranked(self, k: usize) -> Vec<(i32, f64, Place)> {
        let mut all: Vec<_> = self.scores.into_iter().collect();
        all.sort_by(|((query_a, key_a), (score_a, _)), ((query_b, key_b), (score_b, _))| {
            query_a.cmp(query_b).then(score_b.total_cmp(score_a)).then_with(|| key_a.cmp(key_b))
        });
        let mut taken: HashMap<i32, usize> = HashMap::new();
        all.into_iter()
            .filter(|((query, _), _)| {
                let count = taken.entry(*query).or_insert(0);
                *count += 1;
                *count <= k
            })
            .map(|((query, _), (score, place))| (query, score, place))
            .collect()
    }
}

fn take_fused(lists: &[RecordBatch; 2], ranked: &[(i32, f64, Place)], schema: &SchemaRef) -> Result<RecordBatch> {
    let offset = lists[0].num_rows() as u32;
    let together = concat_batches(&lists[0].schema(), lists).map_err(DataFusionError::from)?;
    let rows = UInt32Array::from_iter_values(ranked.iter().map(|(_, _, (list, row))| if *list == 0 { *row } else { offset + row }));
    let mut columns = take_record_batch(&together, &rows).map_err(DataFusionError::from)?.columns().to_vec();
    columns.push(Arc::new(Float64Array::from_iter_values(ranked.iter().map(|(_, score, _)| *score))));
    columns.push(Arc::new(Int32Array::from_iter_values(ranked.iter().map(|(query, _, _)| *query))));
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(QUERY_INDEX, DataType::Int32, false)));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(DataFusionError::from)?)
}

fn with_query_index(batch: &RecordBatch, index: i32) -> Result<RecordBatch> {
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(QUERY_INDEX, DataType::Int32, false)));
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(Int32Array::from(vec![index; batch.num_rows()])));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(DataFusionError::from)?)
}

fn vector_column(table: &Table, options: &RetrievalOptions) -> Result<VectorColumn> {
    let definition = table.definition();
    let candidates: Vec<&str> = definition
        .schema
        .fields()
        .iter()
        .filter(|field| matches!(field.data_type(), DataType::FixedSizeList(..)))
        .map(|field| field.name().as_str())
        .collect();
    let name = choose(table, "vector", &candidates, options.column.filter(|name| candidates.contains(name)))?;
    let model = match options.model {
        Some(model) => Some(model.to_owned()),
        None => definition.generated.get(&name).and_then(|expression| embedding_model(expression)),
    };
    let metric = match options.metric {
        None => Metric::Cosine,
        Some(metric) => metric_named(metric)?,
    };
    Ok(VectorColumn { name, model, metric, is_exact: options.exact.unwrap_or(true) })
}

fn metric_named(metric: &str) -> Result<Metric> {
    match metric {
        "cosine" => Ok(Metric::Cosine),
        "l2" => Ok(Metric::L2),
        "dot" => Ok(Metric::Dot),
        other => Err(Error::InvalidParameter {
            name: "metric".to_owned(),
            found: format!("'{other}'"),
            expected: "'cosine', 'l2' or 'dot'".to_owned(),
        }),
    }
}

/// The column asked for, the one named `contents`, or the only text column that is no key.
fn text_column(table: &Table, options: &RetrievalOptions, kind: RetrieverKind) -> Result<String> {
    let definition = table.definition();
    let is_text = |field: &&Arc<Field>| matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8);
    let candidates: Vec<&str> = definition
        .schema
        .fields()
        .iter()
        .filter(is_text)
        .map(|field| field.name().as_str())
        .filter(|name| !definition.primary_key.iter().any(|key| key == name))
        .collect();
    // In a hybrid search, `column` may name the vector column.
    let asked = options.column.filter(|name| kind == RetrieverKind::Text || candidates.contains(name));
    let conventional = candidates.iter().copied().find(|name| *name == "contents");
    choose(table, "text", &candidates, asked.or(conventional))
}

fn choose(table: &Table, kind: &str, candidates: &[&str], preferred: Option<&str>) -> Result<String> {
    match (preferred, candidates) {
        (Some(name), _) if candidates.contains(&name) => Ok(name.to_owned()),
        (Some(name), _) => Err(Error::MissingColumn {
            of: format!("{kind} search in {}", table.name()),
            name: name.to_owned(),
            known: candidates.iter().map(|name| (*name).to_owned()).collect(),
        }),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(Error::NotReady(format!("table \"{}\" has no {kind} column to search", table.name()))),
        (None, several) => Err(Error::InvalidParameter {
            name: "column".to_owned(),
            found: "nothing".to_owned(),
            expected: format!("one of {}", several.join(", ")),
        }),
    }
}

/// The model in a generated column's `embed('model', ...)`.
fn embedding_model(expression: &str) -> Option<String> {
    let statement = rolloutdb_sql::parse(&format!("SELECT {expression}")).ok()?.pop()?;
    let rolloutdb_sql::Statement::Query(query) = statement else { return None };
    let SetExpr::Select(select) = *query.body else { return None };
    let SelectItem::UnnamedExpr(Expr::Function(function)) = select.projection.first()? else { return None };
    if !function.name.to_string().eq_ignore_ascii_case("embed") {
        return None;
    }
    let FunctionArguments::List(arguments) = &function.args else { return None };
    match arguments.args.first()? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => match &value.value {
            Value::SingleQuotedString(model) => Some(model.clone()),
            _ => None,
        },
        _ => None,
    }
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
