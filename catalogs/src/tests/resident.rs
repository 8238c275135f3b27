//! Tables in memory answer as the tables on disk, whatever is written in between.

use std::collections::BTreeMap;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type};
use datafusion::logical_expr::{col, lit};

use super::fixture::{Fixture, Random, append, by_words, passages, passages_definition, texts, texts_definition};
use super::index::index;
use crate::{IndexDefinition, IndexKind, Metric, Table};

const WIDTH: usize = 8;
const SEED: u64 = 2_024;

type Rows = BTreeMap<i64, Vec<f32>>;

fn numbers(result: &RecordBatch) -> Vec<i64> {
    result.column_by_name("number").unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
}

/// The nearest by a sort of everything, equal ones by their ids as texts.
fn brute_force(rows: &Rows, query: &[f32], k: usize, keep: impl Fn(i64) -> bool) -> Vec<i64> {
    let mut ranked: Vec<(f64, String, i64)> = rows
        .iter()
        .filter(|(number, _)| keep(**number))
        .map(|(number, vector)| (squared_distance(query, vector), format!("p{number}"), *number))
        .collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    ranked.into_iter().take(k).map(|(_, _, number)| number).collect()
}

async fn nearest(table: &Table, query: &[f32], k: usize, exact: bool, below: Option<i64>) -> Vec<i64> {
    let filter = below.map(|below| col("number").lt(lit(below)));
    let result = table.vector_search("embedding", &[query.to_vec()], k, Metric::L2, exact, filter).await.unwrap();
    numbers(&result)
}

/// The table at its newest version, as after many searches.
async fn hot(fixture: &Fixture) -> Table {
    let table = fixture.catalog.table("public", "t").await.unwrap().as_ref().clone();
    table.state.heat.raise();
    table
}

/// Whether the rows in memory are those of the table's version.
async fn is_resident(table: &Table) -> bool {
    table.resident(&table.column_names(), 1).await.unwrap().is_some()
}

async fn write_at_random(table: &Table, random: &mut Random, rows: &mut Rows, next: &mut i64) {
    match random.below(6) {
        0..3 => {
            let count = 1 + random.below(40) as i64;
            let new: Vec<i64> = (*next..*next + count).collect();
            // Few different values, so that distances are equal now and then.
            let vector = |random: &mut Random| (0..WIDTH).map(|_| random.below(3) as f32).collect::<Vec<f32>>();
            let vectors: Vec<Vec<f32>> = new.iter().map(|_| vector(random)).collect();
            append(table, passages(&new, &vectors)).await.unwrap();
            rows.extend(new.into_iter().zip(vectors));
            *next += count;
        }
        3 => {
            let (from, to) = (random.below(*next as u64 + 1) as i64, random.below(*next as u64 + 1) as i64);
            let filter = col("number").gt_eq(lit(from)).and(col("number").lt(lit(to)));
            table.delete_where(filter).await.unwrap();
            rows.retain(|number, _| !(from..to).contains(number));
        }
        4 => {
            table.compact().await.unwrap();
        }
        _ => {
            if let Some((number, _)) = rows.iter().nth(random.below(rows.len() as u64 + 1) as usize) {
                let (number, vector) = (*number, random.vector(WIDTH));
                table.upsert(&passages(&[number], std::slice::from_ref(&vector))).await.unwrap();
                rows.insert(number, vector);
            }
        }
    }
}

#[tokio::test]
async fn searches_in_memory_see_every_write_and_each_version_its_own_rows() {
    let mut random = Random(SEED);
    let fixture = Fixture::new().await;
    fixture.create("t", passages_definition(WIDTH as i32)).await;
    let (mut rows, mut next) = (Rows::new(), 0);
    let mut old: Option<(Table, Rows)> = None;
    for step in 0..60 {
        let table = hot(&fixture).await;
        write_at_random(&table, &mut random, &mut rows, &mut next).await;
        let table = hot(&fixture).await;
        assert!(is_resident(&table).await, "step {step}");
        let query = random.vector(WIDTH);
        let middle = next / 2;
        assert_eq!(nearest(&table, &query, 9, true, None).await, brute_force(&rows, &query, 9, |_| true), "step {step}, seed {SEED}");
        let filtered = brute_force(&rows, &query, 9, |number| number < middle);
        assert_eq!(nearest(&table, &query, 9, true, Some(middle)).await, filtered, "step {step}, seed {SEED}");
        if let Some((old, rows)) = &old {
            assert_eq!(nearest(old, &query, 9, true, None).await, brute_force(rows, &query, 9, |_| true), "step {step}: an old snapshot");
        }
        if step % 7 == 0 {
            old = Some((table, rows.clone()));
        }
    }
}

