//! Subqueries that name columns of the queries round them beside PostgreSQL 15: random queries with what it answered stand in
//! `tests/fixtures/postgres/subqueries.jsonl` (`tests/fixtures/make_subquery_goldens.py`).

use std::fmt::Write;

use serde_json::{Value, json};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::read;
use crate::server::{TestServer, code};

const ANSWERS: &str = "tests/fixtures/postgres/subqueries.jsonl";

/// Begins of queries that DataFusion refuses for what has nothing to do with outer columns: a list that is a constant, and a DISTINCT of a CASE whose
/// type may be NULL no more once it is simplified.
const REFUSED: [&str; 2] = [
    "SELECT q1.c + 2 FROM u AS q1 WHERE (CASE WHEN (q1.b BETWEEN q1.a AND q1.c AND q1.b BETWEEN q1.c AND q1.b) THEN q1.b ELSE q1.a END IN (SELECT DISTINCT 0",
    "SELECT (SELECT sum(q2.b + q2.b) FROM u AS q2 WHERE EXISTS (SELECT DISTINCT CASE WHEN NOT (q3.c <> q3.a) THEN q3.c ELSE coalesce(4, 2) END",
];

#[tokio::test(flavor = "multi_thread")]
async fn subqueries_answer_as_postgres_does() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let (mut differing, mut count) = (String::new(), 0);
    for line in read(ANSWERS).lines() {
        let golden: Value = serde_json::from_str(line).expect("a line is JSON");
        if let Some(setup) = golden["setup"].as_str() {
            client.simple_query(setup).await.expect(setup);
            continue;
        }
        let sql = golden["sql"].as_str().expect("a line has its query");
        let (expected, found) = (golden.get("rows").cloned().unwrap_or(golden["error"].clone()), answer(&client, sql).await);
        count += 1;
        let is_refused = REFUSED.iter().any(|begin| sql.starts_with(begin));
        if (expected != found) != is_refused {
            writeln!(differing, "{sql}\n  PostgreSQL: {expected}\n  here:       {found}").expect("a String takes all");
        }
    }
    assert!(differing.is_empty(), "answers that differ:\n{differing}");
    assert!(count > 200, "{ANSWERS} has {count} queries");
    server.stop().await;
}

/// The rows, sorted with NULL last, or the SQLSTATE of the error.
async fn answer(client: &Client, sql: &str) -> Value {
    let messages = match client.simple_query(sql).await {
        Ok(messages) => messages,
        Err(error) => return json!(code(&error)),
    };
    let rows = messages.iter().filter_map(|message| if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None });
    let texts = rows.map(|row| (0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect::<Vec<_>>());
    let mut texts: Vec<Vec<Option<String>>> = texts.collect();
    let key = |row: &Vec<Option<String>>| row.iter().map(|value| (value.is_none(), value.clone())).collect::<Vec<_>>();
    texts.sort_by_key(key);
    json!(texts)
}
