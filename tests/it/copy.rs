//! COPY through the client: both protocols, all formats, and what becomes of a COPY that does not end well.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{SinkExt, StreamExt, TryStreamExt, pin_mut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::{Client, CopyInSink, Error, NoTls};

use crate::server::{TestServer, code, code_of, text_value};
use crate::wire::{VERSION_3_0, message, startup};

const EVERY_TYPE: &str = "id bigint PRIMARY KEY, small smallint, whole int, single real, double_ double precision, flag boolean, words text, \
    name varchar(20), bytes bytea, born date, moment timestamp, instant timestamptz, amount numeric(12,3), reference uuid, j json, jb jsonb, \
    tags text[], counts bigint[], ids uuid[], v vector(3), h halfvec(2)";

/// One row of values; one with an empty text and NULL everywhere else.
const ROWS: [&str; 2] = [
    "INSERT INTO t VALUES (1, -2, 3, 0.1, -0.25, true, 'tab\t, \"quote\" and \\ backslash', 'n', '\\x00ff', '2024-02-29', \
     '2024-02-29 12:34:56.5', '2024-02-29 12:34:56+00', 12345.678, 'f47ac10b-58cc-4372-a567-0e02b2c3d479', '{\"a\": 1}', '[1, 2]', \
     ['a,b', NULL, ''], [1, NULL], ['f47ac10b-58cc-4372-a567-0e02b2c3d479'], '[1,-0.5,2]', '[1,2.5]')",
    "INSERT INTO t (id, words) VALUES (2, '')",
];

async fn copy_in(client: &Client, sql: &str, chunks: impl IntoIterator<Item = impl Into<Bytes>>) -> Result<u64, Error> {
    let sink: CopyInSink<Bytes> = client.copy_in(sql).await?;
    pin_mut!(sink);
    for chunk in chunks {
        sink.send(chunk.into()).await?;
    }
    sink.finish().await
}

