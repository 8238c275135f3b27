//! Savepoints as drivers use them: by calls of their own, and in the extended protocol, which describes a statement before it runs.

use tokio_postgres::Client;

use crate::server::{TestServer, code};

async fn fails(client: &Client) {
    let error = client.query("SELECT * FROM no_such_table", &[]).await.expect_err("there is no such table");
    assert_eq!(code(&error), "42P01");
    assert_eq!(code(&client.query("SELECT 1", &[]).await.expect_err("the transaction has failed")), "25P02");
}

#[tokio::test]
async fn a_transaction_goes_on_from_a_savepoint() {
    let server = TestServer::start().await;
    let mut client = server.connect().await;
    let mut outer = client.transaction().await.expect("BEGIN");
    let inner = outer.transaction().await.expect("SAVEPOINT");
    fails(inner.client()).await;
    inner.rollback().await.expect("ROLLBACK TO");
    let inner = outer.savepoint("Named").await.expect("SAVEPOINT");
    inner.query("SELECT 1", &[]).await.expect("the transaction goes on");
    inner.commit().await.expect("RELEASE");
    outer.execute("SAVEPOINT extended", &[]).await.expect("SAVEPOINT");
    fails(outer.client()).await;
    outer.execute("ROLLBACK TO SAVEPOINT extended", &[]).await.expect("it is prepared and runs, though the transaction has failed");
    outer.query("SELECT 1", &[]).await.expect("the transaction goes on");
    outer.execute("RELEASE extended", &[]).await.expect("RELEASE");
    let error = outer.execute("ROLLBACK TO extended", &[]).await.expect_err("it is released");
    assert_eq!(code(&error), "3B001");
    outer.rollback().await.expect("ROLLBACK");
    assert_eq!(code(&client.execute("SAVEPOINT alone", &[]).await.expect_err("there is no transaction")), "25P01");
    server.stop().await;
}
