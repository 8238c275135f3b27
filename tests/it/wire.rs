//! The protocol message by message, where drivers hide what a server answers: pipelines, portals, types by their numbers.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::TestServer;

/// The version of the protocol.
pub(crate) const VERSION_3_0: u32 = 3 << 16;
const INT4: u32 = 23;
const VECTOR: u32 = 16_380;
const HALFVEC: u32 = 16_382;
pub(crate) const TEXT_FORM: i16 = 0;
const BINARY_FORM: i16 = 1;

/// A connection that sends what it is told and shows what comes.
pub(crate) struct Wire(TcpStream);

/// A message of the server.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: char,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// The field of an error that begins with a letter.
    pub(crate) fn field(&self, letter: u8) -> Option<String> {
        let mut fields = self.body.split(|byte| *byte == 0);
        let found = fields.find(|field| field.first() == Some(&letter))?;
        Some(String::from_utf8_lossy(&found[1..]).into_owned())
    }

    pub(crate) fn code(&self) -> String {
        self.field(b'C').unwrap_or_default()
    }

    /// The value of a row with one column, behind their number and its length.
    pub(crate) fn value(&self) -> &[u8] {
        &self.body[6..]
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).trim_end_matches('\0').to_owned()
    }
}

/// The first message of a connection; `number`: the version, or what is asked for instead.
pub(crate) fn startup(number: u32, rest: &[u8]) -> Vec<u8> {
    let length = u32::try_from(rest.len() + 8).expect("it fits").to_be_bytes();
    [&length[..], &number.to_be_bytes(), rest].concat()
}

pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("it fits").to_be_bytes();
    [&[kind][..], &length, body].concat()
}

pub(crate) fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &[sql.as_bytes(), b"\0"].concat())
}

pub(crate) fn words(values: &[i16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

pub(crate) fn parse(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let types_bytes: Vec<u8> = types.iter().flat_map(|oid| oid.to_be_bytes()).collect();
    message(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0", &words(&[types.len() as i16]), &types_bytes].concat())
}

pub(crate) fn bind(portal: &str, statement: &str, form: i16, values: &[&[u8]]) -> Vec<u8> {
    let mut body = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0", &words(&[1, form, values.len() as i16])].concat();
    for value in values {
        body.extend((value.len() as u32).to_be_bytes());
        body.extend(*value);
    }
    body.extend(words(&[1, form]));
    message(b'B', &body)
}

pub(crate) fn describe(kind: u8, name: &str) -> Vec<u8> {
    message(b'D', &[&[kind][..], name.as_bytes(), b"\0"].concat())
}

pub(crate) fn close(kind: u8, name: &str) -> Vec<u8> {
    message(b'C', &[&[kind][..], name.as_bytes(), b"\0"].concat())
}

pub(crate) fn execute(portal: &str, max_rows: u32) -> Vec<u8> {
    message(b'E', &[portal.as_bytes(), b"\0", &max_rows.to_be_bytes()].concat())
}

pub(crate) fn sync() -> Vec<u8> {
    message(b'S', &[])
}

impl Wire {
    pub(crate) async fn connect(server: &TestServer) -> Self {
        Self::connect_to(server.port).await
    }

    pub(crate) async fn connect_to(port: u16) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).await.expect("the server accepts a client");
        let mut wire = Self(socket);
        wire.0.write_all(&startup(VERSION_3_0, b"user\0someone\0database\0rolloutdb\0\0")).await.expect("it is sent");
        let greeting = wire.until('Z').await;
        let told = |name: &str| greeting.iter().any(|message| message.kind == 'S' && message.text().starts_with(&format!("{name}\0")));
        for name in ["server_version", "client_encoding", "DateStyle", "integer_datetimes", "standard_conforming_strings", "TimeZone"] {
            assert!(told(name), "{name}");
        }
        wire
    }

    pub(crate) async fn receive(&mut self) -> Message {
        let kind = char::from(self.0.read_u8().await.expect("a message"));
        let length = self.0.read_u32().await.expect("its length") as usize;
        let mut body = vec![0; length - 4];
        self.0.read_exact(&mut body).await.expect("its body");
        Message { kind, body }
    }

    /// Messages up to one of a kind.
    pub(crate) async fn until(&mut self, kind: char) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            messages.push(self.receive().await);
            if messages.last().is_some_and(|last| last.kind == kind) {
                return messages;
            }
        }
    }

    /// Bytes of what comes next, as many as there are and have room; how many.
    pub(crate) async fn read_some(&mut self, bytes: &mut [u8]) -> usize {
        self.0.read(bytes).await.expect("the server is there")
    }

    pub(crate) async fn send(&mut self, messages: &[Vec<u8>]) {
        self.0.write_all(&messages.concat()).await.expect("they are sent");
    }

    /// Sends, and gives what comes up to `ReadyForQuery`.
    pub(crate) async fn ask(&mut self, messages: &[Vec<u8>]) -> Vec<Message> {
        self.send(messages).await;
        self.until('Z').await
    }

    pub(crate) async fn query(&mut self, sql: &str) -> Vec<Message> {
        self.ask(&[query(sql)]).await
    }
}