async fn copy_out(client: &Client, sql: &str) -> Vec<Bytes> {
    let stream = client.copy_out(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    stream.try_collect().await.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
}

async fn text_out(client: &Client, sql: &str) -> String {
    String::from_utf8(copy_out(client, sql).await.concat()).expect("text")
}

#[tokio::test]
async fn every_type_comes_back_in_every_format() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute(&format!("CREATE TABLE t ({EVERY_TYPE}); {}; {}", ROWS[0], ROWS[1])).await.expect("every type is one of a column");
    let expected = text_out(&client, "COPY (SELECT * FROM t ORDER BY id) TO STDOUT").await;
    assert!(
        expected.starts_with("1\t-2\t3\t0.1\t-0.25\tt\ttab\\t, \"quote\" and \\\\ backslash\tn\t\\\\x00ff\t2024-02-29\t"),
        "{expected}"
    );
    assert!(expected.contains("\t{\"a,b\",NULL,\"\"}\t{1,NULL}\t"), "{expected}");
    let nulls = |count| "\t\\N".repeat(count);
    assert!(expected.ends_with(&format!("\t[1,-0.5,2]\t[1,2.5]\n2{}\t{}\n", nulls(5), nulls(14))), "{expected}");
    for format in
        ["text", "csv", "csv, HEADER true, FORCE_QUOTE *", "csv, DELIMITER ';', NULL 'none', QUOTE '''', ESCAPE '\\'", "binary", "jsonl"]
    {
        // FORCE_QUOTE is for what is written.
        let from = format.replace(", FORCE_QUOTE *", "");
        let written = copy_out(&client, &format!("COPY (SELECT * FROM t ORDER BY id) TO STDOUT (FORMAT {format})")).await;
        client.batch_execute(&format!("CREATE TABLE again ({EVERY_TYPE})")).await.expect("a table");
        // In pieces that end anywhere.
        let pieces: Vec<Bytes> = written.concat().chunks(7).map(Bytes::copy_from_slice).collect();
        let count = copy_in(&client, &format!("COPY again FROM STDIN (FORMAT {from})"), pieces).await;
        assert_eq!(count.unwrap_or_else(|error| panic!("{format}: {error:?}")), 2, "{format}");
        let found = text_out(&client, "COPY (SELECT * FROM again ORDER BY id) TO STDOUT").await;
        assert_eq!(found, expected, "{format}");
        client.batch_execute("DROP TABLE again").await.expect("it is there");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_row_is_a_message() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let rows = "(SELECT value FROM generate_series(1, 3) s(value) ORDER BY value)";
    assert_eq!(copy_out(&client, &format!("COPY {rows} TO STDOUT")).await, ["1\n", "2\n", "3\n"]);
    assert_eq!(copy_out(&client, &format!("COPY {rows} TO STDOUT CSV HEADER")).await, ["value\n", "1\n", "2\n", "3\n"]);
    assert_eq!(copy_out(&client, &format!("COPY {rows} TO STDOUT (FORMAT jsonl)")).await[0], "{\"value\":1}\n");
    let binary = copy_out(&client, &format!("COPY {rows} TO STDOUT (FORMAT binary)")).await;
    assert_eq!(binary.iter().map(Bytes::len).collect::<Vec<_>>(), [19 + 14, 14, 14, 2]);
    let nothing = copy_out(&client, "COPY (SELECT 1 AS a WHERE false) TO STDOUT (FORMAT binary)").await;
    assert_eq!(nothing.iter().map(Bytes::len).collect::<Vec<_>>(), [19 + 2]);
    assert!(copy_out(&client, "COPY (SELECT 1 AS a WHERE false) TO STDOUT").await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn an_error_in_the_data_writes_nothing_and_leaves_the_connection_usable() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, n int)").await.expect("a table");
    for (format, data, expected, words) in [
        ("text", &b"1\t2\n2\tseven\n"[..], "22P02", "COPY t, line 2: column n: expected integer, found 'seven'"),
        ("text", b"1\t2\n2\n", "22P04", "line 2: missing data for column \"n\""),
        ("text", b"1\t2\t3\n", "22P04", "line 1: extra data after last expected column"),
        ("csv", b"1,\"2\n", "22P04", "line 1: unterminated quoted field"),
        ("csv, HEADER match", b"id,m\n1,2\n", "22P04", "the header has \"m\""),
        ("jsonl", b"{\"id\": 1}\n{\n", "22P04", "line 2"),
        ("binary", b"1\t2\n", "22P04", "signature"),
        ("binary", b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0", "22P04", "row field count is 1, expected 2"),
        ("binary", b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\0\x04\0\0\0\x01\xff\xff", "22P03", "line 1: column id"),
        ("text", b"1\t2\n1\t3\n", "23505", "1"),
        ("text", b"\\N\t2\n", "23502", "id"),
    ] {
        let error = copy_in(&client, &format!("COPY t FROM STDIN (FORMAT {format})"), [data]).await.expect_err(format);
        let error = error.as_db_error().unwrap_or_else(|| panic!("{format}: the server says so"));
        assert_eq!(error.code().code(), expected, "{format}: {}", error.message());
        assert!(error.message().contains(words), "{format}: {}", error.message());
        assert_eq!(text_value(&client, "SELECT count(*) FROM t").await.as_deref(), Some("0"), "{format}");
    }
    let skipped =
        copy_in(&client, "COPY t FROM STDIN (ON_ERROR skip)", [&b"1\t2\nx\t2\n3\t4\n"[..]]).await.expect("bad lines are left out");
    assert_eq!(skipped, 2);
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_copied_is_refused_before_the_data() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (a bigint, b bigint GENERATED ALWAYS AS (a + 1) STORED)").await.expect("a table");
    for (sql, expected) in [
        ("COPY missing FROM STDIN", "42P01"),
        ("COPY t (a, c) FROM STDIN", "42703"),
        ("COPY t (b) FROM STDIN", "428C9"),
        ("COPY t FROM STDIN (FORMAT xml)", "22023"),
        ("COPY t FROM STDIN (FORMAT parquet)", "0A000"),
        ("COPY t FROM STDIN (DELIMITER 'ab')", "22023"),
        ("COPY t FROM STDIN (DELIMITER 'a')", "22023"),
        ("COPY t FROM STDIN (QUOTE '\"')", "0A000"),
        ("COPY t FROM STDIN (FORMAT binary, HEADER true)", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, FORCE_NULL (c))", "42703"),
        ("COPY t FROM STDIN (ENCODING 'LATIN1')", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, DELIMITTER ';')", "22023"),
        ("COPY t TO STDOUT (FORMAT csv, HEADER match)", "22023"),
        ("COPY t TO STDOUT (ON_ERROR skip)", "22023"),
    ] {
        assert_eq!(code_of(&client, sql).await, expected, "{sql}");
    }
    let count = copy_in(&client, "COPY t FROM STDIN WITH CSV HEADER", [&b"a\n1\n2\n"[..]]).await.expect("the table computes b");
    assert_eq!(count, 2);
    assert_eq!(text_value(&client, "SELECT sum(b) FROM t").await.as_deref(), Some("5"));
    server.stop().await;
}

#[tokio::test]
async fn a_copy_that_its_client_gives_up_writes_nothing() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (a bigint)").await.expect("a table");
    {
        let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN").await.expect("it waits for rows");
        pin_mut!(sink);
        sink.send(Bytes::from_static(b"1\n2\n")).await.expect("it takes them");
        // Dropped: the driver sends CopyFail.
    }
    assert_eq!(text_value(&client, "SELECT count(*) FROM t").await.as_deref(), Some("0"));
    // One that vanishes.
    let mut vanishing = RawClient::connect(&server).await;
    vanishing.query("COPY t FROM STDIN").await;
    vanishing.until(b'G').await;
    vanishing.send(b'd', b"1\n2\n").await;
    drop(vanishing);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(text_value(&client, "SELECT count(*) FROM t").await.as_deref(), Some("0"));
    server.stop().await;
}

#[tokio::test]
async fn copies_are_cancelled() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (a bigint)").await.expect("a table");
    let endless =
        "COPY (SELECT a.value FROM generate_series(1, 100000000) a(value) CROSS JOIN generate_series(1, 1000) b(value)) TO STDOUT";
    let stream = client.copy_out(endless).await.expect("it starts");
    pin_mut!(stream);
    stream.next().await.expect("a row").expect("there are many");
    client.cancel_token().cancel_query(NoTls).await.expect("the request is taken");
    let error = loop {
        if let Err(error) = stream.next().await.expect("it does not end well") {
            break error;
        }
    };
    assert_eq!(code(&error), "57014");
    // The client need not send anything for the server to end it.
    let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN").await.expect("it waits for rows");
    pin_mut!(sink);
    sink.send(Bytes::from_static(b"1\n")).await.expect("it takes them");
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.cancel_token().cancel_query(NoTls).await.expect("the request is taken");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let error = sink.finish().await.expect_err("it was cancelled");
    assert_eq!(code(&error), "57014");
    assert_eq!(text_value(&client, "SELECT count(*) FROM t").await.as_deref(), Some("0"));
    server.stop().await;
}

#[tokio::test]
async fn generated_columns_are_not_copied_and_computed_again() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (a bigint, \"B\" text, c bigint GENERATED ALWAYS AS (a + 1) STORED)").await.expect("a table");
    assert_eq!(copy_in(&client, "COPY t FROM STDIN", [&b"1\tx\n"[..]]).await.expect("rows"), 1);
    assert_eq!(text_out(&client, "COPY t TO STDOUT (FORMAT csv, HEADER true)").await, "a,B\n1,x\n");
    assert_eq!(text_out(&client, "COPY t (c, a) TO STDOUT").await, "2\t1\n");
    assert_eq!(text_out(&client, "COPY (SELECT * FROM t) TO STDOUT").await, "1\tx\t2\n");
    server.stop().await;
}

