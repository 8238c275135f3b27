//! Advisory locks between the sessions of clients, and `pg_sleep`: what waits is ended by a cancel, a timeout, or the end of who is waited for.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

use crate::server::{TestServer, code, code_of, text_value, until};

/// How soon a client hears that what it cancelled has ended.
const SOON: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(20);

/// The client again, with the SQLSTATE if the statement failed.
type Ended = JoinHandle<(Client, Option<String>)>;

fn begin(client: Client, sql: &'static str) -> Ended {
    tokio::spawn(async move {
        let ended = client.simple_query(sql).await.err().map(|error| code(&error).to_owned());
        (client, ended)
    })
}

async fn end(running: Ended) -> (Client, Option<String>) {
    tokio::time::timeout(PATIENCE, running).await.expect("it ends").expect("no panic")
}

/// Until a statement that begins so waits.
async fn until_it_waits(watcher: &Client, beginning: &str) {
    until(watcher, &format!("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '{beginning}%'"), "1").await;
    // It is active before it waits.
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_gets_the_lock_when_it_is_given_back_or_its_session_ends() {
    let server = TestServer::start().await;
    let (first, second, watcher) = (server.connect().await, server.connect().await, server.connect().await);
    first.batch_execute("SELECT pg_advisory_lock(7)").await.expect("nobody has it");
    let waiting = begin(second, "SELECT pg_advisory_lock(7)");
    until_it_waits(&watcher, "SELECT pg_advisory").await;
    assert!(!waiting.is_finished());
    assert_eq!(text_value(&first, "SELECT pg_advisory_unlock(7)").await.as_deref(), Some("t"));
    let (second, ended) = end(waiting).await;
    assert_eq!(ended, None);
    // As migration tools do: the lock is that of the session, over the transactions in it.
    second.batch_execute("BEGIN; SELECT 1; COMMIT").await.expect("a transaction");
    let waiting = begin(first, "SELECT pg_advisory_lock(7)");
    until_it_waits(&watcher, "SELECT pg_advisory").await;
    drop(second);
    let (first, ended) = end(waiting).await;
    assert_eq!(ended, None);
    // Of a transaction alone, outside of a block of the statement.
    first.batch_execute("SELECT pg_advisory_unlock_all(); SELECT pg_advisory_xact_lock(7)").await.expect("it is free");
    assert_eq!(text_value(&watcher, "SELECT pg_try_advisory_lock(7)").await.as_deref(), Some("t"));
    watcher.batch_execute("SELECT pg_advisory_unlock(7)").await.expect("it has it");
    first.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(7)").await.expect("it is free");
    assert_eq!(text_value(&watcher, "SELECT pg_try_advisory_lock(7)").await.as_deref(), Some("f"));
    first.batch_execute("ROLLBACK").await.expect("it ends");
    assert_eq!(text_value(&watcher, "SELECT pg_try_advisory_lock(7)").await.as_deref(), Some("t"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_wait_for_each_other_are_told() {
    let server = TestServer::start().await;
    let (first, second, watcher) = (server.connect().await, server.connect().await, server.connect().await);
    first.batch_execute("SELECT pg_advisory_lock(1)").await.expect("nobody has it");
    second.batch_execute("SELECT pg_advisory_lock(2)").await.expect("nobody has it");
    let waiting = begin(first, "SELECT pg_advisory_lock(2)");
    until_it_waits(&watcher, "SELECT pg_advisory").await;
    assert_eq!(code_of(&second, "SELECT pg_advisory_lock(1)").await, "40P01");
    second.batch_execute("SELECT pg_advisory_unlock(2)").await.expect("it has it");
    assert_eq!(end(waiting).await.1, None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_cancelled_at_once_and_timed_out() {
    let server = TestServer::start().await;
    let (holder, mut client) = (server.connect().await, server.connect().await);
    holder.batch_execute("SELECT pg_advisory_lock(9)").await.expect("nobody has it");
    for sql in ["SELECT pg_sleep(600)", "SELECT pg_advisory_lock(9)"] {
        let cancel = client.cancel_token();
        let running = begin(client, sql);
        until_it_waits(&holder, sql).await;
        let asked = Instant::now();
        cancel.cancel_query(NoTls).await.expect("it is heard");
        let ended;
        (client, ended) = end(running).await;
        assert_eq!(ended.as_deref(), Some("57014"), "{sql}");
        assert!(asked.elapsed() < SOON, "{sql}: {:?}", asked.elapsed());
    }
    client.batch_execute("SET statement_timeout = '100ms'").await.expect("a setting");
    for sql in ["SELECT pg_sleep(600)", "SELECT pg_advisory_lock(9)", "SELECT pg_sleep(0.04) FROM generate_series(1, 100)"] {
        let started = Instant::now();
        assert_eq!(code_of(&client, sql).await, "57014", "{sql}");
        assert!(started.elapsed() < PATIENCE, "{sql}");
    }
    let started = Instant::now();
    client.batch_execute("SET statement_timeout = 0; SELECT pg_sleep(0.2)").await.expect("it ends by itself");
    assert!(started.elapsed() >= Duration::from_millis(200));
    // None of those who gave up has it.
    drop(client);
    holder.batch_execute("SELECT pg_advisory_unlock(9)").await.expect("it has it");
    assert_eq!(text_value(&server.connect().await, "SELECT pg_try_advisory_lock(9)").await.as_deref(), Some("t"));
    server.stop().await;
}
