//! Indexes: what CREATE INDEX asks for, how Lance builds it, and what exists.

mod build;
mod parts;
mod progress;
mod usable;
mod vector;

pub(crate) use parts::merge_small_parts;
pub use progress::BuildProgress;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, FixedSizeListArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::scalar::{InvertedIndexParams, ScalarIndexParams};
use lance_index::{IndexParams, IndexType};
use lance_linalg::distance::DistanceType;
use serde_json::{Value, json};

use crate::names::nearest;
use crate::pushdown::is_comparable;
use crate::resident::{GraphIndex, GraphPlace};
use crate::state::TableState;
use crate::{Error, Result, Table};

/// Dataset configuration: `rollout.index.<name>` describes an index as it was asked for.
const INDEX_CONFIG: &str = "rollout.index.";
/// How a bm25 index cuts texts into words.
const TOKENIZERS: [&str; 5] = ["simple", "whitespace", "raw", "ngram", "icu"];

/// The access method after USING.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// Approximate neighbours by a graph over scalar-quantized vectors (Lance IVF_HNSW_SQ). Options `m`,
    /// `ef_construction`.
    Hnsw,
    /// Approximate neighbours by partitions of whole vectors (Lance IVF_FLAT). Option `lists`.
    IvfFlat,
    /// Partitions of product-quantized vectors (Lance IVF_PQ; Jégou et al. 2011). Options `lists`, `num_sub_vectors`, `num_bits`.
    IvfPq,
    /// Partitions of vectors with a byte per number (Lance IVF_SQ). Option `lists`.
    IvfSq,
    /// Partitions of vectors with a few bits per number after a rotation (Lance IVF_RQ: RaBitQ, Gao & Long 2024, arXiv:2405.12497). Options
    /// `lists`, `num_bits`.
    IvfRq,
    /// Full text by BM25 (Lance inverted index). Options `tokenizer`, `min_ngram_length`, `max_ngram_length`, `language`, `stem`, `remove_stop_words`,
    /// `lower_case`, `ascii_folding`, `max_token_length`, `with_position`.
    Bm25,
    /// Ordered values of a scalar column.
    BTree,
    /// Few distinct values of a scalar column.
    Bitmap,
    /// The elements of arrays: rows whose array has a value, any of some, or all of them.
    LabelList,
}

/// The measure of nearness that a vector index is built for, in pgvector's operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// `<->`: Euclidean distance.
    L2,
    /// `<=>`: 1 - cosine of the angle.
    Cosine,
    /// `<#>`: negative inner product.
    Dot,
}

/// What CREATE INDEX says.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexDefinition {
    /// Unique in the schema.
    pub name: String,
    pub column: String,
    pub kind: IndexKind,
    /// For vector indexes; cosine when absent. [`None`] for the others.
    pub metric: Option<Metric>,
    /// The options after WITH, as text.
    pub options: BTreeMap<String, String>,
    /// The key, as SQL has it, of an index that is known and not built: nothing here would read it, and queries read all rows.
    pub unbuilt: Option<String>,
}

/// An index that exists.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexInfo {
    pub name: String,
    pub column: String,
    pub kind: IndexKind,
    pub metric: Option<Metric>,
    /// As they were given.
    pub options: BTreeMap<String, String>,
    pub rows_indexed: u64,
    /// Rows written since; searches read them without the index.
    pub rows_unindexed: u64,
    /// On disk.
    pub bytes: u64,
    /// Of an hnsw index; [`None`] where there is no graph for these rows, and searches go to the disk.
    pub graph: Option<GraphPlace>,
}

impl IndexKind {
    pub const ALL: [Self; 9] =
        [Self::Hnsw, Self::IvfFlat, Self::IvfPq, Self::IvfSq, Self::IvfRq, Self::Bm25, Self::BTree, Self::Bitmap, Self::LabelList];
    /// Those over vectors.
    pub const VECTOR: [Self; 5] = [Self::Hnsw, Self::IvfFlat, Self::IvfPq, Self::IvfSq, Self::IvfRq];