/// Joins and sorts that end with their statement go on while its rows are sent.
#[tokio::test]
async fn what_computes_the_rows_of_a_copy_goes_on_while_they_are_sent() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let rows =
        "SELECT a.value, b.value FROM generate_series(1, 200) a(value) JOIN generate_series(1, 200) b(value) ON a.value + 197 < b.value";
    let joined = text_out(&client, &format!("COPY ({rows}) TO STDOUT")).await;
    assert_eq!(joined.lines().count(), 3, "{joined}");
    assert_eq!(text_out(&client, &format!("COPY ({rows} ORDER BY 1 DESC, 2) TO STDOUT")).await, "2\t200\n1\t199\n1\t200\n");
    let sorted =
        text_out(&client, "COPY (SELECT value FROM generate_series(1, 200000) s(value) ORDER BY value % 1000, value) TO STDOUT").await;
    assert_eq!(sorted.lines().count(), 200_000);
    assert!(sorted.starts_with("1000\n2000\n"));
    server.stop().await;
}

#[tokio::test]
async fn copies_end_when_their_time_is_over() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (a bigint); SET statement_timeout = '300ms'").await.expect("a table");
    let endless =
        "COPY (SELECT a.value FROM generate_series(1, 100000000) a(value) CROSS JOIN generate_series(1, 1000) b(value)) TO STDOUT";
    let stream = client.copy_out(endless).await.expect("it starts");
    let error = stream.try_for_each(|_| async { Ok(()) }).await.expect_err("its time is over");
    assert_eq!(code(&error), "57014");
    let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN").await.expect("it waits for rows");
    pin_mut!(sink);
    sink.send(Bytes::from_static(b"1\n")).await.expect("it takes them");
    tokio::time::sleep(Duration::from_millis(600)).await;
    let error = sink.finish().await.expect_err("its time is over");
    assert_eq!(code(&error), "57014");
    client.batch_execute("SET statement_timeout = 0").await.expect("a setting");
    assert_eq!(text_value(&client, "SELECT count(*) FROM t").await.as_deref(), Some("0"));
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_is_faster_than_the_table_waits() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (a bigint, b text)").await.expect("a table");
    let started = Instant::now();
    let chunk: String = (0..2000).map(|n| format!("{n}\tsome words of row {n}\n")).collect();
    let chunks = std::iter::repeat_n(Bytes::from(chunk), 50);
    assert_eq!(copy_in(&client, "COPY t FROM STDIN", chunks).await.expect("rows"), 100_000);
    let out = client.copy_out("COPY t TO STDOUT").await.expect("it starts");
    let bytes: Vec<Bytes> = out.try_collect().await.expect("rows");
    assert_eq!(bytes.len(), 100_000);
    assert!(started.elapsed() < Duration::from_secs(60), "took {:?}", started.elapsed());
    server.stop().await;
}

