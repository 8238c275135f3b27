//! Expressions and queries beside PostgreSQL 15: what it answered to each line of `tests/fixtures/postgres/expressions.sql` stands in `answers.jsonl` beside it
//! (`tests/fixtures/make_postgres_goldens.py`). Where we answer otherwise, `differences.tsv` says why; a line of it that no longer differs fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::read;
use crate::server::{TestServer, code};

const ANSWERS: &str = "tests/fixtures/postgres/answers.jsonl";
const DIFFERENCES: &str = "tests/fixtures/postgres/differences.tsv";

/// The rows, or the SQLSTATE of the error.
type Answer = Result<Rows, String>;

#[derive(Debug, PartialEq)]
struct Rows {
    types: Vec<String>,
    texts: Vec<Vec<Option<String>>>,
}

#[tokio::test(flavor = "multi_thread")]
async fn expressions_answer_as_postgres_does() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let differences = differences();
    let (mut unknown, mut differing) = (String::new(), BTreeSet::new());
    for line in read(ANSWERS).lines() {
        let golden: Value = serde_json::from_str(line).expect("a line is JSON");
        let sql = golden["sql"].as_str().expect("a line has its statement");
        let (expected, found) = (expected(&golden), answer(&client, sql).await);
        if expected == found {
            continue;
        }
        differing.insert(sql.to_owned());
        if !differences.contains_key(sql) {
            writeln!(unknown, "{sql}\n  PostgreSQL: {expected:?}\n  here:       {found:?}").expect("a String takes all");
        }
    }
    assert!(unknown.is_empty(), "answers that differ:\n{unknown}");
    let equal: Vec<&String> = differences.keys().filter(|sql| !differing.contains(*sql)).collect();
    assert!(equal.is_empty(), "these answer as PostgreSQL does by now, take them out of {DIFFERENCES}: {equal:#?}");
    server.stop().await;
}

/// Statements, and why they are answered otherwise.
fn differences() -> BTreeMap<String, String> {
    let entry = |line: &str| {
        let (sql, reason) = line.split_once('\t').unwrap_or_else(|| panic!("{DIFFERENCES}: \"{line}\" has no reason"));
        (sql.to_owned(), reason.to_owned())
    };
    read(DIFFERENCES).lines().filter(|line| !line.starts_with("--")).map(entry).collect()
}

fn expected(golden: &Value) -> Answer {
    if let Some(state) = golden["error"].as_str() {
        return Err(state.to_owned());
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let types = list(&golden["types"]).iter().map(|name| kind(name.as_str().expect("a type has a name")).to_owned()).collect();
    let texts = |row: &Value| list(row).iter().map(|text| text.as_str().map(str::to_owned)).collect();
    Ok(Rows { types, texts: list(&golden["rows"]).iter().map(texts).collect() })
}

async fn answer(client: &Client, sql: &str) -> Answer {
    let messages = client.simple_query(sql).await.map_err(|error| code(&error).to_owned())?;
    let prepared = client.prepare(sql).await.map_err(|error| code(&error).to_owned())?;
    let types = prepared.columns().iter().map(|column| kind(column.type_().name()).to_owned()).collect();
    let rows = messages.iter().filter_map(|message| if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None });
    let texts = rows.map(|row| (0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect()).collect();
    Ok(Rows { types, texts })
}

/// One name for the types that constants decide: a whole number is a bigint here and one with a point is in double precision, integers and numerics in
/// PostgreSQL. Everything else has the name by which drivers know it.
fn kind(name: &str) -> &str {
    match name.split('(').next().unwrap_or(name) {
        "smallint" | "integer" | "bigint" | "int2" | "int4" | "int8" => "integer",
        "real" | "double precision" | "numeric" | "float4" | "float8" => "number",
        "smallint[]" | "integer[]" | "bigint[]" | "_int2" | "_int4" | "_int8" => "integer[]",
        "real[]" | "double precision[]" | "numeric[]" | "_float4" | "_float8" | "_numeric" => "number[]",
        "bool" => "boolean",
        "_text" => "text[]",
        "_bool" => "boolean[]",
        "time without time zone" => "time",
        "timestamp without time zone" => "timestamp",
        "timestamp with time zone" => "timestamptz",
        "character varying" => "varchar",
        "character" => "bpchar",
        "\"bit\"" => "bit",
        "bit varying" => "varbit",
        other => other,
    }
}