    /// The name after USING.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hnsw => "hnsw",
            Self::IvfFlat => "ivfflat",
            Self::IvfPq => "ivf_pq",
            Self::IvfSq => "ivf_sq",
            Self::IvfRq => "ivf_rq",
            Self::Bm25 => "bm25",
            Self::BTree => "btree",
            Self::Bitmap => "bitmap",
            Self::LabelList => "label_list",
        }
    }

    /// The kind that `name` stands for.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it indexes vectors.
    #[must_use]
    pub fn is_vector(self) -> bool {
        Self::VECTOR.contains(&self)
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Hnsw => &["m", "ef_construction"],
            Self::IvfFlat | Self::IvfSq => &["lists"],
            Self::IvfPq => &["lists", "num_sub_vectors", "num_bits"],
            Self::IvfRq => &["lists", "num_bits"],
            Self::Bm25 => &[
                "tokenizer",
                "min_ngram_length",
                "max_ngram_length",
                "stem",
                "remove_stop_words",
                "lower_case",
                "ascii_folding",
                "with_position",
                "language",
                "max_token_length",
            ],
            Self::BTree | Self::Bitmap | Self::LabelList => &[],
        }
    }

    fn lance_type(self) -> IndexType {
        match self {
            Self::Hnsw => IndexType::IvfHnswSq,
            Self::IvfFlat => IndexType::IvfFlat,
            Self::IvfPq => IndexType::IvfPq,
            Self::IvfSq => IndexType::IvfSq,
            Self::IvfRq => IndexType::IvfRq,
            Self::Bm25 => IndexType::Inverted,
            Self::BTree => IndexType::BTree,
            Self::Bitmap => IndexType::Bitmap,
            Self::LabelList => IndexType::LabelList,
        }
    }
}

impl Metric {
    pub const ALL: [Self; 3] = [Self::L2, Self::Cosine, Self::Dot];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::Cosine => "cosine",
            Self::Dot => "dot",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    pub(crate) fn lance_type(self) -> DistanceType {
        match self {
            Self::L2 => DistanceType::L2,
            Self::Cosine => DistanceType::Cosine,
            Self::Dot => DistanceType::Dot,
        }
    }
}

