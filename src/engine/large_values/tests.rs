use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::TryStreamExt;

use crate::error::Result;
use crate::{Database, DatabaseOptions, Session};

/// A session whose statements have 64 MB.
async fn session() -> (tempfile::TempDir, Session) {
    let data = tempfile::tempdir().expect("a temporary directory");
    let options = DatabaseOptions { memory_limit: Some(256 << 20), statement_memory: Some(64 << 20), ..DatabaseOptions::default() };
    let session = Database::open_with(data.path(), options).await.expect("an empty folder").session();
    (data, session)
}

async fn run(session: &Session, sql: &str) -> Result<Vec<RecordBatch>> {
    Ok(session.sql(sql).await?.try_collect().await?)
}

async fn number(session: &Session, sql: &str) -> i64 {
    let batches = run(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

#[tokio::test]
async fn a_value_beyond_its_bound_is_refused_before_it_is_made() {
    let (_data, session) = session().await;
    let statements = [
        ("SELECT repeat('x', 1500000000)", "54000"),
        ("SELECT length(lpad('x', 1500000000))", "54000"),
        ("SELECT repeat('x', 100000000)", "53200"),
        ("SELECT rpad('x', 100000000, 'é')", "53200"),
        ("SELECT length(replace(repeat('a', 1000000), 'a', repeat('b', 100)))", "53200"),
        ("SELECT array_repeat('x', 1000000000)", "54000"),
        ("SELECT 'a' || repeat('x', 40000000) || repeat('y', 40000000)", "53200"),
        ("SELECT concat(repeat('x', 40000000), repeat('y', 40000000))", "53200"),
        ("SELECT repeat('x', 40000000), repeat('y', 40000000)", "53200"),
        ("VALUES (repeat('x', 40000000)), (repeat('y', 40000000))", "53200"),
    ];
    for (sql, state) in statements {
        let error = run(&session, sql).await.expect_err(sql);
        assert_eq!(error.sqlstate(), state, "{sql}: {error}");
    }
    assert_eq!(session.memory_pool().reserved(), 0, "what was refused is free");
    assert_eq!(number(&session, "SELECT length(repeat('x', 30000000))::bigint").await, 30_000_000);
    assert_eq!(session.memory_pool().reserved(), 0, "what was read is free");
}

#[tokio::test]
async fn rows_with_large_values_come_in_pieces_that_fit() {
    let (_data, session) = session().await;
    let mut rows = session.sql("SELECT repeat('x', 10000000) FROM generate_series(1, 30) s(value)").await.expect("it is planned");
    let mut num_rows = 0;
    while let Some(batch) = rows.try_next().await.expect("each piece fits") {
        assert!(session.memory_pool().reserved() >= 10_000_000, "it is counted");
        num_rows += batch.num_rows();
    }
    drop(rows);
    assert_eq!(num_rows, 30);
    let sum = "SELECT sum(n)::bigint FROM (SELECT length(repeat('x', value % 100000)) AS n FROM generate_series(1, 8000) t(value)) s";
    assert_eq!(number(&session, sum).await, (1..=8000).sum::<i64>());
    let filtered = "SELECT count(*) FROM generate_series(1, 5000) t(value) WHERE length(repeat('x', 20000) || value) > 20003";
    assert_eq!(number(&session, filtered).await, 4001);
    // A constant is wide in each row.
    let wide =
        format!("SELECT sum(length(t))::bigint FROM (SELECT '{}' AS t FROM generate_series(1, 8192) s(value)) s", "x".repeat(100_000));
    assert_eq!(number(&session, &wide).await, 819_200_000);
    assert_eq!(session.memory_pool().reserved(), 0);
}

#[tokio::test]
async fn chains_of_texts_are_what_they_were() {
    let (_data, session) = session().await;
    let sql = "SELECT a || '-' || b || (b || a) AS t, a || NULL AS n, 'x' || 'y' FROM (VALUES ('a', 'b'), (NULL, 'c')) v (a, b)";
    let batches = run(&session, sql).await.expect("texts");
    let column = |index: usize| -> Vec<Option<String>> {
        let values = batches
            .iter()
            .flat_map(|batch| batch.column(index).as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect::<Vec<_>>());
        values.collect()
    };
    assert_eq!(column(0), [Some("a-bba".to_owned()), None]);
    assert_eq!(column(1), [None, None]);
    assert_eq!(column(2), [Some("xy".to_owned()), Some("xy".to_owned())]);
    let chain = (0..200).map(|_| "a").collect::<Vec<_>>().join(" || ");
    assert_eq!(number(&session, &format!("SELECT length({chain})::bigint FROM (VALUES ('ab')) v (a)")).await, 400);
}
