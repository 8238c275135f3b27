//! Every kind of text query against the same query over texts split at spaces, on disk and in memory, with late and with removed rows.

use std::collections::BTreeMap;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int32Type};
use datafusion::logical_expr::{Expr, cast, col, lit};

use super::fixture::{Fixture, Random, append, texts, texts_definition};
use super::index::index;
use crate::{Clause, Edits, Error, IndexDefinition, IndexKind, Occur, Operator, Table, TextQuery};

const SEED: u64 = 77;
/// Words that neither the stemmer nor the stop words change; the last one is no word of the corpus.
const WORDS: [&str; 8] = ["moon", "sun", "star", "comet", "orbit", "rocket", "crater", "zebra"];

type Corpus = BTreeMap<String, String>;
/// A condition, and what it says of an id.
type Filter<'a> = (&'a Expr, &'a dyn Fn(&str) -> bool);

fn words(words: &str, operator: Operator) -> TextQuery {
    TextQuery::Words { words: words.to_owned(), operator }
}

fn phrase(words: &str, slop: u32) -> TextQuery {
    TextQuery::Phrase { words: words.to_owned(), slop }
}

fn fuzzy(words: &str, operator: Operator) -> TextQuery {
    TextQuery::Fuzzy { words: words.to_owned(), operator, edits: Edits { max: Some(1), prefix_length: 0 } }
}

/// Whether a text matches, by the definition of the query.
fn matches(query: &TextQuery, text: &str) -> bool {
    let text: Vec<&str> = text.split(' ').collect();
    let combine = |words: &str, operator: Operator, holds: &dyn Fn(&str) -> bool| match operator {
        Operator::Or => words.split(' ').any(holds),
        Operator::And => words.split(' ').all(holds),
    };
    match query {
        TextQuery::Words { words, operator } => combine(words, *operator, &|word| text.contains(&word)),
        TextQuery::Fuzzy { words, operator, .. } => combine(words, *operator, &|word| text.iter().any(|other| is_one_edit(word, other))),
        TextQuery::Phrase { words, slop } => {
            let words: Vec<&str> = words.split(' ').collect();
            let follows = |at: usize, word: &str| {
                (at + 1..=at + 1 + *slop as usize).filter(|next| text.get(*next) == Some(&word)).collect::<Vec<_>>()
            };
            let mut ends: Vec<usize> = (0..text.len()).filter(|at| text[*at] == words[0]).collect();
            for word in &words[1..] {
                ends = ends.into_iter().flat_map(|at| follows(at, word)).collect();
            }
            !ends.is_empty()
        }
        TextQuery::Boolean(clauses) => {
            let of = |occur: Occur| {
                clauses.iter().filter(move |clause| clause.occur == occur).map(|clause| matches(&clause.query, &text.join(" ")))
            };
            let has_must = of(Occur::Must).count() > 0;
            of(Occur::Must).all(|is_met| is_met)
                && !of(Occur::MustNot).any(|is_met| is_met)
                && (has_must || of(Occur::Should).any(|is_met| is_met))
        }
    }
}

/// Of words of these lists only: one letter more, less or another.
fn is_one_edit(word: &str, other: &str) -> bool {
    let (short, long) = if word.len() <= other.len() { (word, other) } else { (other, word) };
    match long.len() - short.len() {
        0 => short.bytes().zip(long.bytes()).filter(|(a, b)| a != b).count() <= 1,
        1 => (0..long.len()).any(|at| format!("{}{}", &long[..at], &long[at + 1..]) == short),
        _ => false,
    }
}

fn random_query(random: &mut Random) -> TextQuery {
    let mut some = |count: u64| {
        let count = 1 + random.below(count);
        (0..count).map(|_| WORDS[random.below(8) as usize]).collect::<Vec<_>>().join(" ")
    };
    let texts = [some(3), some(2), some(3), some(1)];
    match random.below(4) {
        0 => words(&texts[0], if random.below(2) == 0 { Operator::Or } else { Operator::And }),
        1 => phrase(&texts[0], random.below(3) as u32),
        2 => {
            let typo = texts[0].replace("moon", "mon").replace("comet", "comeet").replace("star", "sxar");
            fuzzy(&typo, if random.below(2) == 0 { Operator::Or } else { Operator::And })
        }
        _ => {
            let clause = |occur, query| Clause { occur, query };
            let mut clauses = vec![clause(Occur::Should, words(&texts[0], Operator::Or))];
            if random.below(2) == 0 {
                clauses.push(clause(Occur::Must, words(&texts[1], Operator::And)));
            }
            if random.below(2) == 0 {
                clauses.push(clause([Occur::Must, Occur::Should, Occur::MustNot][random.below(3) as usize], phrase(&texts[2], 0)));
            }
            if random.below(2) == 0 {
                clauses.push(clause(Occur::MustNot, words(&texts[3], Operator::And)));
            }
            TextQuery::Boolean(clauses)
        }
    }
}

