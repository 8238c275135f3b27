//! Nearest vectors against a plain double loop, for three metrics, with and without an index.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use datafusion::logical_expr::{cast, col, lit};

use super::fixture::{Fixture, Random, append, passages, passages_definition};
use super::index::index;
use crate::{Error, IndexDefinition, IndexKind, Metric, Table};

const WIDTH: usize = 12;
const SEED: u64 = 77;

/// (query_index, number, distance) of each row of a result.
fn found(result: &RecordBatch) -> Vec<(i32, i64, f64)> {
    let queries = result.column_by_name("query_index").unwrap().as_primitive::<Int32Type>();
    let numbers = result.column_by_name("number").unwrap().as_primitive::<Int64Type>();
    let distances = result.column_by_name("distance").unwrap().as_primitive::<Float64Type>();
    (0..result.num_rows()).map(|row| (queries.value(row), numbers.value(row), distances.value(row))).collect()
}

/// pgvector's `<->`, `<=>`, `<#>` in double precision.
fn distance(metric: Metric, a: &[f32], b: &[f32]) -> f64 {
    let pairs = || a.iter().zip(b).map(|(x, y)| (f64::from(*x), f64::from(*y)));
    let dot: f64 = pairs().map(|(x, y)| x * y).sum();
    let norm = |v: &[f32]| v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    match metric {
        Metric::L2 => pairs().map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt(),
        Metric::Cosine => 1.0 - dot / (norm(a) * norm(b)),
        Metric::Dot => -dot,
    }
}

/// The k nearest by a sort of everything; ids are `p<number>`, compared as text.
fn brute_force(metric: Metric, vectors: &[Vec<f32>], query: &[f32], k: usize, keep: impl Fn(i64) -> bool) -> Vec<(i64, f64)> {
    let numbers = (0..vectors.len() as i64).filter(|number| keep(*number));
    let mut ranked: Vec<(i64, f64)> = numbers.map(|number| (number, distance(metric, query, &vectors[number as usize]))).collect();
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| format!("p{}", a.0).cmp(&format!("p{}", b.0))));
    ranked.truncate(k);
    ranked
}

async fn random_table(fixture: &Fixture, num_rows: usize) -> (Table, Vec<Vec<f32>>) {
    let table = fixture.create("t", passages_definition(WIDTH as i32)).await;
    let mut random = Random(SEED);
    let vectors: Vec<Vec<f32>> = (0..num_rows).map(|_| random.vector(WIDTH)).collect();
    let numbers: Vec<i64> = (0..num_rows as i64).collect();
    let half = num_rows / 2;
    append(&table, passages(&numbers[..half], &vectors[..half])).await.unwrap();
    append(&table, passages(&numbers[half..], &vectors[half..])).await.unwrap();
    (table.latest().await.unwrap(), vectors)
}

fn assert_same(result: &RecordBatch, expected: &[Vec<(i64, f64)>]) {
    let expected: Vec<(i32, i64, f64)> =
        (0..).zip(expected).flat_map(|(query, hits)| hits.iter().map(move |(number, distance)| (query, *number, *distance))).collect();
    let found = found(result);
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!((found.0, found.1), (expected.0, expected.1), "seed {SEED}");
        assert!((found.2 - expected.2).abs() < 1e-5, "{found:?} {expected:?}");
    }
}