/// A client of the simple protocol, byte for byte.
struct RawClient(TcpStream);

impl RawClient {
    async fn connect(server: &TestServer) -> Self {
        let mut socket = TcpStream::connect(("127.0.0.1", server.port)).await.expect("it listens");
        socket.write_all(&startup(VERSION_3_0, b"user\0someone\0database\0rolloutdb\0\0")).await.expect("it is connected");
        let mut client = Self(socket);
        client.until(b'Z').await;
        client
    }

    async fn send(&mut self, kind: u8, body: &[u8]) {
        self.0.write_all(&message(kind, body)).await.expect("it is connected");
    }

    async fn query(&mut self, text: &str) {
        self.send(b'Q', &[text.as_bytes(), b"\0"].concat()).await;
    }

    /// Messages up to one of this kind: kind and what tells them apart.
    async fn until(&mut self, last: u8) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let mut head = [0; 5];
            let read = tokio::time::timeout(Duration::from_secs(30), self.0.read_exact(&mut head)).await;
            read.unwrap_or_else(|_| panic!("no {:?} came after {seen:?}", char::from(last))).expect("it is connected");
            let mut body = vec![0; i32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
            self.0.read_exact(&mut body).await.expect("it is connected");
            let kind = char::from(head[0]);
            let detail = match kind {
                'Z' | 'C' => String::from_utf8_lossy(&body).trim_end_matches('\0').to_string(),
                'E' => String::from_utf8_lossy(&body).split('\0').find_map(|field| field.strip_prefix('C')).unwrap_or_default().to_string(),
                _ => String::new(),
            };
            if !matches!(kind, 'S' | 'N' | 'R' | 'K') {
                seen.push(format!("{kind}{detail}"));
            }
            if head[0] == last {
                return seen;
            }
        }
    }
}

