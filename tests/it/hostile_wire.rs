//! What nobody sends who means well, thrown at a live server: after each attack a new client is served at once, and the server holds about as much memory
//! as before.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::process::ServerProcess;
use crate::wire::{VERSION_3_0, message, parse, query, startup, sync};

/// How soon a new client has its answer, in a development build beside other tests.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// How long an attack may take the server.
const ATTACK_TIME: Duration = Duration::from_secs(120);
/// What the server may hold more than when it began, and may have held more.
const HELD_MORE_MB: u64 = 400;
const PEAK_MORE_MB: u64 = 1_200;

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// A message with a length that it may not have.
fn declared(kind: u8, length: u32, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// A client that says what it is told.
struct Wire {
    socket: TcpStream,
    unread: Vec<u8>,
}

impl Wire {
    async fn open(port: u16) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).await.expect("the server listens");
        Self { socket, unread: Vec::new() }
    }

    /// A client that the server knows.
    async fn ready(port: u16) -> Self {
        let mut wire = Self::open(port).await;
        wire.send(&startup(VERSION_3_0, b"user\0someone\0database\0rolloutdb\0\0")).await;
        let answers = wire.answers(1, ANSWER_TIME).await;
        assert!(answers.last().is_some_and(|(kind, _)| *kind == b'Z'), "no client is let in: {answers:?}");
        wire
    }

    /// Says nothing of a server that hangs up meanwhile.
    async fn send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes).await;
    }

    /// The messages up to the `count`-th ReadyForQuery, the end of the connection, or of the time.
    async fn answers(&mut self, count: usize, time: Duration) -> Vec<(u8, Vec<u8>)> {
        let mut answers = Vec::new();
        let deadline = Instant::now() + time;
        let mut num_ready = 0;
        while num_ready < count {
            match self.next(deadline).await {
                Some(answer) => {
                    num_ready += usize::from(answer.0 == b'Z');
                    answers.push(answer);
                }
                None => break,
            }
        }
        answers
    }

    async fn next(&mut self, deadline: Instant) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(length) = self.unread.get(1..5).and_then(|bytes| bytes.first_chunk()) {
                let end = 1 + u32::from_be_bytes(*length) as usize;
                if self.unread.len() >= end {
                    let rest = self.unread.split_off(end);
                    let answer = std::mem::replace(&mut self.unread, rest);
                    return Some((answer[0], answer[5..].to_vec()));
                }
            }
            let mut bytes = [0; 4096];
            let read = timeout(deadline.saturating_duration_since(Instant::now()), self.socket.read(&mut bytes)).await;
            match read {
                Ok(Ok(count)) if count > 0 => self.unread.extend_from_slice(&bytes[..count]),
                _ => return None,
            }
        }
    }
}

/// The SQLSTATEs among the answers, and `end` if the last was no ReadyForQuery.
fn codes(answers: &[(u8, Vec<u8>)]) -> String {
    let errors = answers.iter().filter(|(kind, _)| *kind == b'E').map(|(_, fields)| {
        let code = fields.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"C"));
        String::from_utf8_lossy(code.unwrap_or(b"none")).into_owned()
    });
    let mut codes: Vec<String> = errors.collect();
    if answers.last().is_none_or(|(kind, _)| *kind != b'Z') {
        codes.push("end".to_owned());
    }
    codes.join(" ")
}

struct Victim {
    server: ServerProcess,
    held_mb: u64,
    peak_mb: u64,
}

impl Victim {
    async fn start(data: &std::path::Path) -> Self {
        let mut server = ServerProcess::start(data);
        let client = server.connect().await;
        client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, words text)").await.expect("an empty database");
        client.batch_execute("INSERT INTO t VALUES (1, 'one'), (2, 'two'); SELECT * FROM t ORDER BY id").await.expect("rows");
        let (held_mb, peak_mb) = (server.memory_mb("VmRSS"), server.memory_mb("VmHWM"));
        Self { server, held_mb, peak_mb }
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    /// What the server says to bytes from a client that it does not know.
    async fn stranger(&self, attack: &str, bytes: &[u8], expected: &str) {
        let mut wire = Wire::open(self.port()).await;
        wire.send(bytes).await;
        let found = codes(&wire.answers(1, Duration::from_secs(2)).await);
        assert_eq!(found, expected, "{attack}");
        self.is_well(attack).await;
    }

