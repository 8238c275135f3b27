//! The library without server and client: the searches of `vectors.py`, asked for by name on standard input. `benches/README.md` describes the exchange.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type};
use arrow::ipc::writer::FileWriter;
use datafusion::common::ScalarValue;
use futures::TryStreamExt;
use rolloutdb::engine::{PreparedStatement, Response};
use rolloutdb::{Database, Result, Session};

const MEASURED: Duration = Duration::from_millis(1500);
/// What is tried, the least first.
const EF_SEARCH: [usize; 15] = [10, 16, 24, 32, 40, 48, 64, 80, 100, 128, 160, 200, 300, 400, 800];
const TUNING_QUERIES: usize = 300;
const TUNING_MARGIN: f64 = 0.003;

#[tokio::main]
async fn main() -> Result<()> {
    // Cargo builds and runs it with the others; it measures only when it is asked.
    if env::var_os("BENCH_VECTORS").is_none() {
        println!("run by benches/run --library; see benches/README.md");
        return Ok(());
    }
    let library = Library::open().await?;
    library.choose_ef_search().await?;
    answer("ready", 1.0);
    for line in stdin().lock().lines() {
        let name = line.expect("standard input is text");
        let value = library.measure(&name).await?;
        answer(&name, value);
    }
    Ok(())
}

fn answer(name: &str, value: f64) {
    println!("{name} {value}");
    stdout().flush().expect("standard output is there");
}

struct Library {
    session: Session,
    exact: PreparedStatement,
    exact_batch: PreparedStatement,
    hnsw: PreparedStatement,
    /// As parameters.
    queries: Vec<ScalarValue>,
    batch: usize,
    recall: f64,
    found: String,
    _directory: tempfile::TempDir,
}

impl Library {
    async fn open() -> Result<Self> {
        let text = |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
        let number = |name: &str| text(name).parse::<usize>().expect("a number");
        let (width, k, batch) = (number("BENCH_DIMENSION"), number("BENCH_K"), number("BENCH_BATCH"));
        let directory = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(directory.path().join("data")).await?.session();
        let run = async |sql: &str| session.sql(sql).await?.try_collect::<Vec<_>>().await.map_err(rolloutdb::Error::from);
        let vectors = vectors(&text("BENCH_VECTORS"), width);
        let queries = self::vectors(&text("BENCH_QUERIES"), width);
        let file = directory.path().join("vectors.arrow");
        for (table, vectors) in [("plain", &vectors), ("indexed", &vectors), ("queries", &queries)] {
            write(&file, vectors, batch);
            run(&format!("CREATE TABLE {table} (id bigint PRIMARY KEY, batch bigint, embedding vector({width}))")).await?;
            run(&format!("COPY {table} FROM '{}'", file.display())).await?;
        }
        run("CREATE INDEX ON indexed USING hnsw (embedding vector_cosine_ops)").await?;
        let prepare = async |sql: String| session.prepare(session.parse(&sql)?.remove(0)).await;
        let exact = prepare(format!("SELECT id FROM plain ORDER BY embedding <=> $1 LIMIT {k}")).await?;
        let hnsw = prepare(format!("SELECT id FROM indexed ORDER BY embedding <=> $1 LIMIT {k}")).await?;
        let of_batch = format!(
            "SELECT s.id FROM (SELECT id, embedding FROM queries WHERE batch = $1) q \
             CROSS JOIN LATERAL vector_search(plain, q.embedding, k => {k}) s ORDER BY q.id, s.rank"
        );
        let exact_batch = prepare(of_batch).await?;
        let queries = (0..queries.len()).map(|row| ScalarValue::FixedSizeList(Arc::new(queries.slice(row, 1)))).collect();
        let recall = text("BENCH_RECALL").parse().expect("a number");
        let found = text("BENCH_FOUND");
        Ok(Self { session, exact, exact_batch, hnsw, queries, batch, recall, found, _directory: directory })
    }

