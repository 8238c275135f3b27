//! Vector indexes on disk: they propose rows, the vectors decide.

use datafusion::logical_expr::{Expr, col, lit};

use super::fixture::{Fixture, Random, append, passages, passages_definition};
use super::index::index;
use crate::search::counts::SearchCounts;
use crate::search::ranking::Hit;
use crate::search::vector::VectorSearch;
use crate::{IndexDefinition, IndexKind, Metric, SearchEffort, Table};

const WIDTH: usize = 16;
const SEED: u64 = 4_711;
const K: usize = 10;
/// Of 100 rows: Lance starts its clusters from random rows, so that codes of a few bits propose somewhat other rows in every run.
const LEAST: usize = 85;

/// Vectors round 20 centres.
fn clustered(random: &mut Random, count: usize) -> Vec<Vec<f32>> {
    let mut centres = Random(SEED);
    let centres: Vec<Vec<f32>> = (0..20).map(|_| centres.vector(WIDTH)).collect();
    let near = |random: &mut Random| centres[random.below(20) as usize].iter().map(|value| value + random.signed() * 0.3).collect();
    (0..count).map(|_| near(random)).collect()
}

fn search(table: &Table, metric: Metric, probes: usize, filter: Option<Expr>) -> VectorSearch {
    let (table, column) = (table.clone(), "embedding".to_owned());
    VectorSearch { table, column, k: K, metric, filter, effort: SearchEffort { ef_search: 64, probes }, counts: SearchCounts::default() }
}

fn ids(hits: &[Hit]) -> Vec<u64> {
    hits.iter().map(|hit| hit.row_id).collect()
}

/// Of the rows that an exact search finds, how many of 100 the index finds. Whatever it finds is measured right, and there are k of it.
async fn recall(table: &Table, index: &str, metric: Metric, probes: usize, queries: &[Vec<f32>]) -> usize {
    let search = search(table, metric, probes, None);
    let exact = search.find(queries, true).await.unwrap();
    let filter = table.row_filter(None).await.unwrap();
    let indexed = search.indexed(index, queries, &filter).await.unwrap();
    // A list can be too short to hold k rows: then every vector is read.
    let (by_index, by_every_vector) = (search.counts.by_index.value(), search.counts.by_every_vector.value());
    assert!(by_index * 2 > queries.len() && by_index + by_every_vector == 2 * queries.len(), "{by_index} {by_every_vector}");
    let mut num_right = 0;
    for (exact, indexed) in exact.iter().zip(&indexed) {
        assert_eq!(indexed.len(), K);
        for hit in indexed {
            if let Some(right) = exact.iter().find(|right| right.row_id == hit.row_id) {
                assert_eq!(hit.distance, right.distance);
                num_right += 1;
            }
        }
    }
    num_right * 100 / (queries.len() * K)
}

#[tokio::test]
async fn each_kind_proposes_and_the_vectors_decide() {
    let kinds = [
        (IndexKind::IvfFlat, Metric::L2),
        (IndexKind::IvfPq, Metric::Cosine),
        (IndexKind::IvfSq, Metric::Dot),
        (IndexKind::IvfRq, Metric::L2),
    ];
    for (kind, metric) in kinds {
        let fixture = Fixture::new().await;
        let table = fixture.create("t", passages_definition(WIDTH as i32)).await;
        let mut random = Random(SEED);
        append(&table, passages(&(0..1_500).collect::<Vec<i64>>(), &clustered(&mut random, 1_500))).await.unwrap();
        let mut definition = IndexDefinition { metric: Some(metric), ..index("i", "embedding", kind) };
        definition.options.insert("lists".to_owned(), "12".to_owned());
        table.create_index(&definition, false).await.unwrap();
        let queries = clustered(&mut random, 20);
        let latest = table.latest().await.unwrap();
        let (few, all) = (recall(&latest, "i", metric, 1, &queries).await, recall(&latest, "i", metric, 12, &queries).await);
        assert!(all >= LEAST && few <= all, "{}: {few} % with one of 12 lists, {all} % with all", kind.name());

        // Rows that came later are found, rows that went are not, and few that match are all there.
        append(&table, passages(&(1_500..1_505).collect::<Vec<i64>>(), &clustered(&mut random, 5))).await.unwrap();
        table.delete_where(col("number").lt(lit(100_i64))).await.unwrap();
        for is_compacted in [false, true] {
            if is_compacted {
                table.compact().await.unwrap();
            }
            let table = table.latest().await.unwrap();
            let all = recall(&table, "i", metric, 12, &queries).await;
            assert!(all >= LEAST, "{}: {all} %", kind.name());
            let late = search(&table, metric, 12, Some(col("number").gt_eq(lit(1_498_i64))));
            let filter = table.row_filter(late.filter.as_ref()).await.unwrap();
            let found = late.indexed("i", &queries, &filter).await.unwrap();
            let right = late.find(&queries, true).await.unwrap();
            assert_eq!(found.iter().map(|hits| ids(hits)).collect::<Vec<_>>(), right.iter().map(|hits| ids(hits)).collect::<Vec<_>>());
            assert!(found.iter().all(|hits| hits.len() == 7));
        }
    }
}

#[tokio::test]
async fn of_several_indexes_on_a_column_the_one_for_the_metric_is_read() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", passages_definition(WIDTH as i32)).await;
    let mut random = Random(SEED);
    append(&table, passages(&(0..1_000).collect::<Vec<i64>>(), &clustered(&mut random, 1_000))).await.unwrap();
    for (name, metric) in [("by_l2", Metric::L2), ("by_cosine", Metric::Cosine)] {
        let mut definition = IndexDefinition { metric: Some(metric), ..index(name, "embedding", IndexKind::IvfFlat) };
        definition.options.insert("lists".to_owned(), "50".to_owned());
        table.create_index(&definition, false).await.unwrap();
    }
    append(&table, passages(&[1_000], &clustered(&mut random, 1))).await.unwrap();
    let table = table.latest().await.unwrap();
    let queries = clustered(&mut random, 20);
    for (name, metric) in [("by_l2", Metric::L2), ("by_cosine", Metric::Cosine)] {
        // One partition of fifty can not hold all neighbours: a search that finds them has read every vector.
        assert!(recall(&table, name, metric, 1, &queries).await < 90, "{name}");
        assert!(recall(&table, name, metric, 50, &queries).await >= 99, "{name}");
    }
}