    /// What the server says to bytes from a client that it knows, up to the `count`-th ReadyForQuery.
    async fn client(&self, attack: &str, bytes: &[u8], count: usize, expected: &str) {
        let mut wire = Wire::ready(self.port()).await;
        wire.send(bytes).await;
        let found = codes(&wire.answers(count, ATTACK_TIME).await);
        assert_eq!(found, expected, "{attack}");
        self.is_well(attack).await;
    }

    /// The same where any answer will do, as long as there is one.
    async fn any_answer(&self, attack: &str, text: &str) {
        let mut wire = Wire::ready(self.port()).await;
        wire.send(&query(text)).await;
        let answers = wire.answers(1, ATTACK_TIME).await;
        let found = codes(&answers);
        assert!(["", "54001", "54000", "42601", "22P02", "0A000", "53200"].contains(&found.as_str()), "{attack}: {found}");
        self.is_well(attack).await;
    }

    async fn is_well(&self, attack: &str) {
        let answered = timeout(ANSWER_TIME, async {
            let mut wire = Wire::ready(self.port()).await;
            wire.send(&query("SELECT 1")).await;
            wire.answers(1, ANSWER_TIME).await
        });
        let answers = answered.await.unwrap_or_else(|_| panic!("after {attack} nobody is served"));
        assert!(answers.iter().any(|(kind, row)| *kind == b'D' && row.ends_with(b"1")), "after {attack}: {answers:?}");
        let (held_mb, peak_mb) = (self.server.memory_mb("VmRSS"), self.server.memory_mb("VmHWM"));
        assert!(held_mb < self.held_mb + HELD_MORE_MB, "after {attack} the server holds {held_mb} MB, {} before", self.held_mb);
        assert!(peak_mb < self.peak_mb + PEAK_MORE_MB, "{attack} took {peak_mb} MB, {} before", self.peak_mb);
    }
}

async fn startup_packets(victim: &Victim) {
    for (attack, bytes, expected) in [
        ("a length of zero", vec![0; 8], "08P01 end"),
        ("a length of one", vec![0, 0, 0, 1, 0, 3, 0, 0], "08P01 end"),
        ("a negative length", [&[0xff; 4][..], &VERSION_3_0.to_be_bytes()].concat(), "08P01 end"),
        ("a length of two GiB", [&[0x7f, 0xff, 0xff, 0xff][..], &VERSION_3_0.to_be_bytes()].concat(), "54000 end"),
        ("a length of ten thousand and one", [&10_001_u32.to_be_bytes()[..], &VERSION_3_0.to_be_bytes()].concat(), "54000 end"),
        ("garbage", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), "54000 end"),
        ("protocol 2.0", startup(2 << 16, b"user\0someone\0\0"), "0A000 end"),
        ("protocol 4.0", startup(4 << 16, b"user\0someone\0\0"), "0A000 end"),
        ("no user", startup(VERSION_3_0, b"\0"), "28000 end"),
        ("an empty user", startup(VERSION_3_0, b"user\0\0\0"), "28000 end"),
        ("an unterminated string", startup(VERSION_3_0, b"user\0some"), "08P01 end"),
        ("no terminator", startup(VERSION_3_0, b"user\0someone\0"), "08P01 end"),
        ("bytes after the terminator", startup(VERSION_3_0, b"user\0someone\0\0more"), "08P01 end"),
        ("a user that is not UTF-8", startup(VERSION_3_0, b"user\0\xff\xfe\0\0"), "22021 end"),
        ("a query before the startup packet", query("SELECT 1"), "54000 end"),
        ("a cancel request with a wrong key", startup(CANCEL_REQUEST, b"\0\0\0\x01\0\0\0\x02"), "end"),
        ("a cancel request without a key", startup(CANCEL_REQUEST, b"\0\0\0\x01"), "08P01 end"),
        ("a cancel request with a long key", startup(CANCEL_REQUEST, &[1; 300]), "08P01 end"),
        ("half a startup packet", startup(VERSION_3_0, b"user\0someone\0\0")[..9].to_vec(), "end"),
        ("nothing", Vec::new(), "end"),
    ] {
        victim.stranger(attack, &bytes, expected).await;
    }
    // A minor version that is not known yet is talked down to ours.
    victim.stranger("protocol 3.99", &startup(VERSION_3_0 + 99, b"user\0someone\0\0"), "").await;
}

