//! Cursors and prepared statements that SQL names, used by messages of the protocol, and the other way round.

use crate::server::{TestServer, code_of, text_rows, text_value};
use crate::wire::{TEXT_FORM, Wire, bind, close, describe, execute, first, kinds, parse, sync};

const BIGINT: u32 = 20;

#[tokio::test]
async fn a_cursor_is_a_portal() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    wire.query("BEGIN").await;
    let answer = wire.query("DECLARE c CURSOR FOR SELECT value AS n FROM generate_series(1, 5) t(value)").await;
    assert_eq!(kinds(&answer), "C ZT");
    let described = wire.ask(&[describe(b'P', "c"), sync()]).await;
    assert_eq!(kinds(&described), "T ZT");
    assert!(first(&described, 'T').body.windows(2).any(|bytes| bytes == b"n\0"), "{:?}", first(&described, 'T').body);
    // Execute goes on from where the cursor is, and FETCH from where Execute has stopped.
    let answer = wire.ask(&[execute("c", 2), sync()]).await;
    assert_eq!(kinds(&answer), "D D s ZT");
    let answer = wire.query("FETCH 1 FROM c").await;
    assert_eq!(first(&answer, 'D').value(), b"3");
    let answer = wire.ask(&[execute("c", 10), sync()]).await;
    assert_eq!(kinds(&answer), "D D C ZT");
    assert_eq!(first(&answer, 'C').text(), "SELECT 2");
    let answer = wire.ask(&[execute("c", 0), sync()]).await;
    assert_eq!(first(&answer, 'C').text(), "SELECT 0");
    // The name is taken until the portal is closed.
    let taken = wire.ask(&[parse("", "SELECT 1", &[]), bind("c", "", TEXT_FORM, &[]), sync()]).await;
    assert_eq!(kinds(&taken), "1 E42P03 ZE");
    wire.query("ROLLBACK").await;
    assert_eq!(kinds(&wire.ask(&[describe(b'P', "c"), sync()]).await), "E34000 ZI");
    wire.query("BEGIN; DECLARE c CURSOR FOR SELECT 1").await;
    assert_eq!(kinds(&wire.ask(&[close(b'P', "c"), sync()]).await), "3 ZT");
    assert_eq!(kinds(&wire.query("FETCH c").await), "E34000 ZE");
    server.stop().await;
}

#[tokio::test]
async fn a_binary_cursor_sends_what_it_describes() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    wire.query("BEGIN; DECLARE c BINARY CURSOR FOR SELECT 7::bigint AS n").await;
    let answer = wire.ask(&[describe(b'P', "c"), execute("c", 0), sync()]).await;
    assert_eq!(kinds(&answer), "T D C ZT");
    // The last field of a column's description is its form.
    assert!(first(&answer, 'T').body.ends_with(&[0, 1]));
    assert_eq!(first(&answer, 'D').value(), &7_i64.to_be_bytes());
    server.stop().await;
}

#[tokio::test]
async fn statements_have_one_list_of_names() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    // What PREPARE has made is described and bound by messages.
    wire.query("PREPARE twice (bigint) AS SELECT $1 * 2 AS doubled").await;
    let answer = wire.ask(&[describe(b'S', "twice"), bind("", "twice", TEXT_FORM, &[b"21"]), execute("", 0), sync()]).await;
    assert_eq!(kinds(&answer), "t T 2 D C ZI");
    assert_eq!(first(&answer, 't').body, [&[0, 1][..], &BIGINT.to_be_bytes()].concat());
    assert_eq!(first(&answer, 'D').value(), b"42");
    assert_eq!(kinds(&wire.ask(&[parse("twice", "SELECT 1", &[]), sync()]).await), "E42P05 ZI");
    // What a message has named is executed by SQL.
    assert_eq!(kinds(&wire.ask(&[parse("thrice", "SELECT $1 * 3", &[BIGINT]), sync()]).await), "1 ZI");
    let answer = wire.query("EXECUTE thrice (5)").await;
    assert_eq!((kinds(&answer).as_str(), first(&answer, 'D').value()), ("T D C ZI", &b"15"[..]));
    assert_eq!(kinds(&wire.query("PREPARE thrice AS SELECT 1").await), "E42P05 ZI");
    // A name that is released and given again is the new statement.
    wire.query("DEALLOCATE twice; PREPARE twice (bigint) AS SELECT $1 * 200").await;
    let answer = wire.ask(&[bind("", "twice", TEXT_FORM, &[b"1"]), execute("", 0), sync()]).await;
    assert_eq!(first(&answer, 'D').value(), b"200");
    assert_eq!(kinds(&wire.ask(&[close(b'S', "twice"), sync()]).await), "3 ZI");
    assert_eq!(kinds(&wire.query("EXECUTE twice (1)").await), "E26000 ZI");
    wire.query("DEALLOCATE ALL").await;
    assert_eq!(kinds(&wire.ask(&[bind("", "thrice", TEXT_FORM, &[b"1"]), sync()]).await), "E26000 ZI");
    server.stop().await;
}

#[tokio::test]
async fn rights_are_asked_for_when_a_statement_is_executed() {
    let server = TestServer::start().await;
    let (client, owner) = (server.connect().await, server.connect().await);
    owner.batch_execute("CREATE TABLE t (a bigint); INSERT INTO t VALUES (1)").await.expect("a table");
    owner.batch_execute("CREATE ROLE reader; GRANT SELECT ON t TO reader").await.expect("a role");
    client.batch_execute("SET ROLE reader; PREPARE p AS SELECT a FROM t").await.expect("a statement");
    for _ in 0..3 {
        assert_eq!(text_value(&client, "EXECUTE p").await.as_deref(), Some("1"));
    }
    owner.batch_execute("REVOKE SELECT ON t FROM reader").await.expect("a right is taken");
    assert_eq!(code_of(&client, "EXECUTE p").await, "42501");
    server.stop().await;
}

#[tokio::test]
async fn a_write_that_is_executed_counts_as_one() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (a bigint); PREPARE p AS INSERT INTO t VALUES ($1)").await.expect("a statement");
    client.batch_execute("BEGIN; EXECUTE p (1)").await.expect("a row");
    assert_eq!(code_of(&client, "ROLLBACK").await, "0A000");
    assert_eq!(text_rows(&client, "SELECT a FROM t").await.len(), 1);
    server.stop().await;
}
