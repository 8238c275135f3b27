//! What is too much is an error with its code, and the next statement runs.

use futures::TryStreamExt;
use rolloutdb::engine::Response;
use rolloutdb::server::sqlstate;
use rolloutdb::{Database, DatabaseOptions, Result, Session};

async fn run(session: &Session, sql: &str) -> Result<usize> {
    let mut num_rows = 0;
    for statement in session.parse(sql)? {
        if let Response::Rows { stream, .. } = session.execute(&statement, vec![]).await? {
            num_rows = stream.try_collect::<Vec<_>>().await?.iter().map(|batch| batch.num_rows()).sum();
        }
    }
    Ok(num_rows)
}

async fn code(session: &Session, sql: &str) -> &'static str {
    let start: String = sql.chars().take(80).collect();
    sqlstate(&run(session, sql).await.expect_err(&start))
}

/// On a thread with the stack of a server's: what is followed deep must not end it.
fn on_a_servers_thread(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime starts").block_on(test);
}

#[test]
fn statements_that_are_nested_too_deep() {
    on_a_servers_thread(async {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await.expect("a database").session();
        let nested = |open: &str, inner: &str, close: &str, depth: usize| format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
        for depth in [1_000, 100_000] {
            for (what, sql) in [
                ("parentheses", format!("SELECT {}", nested("(", "1", ")", depth))),
                ("subqueries", format!("SELECT * FROM {}", nested("(SELECT * FROM ", "(SELECT 1 AS a) AS a", ") AS a", depth))),
                ("scalar subqueries", nested("SELECT (", "SELECT 1", ")", depth)),
                ("calls", format!("SELECT {}", nested("abs(", "1", ")", depth))),
                ("CASE", format!("SELECT {}", nested("CASE WHEN true THEN ", "1", " END", depth))),
                ("signs", format!("SELECT {}1", "- ".repeat(depth))),
                ("NOT", format!("SELECT {}true", "NOT ".repeat(depth))),
                ("arrays", format!("SELECT {}", nested("ARRAY[", "1", "]", depth))),
                ("sums", format!("SELECT 1{}", " + 1".repeat(depth))),
                ("UNION", format!("SELECT 1{}", " UNION SELECT 1".repeat(depth))),
                ("names after WITH", format!("{}SELECT 1", "WITH a AS (".repeat(depth))),
            ] {
                assert_eq!(code(&session, &sql).await, "54001", "{depth} {what}");
            }
        }
        // Each level would double the work of planning.
        let with = format!("{} SELECT 1 AS x {}", "WITH a AS (".repeat(40), ") SELECT * FROM a".repeat(40));
        assert_eq!(code(&session, &with).await, "54001");
        // What is followed is planned and run.
        let sql = format!("SELECT {}", nested("(", "1", ")", 40));
        assert_eq!(run(&session, &sql).await.expect("forty levels"), 1);
        let sql = nested("SELECT * FROM (", "SELECT 1 AS a", ") AS a", 40);
        assert_eq!(run(&session, &sql).await.expect("forty levels"), 1);
        let sql = format!("SELECT {}", vec!["value = 1"; 5_000].join(" OR ").replace("value", "1"));
        assert_eq!(run(&session, &sql).await.expect("a long list of conditions"), 1);
    });
}

#[test]
fn statements_that_are_too_long() {
    on_a_servers_thread(async {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await.expect("a database").session();
        let long = format!("SELECT '{}'", "x".repeat(17 << 20));
        assert_eq!(code(&session, &long).await, "54000");
        let fits = format!("SELECT length('{}')", "x".repeat(1 << 20));
        assert_eq!(run(&session, &fits).await.expect("a megabyte"), 1);
    });
}

#[test]
fn a_statement_that_takes_too_much_memory() {
    on_a_servers_thread(async {
        let data = tempfile::tempdir().expect("a temporary directory");
        let options = DatabaseOptions { memory_limit: Some(64 << 20), ..DatabaseOptions::default() };
        let session = Database::open_with(data.path(), options).await.expect("a database").session();
        let gathers = "SELECT length(string_agg(md5(value::text), '')) FROM generate_series(1, 20000000) AS g (value)";
        assert_eq!(code(&session, gathers).await, "53200");
        assert_eq!(run(&session, "SELECT 1").await.expect("the next one runs"), 1);
    });
}

#[test]
fn more_jobs_of_models_than_places() {
    on_a_servers_thread(async {
        let data = tempfile::tempdir().expect("a temporary directory");
        let options = DatabaseOptions { model_jobs: Some(0), ..DatabaseOptions::default() };
        let session = Database::open_with(data.path(), options).await.expect("a database").session();
        run(&session, "CREATE MODEL policy FROM 'builtin://tinyhop'").await.expect("a model");
        let train = "TRAIN SFT MODEL new FROM policy USING (SELECT 'a' AS prompt, 'b' AS completion)";
        assert_eq!(code(&session, train).await, "53400");
        assert_eq!(run(&session, "SELECT 1").await.expect("the next one runs"), 1);
    });
}