async fn requests_for_encryption(victim: &Victim) {
    for request in [SSL_REQUEST, GSS_REQUEST] {
        let mut wire = Wire::open(victim.port()).await;
        for _ in 0..2 {
            wire.send(&startup(request, b"")).await;
            let mut answer = [0];
            let read = timeout(ANSWER_TIME, wire.socket.read(&mut answer)).await;
            assert!(matches!(read, Ok(Ok(1))) && answer == *b"N", "{request} is refused with one byte");
        }
        wire.send(&startup(VERSION_3_0, b"user\0someone\0\0")).await;
        assert_eq!(codes(&wire.answers(1, ANSWER_TIME).await), "", "then the client goes on in plain text");
    }
    victim.is_well("requests for encryption").await;
}

async fn messages(victim: &Victim) {
    // Of each type: no length, a negative one, one of two GiB, one that is too short for what it must hold.
    for kind in *b"QPBDECHSXdcfpFZ\0\xff" {
        for (length, body) in [(0, &b""[..]), (3, b""), (u32::MAX, b""), (0x7fff_ffff, b""), (5, b"\xff"), (6, b"\0\0")] {
            let mut wire = Wire::ready(victim.port()).await;
            wire.send(&declared(kind, length, body)).await;
            // For as long as the server waits for what was announced, others are served.
            let answers = wire.answers(1, Duration::from_millis(100)).await;
            assert!(answers.iter().all(|(kind, _)| b"EZGIC".contains(kind)), "{kind} {length}: {answers:?}");
        }
        victim.is_well(&format!("messages of the type {kind}")).await;
    }
    let storm = "42601 ".repeat(1_000);
    for (attack, bytes, count, expected) in [
        ("an empty Parse", [message(b'P', b""), sync()].concat(), 1, "08P01"),
        ("Parse with types that are not there", [message(b'P', b"\0SELECT 1\0\xff\xff"), sync()].concat(), 1, "08P01"),
        ("Bind that reaches into the next message", [message(b'B', b"\0\0\0\0\0\x01\0\0\x10\0"), sync()].concat(), 1, "08P01"),
        ("a text that never ends", message(b'Q', b"SELECT 1"), 1, "08P01"),
        ("a text with a zero in it", message(b'Q', b"SELECT 1\0 FROM t\0"), 1, "08P01"),
        ("a text that is not UTF-8", message(b'Q', b"SELECT '\xc3\x28'\0"), 1, "22021"),
        ("a text that is not UTF-8 in Parse", [message(b'P', b"\0SELECT '\xff'\0\0\0"), sync()].concat(), 1, "22021"),
        ("Execute before Parse", [message(b'E', b"\0\0\0\0\0"), sync()].concat(), 1, "34000"),
        ("Bind before Parse", [message(b'B', b"\0none\0\0\0\0\0\0\0"), sync()].concat(), 1, "26000"),
        ("Describe of what is not there", [message(b'D', b"Snone\0"), sync()].concat(), 1, "26000"),
        ("data outside of COPY", [message(b'd', b"1,2\n"), message(b'c', b""), message(b'f', b"no\0"), query("SELECT 1")].concat(), 1, ""),
        ("a password that nobody asked for", message(b'p', b"secret\0"), 1, "08P01 end"),
        ("a call of a function by its number", message(b'F', b"\0\0\0\0"), 1, "08P01 end"),
        ("a storm of Sync", sync().repeat(10_000), 10_000, ""),
        ("a storm of Flush", [message(b'H', b"").repeat(10_000), sync()].concat(), 1, ""),
        ("a storm of errors", query("nonsense").repeat(1_000), 1_000, storm.trim_end()),
        ("a statement that is too long", declared(b'Q', 300 << 20, b"SELECT"), 1, "54000 end"),
        ("what follows a FATAL error", [message(b'p', b""), query("INSERT INTO t VALUES (99, 'sneaked in')")].concat(), 1, "08P01 end"),
    ] {
        victim.client(attack, &bytes, count, expected).await;
    }
    let mut wire = Wire::ready(victim.port()).await;
    wire.send(&query("SELECT id FROM t WHERE id = 99")).await;
    let rows = wire.answers(1, ANSWER_TIME).await.into_iter().filter(|(kind, _)| *kind == b'D').count();
    assert_eq!(rows, 0, "nothing runs behind a FATAL error");
}

