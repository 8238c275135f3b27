//! Statements of messages whose tables have changed, and parameters of no type, as drivers send them.

use crate::server::TestServer;
use crate::wire::{TEXT_FORM, Wire, bind, describe, execute, first, kinds, parse, sync};

const TEXT: u32 = 25;
const TEXTS: u32 = 1009;

/// By this pgjdbc and asyncpg know that they are to prepare the statement anew.
fn names_the_routine(error: &[u8]) -> bool {
    error.windows(23).any(|bytes| bytes == b"RRevalidateCachedQuery\0")
}

#[tokio::test]
async fn other_columns_are_refused_before_anything_is_sent() {
    let server = TestServer::start().await;
    let (mut wire, mut other) = (Wire::connect(&server).await, Wire::connect(&server).await);
    other.query("CREATE TABLE h (a int, b int); INSERT INTO h VALUES (1, 2)").await;
    assert_eq!(kinds(&wire.ask(&[parse("every", "SELECT * FROM h", &[]), sync()]).await), "1 ZI");
    let run = [bind("", "every", TEXT_FORM, &[]), execute("", 0), sync()];
    for _ in 0..3 {
        assert_eq!(kinds(&wire.ask(&run).await), "2 D C ZI");
    }
    other.query("DROP TABLE h; CREATE TABLE h (b int, a int); INSERT INTO h VALUES (20, 10)").await;
    let refused = wire.ask(&run).await;
    assert_eq!(kinds(&refused), "E0A000 ZI");
    assert!(names_the_routine(&first(&refused, 'E').body), "{:?}", first(&refused, 'E').body);
    assert_eq!(kinds(&wire.ask(&[describe(b'S', "every"), sync()]).await), "E0A000 ZI");
    // The same for one without a name, and inside of a transaction it fails this.
    wire.query("BEGIN").await;
    assert_eq!(kinds(&wire.ask(&run).await), "E0A000 ZE");
    wire.query("ROLLBACK").await;
    assert_eq!(kinds(&wire.ask(&[parse("", "SELECT a FROM h", &[]), sync()]).await), "1 ZI");
    other.query("ALTER TABLE h RENAME COLUMN a TO c; ALTER TABLE h ADD COLUMN a text").await;
    assert_eq!(kinds(&wire.ask(&[bind("", "", TEXT_FORM, &[]), execute("", 0), sync()]).await), "E0A000 ZI");
    // The columns that were told are there again.
    other.query("DROP TABLE h; CREATE TABLE h (a int, b int); INSERT INTO h VALUES (3, 4)").await;
    let answer = wire.ask(&run).await;
    assert_eq!(kinds(&answer), "2 D C ZI");
    assert_eq!(first(&answer, 'D').value(), b"3\0\0\0\x014");
    server.stop().await;
}

#[tokio::test]
async fn a_change_that_returns_other_columns_changes_nothing() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    wire.query("CREATE TABLE t (id int, w text); INSERT INTO t VALUES (1, 'one')").await;
    let changes = parse("changes", "UPDATE t SET w = $2 WHERE id = $1 RETURNING *", &[]);
    assert_eq!(kinds(&wire.ask(&[changes, sync()]).await), "1 ZI");
    wire.query("ALTER TABLE t ADD COLUMN z int").await;
    let run = [bind("", "changes", TEXT_FORM, &[b"1", b"uno"]), execute("", 0), sync()];
    assert_eq!(kinds(&wire.ask(&run).await), "E0A000 ZI");
    assert_eq!(first(&wire.query("SELECT w FROM t").await, 'D').value(), b"one");
    // The types of parameters stay: what was a number is no text.
    wire.ask(&[parse("adds", "INSERT INTO t (id, w) VALUES ($1, $2)", &[]), sync()]).await;
    wire.query("DROP TABLE t; CREATE TABLE t (w int, id text)").await;
    let run = [bind("", "adds", TEXT_FORM, &[b"1", b"1"]), execute("", 0), sync()];
    assert_eq!(kinds(&wire.ask(&run).await), "2 E42804 ZI");
    server.stop().await;
}

#[tokio::test]
async fn lists_without_a_type_are_lists() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    let mut value = async |sql: &str, types: &[u32], values: &[&[u8]]| {
        let answer = wire.ask(&[parse("", sql, types), bind("", "", TEXT_FORM, values), execute("", 0), sync()]).await;
        match kinds(&answer).as_str() {
            "1 2 D C ZI" => String::from_utf8_lossy(first(&answer, 'D').value()).into_owned(),
            other => other.to_owned(),
        }
    };
    let matches = "SELECT exact_match('Paris', $1)";
    assert_eq!(value(matches, &[], &[b"{Rome,Paris}"]).await, "1");
    assert_eq!(value(matches, &[0], &[b"{Rome,Paris}"]).await, "1");
    assert_eq!(value(matches, &[0], &[b"Paris"]).await, "1");
    assert_eq!(value(matches, &[TEXTS], &[b"{Rome,Paris}"]).await, "1");
    assert_eq!(value(matches, &[TEXT], &[b"{Rome,Paris}"]).await, "1 2 N D C ZI");
    assert_eq!(value("SELECT recall_at_k($1, $2, 20)", &[], &[b"{a,b,b,c}", b"{b,x}"]).await, "0.5");
    assert_eq!(value("SELECT redundant_searches($1)", &[], &[b"{a,a}"]).await, "1");
    assert_eq!(value("SELECT count(*) FROM generate_series(1, $1)", &[], &[b"7"]).await, "7");
    assert_eq!(value("SELECT round($1, 2)", &[], &[b"2.345"]).await, "2.35");
    assert_eq!(value("SELECT abs($1)", &[], &[b"-2.5"]).await, "2.5");
    server.stop().await;
}
