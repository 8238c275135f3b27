//! How often a query calls a model: for a call of constants once, however many rows and places use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, AsArray, FixedSizeListArray, Float32Array, RecordBatch};
use arrow::datatypes::{DataType, Field};
use async_trait::async_trait;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use futures::TryStreamExt;
use rolloutdb::{Database, Session};

/// Texts that the function below was given.
static NUM_TEXTS: AtomicUsize = AtomicUsize::new(0);

/// A model in name only: the length of a text, and 1.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Lengths(Signature);

fn vector_type() -> DataType {
    DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), 2)
}

impl ScalarUDFImpl for Lengths {
    fn name(&self) -> &str {
        "lengths"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(vector_type())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("it is asynchronous")
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Lengths {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        NUM_TEXTS.fetch_add(args.number_rows, Ordering::Relaxed);
        let texts = args.args[0].to_array(args.number_rows)?;
        let lengths = texts.as_string::<i32>().iter().map(|text| text.map_or(0.0, |text| text.len() as f32));
        let numbers: Float32Array = lengths.flat_map(|length| [Some(length), Some(1.0)]).collect();
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        let vectors: ArrayRef = Arc::new(FixedSizeListArray::try_new(item, 2, Arc::new(numbers), None)?);
        Ok(ColumnarValue::Array(vectors))
    }
}

/// The first column of the rows of a query, as texts, and the texts that the model was given for it.
async fn run(session: &Session, sql: &str) -> (Vec<String>, usize) {
    let before = NUM_TEXTS.load(Ordering::Relaxed);
    let stream = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = |batch: &RecordBatch, row| arrow::util::display::array_value_to_string(batch.column(0), row).expect("a text");
    let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| text(batch, row))).collect();
    (rows, NUM_TEXTS.load(Ordering::Relaxed) - before)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_constants_runs_once_and_explain_runs_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let session = Database::open(directory.path()).await.expect("a fresh database opens").session();
    let lengths = Lengths(Signature::exact(vec![DataType::Utf8], Volatility::Volatile));
    session.context().register_udf(AsyncScalarUDF::new(Arc::new(lengths)).into_scalar_udf());
    run(&session, "CREATE TABLE points (id bigint PRIMARY KEY, v vector(2), word text)").await;
    run(&session, "INSERT INTO points SELECT value, [value, 1], 'word ' || value FROM generate_series(1, 5000) AS g(value)").await;

    let (rows, num_texts) = run(&session, "SELECT v <-> lengths('abc') FROM points WHERE id > 0").await;
    assert_eq!((rows.len(), num_texts), (5000, 1));

    let nearest = "SELECT id FROM points ORDER BY v <-> lengths('abc') LIMIT 2";
    let (plan, num_texts) = run(&session, &format!("EXPLAIN {nearest}")).await;
    assert!(plan.iter().any(|line| line.contains("NearestRowsExec") && line.contains("to lengths(Utf8(\"abc\"))")), "{plan:#?}");
    assert_eq!(num_texts, 0);
    let (rows, num_texts) = run(&session, nearest).await;
    assert_eq!((rows.len(), rows[0].as_str(), num_texts), (2, "3", 1));

    // In three places, under a threshold, of an expression of constants.
    let places = "SELECT id, v <-> lengths('a' || 'bc') FROM points WHERE v <-> lengths('a' || 'bc') <= 1 ORDER BY v <-> lengths('a' || 'bc'), id LIMIT 9";
    assert_eq!(run(&session, places).await, (["3", "2", "4"].map(str::to_owned).to_vec(), 1));

    // A text of each row is a call for each, and no rows are none.
    assert_eq!(run(&session, "SELECT id FROM points WHERE id <= 3 ORDER BY v <-> lengths(word) LIMIT 1").await.1, 3);
    assert_eq!(run(&session, "SELECT lengths('abc') FROM points WHERE id < 0").await, (Vec::new(), 0));
}