/// The kinds of messages, with the state behind `Z` and the code behind `E`.
pub(crate) fn kinds(messages: &[Message]) -> String {
    let shown = messages.iter().map(|message| match message.kind {
        'Z' => format!("Z{}", char::from(message.body[0])),
        'E' => format!("E{}", message.code()),
        kind => kind.to_string(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

pub(crate) fn first(messages: &[Message], kind: char) -> &Message {
    messages.iter().find(|message| message.kind == kind).unwrap_or_else(|| panic!("no {kind} in {}", kinds(messages)))
}

/// A statement of a pipeline: parsed, bound and executed.
pub(crate) fn run(sql: &str) -> Vec<u8> {
    [parse("", sql, &[]), bind("", "", TEXT_FORM, &[]), execute("", 0)].concat()
}

#[tokio::test]
async fn an_error_ends_a_pipeline_and_what_came_before_stays() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    wire.query("CREATE TABLE t (id bigint PRIMARY KEY)").await;
    let answer = wire
        .ask(&[
            run("INSERT INTO t VALUES (1)"),
            run("SELECT id FROM t"),
            run("INSERT INTO t VALUES (1)"),
            run("INSERT INTO t VALUES (2)"),
            sync(),
        ])
        .await;
    assert_eq!(kinds(&answer), "1 2 C 1 2 D C 1 2 E23505 ZI");
    assert_eq!(first(&answer, 'C').text(), "INSERT 0 1");
    let error = first(&answer, 'E');
    assert_eq!((error.field(b'S').as_deref(), error.field(b'V').as_deref()), (Some("ERROR"), Some("ERROR")));
    assert_eq!((error.field(b't').as_deref(), error.field(b'n').as_deref()), (Some("t"), Some("t_pkey")));
    assert_eq!(kinds(&wire.query("SELECT id FROM t").await), "T D C ZI");
    // Inside a transaction block the next statements wait for its end.
    let answer = wire.ask(&[run("BEGIN"), run("SELECT missing FROM t"), run("SELECT 1"), sync()]).await;
    assert_eq!(kinds(&answer), "1 2 C E42703 ZE");
    let answer = wire.ask(&[run("SELECT 1"), sync()]).await;
    assert_eq!(kinds(&answer), "E25P02 ZE");
    assert_eq!(kinds(&wire.ask(&[run("ROLLBACK"), sync()]).await), "1 2 C ZI");
    server.stop().await;
}

#[tokio::test]
async fn a_portal_lives_as_long_as_its_transaction() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    let numbers = "SELECT value FROM generate_series(1, 5) s(value) ORDER BY value";
    wire.query("BEGIN").await;
    let answer = wire.ask(&[parse("s", numbers, &[]), bind("p", "s", TEXT_FORM, &[]), execute("p", 2), sync()]).await;
    assert_eq!(kinds(&answer), "1 2 D D s ZT");
    let answer = wire.ask(&[execute("p", 2), execute("p", 2), execute("p", 2), sync()]).await;
    assert_eq!(kinds(&answer), "D D s D C C ZT");
    assert_eq!(answer.iter().filter(|message| message.kind == 'C').map(Message::text).collect::<Vec<_>>(), ["SELECT 1", "SELECT 0"]);
    assert_eq!(kinds(&wire.ask(&[bind("p", "s", TEXT_FORM, &[]), sync()]).await), "E42P03 ZE");
    wire.query("ROLLBACK").await;
    // Outside of a block every Sync ends a transaction.
    assert_eq!(kinds(&wire.ask(&[bind("q", "s", TEXT_FORM, &[]), execute("q", 2), sync()]).await), "2 D D s ZI");
    assert_eq!(kinds(&wire.ask(&[execute("q", 2), sync()]).await), "E34000 ZI");
    server.stop().await;
}

#[tokio::test]
async fn names_are_found_replaced_and_closed_as_in_postgres() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    assert_eq!(kinds(&wire.ask(&[parse("s", "SELECT 1", &[]), parse("s", "SELECT 2", &[]), sync()]).await), "1 E42P05 ZI");
    assert_eq!(kinds(&wire.ask(&[parse("", "SELECT 1", &[]), parse("", "SELECT 2", &[]), sync()]).await), "1 1 ZI");
    assert_eq!(kinds(&wire.ask(&[close(b'S', "none"), close(b'P', "none"), close(b'S', "s"), sync()]).await), "3 3 3 ZI");
    assert_eq!(kinds(&wire.ask(&[describe(b'S', "s"), sync()]).await), "E26000 ZI");
    assert_eq!(kinds(&wire.ask(&[describe(b'P', "none"), sync()]).await), "E34000 ZI");
    assert_eq!(kinds(&wire.ask(&[bind("", "none", TEXT_FORM, &[]), sync()]).await), "E26000 ZI");
    assert_eq!(kinds(&wire.ask(&[run(""), sync()]).await), "1 2 I ZI");
    assert_eq!(kinds(&wire.query("").await), "I ZI");
    // Flush brings what there is, without an end of the transaction.
    wire.send(&[parse("", "SELECT 1", &[]), message(b'H', &[])]).await;
    assert_eq!(wire.receive().await.kind, '1');
    assert_eq!(kinds(&wire.ask(&[sync()]).await), "ZI");
    server.stop().await;
}

#[tokio::test]
async fn values_are_counted_and_checked() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    let statement = parse("", "SELECT $1::int", &[]);
    for (bound, expected) in [
        (bind("", "", TEXT_FORM, &[]), "08P01"),
        (bind("", "", TEXT_FORM, &[b"1", b"2"]), "08P01"),
        (bind("", "", 7, &[b"1"]), "22023"),
        (bind("", "", TEXT_FORM, &[b"one"]), "22P02"),
        (bind("", "", TEXT_FORM, &[b"2147483648"]), "22003"),
        (bind("", "", TEXT_FORM, &[b"\xff"]), "22021"),
        (bind("", "", BINARY_FORM, &[b"123"]), "22P03"),
    ] {
        let answer = wire.ask(&[statement.clone(), bound, execute("", 0), sync()]).await;
        assert_eq!(first(&answer, 'E').code(), expected);
    }
    let answer = wire.ask(&[statement, bind("", "", BINARY_FORM, &[&7_i32.to_be_bytes()]), execute("", 0), sync()]).await;
    assert_eq!(first(&answer, 'D').value(), 7_i32.to_be_bytes());
    server.stop().await;
}

