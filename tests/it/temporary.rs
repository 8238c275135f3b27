//! Temporary tables over the wire: two clients with tables of one name, and nothing is left when a session ends, however it ends.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::process::ServerProcess;
use crate::server::{TestServer, code, code_of, text_rows, text_value};

/// The longest that a test waits for something that should come at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// Schemas of sessions that have a folder.
fn num_schemas(data: &Path) -> usize {
    std::fs::read_dir(data.join("tables/.temporary")).map_or(0, Iterator::count)
}

async fn until_schemas(data: &Path, expected: usize) {
    let started = Instant::now();
    while num_schemas(data) != expected {
        assert!(started.elapsed() < PATIENCE, "{} schemas of sessions are there, not {expected}", num_schemas(data));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Makes a table `t` with one row, which only this client sees.
async fn make(client: &Client, row: &str) {
    let text = format!("CREATE TEMP TABLE t (a text); INSERT INTO t VALUES ('{row}')");
    client.batch_execute(&text).await.expect("a temporary table");
}

async fn rows_of_t(client: &Client) -> Vec<Option<String>> {
    text_rows(client, "SELECT a FROM t").await.iter().map(|row| row.get(0).map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_has_its_own() {
    let server = TestServer::start().await;
    let (one, two) = (server.connect().await, server.connect().await);
    make(&one, "one").await;
    assert_eq!(code_of(&two, "SELECT a FROM t").await, "42P01");
    make(&two, "two").await;
    assert_eq!(rows_of_t(&one).await, [Some("one".to_owned())]);
    assert_eq!(rows_of_t(&two).await, [Some("two".to_owned())]);
    // By the extended protocol, and in psql's list, which has one of the two.
    let row = two.query_one("SELECT a FROM t WHERE a <> $1", &[&"one"]).await.expect("a row");
    assert_eq!(row.get::<_, String>(0), "two");
    let listed = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
        WHERE c.relname = 't' AND n.nspname ~ '^pg_temp_' AND pg_table_is_visible(c.oid)";
    assert_eq!(text_value(&one, listed).await.as_deref(), Some("1"));
    let schema = text_value(&one, "SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema()").await.expect("a name");
    assert_eq!(code_of(&two, &format!("SELECT a FROM {schema}.t")).await, "0A000");
    one.batch_execute("DISCARD TEMP").await.expect("they go");
    assert_eq!(code_of(&one, "SELECT a FROM t").await, "42P01");
    assert_eq!(rows_of_t(&two).await, [Some("two".to_owned())]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_reads_the_table_that_its_name_stands_for() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (a text); INSERT INTO t VALUES ('permanent')").await.expect("a table");
    let prepared = client.prepare("SELECT a FROM t").await.expect("it is planned");
    let value = async || client.query_one(&prepared, &[]).await.map(|row| row.get::<_, String>(0));
    for _ in 0..3 {
        assert_eq!(value().await.expect("a row"), "permanent");
    }
    make(&client, "temporary").await;
    assert_eq!(value().await.expect("a row"), "temporary");
    client.batch_execute("DROP TABLE t").await.expect("it goes");
    assert_eq!(value().await.expect("a row"), "permanent");
    // With other columns it is another statement.
    client.batch_execute("CREATE TEMP TABLE t (a text, b text)").await.expect("a temporary table");
    let all = client.prepare("SELECT * FROM t").await.expect("it is planned");
    client.batch_execute("DROP TABLE t").await.expect("it goes");
    let refused = client.query(&all, &[]).await.expect_err("it has one column by now");
    assert_eq!(code(&refused), "0A000");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_session_that_has_ended() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut server = ServerProcess::start(data.path());
    let (leaver, ended, watcher) = (server.connect().await, server.connect().await, server.connect().await);
    make(&leaver, "one").await;
    make(&ended, "two").await;
    assert_eq!(num_schemas(data.path()), 2);
    drop(leaver);
    until_schemas(data.path(), 1).await;
    let pid = text_value(&ended, "SELECT pg_backend_pid()").await.expect("a number");
    assert_eq!(text_value(&watcher, &format!("SELECT pg_terminate_backend({pid})")).await.as_deref(), Some("t"));
    until_schemas(data.path(), 0).await;

    make(&watcher, "three").await;
    assert_eq!(num_schemas(data.path()), 1);
    server.kill();
    assert_eq!(num_schemas(data.path()), 1, "nobody was there to remove it");
    let mut server = ServerProcess::start(data.path());
    let client = server.connect().await;
    assert_eq!(num_schemas(data.path()), 0);
    assert_eq!(code_of(&client, "SELECT a FROM t").await, "42P01");
    assert_eq!(text_value(&client, "SELECT count(*) FROM pg_namespace WHERE nspname ~ '^pg_temp'").await.as_deref(), Some("0"));
    server.kill();
}