impl Table {
    /// The indexes of this version of the table, by name.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub async fn indexes(&self) -> Result<Vec<IndexInfo>> {
        let failed = |source| Error::storage(self.name(), source);
        let mut indexes = Vec::new();
        for name in self.index_names().await? {
            let Some(IndexDefinition { column, kind, metric, options, unbuilt, .. }) = self.asked_for(&name) else { continue };
            if unbuilt.is_some() {
                let (rows_indexed, rows_unindexed) = (0, self.row_count().await?);
                indexes.push(IndexInfo { name, column, kind, metric, options, rows_indexed, rows_unindexed, bytes: 0, graph: None });
                continue;
            }
            let statistics = self.dataset.index_statistics(&name).await.map_err(failed)?;
            let statistics: Value = serde_json::from_str(&statistics).map_err(|error| Error::Damaged {
                table: self.name().to_owned(),
                reason: format!("the statistics of index \"{name}\" are not readable: {error}"),
            })?;
            let count = |key: &str| statistics.get(key).and_then(Value::as_u64).unwrap_or(0);
            let (rows_indexed, rows_unindexed) = (count("num_indexed_rows"), count("num_unindexed_rows"));
            let bytes = self.index_bytes(&name).await?;
            let graph = if kind == IndexKind::Hnsw { self.graph_place(&name).await? } else { None };
            indexes.push(IndexInfo { name, column, kind, metric, options, rows_indexed, rows_unindexed, bytes, graph });
        }
        Ok(indexes)
    }

    /// Of the index's files and its graph's.
    async fn index_bytes(&self, name: &str) -> Result<u64> {
        let parts = self.dataset.load_indices_by_name(name).await.map_err(|source| Error::storage(self.name(), source))?;
        let files = parts.iter().filter_map(|part| part.files.as_ref()).flatten();
        Ok(files.map(|file| file.size_bytes).sum::<u64>() + self.graph_file_bytes(name)?)
    }

    /// Names of the indexes of this version, sorted.
    pub(crate) async fn index_names(&self) -> Result<Vec<String>> {
        names(self.name(), &self.dataset).await
    }

    /// Whether this version has an index of a kind in `kinds` on `column`; for vectors, one built for `metric`.
    pub(crate) async fn has_index(&self, column: &str, kinds: &[IndexKind], metric: Option<Metric>) -> Result<bool> {
        Ok(self.index_on(column, kinds, metric).await?.is_some())
    }

    /// The first such index, by name.
    pub(crate) async fn index_on(&self, column: &str, kinds: &[IndexKind], metric: Option<Metric>) -> Result<Option<String>> {
        let is_it = |name: &String| {
            self.description(name).is_some_and(|(indexed, kind, built_for)| {
                indexed == column && kinds.contains(&kind) && (metric.is_none() || metric == built_for)
            })
        };
        Ok(self.index_names().await?.into_iter().find(is_it))
    }

    /// The access method of an index of this version.
    pub(crate) fn index_kind(&self, name: &str) -> Option<IndexKind> {
        self.asked_for(name).map(|index| index.kind)
    }

    /// The hnsw index on a column for a metric.
    pub(crate) async fn graph_index(&self, column: &str, metric: Metric) -> Result<Option<GraphIndex>> {
        Ok(self.graph_indexes().await?.into_iter().find(|index| index.column == column && index.metric == metric))
    }

    /// The indexes as they were asked for, by name, with the bytes that each takes on disk.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub async fn described_indexes(&self) -> Result<Vec<(IndexDefinition, u64)>> {
        let mut described = Vec::new();
        for name in self.index_names().await? {
            let Some(index) = self.asked_for(&name) else { continue };
            let bytes = self.index_bytes(&name).await?;
            described.push((index, bytes));
        }
        Ok(described)
    }

    /// The indexes over vectors as they were asked for, by name: without a look at the indexes themselves, so that planning stays cheap.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub async fn vector_indexes(&self) -> Result<Vec<IndexDefinition>> {
        let indexes = self.index_names().await?.into_iter().filter_map(|name| self.asked_for(&name));
        Ok(indexes.filter(|index| index.kind.is_vector() && index.unbuilt.is_none()).collect())
    }

    /// The hnsw indexes.
    pub(crate) async fn graph_indexes(&self) -> Result<Vec<GraphIndex>> {
        let indexes = self.vector_indexes().await?.into_iter();
        indexes.filter(|index| index.kind == IndexKind::Hnsw).map(|index| self.graph_of(&index)).collect()
    }

    pub(crate) fn graph_of(&self, index: &IndexDefinition) -> Result<GraphIndex> {
        graph_of(index, self.field_id(&index.column)?)
    }

    /// The number of a column, which no other ever gets.
    pub(crate) fn field_id(&self, column: &str) -> Result<i32> {
        let field = self.dataset.schema().field(column).map(|field| field.id);
        field.ok_or_else(|| Error::Damaged { table: self.name().to_owned(), reason: format!("column \"{column}\" is not stored") })
    }

    /// The bm25 index on a column.
    pub(crate) async fn text_index(&self, column: &str) -> Result<Option<TextIndex>> {
        for name in self.index_names().await? {
            let Some(index) = self.asked_for(&name) else { continue };
            if index.kind == IndexKind::Bm25 && index.column == column {
                let params = text_params(&index)?;
                let field = self.field_id(&index.column)?;
                return Ok(Some(TextIndex { name, field, column: index.column, params }));
            }
        }
        Ok(None)
    }

    /// Column, kind and metric of an index as it was asked for.
    fn description(&self, name: &str) -> Option<(String, IndexKind, Option<Metric>)> {
        self.asked_for(name).filter(|index| index.unbuilt.is_none()).map(|index| (index.column, index.kind, index.metric))
    }

    fn asked_for(&self, name: &str) -> Option<IndexDefinition> {
        asked_for(&self.dataset, name)
    }

    /// Checks what CREATE INDEX says of an index over vectors that is not built, as far as one that is.
    fn check_unbuilt(&self, index: &IndexDefinition) -> Result<()> {
        self.column(&index.column)?;
        check_options(index)?;
        match index.kind {
            IndexKind::Hnsw => graph_of(index, 0).map(drop),
            _ => vector::check_lists(index),
        }
    }

    /// The table of this schema that has an index `name`.
    async fn table_of_index(&self, name: &str) -> Result<Option<String>> {
        let states: Vec<Arc<TableState>> = self.schema_state.tables().values().cloned().collect();
        for state in states {
            let dataset = state.snapshot(&self.schema_state.storage).await?;
            if names(&state.name, &dataset).await?.iter().any(|known| known == name) {
                return Ok(Some(state.name.clone()));
            }
        }
        Ok(None)
    }

    fn column_type(&self, column: &str) -> Result<&DataType> {
        Ok(self.definition().schema.field(self.column(column)?).data_type())
    }

    fn check_index_column(&self, index: &IndexDefinition) -> Result<()> {
        let data_type = self.column_type(&index.column)?;
        let (fits, expected) = match index.kind {
            IndexKind::IvfRq => (vector_width(data_type).is_some_and(|width| width % 8 == 0), "a vector whose width is a multiple of 8"),
            kind if kind.is_vector() => (is_vector(data_type), "vector"),
            IndexKind::Bm25 => (data_type == &DataType::Utf8, "text"),
            IndexKind::LabelList => (is_label_list(data_type), "an array of texts, numbers, booleans or dates"),
            _ => (!data_type.is_nested(), "a scalar type"),
        };
        let is_of_values = matches!(index.kind, IndexKind::BTree | IndexKind::Bitmap);
        if fits && is_of_values && !is_comparable(data_type) {
            let (kind, column) = (index.kind.name(), &index.column);
            return Err(Error::NotSupported(format!("no filter on column \"{column}\" would read a {kind} index: it is {data_type}")));
        }
        if fits {
            return Ok(());
        }
        Err(Error::WrongType {
            what: format!("column \"{}\" of a {} index", index.column, index.kind.name()),
            found: data_type.to_string(),
            expected: expected.to_owned(),
        })
    }
}