/// The type of the only column.
fn column_type(description: &Message) -> u32 {
    let name_end = description.body[2..].iter().position(|byte| *byte == 0).expect("a name ends") + 3;
    u32::from_be_bytes(description.body[name_end + 6..name_end + 10].try_into().expect("four bytes"))
}

#[tokio::test]
async fn a_declared_type_is_that_of_the_column() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    let answer = wire.ask(&[parse("s", "SELECT $1", &[INT4]), describe(b'S', "s"), sync()]).await;
    assert_eq!(first(&answer, 't').body, [&1_u16.to_be_bytes()[..], &INT4.to_be_bytes()].concat());
    assert_eq!(column_type(first(&answer, 'T')), INT4);
    let answer = wire.ask(&[bind("", "s", BINARY_FORM, &[&7_i32.to_be_bytes()]), execute("", 0), sync()]).await;
    assert_eq!(first(&answer, 'D').value(), 7_i32.to_be_bytes());
    // A number that the statement's own does not hold is not cut to it.
    let float8 = 701;
    let answer = wire.ask(&[parse("f", "SELECT $1 + 1", &[float8]), describe(b'S', "f"), sync()]).await;
    assert_eq!(column_type(first(&answer, 'T')), float8);
    let answer = wire.ask(&[bind("", "f", BINARY_FORM, &[&1.5_f64.to_be_bytes()]), execute("", 0), sync()]).await;
    assert_eq!(first(&answer, 'D').value(), 2.5_f64.to_be_bytes());
    server.stop().await;
}

