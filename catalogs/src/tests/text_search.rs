//! BM25 against its formula, and any text as a query.

use std::collections::HashMap;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Float64Type;
use datafusion::logical_expr::{col, lit};

use super::fixture::{Fixture, Random, append, by_words, texts, texts_definition};
use super::index::index;
use crate::{Error, IndexKind, Table};

const SEED: u64 = 31;
/// Words that neither the stemmer nor the stop words change.
const WORDS: [&str; 10] = ["moon", "sun", "star", "comet", "orbit", "rocket", "crater", "lunar", "solar", "dust"];

fn found(result: &RecordBatch) -> Vec<(String, f64)> {
    let ids = result.column_by_name("id").unwrap().as_string::<i32>();
    let scores = result.column_by_name("score").unwrap().as_primitive::<Float64Type>();
    (0..result.num_rows()).map(|row| (ids.value(row).to_owned(), scores.value(row))).collect()
}

async fn indexed(fixture: &Fixture, rows: &[(&str, Option<&str>)]) -> Table {
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(rows)).await.unwrap();
    table.create_index(&index("txt", "contents", IndexKind::Bm25), false).await.unwrap();
    table.latest().await.unwrap()
}

/// Robertson's BM25 with k1 = 1.2, b = 0.75 and Lucene's idf, times k1 + 1, over texts split at spaces.
fn bm25(corpus: &[(String, String)], query: &str) -> Vec<(String, f64)> {
    let lengths = corpus.iter().map(|(_, text)| text.split(' ').count() as f64);
    let mean_length = lengths.sum::<f64>() / corpus.len() as f64;
    let mut scores: HashMap<&str, f64> = HashMap::new();
    for word in query.split(' ') {
        let count = |text: &str| text.split(' ').filter(|other| *other == word).count() as f64;
        let num_with = corpus.iter().filter(|(_, text)| count(text) > 0.0).count() as f64;
        let idf = (1.0 + (corpus.len() as f64 - num_with + 0.5) / (num_with + 0.5)).ln();
        for (id, text) in corpus.iter().filter(|(_, text)| count(text) > 0.0) {
            let length = text.split(' ').count() as f64 / mean_length;
            let frequency = count(text);
            let weight = frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * length));
            *scores.entry(id).or_default() += idf * weight;
        }
    }
    let mut ranked: Vec<(String, f64)> = scores.into_iter().map(|(id, score)| (id.to_owned(), score)).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    ranked
}

fn random_corpus(num_texts: usize) -> Vec<(String, String)> {
    let mut random = Random(SEED);
    let text = |random: &mut Random| {
        let length = 3 + random.below(30);
        let words: Vec<&str> = (0..length).map(|_| WORDS[random.below(10).min(random.below(10)) as usize]).collect();
        words.join(" ")
    };
    (0..num_texts).map(|number| (format!("d{number:04}"), text(&mut random))).collect()
}

fn rows(corpus: &[(String, String)]) -> Vec<(&str, Option<&str>)> {
    corpus.iter().map(|(id, text)| (id.as_str(), Some(text.as_str()))).collect()
}

#[tokio::test]
async fn scores_are_bm25() {
    let fixture = Fixture::new().await;
    let corpus = random_corpus(300);
    let table = indexed(&fixture, &rows(&corpus)).await;
    for query in ["dust", "moon comet", "lunar solar dust orbit"] {
        let expected = bm25(&corpus, query);
        let found = found(&by_words(&table, "contents", query, 1000, None).await.unwrap());
        assert_eq!(found.len(), expected.len(), "{query}");
        let expected: HashMap<String, f64> = expected.into_iter().collect();
        for (id, score) in &found {
            let right = expected[id];
            assert!((score - right).abs() < 1e-4 * right, "{query} {id}: {score}, expected {right}");
        }
        assert!(found.is_sorted_by(|a, b| a.1 > b.1 || (a.1 == b.1 && a.0 < b.0)));
    }
}

#[tokio::test]
async fn the_best_k_are_the_best_of_all() {
    let fixture = Fixture::new().await;
    let corpus = random_corpus(400);
    let table = indexed(&fixture, &rows(&corpus)).await;
    let all = found(&by_words(&table, "contents", "moon sun", 1000, None).await.unwrap());
    for k in [1, 5, 33, 200] {
        let best = found(&by_words(&table, "contents", "moon sun", k, None).await.unwrap());
        assert_eq!(best, all[..k], "k = {k}");
    }
}