#[tokio::test]
async fn exact_search_is_the_brute_force_with_and_without_an_index() {
    let fixture = Fixture::new().await;
    let (table, vectors) = random_table(&fixture, 600).await;
    let mut random = Random(SEED + 1);
    let queries: Vec<Vec<f32>> = (0..5).map(|_| random.vector(WIDTH)).collect();
    for with_index in [false, true] {
        if with_index {
            let definition = IndexDefinition { metric: Some(Metric::L2), ..index("emb", "embedding", IndexKind::Hnsw) };
            table.create_index(&definition, false).await.unwrap();
        }
        let table = table.latest().await.unwrap();
        for metric in Metric::ALL {
            let expected: Vec<_> = queries.iter().map(|query| brute_force(metric, &vectors, query, 7, |_| true)).collect();
            let result = table.vector_search("embedding", &queries, 7, metric, true, None).await.unwrap();
            assert_same(&result, &expected);
            // A filter, and a k beyond the matching rows.
            let filter = col("number").lt(lit(20_i64));
            let expected: Vec<_> = queries.iter().map(|query| brute_force(metric, &vectors, query, 50, |n| n < 20)).collect();
            assert_eq!(expected[0].len(), 20);
            let result = table.vector_search("embedding", &queries, 50, metric, true, Some(filter)).await.unwrap();
            assert_same(&result, &expected);
        }
    }
}

#[tokio::test]
async fn an_index_finds_nearly_all_and_its_distances_are_right() {
    for kind in [IndexKind::Hnsw, IndexKind::IvfFlat] {
        for metric in Metric::ALL {
            let fixture = Fixture::new().await;
            let (table, mut vectors) = random_table(&fixture, 600).await;
            let definition = IndexDefinition { metric: Some(metric), ..index("emb", "embedding", kind) };
            table.create_index(&definition, false).await.unwrap();
            let mut random = Random(SEED + 2);
            let late: Vec<Vec<f32>> = (0..20).map(|_| random.vector(WIDTH)).collect();
            append(&table, passages(&(600..620).collect::<Vec<i64>>(), &late)).await.unwrap();
            vectors.extend(late);
            let table = table.latest().await.unwrap();

            // The last query is a row written after the index was built.
            let mut queries: Vec<Vec<f32>> = (0..10).map(|_| random.vector(WIDTH)).collect();
            queries.push(vectors[610].clone());
            let result = table.vector_search("embedding", &queries, 10, metric, false, None).await.unwrap();
            let found = found(&result);
            assert_eq!(found.len(), 110, "{kind:?} {metric:?}");
            let mut num_right = 0;
            for (query, number, found_distance) in &found {
                let query = &queries[*query as usize];
                let right = distance(metric, query, &vectors[*number as usize]);
                assert!((found_distance - right).abs() < 1e-5, "{kind:?} {metric:?}");
                let nearest = brute_force(metric, &vectors, query, 10, |_| true);
                num_right += usize::from(nearest.iter().any(|(near, _)| near == number));
            }
            // Measured: 110 for every kind and metric; training draws its sample at random.
            assert!(num_right >= 99, "{kind:?} {metric:?}: {num_right} of 110");
            if metric != Metric::Dot {
                assert_eq!(found[100].1, 610, "{kind:?} {metric:?}: the late row is its own nearest");
            }
            // A filter that leaves fewer rows than k still gives all of them.
            let filter = Some(col("number").in_list(vec![lit(3_i64), lit(605_i64), lit(7_i64)], false));
            let few = table.vector_search("embedding", &queries[..2], 10, metric, false, filter).await.unwrap();
            assert_eq!(few.num_rows(), 6);
        }
    }
}