#[tokio::test]
async fn vectors_have_pgvectors_binary_form() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    wire.query(
        "CREATE TABLE t (id bigint PRIMARY KEY, v vector(2), h halfvec(2)); INSERT INTO t VALUES (1, '[1,0]', '[1,0]'), (2, '[0,1]', NULL)",
    )
    .await;
    let nearest = "SELECT v FROM t ORDER BY v <-> $1 LIMIT 1";
    let answer = wire.ask(&[parse("s", nearest, &[]), describe(b'S', "s"), sync()]).await;
    assert_eq!(first(&answer, 't').body, [&1_u16.to_be_bytes()[..], &VECTOR.to_be_bytes()].concat());
    assert_eq!(column_type(first(&answer, 'T')), VECTOR);
    let vector = [&[0, 2, 0, 0][..], &0_f32.to_be_bytes(), &1_f32.to_be_bytes()].concat();
    let answer = wire.ask(&[bind("", "s", BINARY_FORM, &[&vector]), execute("", 0), sync()]).await;
    assert_eq!(first(&answer, 'D').value(), vector);
    let answer = wire.ask(&[bind("", "s", TEXT_FORM, &[b"[0,1]"]), execute("", 0), sync()]).await;
    assert_eq!(first(&answer, 'D').value(), b"[0,1]");
    let insert = parse("i", "INSERT INTO t VALUES (3, $1, $2)", &[]);
    let half = [0, 2, 0, 0, 0x3c, 0, 0xbc, 0];
    let answer = wire.ask(&[insert, bind("", "i", BINARY_FORM, &[&vector, &half]), execute("", 0), sync()]).await;
    assert_eq!(kinds(&answer), "1 2 C ZI");
    assert_eq!(first(&wire.query("SELECT h FROM t WHERE id = 3").await, 'D').value(), b"[1,-1]");
    let answer = wire.ask(&[bind("", "s", BINARY_FORM, &[&[0, 1, 0, 0, 0, 0, 0, 0]]), execute("", 0), sync()]).await;
    assert_eq!(first(&answer, 'E').code(), "22000");
    server.stop().await;
}

/// The table and the number of the only column.
fn column_origin(description: &Message) -> (u32, i16) {
    let name_end = description.body[2..].iter().position(|byte| *byte == 0).expect("a name ends") + 3;
    let (table, rest) = description.body[name_end..].split_first_chunk().expect("four bytes");
    (u32::from_be_bytes(*table), i16::from_be_bytes(rest[..2].try_into().expect("two bytes")))
}

fn modifier(description: &Message) -> i32 {
    let name_end = description.body[2..].iter().position(|byte| *byte == 0).expect("a name ends") + 3;
    i32::from_be_bytes(description.body[name_end + 12..name_end + 16].try_into().expect("four bytes"))
}