/// A bm25 index, as far as the words in memory need to know.
#[derive(Debug, Clone)]
pub(crate) struct TextIndex {
    pub(crate) name: String,
    /// The number of the column.
    pub(crate) field: i32,
    pub(crate) column: String,
    pub(crate) params: InvertedIndexParams,
}

fn graph_of(index: &IndexDefinition, field: i32) -> Result<GraphIndex> {
    Ok(GraphIndex {
        name: index.name.clone(),
        field,
        column: index.column.clone(),
        metric: index.metric.unwrap_or(Metric::Cosine),
        m: number(index, "m", 2, 256)?.unwrap_or(16),
        ef_construction: number(index, "ef_construction", 4, 10_000)?.unwrap_or(64),
    })
}

/// Whether a column holds vectors: fixed-size lists of floats in single or half precision.
pub(crate) fn is_vector(data_type: &DataType) -> bool {
    vector_width(data_type).is_some()
}

fn vector_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeList(item, width) if matches!(item.data_type(), DataType::Float32 | DataType::Float16) => {
            usize::try_from(*width).ok()
        }
        _ => None,
    }
}

/// Vectors in single precision, in which all distances are computed.
pub(crate) fn in_single_precision(vectors: &FixedSizeListArray) -> Result<FixedSizeListArray> {
    if vectors.value_type() == DataType::Float32 {
        return Ok(vectors.clone());
    }
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let values = cast(vectors.values(), &DataType::Float32)?;
    Ok(FixedSizeListArray::try_new(item, vectors.value_length(), values, vectors.nulls().cloned())?)
}

/// Whether a column holds arrays whose elements can be looked up.
pub(crate) fn is_label_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(item) if !item.data_type().is_nested())
}

/// An index as it was asked for; `None`: there is no such description, or its column is gone.
fn asked_for(dataset: &Dataset, name: &str) -> Option<IndexDefinition> {
    let text = dataset.config().get(&format!("{INDEX_CONFIG}{name}"))?;
    let description: Value = serde_json::from_str(text).ok()?;
    let field = |key: &str| description.get(key).and_then(Value::as_str);
    let kind = IndexKind::from_name(field("kind")?)?;
    // By its number where there is one: the name may have changed since.
    let by_id = description.get("field_id").and_then(Value::as_i64).and_then(|id| i32::try_from(id).ok());
    let column = match by_id {
        Some(id) => dataset.schema().field_by_id(id)?.name.clone(),
        None => field("column")?.to_owned(),
    };
    let options = description.get("options").and_then(Value::as_object).into_iter().flatten();
    let options = options.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
    let (metric, unbuilt) = (field("metric").and_then(Metric::from_name), field("unbuilt").map(str::to_owned));
    Some(IndexDefinition { name: name.to_owned(), column, kind, metric, options, unbuilt })
}

/// Distinct names of the indexes of a dataset, without those that Lance keeps for itself.
async fn names(table: &str, dataset: &Dataset) -> Result<Vec<String>> {
    let indexes = dataset.load_indices().await.map_err(|source| Error::storage(table, source))?;
    let mut names: Vec<String> = indexes.iter().map(|index| index.name.clone()).collect();
    names.retain(|name| !name.starts_with("__"));
    let described = dataset.config().keys().filter_map(|key| key.strip_prefix(INDEX_CONFIG));
    names.extend(described.filter(|name| asked_for(dataset, name).is_some_and(|index| index.unbuilt.is_some())).map(str::to_owned));
    names.sort();
    names.dedup();
    Ok(names)
}

