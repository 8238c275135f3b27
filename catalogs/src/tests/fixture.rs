//! A data directory, rows and random numbers for the tests.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::stream;
use tempfile::TempDir;

use crate::{Catalog, Operator, Result, Table, TableDefinition, TextQuery};

pub(super) struct Fixture {
    pub(super) directory: TempDir,
    pub(super) catalog: Arc<Catalog>,
}

impl Fixture {
    pub(super) async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let catalog = Catalog::open(directory.path()).await.expect("an empty directory opens");
        Self { directory, catalog }
    }

    /// Gives the directory back and opens it again, as a restart does. A [`Table`] that is still held keeps the directory.
    pub(super) async fn restart(self) -> Self {
        let Self { directory, catalog } = self;
        drop(catalog);
        let catalog = Catalog::open(directory.path()).await.expect("the directory opens again");
        Self { directory, catalog }
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(super) async fn create(&self, name: &str, definition: TableDefinition) -> Arc<Table> {
        self.catalog.create_table("public", name, definition, false).await.expect("the table is made")
    }

    /// A session that sees this catalog, as the engine makes it.
    pub(super) fn context(&self) -> SessionContext {
        let mut config = SessionConfig::new().with_default_catalog_and_schema("db", "public");
        config.options_mut().sql_parser.map_string_types_to_utf8view = false;
        let context = SessionContext::new_with_config(config);
        context.register_catalog("db", self.catalog.clone());
        context
    }

    /// Rows of a query as text, one line per row.
    pub(super) async fn query(&self, sql: &str) -> Vec<String> {
        let frame = self.context().sql(sql).await.expect("the query plans");
        lines(&frame.collect().await.expect("the query runs"))
    }
}

/// `id text PRIMARY KEY, number int8, embedding vector(width)`.
pub(super) fn passages_definition(width: i32) -> TableDefinition {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Utf8, true),
        Field::new("number", DataType::Int64, true),
        Field::new("embedding", DataType::new_fixed_size_list(DataType::Float32, width, true), true),
    ]);
    TableDefinition::new(&schema).and_then(|table| table.with_primary_key(&["id"])).expect("a storable table")
}

/// Rows of [`passages_definition`]; ids are `p<number>`.
pub(super) fn passages(numbers: &[i64], vectors: &[Vec<f32>]) -> RecordBatch {
    let width = vectors.first().map_or(1, Vec::len);
    let schema = passages_definition(i32::try_from(width).expect("a small width")).schema;
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values(numbers.iter().map(|number| format!("p{number}"))));
    let values = Float32Array::from_iter_values(vectors.iter().flatten().copied());
    let DataType::FixedSizeList(item, size) = schema.field(2).data_type() else { panic!("a vector column") };
    let vectors: ArrayRef = Arc::new(FixedSizeListArray::new(item.clone(), *size, Arc::new(values), None));
    let numbers: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
    RecordBatch::try_new(schema, vec![ids, numbers, vectors]).expect("columns of one length")
}

/// `id text PRIMARY KEY, contents text`.
pub(super) fn texts_definition() -> TableDefinition {
    let schema = Schema::new(vec![Field::new("id", DataType::Utf8, false), Field::new("contents", DataType::Utf8, true)]);
    TableDefinition::new(&schema).and_then(|table| table.with_primary_key(&["id"])).expect("a storable table")
}

pub(super) fn texts(rows: &[(&str, Option<&str>)]) -> RecordBatch {
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|(id, _)| id)));
    let contents: ArrayRef = Arc::new(rows.iter().map(|(_, contents)| *contents).collect::<StringArray>());
    RecordBatch::try_from_iter([("id", ids), ("contents", contents)]).expect("columns of one length")
}

pub(super) fn stream_of(batches: Vec<RecordBatch>) -> SendableRecordBatchStream {
    let schema: SchemaRef = batches.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
    Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches.into_iter().map(Ok))))
}

pub(super) async fn append(table: &Table, batch: RecordBatch) -> Result<u64> {
    table.append(stream_of(vec![batch])).await
}

/// The best texts for any of the words of one query.
pub(super) async fn by_words(table: &Table, column: &str, query: &str, k: usize, filter: Option<Expr>) -> Result<RecordBatch> {
    let query = TextQuery::Words { words: query.to_owned(), operator: Operator::Or };
    table.text_search(column, &[query], k, filter.as_ref()).await
}

/// Rows as `value|value|...`.
pub(super) fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let mut lines = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cell = |column: &ArrayRef| arrow::util::display::array_value_to_string(column, row).expect("a value");
            lines.push(batch.columns().iter().map(cell).collect::<Vec<_>>().join("|"));
        }
    }
    lines
}

/// SplitMix64 (Steele, Lea, Flood 2014): a few lines instead of a dependency. Tests print nothing: the seed is in the code.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Uniform in [-1, 1).
    pub(crate) fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }

    pub(crate) fn vector(&mut self, width: usize) -> Vec<f32> {
        (0..width).map(|_| self.signed()).collect()
    }
}