#[tokio::test]
async fn a_vector_without_a_dimension_has_that_of_what_it_stands_beside() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    wire.query(
        "CREATE TABLE t (id bigint PRIMARY KEY, v vector(2), h halfvec(2)); INSERT INTO t VALUES (1, '[1,0]', '[1,0]'), (2, '[0,1]', '[0,1]')",
    )
    .await;
    let (vector, half) = ([&[0, 2, 0, 0][..], &0_f32.to_be_bytes(), &1_f32.to_be_bytes()].concat(), [0, 2, 0, 0, 0, 0, 0x3c, 0]);
    for (sql, types, oid, binary) in [
        ("SELECT id::text FROM t ORDER BY v <-> $1::vector LIMIT 1", &[][..], VECTOR, &vector[..]),
        ("SELECT id::text FROM t ORDER BY v <=> CAST($1 AS vector) LIMIT 1", &[VECTOR], VECTOR, &vector),
        ("SELECT id::text FROM t ORDER BY l2_distance(v, $1) LIMIT 1", &[VECTOR], VECTOR, &vector),
        ("SELECT id::text FROM t ORDER BY h <-> $1::halfvec LIMIT 1", &[], HALFVEC, &half),
        ("SELECT id::text FROM t ORDER BY h <-> $1 LIMIT 1", &[], HALFVEC, &half),
        ("SELECT id::text FROM t WHERE v = $1::vector", &[], VECTOR, &vector),
    ] {
        let answer = wire.ask(&[parse("s", sql, types), describe(b'S', "s"), sync()]).await;
        assert_eq!(first(&answer, 't').body, [&1_u16.to_be_bytes()[..], &oid.to_be_bytes()].concat(), "{sql}");
        // Often enough that its plan is kept.
        for _ in 0..3 {
            for (form, value) in [(TEXT_FORM, &b"[0,1]"[..]), (BINARY_FORM, binary)] {
                let answer = wire.ask(&[bind("", "s", form, &[value]), execute("", 0), sync()]).await;
                assert_eq!(first(&answer, 'D').value(), b"2", "{sql}");
            }
        }
        let answer = wire.ask(&[bind("", "s", TEXT_FORM, &[b"[0,1,2]"]), execute("", 0), sync()]).await;
        // Vectors of two widths are compared, and differ.
        match sql.contains(" = ") {
            true => assert_eq!(kinds(&answer), "2 C ZI", "{sql}"),
            false => assert_eq!(first(&answer, 'E').code(), "22000", "{sql}"),
        }
        wire.ask(&[close(b'S', "s"), sync()]).await;
    }
    let answer = wire.ask(&[parse("s", "SELECT $1::vector", &[]), describe(b'S', "s"), sync()]).await;
    assert_eq!((column_type(first(&answer, 'T')), modifier(first(&answer, 'T'))), (VECTOR, -1));
    for (form, value) in [(TEXT_FORM, &b"[0,1]"[..]), (BINARY_FORM, &vector)] {
        let answer = wire.ask(&[bind("", "s", form, &[value]), execute("", 0), sync()]).await;
        assert_eq!(first(&answer, 'D').value(), value);
    }
    let answer = wire.ask(&[bind("", "s", TEXT_FORM, &[b"[0,x]"]), execute("", 0), sync()]).await;
    assert_eq!(first(&answer, 'E').code(), "22P02");
    let insert = parse("i", "INSERT INTO t VALUES (3, $1::vector, $2::halfvec)", &[]);
    let answer = wire.ask(&[insert, bind("", "i", BINARY_FORM, &[&vector, &half]), execute("", 0), sync()]).await;
    assert_eq!(kinds(&answer), "1 2 C ZI");
    let answer = wire.ask(&[bind("", "i", TEXT_FORM, &[b"[1]", b"[1,2]"]), execute("", 0), sync()]).await;
    assert_eq!(first(&answer, 'E').code(), "22000");
    server.stop().await;
}