/// A message that cannot be read fails the transaction that it is in.
async fn transactions(victim: &Victim) {
    let mut wire = Wire::ready(victim.port()).await;
    let texts = [query("BEGIN"), message(b'Q', b"\xff\0"), query("SELECT 1"), query("ROLLBACK"), query("SELECT 1")].concat();
    wire.send(&texts).await;
    let answers = wire.answers(5, ANSWER_TIME).await;
    assert_eq!(codes(&answers), "22021 25P02");
    let states: Vec<u8> = answers.iter().filter(|(kind, _)| *kind == b'Z').map(|(_, state)| state[0]).collect();
    assert_eq!(states, b"TEEII");
}

async fn statements(victim: &Victim) {
    let nested =
        |start: &str, middle: &str, end: &str, depth: usize| format!("SELECT {}{middle}{}", start.repeat(depth), end.repeat(depth));
    for depth in [20, 60, 500, 100_000] {
        for (attack, start, middle, end) in [
            ("parentheses", "(", "1", ")"),
            ("subqueries", "(SELECT ", "1", ")"),
            ("EXISTS", "EXISTS (SELECT ", "1", ")"),
            ("WITH", "(WITH a AS (SELECT 1) SELECT ", "1", ")"),
            ("queries in FROM", "* FROM (SELECT ", "1", ") AS x"),
            ("CASE", "CASE WHEN true THEN ", "1", " END"),
            ("arrays", "ARRAY[", "1", "]"),
            ("calls", "abs(", "1", ")"),
            ("casts", "CAST(", "1", " AS bigint)"),
            ("NOT", "NOT ", "true", ""),
            ("signs", "- ", "1", ""),
            ("sums", "1 + ", "1", ""),
            ("conditions", "true AND ", "true", ""),
            ("joined queries", "1 UNION ALL SELECT ", "1", ""),
        ] {
            victim.any_answer(&format!("{depth} {attack}"), &nested(start, middle, end, depth)).await;
        }
    }
    let braces = format!("SELECT '{}{}'::bigint[]", "{".repeat(50_000), "}".repeat(50_000));
    let brackets = format!("SELECT '{}{}'::json", "[".repeat(50_000), "]".repeat(50_000));
    let numbers = (0..100_000).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    let texts = (0..100_000).map(|number| format!("'{number}'")).collect::<Vec<_>>().join(", ");
    for (attack, text) in [
        ("braces of an array", braces),
        ("brackets of JSON", brackets),
        ("a list of numbers", format!("SELECT count(*) FROM t WHERE id IN ({numbers})")),
        ("a list of texts", format!("SELECT count(*) FROM t WHERE words IN ({texts})")),
        ("ten MB of one string", format!("SELECT length('{}')", "x".repeat(10_000_000))),
        ("ten MB of parentheses", "(".repeat(10_000_000)),
        ("ten MB of spaces", " ".repeat(10_000_000)),
        ("a million semicolons", ";".repeat(1_000_000)),
    ] {
        victim.any_answer(attack, &text).await;
    }
}

async fn many_prepared_statements(victim: &Victim) {
    let mut wire = Wire::ready(victim.port()).await;
    let mut bytes: Vec<u8> = (0..3_000).flat_map(|number| parse(&format!("s{number}"), "SELECT $1::bigint", &[])).collect();
    bytes.extend(sync());
    wire.send(&bytes).await;
    let answers = wire.answers(1, ATTACK_TIME).await;
    assert_eq!((codes(&answers).as_str(), answers.iter().filter(|(kind, _)| *kind == b'1').count()), ("", 3_000));
    victim.is_well("thousands of prepared statements").await;
}

/// Sockets that are only opened, or say half of what they must, take no place from clients.
async fn half_open_connections(victim: &Victim) {
    let mut sockets = Vec::new();
    for number in 0..200 {
        let mut wire = Wire::open(victim.port()).await;
        if number % 2 == 0 {
            wire.send(&startup(VERSION_3_0, b"user\0someone\0\0")[..number % 20]).await;
        }
        sockets.push(wire);
    }
    victim.is_well("200 half-open connections").await;
    let held_mb = victim.server.memory_mb("VmRSS");
    drop(sockets);
    victim.is_well("the end of 200 half-open connections").await;
    assert!(held_mb < victim.held_mb + HELD_MORE_MB, "half-open connections hold {held_mb} MB");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_clients_neither_stop_the_server_nor_fill_its_memory() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let victim = Victim::start(data.path()).await;
    startup_packets(&victim).await;
    requests_for_encryption(&victim).await;
    messages(&victim).await;
    transactions(&victim).await;
    half_open_connections(&victim).await;
    many_prepared_statements(&victim).await;
    statements(&victim).await;
}
