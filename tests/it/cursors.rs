//! Cursors as drivers use them, in both protocols.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use crate::server::{TestServer, code, code_of, text_rows, text_value};

#[tokio::test]
async fn a_cursor_is_fetched_in_both_protocols() {
    let server = TestServer::start().await;
    let mut client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (a bigint); INSERT INTO t SELECT value FROM generate_series(1, 20) s(value)")
        .await
        .expect("a table");
    let transaction = client.transaction().await.expect("BEGIN");
    // Parameters of the query belong to DECLARE.
    let declare = "DECLARE c CURSOR FOR SELECT a AS n, 'x' AS w FROM t WHERE a <= $1 ORDER BY a";
    transaction.execute(declare, &[&10_i64]).await.expect("a cursor");
    let fetch = transaction.prepare("FETCH FORWARD 4 FROM c").await.expect("the cursor's columns are known");
    let columns: Vec<_> = fetch.columns().iter().map(|column| (column.name().to_string(), column.type_().clone())).collect();
    assert_eq!(columns, [("n".to_string(), Type::INT8), ("w".to_string(), Type::TEXT)]);
    let mut found = Vec::new();
    loop {
        let rows = transaction.query(&fetch, &[]).await.expect("rows");
        if rows.is_empty() {
            break;
        }
        assert!(rows.len() <= 4);
        found.extend(rows.iter().map(|row| row.get::<_, i64>("n")));
    }
    assert_eq!(found, (1..=10).collect::<Vec<_>>());
    transaction.batch_execute("CLOSE c").await.expect("it is there");
    transaction.commit().await.expect("COMMIT");
    server.stop().await;
}

#[tokio::test]
async fn a_cursor_reads_one_snapshot_and_ends_with_its_transaction() {
    let server = TestServer::start().await;
    let (client, other) = (server.connect().await, server.connect().await);
    other.batch_execute("CREATE TABLE t (a bigint); INSERT INTO t VALUES (1), (2), (3)").await.expect("a table");
    assert_eq!(code_of(&client, "DECLARE c CURSOR FOR SELECT 1").await, "25P01");
    client.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT a FROM t ORDER BY a").await.expect("a cursor");
    other.batch_execute("DELETE FROM t; INSERT INTO t VALUES (9)").await.expect("others write");
    let rows = text_rows(&client, "FETCH 2 FROM c").await;
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<_>>(), [Some("1"), Some("2")]);
    assert_eq!(text_value(&client, "FETCH NEXT FROM c").await.as_deref(), Some("3"));
    assert!(text_rows(&client, "FETCH ALL FROM c").await.is_empty());
    client.batch_execute("COMMIT").await.expect("COMMIT");
    assert_eq!(code_of(&client, "FETCH NEXT FROM c").await, "34000");
    // WITH HOLD outlives a commit.
    client.batch_execute("BEGIN; DECLARE held CURSOR WITH HOLD FOR SELECT a FROM t; COMMIT").await.expect("a cursor");
    assert_eq!(text_value(&client, "FETCH held").await.as_deref(), Some("9"));
    client.batch_execute("CLOSE ALL").await.expect("none is left");
    assert_eq!(code_of(&client, "FETCH held").await, "34000");
    server.stop().await;
}

#[tokio::test]
async fn a_cursor_over_rows_without_an_end_holds_none_back() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let started = Instant::now();
    let endless = "SELECT a.value FROM generate_series(1, 100000000) a(value) CROSS JOIN generate_series(1, 1000) b(value)";
    client.batch_execute(&format!("BEGIN; DECLARE c CURSOR FOR {endless}")).await.expect("a cursor");
    assert_eq!(text_rows(&client, "FETCH 5 FROM c").await.len(), 5);
    client.batch_execute("MOVE 1000 FROM c").await.expect("rows are passed over");
    assert_eq!(text_rows(&client, "FETCH FORWARD 5 FROM c").await.len(), 5);
    let error = client.simple_query("FETCH BACKWARD FROM c").await.expect_err("rows come forward only");
    assert_eq!(code(&error), "55000");
    assert_eq!(code_of(&client, "FETCH c").await, "25P02");
    client.batch_execute("ROLLBACK").await.expect("nothing was written");
    assert!(started.elapsed() < Duration::from_secs(20), "took {:?}", started.elapsed());
    server.stop().await;
}

#[tokio::test]
async fn notifications_are_refused_and_the_reset_of_a_pool_goes_through() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    assert_eq!(code_of(&client, "LISTEN news").await, "0A000");
    assert_eq!(code_of(&client, "NOTIFY news, 'it happened'").await, "0A000");
    client.batch_execute("CLOSE ALL; UNLISTEN *; RESET ALL").await.expect("nothing is left to end");
    server.stop().await;
}