#[tokio::test]
async fn equal_scores_are_ordered_by_primary_key() {
    let fixture = Fixture::new().await;
    let mut random = Random(SEED);
    let mut ids: Vec<String> = (0..300).map(|number| format!("d{number:03}")).collect();
    for last in (1..ids.len()).rev() {
        ids.swap(last, random.below(last as u64 + 1) as usize);
    }
    let same: Vec<(&str, Option<&str>)> = ids.iter().map(|id| (id.as_str(), Some("one moon"))).collect();
    let table = indexed(&fixture, &same).await;
    let best = found(&by_words(&table, "contents", "moon", 3, None).await.unwrap());
    let best: Vec<&str> = best.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(best, ["d000", "d001", "d002"]);
}

#[tokio::test]
async fn any_text_is_a_query() {
    let fixture = Fixture::new().await;
    let table = indexed(
        &fixture,
        &[
            ("jaws", Some("Jaws is a 1975 film directed by Steven Spielberg")),
            ("cafe", Some("The café of Zürich")),
            ("tokyo", Some("東京 is a city")),
            ("none", None),
            ("empty", Some("")),
        ],
    )
    .await;
    let search = async |query: &str| {
        let found = found(&by_words(&table, "contents", query, 10, None).await.unwrap());
        found.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    for query in ["Jaws", "JAWS?", "who directed \"Jaws\"", "jaws' OR 1=1; --", "directs", "+spielberg -film", "{\"match\":{\"jaws\"}}"] {
        assert_eq!(search(query).await, ["jaws"], "{query}");
    }
    assert_eq!(search("cafe ZURICH").await, ["cafe"]);
    assert_eq!(search("東京").await, ["tokyo"]);
    for query in ["", " ", "the of and", "?!\"'()[]{}*~^:\\/", "🦈", "\0", "nowhere", "\u{202e}"] {
        assert_eq!(search(query).await, Vec::<String>::new(), "{query:?}");
    }
    assert_eq!(search(&"spielberg ".repeat(2_000)).await, ["jaws"]);
}

#[tokio::test]
async fn later_rows_are_found_and_optimize_makes_their_scores_the_same() {
    let fixture = Fixture::new().await;
    let corpus = random_corpus(300);
    let table = indexed(&fixture, &rows(&corpus[..250])).await;
    append(&table, texts(&rows(&corpus[250..]))).await.unwrap();
    let expected = bm25(&corpus, "moon dust");
    let before = found(&by_words(&table.latest().await.unwrap(), "contents", "moon dust", 1000, None).await.unwrap());
    assert_eq!(before.len(), expected.len(), "late rows are found without a rebuild");
    table.optimize_indexes().await.unwrap();
    let after = found(&by_words(&table.latest().await.unwrap(), "contents", "moon dust", 1000, None).await.unwrap());
    let expected: HashMap<String, f64> = expected.into_iter().collect();
    let error = |found: &[(String, f64)]| found.iter().map(|(id, score)| (score / expected[id] - 1.0).abs()).fold(0.0_f64, f64::max);
    assert!(error(&after) < 1e-4, "{}", error(&after));
    // Measured: 2.6 %.
    assert!(error(&before) < 0.1, "{}", error(&before));
}

#[tokio::test]
async fn a_filter_is_applied_before_the_best_are_taken() {
    let fixture = Fixture::new().await;
    let corpus = random_corpus(200);
    let table = indexed(&fixture, &rows(&corpus)).await;
    let filter = col("id").gt_eq(lit("d0195"));
    let all = found(&by_words(&table, "contents", "moon", 1000, None).await.unwrap());
    let expected: Vec<_> = all.into_iter().filter(|(id, _)| id.as_str() >= "d0195").take(3).collect();
    assert_eq!(expected.len(), 3);
    assert_eq!(found(&by_words(&table, "contents", "moon", 3, Some(filter)).await.unwrap()), expected);
}

#[tokio::test]
async fn without_an_index_the_error_names_the_statement_to_type() {
    let fixture = Fixture::new().await;
    let table = fixture.create("wiki", texts_definition()).await;
    let error = by_words(&table, "contents", "moon", 3, None).await.unwrap_err();
    let Error::NotReady(message) = error else { panic!("expected 55000, got {error}") };
    assert!(message.ends_with("CREATE INDEX ON wiki USING bm25 (contents)"), "{message}");
    assert!(matches!(by_words(&table, "content", "moon", 3, None).await, Err(Error::UnknownColumn { .. })));
    table.create_index(&index("txt", "contents", IndexKind::Bm25), false).await.unwrap();
    let table = table.latest().await.unwrap();
    assert_eq!(by_words(&table, "contents", "moon", 3, None).await.unwrap().num_rows(), 0);
    assert_eq!(by_words(&table, "contents", "moon", 0, None).await.unwrap().num_rows(), 0);
}
