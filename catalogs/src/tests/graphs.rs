//! Graphs of hnsw indexes keep up with their tables: rows that come, go, and move.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use datafusion::logical_expr::{col, lit};

use super::fixture::{Fixture, Random, append, passages, passages_definition};
use super::index::index;
use crate::{BuildProgress, IndexDefinition, IndexKind, Metric, Table};

const WIDTH: usize = 8;
const SEED: u64 = 90;
/// More than a filter can leave without a walk, see `FILTERED_ROWS_MIN`.
const NUM_ROWS: i64 = 4_200;
/// Rows after which the graph takes them in.
const STEP: i64 = 1_024;

fn hnsw(metric: Metric) -> IndexDefinition {
    let mut hnsw = IndexDefinition { metric: Some(metric), ..index("emb", "embedding", IndexKind::Hnsw) };
    hnsw.options.insert("ef_construction".to_owned(), "40".to_owned());
    hnsw
}

async fn insert(table: &Table, random: &mut Random, from: i64, to: i64) {
    let vectors: Vec<Vec<f32>> = (from..to).map(|_| random.vector(WIDTH)).collect();
    append(table, passages(&(from..to).collect::<Vec<i64>>(), &vectors)).await.unwrap();
}

/// The table as after many searches.
async fn hot(fixture: &Fixture) -> Table {
    let table = fixture.catalog.table("public", "t").await.unwrap().as_ref().clone();
    table.state.heat.raise();
    table
}

fn numbers(result: &RecordBatch) -> BTreeSet<i64> {
    result.column_by_name("number").unwrap().as_primitive::<Int64Type>().values().iter().copied().collect()
}

/// Of the nearest rows, how many in a hundred a search by index finds, whose rows are all rows of the table.
async fn recall(table: &Table, metric: Metric) -> usize {
    let mut random = Random(SEED + 1);
    let mut num_right = 0;
    for _ in 0..20 {
        let query = [random.vector(WIDTH)];
        let found = numbers(&table.vector_search("embedding", &query, 10, metric, false, None).await.unwrap());
        let right = numbers(&table.vector_search("embedding", &query, 10, metric, true, None).await.unwrap());
        assert_eq!(found.len(), 10);
        num_right += found.intersection(&right).count();
    }
    num_right / 2
}

async fn graph_rows(table: &Table) -> Option<usize> {
    table.state.resident.read().await.graph("emb").map(|graph| graph.num_rows())
}

async fn graph_bytes(table: &Table) -> Vec<u8> {
    table.state.resident.read().await.graph("emb").map(|graph| graph.to_bytes()).expect("a graph")
}