fn random_rows(random: &mut Random, numbers: std::ops::Range<usize>) -> Corpus {
    let text = |random: &mut Random| {
        let length = 1 + random.below(8);
        (0..length).map(|_| WORDS[random.below(7).min(random.below(7)) as usize]).collect::<Vec<_>>().join(" ")
    };
    numbers.map(|number| (format!("d{number:04}"), text(random))).collect()
}

async fn write(table: &Table, rows: &Corpus) {
    let rows: Vec<(&str, Option<&str>)> = rows.iter().map(|(id, text)| (id.as_str(), Some(text.as_str()))).collect();
    append(table, texts(&rows)).await.unwrap();
}

fn with_positions() -> IndexDefinition {
    let options = BTreeMap::from([("with_position".to_owned(), "true".to_owned())]);
    IndexDefinition { options, ..index("txt", "contents", IndexKind::Bm25) }
}

/// The ids of each query.
fn ids(found: &RecordBatch, num_queries: usize) -> Vec<Vec<String>> {
    let queries = found.column_by_name("query_index").unwrap().as_primitive::<Int32Type>();
    let column = found.column_by_name("id").unwrap().as_string::<i32>();
    let of = |query: usize| {
        (0..found.num_rows()).filter(|row| queries.value(*row) as usize == query).map(|row| column.value(row).to_owned()).collect()
    };
    (0..num_queries).map(of).collect()
}

/// The ids of each query: one by one from disk, or together from memory.
async fn search(table: &Table, queries: &[TextQuery], k: usize, filter: Option<&Expr>, is_hot: bool) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for queries in queries.chunks(if is_hot { queries.len() } else { 1 }) {
        if is_hot {
            table.state.heat.raise()
        } else {
            table.state.heat.cool()
        }
        found.extend(ids(&table.text_search("contents", queries, k, filter).await.unwrap(), queries.len()));
    }
    found
}

/// All rows that match come back, and no others; `k` of them if there are more.
async fn check(table: &Table, corpus: &Corpus, queries: &[TextQuery], filter: Option<Filter<'_>>, is_hot: bool, what: &str) {
    let condition = filter.map(|(condition, _)| condition);
    let few = search(table, queries, 5, condition, is_hot).await;
    for (number, mut all) in search(table, queries, 10_000, condition, is_hot).await.into_iter().enumerate() {
        assert_eq!(few[number], all[..all.len().min(5)], "{what}: {:?}", queries[number]);
        all.sort();
        let is_kept = |id: &str| filter.is_none_or(|(_, keep)| keep(id));
        let expected: Vec<String> =
            corpus.iter().filter(|(id, text)| is_kept(id) && matches(&queries[number], text)).map(|(id, _)| id.clone()).collect();
        assert_eq!(all, expected, "{what}, seed {SEED}: {:?}", queries[number]);
    }
}

#[tokio::test]
async fn every_query_finds_what_it_says_with_late_and_removed_rows_and_filters() {
    let fixture = Fixture::new().await;
    let mut random = Random(SEED);
    let table = fixture.create("t", texts_definition()).await;
    let mut corpus = random_rows(&mut random, 0..300);
    write(&table, &corpus).await;
    table.create_index(&with_positions(), false).await.unwrap();
    for step in ["indexed", "late", "removed"] {
        match step {
            "late" => {
                let late = random_rows(&mut random, 300..420);
                write(&table, &late).await;
                corpus.extend(late);
            }
            "removed" => {
                let is_removed = |id: &str| ("d0050".."d0120").contains(&id) || ("d0310".."d0330").contains(&id);
                let between = |low: &str, high: &str| col("id").gt_eq(lit(low.to_owned())).and(col("id").lt(lit(high.to_owned())));
                table.delete_where(between("d0050", "d0120").or(between("d0310", "d0330"))).await.unwrap();
                corpus.retain(|id, _| !is_removed(id));
            }
            _ => {}
        }
        let queries: Vec<TextQuery> = (0..60).map(|_| random_query(&mut random)).collect();
        let (fuzzy, others): (Vec<TextQuery>, Vec<TextQuery>) =
            queries.into_iter().partition(|query| matches!(query, TextQuery::Fuzzy { .. }));
        // What Lance evaluates, and what is evaluated for it.
        let pushed = col("id").gt_eq(lit("d0200"));
        let ours = cast(datafusion::functions::expr_fn::right(col("id"), lit(1_i64)), DataType::Utf8).eq(lit("7"));
        let table = table.latest().await.unwrap();
        for is_hot in [false, true] {
            let what = if is_hot { format!("{step}, in memory") } else { step.to_owned() };
            for queries in [&others, &fuzzy] {
                check(&table, &corpus, queries, None, is_hot, &what).await;
                check(&table, &corpus, queries, Some((&pushed, &|id| id >= "d0200")), is_hot, &what).await;
                check(&table, &corpus, queries, Some((&ours, &|id| id.ends_with('7'))), is_hot, &what).await;
            }
        }
    }
}