#[tokio::test]
async fn a_graph_finds_nearly_all_survives_a_restart_and_is_not_needed() {
    let mut random = Random(SEED);
    let fixture = Fixture::new().await;
    let table = fixture.create("t", passages_definition(WIDTH as i32)).await;
    let all: Vec<i64> = (0..5_000).collect();
    let vectors: Vec<Vec<f32>> = all.iter().map(|_| random.vector(WIDTH)).collect();
    append(&table, passages(&all, &vectors)).await.unwrap();
    let mut rows: Rows = all.into_iter().zip(vectors).collect();
    table.create_index(&IndexDefinition { metric: Some(Metric::L2), ..index("emb", "embedding", IndexKind::Hnsw) }, false).await.unwrap();
    drop(table);

    let check = async |fixture: &Fixture, rows: &Rows, random: &mut Random, has_graph: bool| {
        let table = hot(fixture).await;
        let mut num_right = 0;
        for _ in 0..20 {
            let query = random.vector(WIDTH);
            let found = nearest(&table, &query, 10, false, None).await;
            assert_eq!(found.len(), 10);
            let right = brute_force(rows, &query, 10, |_| true);
            num_right += found.iter().filter(|number| right.contains(number)).count();
            // Few rows match: each is measured, and none is missing.
            assert_eq!(nearest(&table, &query, 10, false, Some(300)).await, brute_force(rows, &query, 10, |number| number < 300));
        }
        assert!(num_right >= 190, "{num_right} of 200");
        assert_eq!(table.state.resident.read().await.graph("emb").is_some(), has_graph);
    };
    check(&fixture, &rows, &mut random, true).await;

    // Rows written and removed since.
    let late: Vec<Vec<f32>> = (0..30).map(|_| random.vector(WIDTH)).collect();
    {
        let table = hot(&fixture).await;
        append(&table, passages(&(5_000..5_030).collect::<Vec<i64>>(), &late)).await.unwrap();
        table.delete_where(col("number").lt(lit(500_i64)).and(col("number").gt_eq(lit(300_i64)))).await.unwrap();
        rows.retain(|number, _| !(300..500).contains(number));
        rows.extend((5_000..).zip(late.clone()));
        let table = hot(&fixture).await;
        assert_eq!(nearest(&table, &late[7], 1, false, None).await, [5_007]);
    }
    check(&fixture, &rows, &mut random, true).await;

    let fixture = fixture.restart().await;
    check(&fixture, &rows, &mut random, true).await;

    // Without its file, or with a damaged one, the index on disk answers.
    let file = fixture.path().join("public/t.lance/_graphs/emb");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&file, bytes).unwrap();
    let fixture = fixture.restart().await;
    check(&fixture, &rows, &mut random, false).await;

    // OPTIMIZE numbers the rows anew; REINDEX builds the graph for them.
    hot(&fixture).await.compact().await.unwrap();
    check(&fixture, &rows, &mut random, false).await;
    hot(&fixture).await.rebuild_index("emb").await.unwrap();
    check(&fixture, &rows, &mut random, true).await;
    hot(&fixture).await.drop_index("emb").await.unwrap();
    assert!(!file.exists());
}

#[tokio::test]
async fn words_in_memory_score_as_the_index_on_disk() {
    let words = ["moon", "sun", "star", "comet", "orbit", "rocket", "crater"];
    let mut random = Random(SEED);
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    let mut corpus: Vec<(String, Option<String>)> = Vec::new();
    for number in 0..300 {
        let count = 1 + random.below(12);
        let text: Vec<&str> = (0..count).map(|_| words[random.below(7).min(random.below(7)) as usize]).collect();
        corpus.push((format!("d{number:03}"), (number % 50 != 9).then(|| text.join(" "))));
    }
    let rows: Vec<(&str, Option<&str>)> = corpus.iter().map(|(id, text)| (id.as_str(), text.as_deref())).collect();
    append(&table, texts(&rows[..200])).await.unwrap();
    append(&table, texts(&rows[200..])).await.unwrap();
    table.create_index(&index("txt", "contents", IndexKind::Bm25), false).await.unwrap();

    let scored = |result: &RecordBatch| -> Vec<(String, f64)> {
        let ids = result.column_by_name("id").unwrap().as_string::<i32>();
        let scores = result.column_by_name("score").unwrap().as_primitive::<Float64Type>();
        (0..result.num_rows()).map(|row| (ids.value(row).to_owned(), scores.value(row))).collect()
    };
    let cold = fixture.catalog.table("public", "t").await.unwrap();
    let queries = ["comet", "moon sun", "rocket crater moon moon", "nothing", "", "the"];
    let mut on_disk = Vec::new();
    for query in queries {
        on_disk.push(scored(&by_words(&cold, "contents", query, 7, None).await.unwrap()));
    }
    let table = hot(&fixture).await;
    for (query, on_disk) in queries.iter().zip(&on_disk) {
        let in_memory = scored(&by_words(&table, "contents", query, 7, None).await.unwrap());
        assert_eq!(in_memory.len(), on_disk.len(), "{query}");
        for (memory, disk) in in_memory.iter().zip(on_disk) {
            assert_eq!(memory.0, disk.0, "{query}");
            assert!((memory.1 - disk.1).abs() < 1e-5, "{query}: {memory:?} {disk:?}");
        }
    }

    // Only rows of the table count and are found, also in what was written later.
    table.delete_where(col("id").lt(lit("d150"))).await.unwrap();
    append(&table, texts(&[("e1", Some("comet comet zebra")), ("e2", None)])).await.unwrap();
    let table = hot(&fixture).await;
    let zebra = scored(&by_words(&table, "contents", "zebra", 5, None).await.unwrap());
    let num_texts = (150..300).filter(|number| number % 50 != 9).count() as f64 + 1.0;
    let idf = (1.0 + (num_texts - 1.0 + 0.5) / 1.5).ln();
    assert_eq!(zebra.len(), 1);
    assert!(zebra[0].1 > idf * 0.9 && zebra[0].1 < idf * 2.2, "{zebra:?} {idf}");
    let filter = Some(col("id").gt(lit("e0")));
    assert_eq!(scored(&by_words(&table, "contents", "comet", 5, filter).await.unwrap()).len(), 1);
    let found = scored(&by_words(&table, "contents", "comet sun moon", 500, None).await.unwrap());
    assert!(found.iter().all(|(id, _)| id.as_str() >= "d150") && found.len() > 50);
}