/// Conditions that Lance answers, and others: one row in many, a tenth of them, those without a vector, none.
#[tokio::test]
async fn exactly_the_rows_that_meet_a_filter_compete() {
    let fixture = Fixture::new().await;
    let (table, vectors) = random_table(&fixture, 2_000).await;
    let query = [Random(SEED + 3).vector(WIDTH)];
    let digit = cast(datafusion::functions::expr_fn::right(col("id"), lit(1_i64)), DataType::Utf8);
    let filters: [(_, &dyn Fn(i64) -> bool); 5] = [
        (col("number").eq(lit(1_234_i64)), &|number| number == 1_234),
        ((col("number") % lit(500_i64)).eq(lit(7_i64)), &|number| number % 500 == 7),
        (digit.eq(lit("7")), &|number| number % 10 == 7),
        (col("embedding").is_null(), &|_| false),
        (lit(false), &|_| false),
    ];
    for kind in [None, Some(IndexKind::Hnsw), Some(IndexKind::IvfFlat)] {
        if let Some(kind) = kind {
            let definition = IndexDefinition { metric: Some(Metric::L2), ..index(kind.name(), "embedding", kind) };
            table.create_index(&definition, false).await.unwrap();
        }
        let table = table.latest().await.unwrap();
        for (filter, keep) in &filters {
            for is_hot in [false, true] {
                if is_hot {
                    table.state.heat.raise()
                } else {
                    table.state.heat.cool()
                }
                let expected = brute_force(Metric::L2, &vectors, &query[0], 10, keep);
                let result = table.vector_search("embedding", &query, 10, Metric::L2, true, Some(filter.clone())).await.unwrap();
                assert_same(&result, std::slice::from_ref(&expected));
                let approximate = table.vector_search("embedding", &query, 10, Metric::L2, false, Some(filter.clone())).await.unwrap();
                assert_eq!(approximate.num_rows(), expected.len(), "{filter} {kind:?} {is_hot}");
                assert!(found(&approximate).iter().all(|(_, number, _)| keep(*number)), "{filter} {kind:?} {is_hot}");
            }
        }
        if let Some(kind) = kind {
            table.drop_index(kind.name()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn equal_distances_are_ordered_by_primary_key() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", passages_definition(2)).await;
    for number in [30, 12, 2, 25, 11] {
        append(&table, passages(&[number], &[vec![1.0, 0.0]])).await.unwrap();
    }
    let table = table.latest().await.unwrap();
    let result = table.vector_search("embedding", &[vec![1.0, 0.0]], 3, Metric::Cosine, true, None).await.unwrap();
    assert_eq!(found(&result), [(0, 11, 0.0), (0, 12, 0.0), (0, 2, 0.0)], "p11 < p12 < p2 as text");
}

#[tokio::test]
async fn rows_without_a_vector_and_zero_vectors() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", passages_definition(2)).await;
    append(&table, passages(&[1, 2], &[vec![0.0, 0.0], vec![0.0, 3.0]])).await.unwrap();
    fixture.query("INSERT INTO t (id, number) VALUES ('none', 3)").await;
    let table = table.latest().await.unwrap();
    let search = async |metric| found(&table.vector_search("embedding", &[vec![0.0, 1.0]], 9, metric, true, None).await.unwrap());
    assert_eq!(search(Metric::L2).await, [(0, 1, 1.0), (0, 2, 2.0)]);
    assert_eq!(search(Metric::Dot).await, [(0, 2, -3.0), (0, 1, 0.0)]);
    let cosine = search(Metric::Cosine).await;
    assert_eq!((cosine[0].1, cosine[0].2), (2, 0.0));
    assert!(cosine[1].1 == 1 && cosine[1].2.is_nan(), "as pgvector: NaN, last");
}

#[tokio::test]
async fn bad_searches_are_named_and_empty_ones_are_empty() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", passages_definition(2)).await;
    let search = async |column: &str, queries: &[Vec<f32>], k| table.vector_search(column, queries, k, Metric::L2, true, None).await;
    assert_eq!(search("embedding", &[vec![1.0, 2.0]], 3).await.unwrap().num_rows(), 0);
    assert_eq!(search("embedding", &[], 3).await.unwrap().num_columns(), 6);
    assert_eq!(search("embedding", &[vec![1.0, 2.0]], 0).await.unwrap().num_rows(), 0);
    assert!(matches!(search("embeding", &[], 3).await, Err(Error::UnknownColumn { .. })));
    assert!(matches!(search("number", &[], 3).await, Err(Error::WrongType { .. })));
    let wrong = search("embedding", &[vec![1.0]], 3).await.unwrap_err();
    assert_eq!(wrong.to_string(), "expected 2 dimensions, not 1: column \"embedding\" of table \"t\"");
}
