//! Clients that are gone while their statement runs: the statement ends, whatever it does, and nothing of it is left.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::server::{ENDLESS_COUNT, TestServer, text_value, until};
use crate::wire::{Wire, first, query};

/// How soon nobody is said to run the statement, on a machine that runs other tests beside.
const SOON: Duration = Duration::from_secs(10);
/// From when a statement is seen until its client is gone.
const AT_WORK: Duration = Duration::from_millis(400);

/// Sends a statement, and closes the socket when `seen` is 1; `PID` in it stands for the session.
async fn vanishes(server: &TestServer, watcher: &Client, statement: &str, seen: &str) {
    let mut client = Wire::connect(server).await;
    let answer = client.query("SELECT pg_backend_pid()").await;
    let pid = String::from_utf8_lossy(first(&answer, 'D').value()).into_owned();
    let listed = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    client.send(&[query(statement)]).await;
    until(watcher, &seen.replace("PID", &pid), "1").await;
    tokio::time::sleep(AT_WORK).await;
    assert_eq!(text_value(watcher, &format!("{listed} AND state = 'active'")).await.as_deref(), Some("1"), "{statement} ended by itself");
    drop(client);
    let gone = Instant::now();
    until(watcher, &listed, "0").await;
    assert!(gone.elapsed() < SOON, "{statement} ran on for {:?}", gone.elapsed());
}

const ACTIVE: &str = "SELECT count(*) FROM pg_stat_activity WHERE pid = PID AND state = 'active'";

#[tokio::test(flavor = "multi_thread")]
async fn a_query_ends_with_its_client() {
    let server = TestServer::start().await;
    let watcher = server.connect().await;
    vanishes(&server, &watcher, ENDLESS_COUNT, ACTIVE).await;
    // One whose rows fill the connection, since nobody reads them.
    let rows = "SELECT a.value, repeat('x', 1000) FROM generate_series(1, 100000000) a(value) CROSS JOIN generate_series(1, 1000) b(value)";
    vanishes(&server, &watcher, rows, ACTIVE).await;
    drop(watcher);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_of_models_ends_with_its_client() {
    let server = TestServer::start().await;
    let watcher = server.connect().await;
    let setup = "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
        CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
        CREATE INDEX wiki_text ON wiki USING bm25 (contents);
        CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 5000);
        CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 48)";
    watcher.batch_execute(setup).await.expect("an agent and questions");
    let answer = "SELECT a.answer FROM questions q CROSS JOIN LATERAL answer(q.question, agent => 'qa') a";
    vanishes(&server, &watcher, answer, ACTIVE).await;
    let generate = "GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions) WITH (simulations = 32, seed = 5)";
    let searching = "SELECT count(*) FROM pg_stat_progress_rollout WHERE pid = PID AND simulations_done > 0";
    vanishes(&server, &watcher, generate, searching).await;
    until(&watcher, "SELECT count(*) FROM pg_stat_progress_rollout", "0").await;
    drop(watcher);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_of_an_index_ends_with_its_client() {
    let server = TestServer::start().await;
    let watcher = server.connect().await;
    watcher.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, v vector(32))").await.expect("a table");
    let numbers = (1..=32).map(|n| format!("sin(value * {n}.7)")).collect::<Vec<_>>().join(", ");
    let insert = format!("INSERT INTO t SELECT value, [{numbers}] FROM generate_series(1, 40000) AS g(value)");
    watcher.batch_execute(&insert).await.expect("40,000 rows");
    let create = "CREATE INDEX t_v ON t USING hnsw (v) WITH (ef_construction = 800, m = 64)";
    let building = "SELECT count(*) FROM pg_stat_progress_create_index WHERE pid = PID AND tuples_done > 0";
    vanishes(&server, &watcher, create, building).await;
    until(&watcher, "SELECT count(*) FROM pg_stat_progress_create_index", "0").await;
    assert_eq!(text_value(&watcher, "SELECT count(*) FROM rollout.indexes").await.as_deref(), Some("0"));
    watcher.batch_execute("INSERT INTO t VALUES (0, NULL)").await.expect("the table can be written");
    drop(watcher);
    server.stop().await;
}
