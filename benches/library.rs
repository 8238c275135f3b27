//! The library without server and client: the searches of `vectors.py`, asked for by name on standard input. `benches/README.md` describes the exchange.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, FixedSizeListArray, Float32Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type};
use arrow::ipc::writer::FileWriter;
use futures::TryStreamExt;
use rolloutdb::{Database, Result};
use rolloutdb_catalogs::{AskedEffort, Metric, Table};

const COLUMN: &str = "embedding";
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
    let mut library = Library::open().await?;
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
    plain: Arc<Table>,
    indexed: Arc<Table>,
    queries: Vec<Vec<f32>>,
    k: usize,
    batch: usize,
    recall: f64,
    ef_search: usize,
    found: String,
    _database: Database,
    _directory: tempfile::TempDir,
}

impl Library {
    async fn open() -> Result<Self> {
        let text = |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
        let number = |name: &str| text(name).parse::<usize>().expect("a number");
        let (width, k, batch) = (number("BENCH_DIMENSION"), number("BENCH_K"), number("BENCH_BATCH"));
        let directory = tempfile::tempdir().expect("a temporary directory");
        let database = Database::open(directory.path().join("data")).await?;
        let session = database.session();
        let run = async |sql: &str| session.sql(sql).await?.try_collect::<Vec<_>>().await.map_err(rolloutdb::Error::from);
        let file = directory.path().join("vectors.arrow");
        write(&file, numbers(&text("BENCH_VECTORS")), width);
        for table in ["plain", "indexed"] {
            run(&format!("CREATE TABLE {table} (id bigint PRIMARY KEY, embedding vector({width}))")).await?;
            run(&format!("COPY {table} FROM '{}'", file.display())).await?;
        }
        run("CREATE INDEX ON indexed USING hnsw (embedding vector_cosine_ops)").await?;
        Ok(Self {
            plain: database.table("plain").await?,
            indexed: database.table("indexed").await?,
            queries: numbers(&text("BENCH_QUERIES")).chunks_exact(width).map(<[f32]>::to_vec).collect(),
            k,
            batch,
            recall: text("BENCH_RECALL").parse().expect("a number"),
            ef_search: 0,
            found: text("BENCH_FOUND"),
            _database: database,
            _directory: directory,
        })
    }

    /// The least effort that reaches the recall.
    async fn choose_ef_search(&mut self) -> Result<()> {
        let queries = &self.queries[..self.queries.len().min(TUNING_QUERIES)];
        let mut right = Vec::with_capacity(queries.len());
        for query in queries {
            right.push(self.exact(std::slice::from_ref(query)).await?);
        }
        for ef_search in EF_SEARCH {
            let (mut num_right, mut num_all) = (0, 0);
            for (query, right) in queries.iter().zip(&right) {
                let found: HashSet<i64> = self.walk(query, ef_search).await?.into_iter().collect();
                num_right += right.iter().filter(|id| found.contains(id)).count();
                num_all += right.len();
            }
            if num_right as f64 >= (self.recall + TUNING_MARGIN) * num_all as f64 {
                eprintln!("library: ef_search {ef_search}");
                self.ef_search = ef_search;
                return Ok(());
            }
        }
        panic!("no ef_search reaches the recall");
    }

    async fn measure(&self, name: &str) -> Result<f64> {
        match name {
            "exact" => self.rate(1, async |queries| self.exact(queries).await).await,
            "exact_batch" => self.rate(self.batch, async |queries| self.exact(queries).await).await,
            "hnsw" => self.rate(1, async |queries| self.walk(&queries[0], self.ef_search).await).await,
            "exact_check" => self.check(1, async |queries| self.exact(queries).await).await,
            "exact_batch_check" => self.check(self.batch, async |queries| self.exact(queries).await).await,
            "hnsw_check" => self.check(1, async |queries| self.walk(&queries[0], self.ef_search).await).await,
            other => panic!("no measure {other}"),
        }
    }

    /// Queries per second, `batch` at a time.
    async fn rate(&self, batch: usize, search: impl AsyncFn(&[Vec<f32>]) -> Result<Vec<i64>>) -> Result<f64> {
        let (start, mut done) = (Instant::now(), 0);
        let num_batches = self.queries.len() / batch;
        while start.elapsed() < MEASURED {
            let first = done % num_batches * batch;
            search(&self.queries[first..first + batch]).await?;
            done += 1;
        }
        Ok((done * batch) as f64 / start.elapsed().as_secs_f64())
    }

    /// Searches for every query once, and writes the ids for the one who asked.
    async fn check(&self, batch: usize, search: impl AsyncFn(&[Vec<f32>]) -> Result<Vec<i64>>) -> Result<f64> {
        let mut bytes = Vec::new();
        for queries in self.queries.chunks(batch) {
            bytes.extend(search(queries).await?.into_iter().flat_map(i64::to_le_bytes));
        }
        fs::write(&self.found, bytes).expect("the file can be written");
        Ok(self.queries.len() as f64)
    }

    async fn exact(&self, queries: &[Vec<f32>]) -> Result<Vec<i64>> {
        Ok(ids(&self.plain.vector_search(COLUMN, queries, self.k, Metric::Cosine, true, None).await?))
    }

    async fn walk(&self, query: &Vec<f32>, ef_search: usize) -> Result<Vec<i64>> {
        let effort = Some(AskedEffort { ef_search: Some(ef_search), probes: None });
        let queries = std::slice::from_ref(query);
        Ok(ids(&self.indexed.vector_search_with(COLUMN, queries, self.k, Metric::Cosine, effort, None).await?))
    }
}

fn ids(found: &RecordBatch) -> Vec<i64> {
    found.column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// The numbers in a file of little-endian f32.
fn numbers(path: &str) -> Vec<f32> {
    let bytes = fs::read(path).expect("the file is there");
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

/// A file with `id` from 0, and the vectors.
fn write(path: &Path, numbers: Vec<f32>, width: usize) {
    let num_rows = numbers.len() / width;
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let vectors = FixedSizeListArray::new(item, i32::try_from(width).expect("a small width"), Arc::new(Float32Array::from(numbers)), None);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..num_rows as i64));
    let columns = [("id", ids), (COLUMN, Arc::new(vectors) as ArrayRef)];
    let rows = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let file = fs::File::create(path).expect("a temporary file");
    let mut writer = FileWriter::try_new(file, &rows.schema()).expect("a schema");
    writer.write(&rows).and_then(|()| writer.finish()).expect("a temporary file is writable");
}