/// Waits until the graph in memory has so many rows, which a search lets it take in.
async fn until_graph_has(table: &Table, num_rows: i64) {
    recall(table, Metric::L2).await;
    for _ in 0..600 {
        if graph_rows(table).await == usize::try_from(num_rows).ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the graph has {:?} rows instead of {num_rows}", graph_rows(table).await);
}

#[tokio::test]
async fn later_rows_are_taken_in_by_steps_that_do_not_depend_on_when() {
    let mut graphs = Vec::new();
    for commits in [vec![STEP, 2 * STEP + 7], vec![2 * STEP + 7]] {
        let fixture = Fixture::new().await;
        let table = fixture.create("t", passages_definition(WIDTH as i32)).await;
        let mut random = Random(SEED);
        insert(&table, &mut random, 0, NUM_ROWS).await;
        table.create_index(&hnsw(Metric::L2), false).await.unwrap();
        let mut from = NUM_ROWS;
        for to in commits {
            insert(&table, &mut random, from, NUM_ROWS + to).await;
            from = NUM_ROWS + to;
            until_graph_has(&hot(&fixture).await, NUM_ROWS + to / STEP * STEP).await;
        }
        let table = hot(&fixture).await;
        assert!(recall(&table, Metric::L2).await >= 95);
        graphs.push(graph_bytes(&table).await);
    }
    assert!(graphs[0] == graphs[1]);
}

#[tokio::test]
async fn a_graph_moves_with_its_rows() {
    for metric in [Metric::Cosine, Metric::L2] {
        let mut fixture = Fixture::new().await;
        let table = fixture.create("t", passages_definition(WIDTH as i32)).await;
        let mut random = Random(SEED);
        for part in 0..3 {
            insert(&table, &mut random, part * NUM_ROWS / 3, (part + 1) * NUM_ROWS / 3).await;
        }
        table.create_index(&hnsw(metric), false).await.unwrap();
        insert(&table, &mut random, NUM_ROWS, NUM_ROWS + 900).await;
        // Rows of several files, and more of one; all others and the late ones are in the graph after OPTIMIZE.
        table.delete_where(col("number").lt(lit(300_i64)).or(col("number").gt(lit(NUM_ROWS + 800)))).await.unwrap();
        table.compact().await.unwrap();
        drop(table);
        let num_rows = usize::try_from(NUM_ROWS + 501).unwrap();
        let table = hot(&fixture).await;
        assert_eq!(graph_rows(&table).await, Some(num_rows));
        assert!(recall(&table, metric).await >= 95, "{metric:?} after OPTIMIZE");
        let bytes = graph_bytes(&table).await;
        drop(table);

        fixture = fixture.restart().await;
        let table = hot(&fixture).await;
        assert!(recall(&table, metric).await >= 95, "{metric:?} after a restart");
        assert!(graph_bytes(&table).await == bytes);

        // A file that goes as a whole takes its rows out of the graph, which then moves when it is read.
        insert(&table, &mut random, 10_000, 10_100).await;
        table.compact().await.unwrap();
        insert(&table, &mut random, 11_000, 11_050).await;
        table.delete_where(col("number").lt(lit(10_050_i64)).and(col("number").gt_eq(lit(4_000_i64)))).await.unwrap();
        table.delete_where(col("number").gt_eq(lit(11_000_i64))).await.unwrap();
        drop(table);
        fixture = fixture.restart().await;
        let table = hot(&fixture).await;
        assert!(recall(&table, metric).await >= 90, "{metric:?} after more");
        assert!(graph_rows(&table).await.is_some());
    }
}

#[tokio::test]
async fn fragments_that_vanish_take_their_rows_out_of_the_graph() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", passages_definition(WIDTH as i32)).await;
    let mut random = Random(SEED);
    for part in 0..6 {
        insert(&table, &mut random, part * 1_000, (part + 1) * 1_000).await;
    }
    table.create_index(&hnsw(Metric::L2), false).await.unwrap();
    table.delete_where(col("number").gt_eq(lit(1_000_i64)).and(col("number").lt(lit(2_000_i64)))).await.unwrap();
    drop(table);
    let fixture = fixture.restart().await;
    let table = hot(&fixture).await;
    assert!(recall(&table, Metric::L2).await >= 95);
    assert_eq!(graph_rows(&table).await, Some(5_000));
}

/// Notes what it is told.
#[derive(Debug, Default)]
struct Noted(std::sync::Mutex<Vec<(String, u64)>>);

impl BuildProgress for Noted {
    fn phase(&self, name: &str, _: Option<u64>, _: &str) {
        self.0.lock().unwrap().push((name.to_owned(), 0));
    }

    fn done(&self, done: u64) {
        if let Some(last) = self.0.lock().unwrap().last_mut() {
            last.1 = done;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_tells_where_it_is_and_a_dropped_one_leaves_nothing() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", passages_definition(WIDTH as i32)).await;
    insert(&table, &mut Random(SEED), 0, NUM_ROWS).await;
    let noted = Arc::new(Noted::default());
    let progress: Arc<dyn BuildProgress> = noted.clone();
    let building = table.clone();
    let build = tokio::spawn(async move { building.create_index_watched(&hnsw(Metric::L2), false, &progress).await });
    while noted.0.lock().unwrap().last().is_none_or(|(_, done)| *done < 64) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    build.abort();
    assert!(build.await.unwrap_err().is_cancelled());
    let latest = table.latest().await.unwrap();
    assert!(latest.indexes().await.unwrap().is_empty());
    assert_eq!(latest.version(), table.latest().await.unwrap().version());
    assert!(!fixture.path().join("public/t.lance/_graphs/emb").exists());

    // The next one is not held up, and tells of the graph first.
    let noted = Arc::new(Noted::default());
    let progress: Arc<dyn BuildProgress> = noted.clone();
    assert!(table.create_index_watched(&hnsw(Metric::L2), false, &progress).await.unwrap());
    let phases = noted.0.lock().unwrap().clone();
    assert_eq!(phases[0], ("build graph".to_owned(), u64::try_from(NUM_ROWS).unwrap()));
    assert!(phases.len() > 1, "{phases:?}");
}