#[tokio::test]
async fn nearer_words_go_before_and_an_old_version_has_its_own() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    let rows = [("a", Some("Spielberg film")), ("b", Some("Spielburg film")), ("c", Some("Iceberg film")), ("d", None)];
    append(&table, texts(&rows)).await.unwrap();
    table.create_index(&index("txt", "contents", IndexKind::Bm25), false).await.unwrap();
    let old = table.latest().await.unwrap();
    append(&table, texts(&[("e", Some("Spielberg again"))])).await.unwrap();
    let latest = table.latest().await.unwrap();
    let query = [fuzzy("SPIELBERG", Operator::Or)];
    let found = async |table: &Table| ids(&table.text_search("contents", &query, 10, None).await.unwrap(), 1).remove(0);
    // "again" is a stop word, so that the last row has one word.
    assert_eq!(found(&latest).await, ["e", "a", "b"]);
    assert_eq!(found(&old).await, ["a", "b"], "the memory holds a later version");
    let none = [fuzzy("the", Operator::And), fuzzy("", Operator::Or)];
    assert_eq!(latest.text_search("contents", &none, 10, None).await.unwrap().num_rows(), 0);
    let empty = fixture.create("empty", texts_definition()).await;
    empty.create_index(&index("empty_txt", "contents", IndexKind::Bm25), false).await.unwrap();
    let empty = empty.latest().await.unwrap();
    assert_eq!(empty.text_search("contents", &query, 10, None).await.unwrap().num_rows(), 0);
}

#[tokio::test]
async fn a_phrase_needs_positions_and_skips_over_stop_words() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("the Bank of America")), ("b", Some("America has a bank")), ("c", Some("bank America"))]))
        .await
        .unwrap();
    table.create_index(&index("txt", "contents", IndexKind::Bm25), false).await.unwrap();
    let table = table.latest().await.unwrap();
    let query = [phrase("bank of America", 0)];
    for _ in 0..20 {
        let error = table.text_search("contents", &query, 10, None).await.unwrap_err();
        let Error::NotReady(message) = error else { panic!("expected 55000, got {error}") };
        assert!(message.ends_with("CREATE INDEX txt ON t USING bm25 (contents) WITH (with_position = true)"), "{message}");
    }
    // One word is no phrase, and neither are stop words alone.
    let alone = [phrase("bank", 0), phrase("of the", 0)];
    assert_eq!(ids(&table.text_search("contents", &alone, 10, None).await.unwrap(), 2)[1], Vec::<String>::new());
    table.drop_index("txt").await.unwrap();
    table.create_index(&with_positions(), false).await.unwrap();
    let table = table.latest().await.unwrap();
    assert_eq!(ids(&table.text_search("contents", &query, 10, None).await.unwrap(), 1), [["a"]]);
}

#[tokio::test]
async fn an_index_made_anew_splits_texts_anew() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("running")), ("b", Some("run"))])).await.unwrap();
    let search = async |table: &Table| {
        table.state.heat.raise();
        ids(&table.text_search("contents", &[words("run", Operator::Or)], 10, None).await.unwrap(), 1).remove(0)
    };
    table.create_index(&index("txt", "contents", IndexKind::Bm25), false).await.unwrap();
    assert_eq!(search(&table.latest().await.unwrap()).await, ["a", "b"]);
    table.drop_index("txt").await.unwrap();
    let options = BTreeMap::from([("stem".to_owned(), "false".to_owned())]);
    table.create_index(&IndexDefinition { options, ..index("txt", "contents", IndexKind::Bm25) }, false).await.unwrap();
    assert_eq!(search(&table.latest().await.unwrap()).await, ["b"]);
}
