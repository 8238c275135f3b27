//! What is too much is an error with its code, and the next statement runs. How deep and how long a statement may be is tested with the grammar and the wire.

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

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_too_much_memory() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let options = DatabaseOptions { memory_limit: Some(64 << 20), ..DatabaseOptions::default() };
    let session = Database::open_with(data.path(), options).await.expect("a database").session();
    let gathers = "SELECT length(string_agg(md5(value::text), '')) FROM generate_series(1, 20000000) AS g (value)";
    assert_eq!(code(&session, gathers).await, "53200");
    assert_eq!(run(&session, "SELECT 1").await.expect("the next one runs"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_jobs_of_models_than_places() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let options = DatabaseOptions { model_jobs: Some(0), ..DatabaseOptions::default() };
    let session = Database::open_with(data.path(), options).await.expect("a database").session();
    run(&session, "CREATE MODEL policy FROM 'builtin://tinyhop'").await.expect("a model");
    let train = "TRAIN SFT MODEL new FROM policy USING (SELECT 'a' AS prompt, 'b' AS completion)";
    assert_eq!(code(&session, train).await, "53400");
    assert_eq!(run(&session, "SELECT 1").await.expect("the next one runs"), 1);
}