    /// The least effort that reaches the recall.
    async fn choose_ef_search(&self) -> Result<()> {
        let num_queries = self.queries.len().min(TUNING_QUERIES);
        let mut right = Vec::with_capacity(num_queries);
        for query in 0..num_queries {
            right.push(self.one(&self.exact, query).await?);
        }
        for ef_search in EF_SEARCH {
            drop(self.session.sql(&format!("SET hnsw.ef_search = {ef_search}")).await?);
            let (mut num_right, mut num_all) = (0, 0);
            for (query, right) in right.iter().enumerate() {
                let found: HashSet<i64> = self.one(&self.hnsw, query).await?.into_iter().collect();
                num_right += right.iter().filter(|id| found.contains(id)).count();
                num_all += right.len();
            }
            if num_right as f64 >= (self.recall + TUNING_MARGIN) * num_all as f64 {
                eprintln!("library: hnsw.ef_search = {ef_search}");
                return Ok(());
            }
        }
        panic!("no hnsw.ef_search reaches the recall");
    }

    async fn measure(&self, name: &str) -> Result<f64> {
        match name {
            "exact" => self.rate(&self.exact).await,
            "hnsw" => self.rate(&self.hnsw).await,
            "exact_batch" => {
                let num_batches = self.queries.len() / self.batch;
                let (start, mut done) = (Instant::now(), 0);
                while start.elapsed() < MEASURED {
                    self.of_batch(done % num_batches).await?;
                    done += 1;
                }
                Ok((done * self.batch) as f64 / start.elapsed().as_secs_f64())
            }
            "exact_check" => self.check(&self.exact).await,
            "hnsw_check" => self.check(&self.hnsw).await,
            "exact_batch_check" => {
                let mut found = Vec::new();
                for batch in 0..self.queries.len().div_ceil(self.batch) {
                    found.extend(self.of_batch(batch).await?);
                }
                Ok(self.keep(&found))
            }
            other => panic!("no measure {other}"),
        }
    }

    /// Queries per second, one at a time.
    async fn rate(&self, statement: &PreparedStatement) -> Result<f64> {
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < MEASURED {
            self.one(statement, done % self.queries.len()).await?;
            done += 1;
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    }

    async fn check(&self, statement: &PreparedStatement) -> Result<f64> {
        let mut found = Vec::new();
        for query in 0..self.queries.len() {
            found.extend(self.one(statement, query).await?);
        }
        Ok(self.keep(&found))
    }

    /// Writes the ids for the one who asked.
    fn keep(&self, found: &[i64]) -> f64 {
        let bytes: Vec<u8> = found.iter().flat_map(|id| id.to_le_bytes()).collect();
        fs::write(&self.found, bytes).expect("the file can be written");
        self.queries.len() as f64
    }

    async fn one(&self, statement: &PreparedStatement, query: usize) -> Result<Vec<i64>> {
        self.ids(statement, self.queries[query].clone()).await
    }

    async fn of_batch(&self, batch: usize) -> Result<Vec<i64>> {
        self.ids(&self.exact_batch, ScalarValue::from(batch as i64)).await
    }

    async fn ids(&self, statement: &PreparedStatement, parameter: ScalarValue) -> Result<Vec<i64>> {
        let Response::Rows { stream, .. } = self.session.execute_prepared(statement, vec![parameter]).await? else {
            panic!("a query has rows");
        };
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        Ok(batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect())
    }
}

/// The rows of a file of little-endian f32.
fn vectors(path: &str, width: usize) -> FixedSizeListArray {
    let bytes = fs::read(path).expect("the file is there");
    let (numbers, _) = bytes.as_chunks::<4>();
    let values = Float32Array::from_iter_values(numbers.iter().map(|number| f32::from_le_bytes(*number)));
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    FixedSizeListArray::new(item, i32::try_from(width).expect("a small width"), Arc::new(values), None)
}

/// A file with `id` from 0, the number of the batch, and the vectors.
fn write(path: &Path, vectors: &FixedSizeListArray, batch: usize) {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..vectors.len() as i64));
    let batches: ArrayRef = Arc::new(Int64Array::from_iter_values((0..vectors.len()).map(|row| (row / batch) as i64)));
    let columns = [("id", ids), ("batch", batches), ("embedding", Arc::new(vectors.clone()) as ArrayRef)];
    let rows = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let file = fs::File::create(path).expect("a temporary file");
    let mut writer = FileWriter::try_new(file, &rows.schema()).expect("a schema");
    writer.write(&rows).and_then(|()| writer.finish()).expect("a temporary file is writable");
}