#[tokio::test]
async fn a_simple_query_goes_on_after_its_copy_and_keeps_the_state_of_the_transaction() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(&server).await;
    client.query("CREATE TABLE t (a bigint); CREATE TABLE u (a bigint)").await;
    assert_eq!(client.until(b'Z').await, ["CCREATE TABLE", "CCREATE TABLE", "ZI"]);
    client.query("BEGIN; COPY t FROM STDIN; SELECT count(*) FROM t; COPY u FROM STDIN; SELECT count(*) FROM u").await;
    assert_eq!(client.until(b'G').await, ["CBEGIN", "G"]);
    client.send(b'd', b"1\n2\n").await;
    client.send(b'c', b"").await;
    assert_eq!(client.until(b'G').await, ["CCOPY 2", "T", "D", "CSELECT 1", "G"]);
    client.send(b'd', b"7\n\\.\n").await;
    client.send(b'c', b"").await;
    assert_eq!(client.until(b'Z').await, ["CCOPY 1", "T", "D", "CSELECT 1", "ZT"]);
    client.query("COMMIT").await;
    assert_eq!(client.until(b'Z').await, ["CCOMMIT", "ZI"]);
    client.query("COPY t TO STDOUT; SELECT 1").await;
    assert_eq!(client.until(b'Z').await, ["H", "d", "d", "c", "CCOPY 2", "T", "D", "CSELECT 1", "ZI"]);
    server.stop().await;
}

#[tokio::test]
async fn what_is_sent_after_an_error_is_passed_over() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(&server).await;
    client.query("CREATE TABLE t (a bigint)").await;
    client.until(b'Z').await;
    // The client gives up.
    client.query("BEGIN; COPY t FROM STDIN; SELECT 1").await;
    client.until(b'G').await;
    client.send(b'd', b"1\n").await;
    client.send(b'f', b"no more\0").await;
    assert_eq!(client.until(b'Z').await, ["E57014", "ZE"]);
    // Nothing was written, so there is nothing that ROLLBACK could not undo.
    client.query("ROLLBACK").await;
    assert_eq!(client.until(b'Z').await, ["CROLLBACK", "ZI"]);
    // The data is wrong, and the client has not heard of it yet.
    client.query("COPY t FROM STDIN").await;
    client.until(b'G').await;
    client.send(b'd', b"x\n").await;
    client.send(b'c', b"").await;
    assert_eq!(client.until(b'Z').await, ["E22P02", "ZI"]);
    client.send(b'd', b"1\n").await;
    client.send(b'c', b"").await;
    client.query("SELECT count(*) FROM t").await;
    assert_eq!(client.until(b'Z').await, ["T", "D", "CSELECT 1", "ZI"]);
    // A statement in the midst of the data.
    client.query("COPY t FROM STDIN").await;
    client.until(b'G').await;
    client.query("SELECT 1").await;
    assert_eq!(client.until(b'Z').await, ["E08P01", "ZI"]);
    client.query("SELECT 1").await;
    assert_eq!(client.until(b'Z').await, ["T", "D", "CSELECT 1", "ZI"]);
    server.stop().await;
}