fn describe(index: &IndexDefinition, dataset: &Dataset) -> String {
    let metric = match (index.kind.is_vector() && index.unbuilt.is_none(), index.metric) {
        (true, metric) => Some(metric.unwrap_or(Metric::Cosine).name()),
        (false, metric) => metric.map(Metric::name),
    };
    json!({
        "column": index.column,
        "field_id": dataset.schema().field(&index.column).map(|field| field.id),
        "kind": index.kind.name(),
        "metric": metric,
        "options": index.options,
        "unbuilt": index.unbuilt,
    })
    .to_string()
}

/// `data_type`: of the indexed column.
fn lance_params(index: &IndexDefinition, data_type: &DataType, num_rows: u64) -> Result<Box<dyn IndexParams>> {
    check_options(index)?;
    Ok(match index.kind {
        IndexKind::Bm25 => Box::new(text_params(index)?),
        IndexKind::BTree => Box::new(ScalarIndexParams::new("btree".to_owned())),
        IndexKind::Bitmap => Box::new(ScalarIndexParams::new("bitmap".to_owned())),
        IndexKind::LabelList => Box::new(ScalarIndexParams::new("labellist".to_owned())),
        _ => Box::new(vector::params(index, vector_width(data_type).unwrap_or(0), num_rows)?),
    })
}

/// Words by white space and punctuation, English, lower case, accents folded, stemmed, without stop words, unless the options say otherwise. Parts of
/// words (`ngram`) are neither stemmed nor left out.
fn text_params(index: &IndexDefinition) -> Result<InvertedIndexParams> {
    let tokenizer = index.options.get("tokenizer").map_or("simple", String::as_str);
    if !TOKENIZERS.contains(&tokenizer) {
        return Err(invalid("tokenizer", tokenizer, &format!("one of {}", TOKENIZERS.join(", "))));
    }
    let is_ngram = tokenizer == "ngram";
    let flag = |name: &str, default: bool| flag(index, name).map(|value| value.unwrap_or(default));
    let mut params = InvertedIndexParams::default()
        .base_tokenizer(tokenizer.to_owned())
        .stem(flag("stem", !is_ngram)?)
        .remove_stop_words(flag("remove_stop_words", !is_ngram)?)
        .lower_case(flag("lower_case", true)?)
        .ascii_folding(flag("ascii_folding", true)?)
        .with_position(flag("with_position", false)?)
        .max_token_length(Some(number(index, "max_token_length", 1, 1_000)?.unwrap_or(40)));
    if is_ngram && flag("with_position", false)? {
        return Err(invalid("with_position", "true", "false: parts of words have no positions"));
    }
    if let Some(language) = index.options.get("language") {
        params = params.language(language).map_err(|_| invalid("language", language, "a language such as English or German"))?;
    }
    let least = number(index, "min_ngram_length", 1, 100)?.unwrap_or(3) as u32;
    let most = number(index, "max_ngram_length", 1, 100)?.unwrap_or(least as usize) as u32;
    if most < least {
        return Err(invalid("max_ngram_length", &most.to_string(), &format!("{least} or more, as min_ngram_length")));
    }
    Ok(params.ngram_min_length(least).ngram_max_length(most))
}

fn check_options(index: &IndexDefinition) -> Result<()> {
    let known = index.kind.options();
    let Some(name) = index.options.keys().find(|name| !known.contains(&name.as_str())) else { return Ok(()) };
    let near = nearest(name, known.iter().map(|known| (*known).to_owned()));
    let expected = match (near.first(), known) {
        (Some(near), _) => format!("an option of {}; did you mean {near}?", index.kind.name()),
        (None, []) => format!("no options: {} has none", index.kind.name()),
        (None, known) => format!("an option of {}: {}", index.kind.name(), known.join(", ")),
    };
    Err(invalid(name, &index.options[name], &expected))
}

fn number(index: &IndexDefinition, name: &str, low: usize, high: usize) -> Result<Option<usize>> {
    let Some(text) = index.options.get(name) else { return Ok(None) };
    match text.parse() {
        Ok(value) if (low..=high).contains(&value) => Ok(Some(value)),
        _ => Err(invalid(name, text, &format!("a number from {low} to {high}"))),
    }
}

fn flag(index: &IndexDefinition, name: &str) -> Result<Option<bool>> {
    let Some(text) = index.options.get(name) else { return Ok(None) };
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(Some(true)),
        "false" | "off" | "no" | "0" => Ok(Some(false)),
        _ => Err(invalid(name, text, "true or false")),
    }
}

fn invalid(name: &str, found: &str, expected: &str) -> Error {
    Error::InvalidOption { name: name.to_owned(), found: found.to_owned(), expected: expected.to_owned() }
}