#[tokio::test]
async fn parameters_have_the_types_that_a_client_declares() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    let (json, jsonb, text, uuid, uuids, date, instant, interval) = (114, 3802, 25, 2950, 2951, 1082, 1184, 1186);
    let (numeric, bytea, long) = (1700, 17, 20);
    let key = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    let key_list = format!("{{{key}}}");
    for (sql, types, values, (oid, expected)) in [
        ("SELECT $1 -> 'a'", &[jsonb][..], &["{\"a\": {\"b\": 1}}"][..], (jsonb, "{\"b\": 1}")),
        ("SELECT coalesce($1, '{}')", &[jsonb], &["{\"b\":1,  \"a\":2}"], (jsonb, "{\"a\": 2, \"b\": 1}")),
        ("SELECT $1", &[uuid], &[key], (uuid, key)),
        ("SELECT nullif($1, $2)", &[uuid, uuid], &[key, "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], (uuid, key)),
        ("SELECT CASE WHEN true THEN $1 END", &[uuid], &[key], (uuid, key)),
        ("SELECT (SELECT $1)", &[uuid], &[key], (uuid, key)),
        ("SELECT $1 UNION ALL SELECT NULL ORDER BY 1 LIMIT 1", &[uuid], &[key], (uuid, key)),
        ("SELECT ARRAY[$1::uuid]", &[uuid], &[key], (uuids, key_list.as_str())),
        ("SELECT ($1::uuid[])[1]", &[], &[key_list.as_str()], (uuid, key)),
        ("SELECT $1::uuid::text", &[], &[key], (text, key)),
        ("SELECT $1::text", &[uuid], &[key], (text, key)),
        ("SELECT $1::jsonb::text", &[], &["{\"b\":1,  \"a\":2}"], (text, "{\"a\": 2, \"b\": 1}")),
        ("SELECT key::text FROM (SELECT $1::uuid) AS t (key)", &[], &[key], (text, key)),
        ("SELECT pg_typeof($1 -> $2)::text", &[jsonb, text], &["{\"a\": 1}", "a"], (text, "jsonb")),
        ("SELECT pg_typeof($1 -> $2)::text", &[json, text], &["{\"a\": 1}", "a"], (text, "json")),
        ("SELECT $2 = ANY($1)", &[uuids, uuid], &[key_list.as_str(), key], (16, "t")),
        ("SELECT timestamptz '2024-03-01' - $1", &[interval], &["1 mon 1 day"], (instant, "2024-01-31 00:00:00+00")),
        ("SELECT $1", &[interval], &["1 day 02:00:00"], (interval, "1 day 02:00:00")),
        ("SELECT $1::interval + interval '1 day'", &[], &["1 mon"], (interval, "1 mon 1 day")),
        ("SELECT $1", &[date], &["2024-01-31"], (date, "2024-01-31")),
        ("SELECT $1", &[numeric], &["1.50"], (numeric, "1.50")),
        ("SELECT $1", &[bytea], &["\\x01ff"], (bytea, "\\x01ff")),
        ("SELECT $1 > $2", &[long, long], &["10", "9"], (16, "t")),
    ] {
        let answer = wire.ask(&[parse("s", sql, types), describe(b'S', "s"), sync()]).await;
        let told = answer.iter().find(|message| message.kind == 'T').unwrap_or_else(|| panic!("{sql}: {answer:?}"));
        assert_eq!(column_type(told), oid, "{sql}");
        let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        let answer = wire.ask(&[bind("", "s", TEXT_FORM, &values), execute("", 0), sync()]).await;
        let row = answer.iter().find(|message| message.kind == 'D').unwrap_or_else(|| panic!("{sql}: {answer:?}"));
        assert_eq!(String::from_utf8_lossy(row.value()), expected, "{sql}");
        wire.ask(&[close(b'S', "s"), sync()]).await;
    }
    // Sixteen bytes are a uuid, and two hours are microseconds, days and months.
    let binary = [[0xab; 16].to_vec(), [&7_200_000_000_i64.to_be_bytes()[..], &[0; 8]].concat()];
    let texts = ["abababab-abab-abab-abab-abababababab", "02:00:00"];
    for ((oid, value), text) in [uuid, interval].into_iter().zip(&binary).zip(texts) {
        let statement = parse("", "SELECT $1", &[oid]);
        let answer = wire.ask(&[statement, bind("", "", BINARY_FORM, &[value]), execute("", 0), sync()]).await;
        assert_eq!(first(&answer, 'D').value(), value.as_slice());
        let statement = parse("", "SELECT $1::text", &[oid]);
        let answer = wire.ask(&[statement, bind("", "", BINARY_FORM, &[value]), execute("", 0), sync()]).await;
        assert_eq!(first(&answer, 'D').value(), text.as_bytes());
    }
    server.stop().await;
}

#[tokio::test]
async fn columns_tell_of_which_table_they_are() {
    let server = TestServer::start().await;
    let mut wire = Wire::connect(&server).await;
    wire.query("CREATE TABLE t (id bigint PRIMARY KEY, word text, price numeric); INSERT INTO t VALUES (1, 'a', 1.5)").await;
    wire.query("CREATE VIEW seen AS SELECT word, price * 2 AS cost FROM t").await;
    let mut numbers = Vec::new();
    for name in ["t", "seen"] {
        let oid = wire.query(&format!("SELECT '{name}'::regclass::oid::text")).await;
        numbers.push(String::from_utf8_lossy(first(&oid, 'D').value()).parse::<u32>().expect("a number"));
    }
    let (table, view) = (numbers[0], numbers[1]);
    for (sql, expected) in [
        ("SELECT word FROM t", (table, 2)),
        ("SELECT s.cost FROM (SELECT price AS cost FROM t) s", (table, 3)),
        ("SELECT upper(word) FROM t", (0, 0)),
        ("SELECT id FROM t UNION ALL SELECT id FROM t", (0, 0)),
        ("SELECT cost FROM seen", (view, 2)),
        ("SELECT s.b FROM seen AS s (a, b)", (view, 2)),
    ] {
        assert_eq!(column_origin(first(&wire.query(sql).await, 'T')), expected, "{sql}");
        let answer = wire.ask(&[parse("", sql, &[]), describe(b'S', ""), bind("", "", TEXT_FORM, &[]), describe(b'P', ""), sync()]).await;
        let told: Vec<_> = answer.iter().filter(|message| message.kind == 'T').map(column_origin).collect();
        assert_eq!(told, [expected, expected], "{sql}");
    }
    server.stop().await;
}
