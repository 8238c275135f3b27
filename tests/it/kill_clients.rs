//! SIGKILL of a server while four clients write to one table at once, and one of them makes, rebuilds and compacts its indexes: the next process
//! finds every statement that was acknowledged to any of them done once, of each client's one in flight all or nothing, and no other row.
//!
//! `KILLS=100` makes other numbers of them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use rolloutdb::{Database, Result, Session};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::database::{number, run, temporary};
use crate::process::ServerProcess;
use crate::times;

const KILLS: u64 = 6;
const CLIENTS: i64 = 4;
/// Statements after which a client begins anew, with other keys.
const ROUND: i64 = 7;
/// Rows that a COPY FROM brings.
const COPIED: i64 = 5;
/// What the first client does in the place of some of its statements.
const MAINTENANCE: [&str; 6] = [
    "CREATE INDEX IF NOT EXISTS t_n ON t USING btree (n)",
    "CREATE INDEX IF NOT EXISTS t_words ON t USING bm25 (words)",
    "OPTIMIZE t",
    "REINDEX TABLE t",
    "DROP INDEX IF EXISTS t_n",
    "VACUUM",
];

/// `id` to `n` of the rows of one client.
type Rows = BTreeMap<i64, i64>;

/// A client, and what it was told that it has written.
struct Writer {
    client: i64,
    /// Of the statement that it sends next, or is in flight.
    number: i64,
    rows: Rows,
    num_acknowledged: i64,
    num_refused: i64,
}

/// Keys of two statements, or of two clients, are never the same.
fn key(client: i64, number: i64, place: i64) -> i64 {
    (number * CLIENTS + client) * 10 + place
}

fn words(id: i64) -> String {
    format!("common word{}", id % 7)
}

impl Writer {
    fn new(client: i64) -> Self {
        Self { client, number: ROUND, rows: Rows::new(), num_acknowledged: 0, num_refused: 0 }
    }

    /// The key of a row that this statement, or one before it, brings.
    fn key(&self, statements_before: i64, place: i64) -> i64 {
        key(self.client, self.number - statements_before, place)
    }

    /// For two of the statements of a round.
    fn maintenance(&self) -> Option<&'static str> {
        let (round, place) = (self.number / ROUND - 1, self.number % ROUND - (ROUND - 2));
        if self.client != 0 || place < 0 {
            return None;
        }
        Some(MAINTENANCE[(round * 2 + place) as usize % MAINTENANCE.len()])
    }

    /// The statement to be sent next; its effect is that of [`Self::apply`].
    fn statement(&self, files: &Path) -> String {
        if let Some(maintenance) = self.maintenance() {
            return maintenance.to_owned();
        }
        let client = self.client;
        let row = |id: i64, n: i64| format!("({id}, {client}, {n}, '{}')", words(id));
        match self.number % ROUND {
            0 => format!("INSERT INTO t VALUES {}, {}", row(self.key(0, 0), 0), row(self.key(0, 1), 1)),
            1 => format!("UPDATE t SET n = n + 1 WHERE client = {client}"),
            2 => format!("COPY t FROM '{}'", self.write_file(files).display()),
            3 => format!(
                "INSERT INTO t VALUES {}, {} ON CONFLICT (id) DO UPDATE SET n = t.n + 10",
                row(self.key(0, 0), 0),
                row(self.key(1, 0), 5)
            ),
            4 => format!("DELETE FROM t WHERE id = {}", self.key(4, 1)),
            5 => format!("UPDATE t SET n = n + 100 WHERE id = {}", self.key(3, 2)),
            _ => format!("INSERT INTO t VALUES {}", row(self.key(0, 0), 1)),
        }
    }

    fn apply(&mut self) {
        if self.maintenance().is_some() {
            return;
        }
        let (first, second, older) = (self.key(0, 0), self.key(0, 1), self.key(1, 0));
        let (removed, changed) = (self.key(4, 1), self.key(3, 2));
        match self.number % ROUND {
            0 => self.rows.extend([(first, 0), (second, 1)]),
            1 => self.rows.values_mut().for_each(|n| *n += 1),
            2 => self.rows.extend((0..COPIED).map(|place| (first + place, place))),
            3 => {
                self.rows.insert(first, 0);
                self.rows.entry(older).and_modify(|n| *n += 10).or_insert(5);
            }
            4 => drop(self.rows.remove(&removed)),
            5 => {
                if let Some(n) = self.rows.get_mut(&changed) {
                    *n += 100;
                }
            }
            _ => drop(self.rows.insert(first, 1)),
        }
    }

    fn write_file(&self, files: &Path) -> PathBuf {
        let line = |place: i64| {
            let id = self.key(0, place);
            format!("{id},{},{place},{}\n", self.client, words(id))
        };
        let file = files.join(format!("{}.csv", self.client));
        let lines: String = (0..COPIED).map(line).collect();
        std::fs::write(&file, format!("id,client,n,words\n{lines}")).expect("it is written");
        file
    }

    /// Sends statements until the server is gone.
    async fn write(mut self, client: Client, files: PathBuf) -> Self {
        loop {
            let sql = self.statement(&files);
            match client.batch_execute(&sql).await {
                Ok(()) => {
                    self.apply();
                    self.number += 1;
                    self.num_acknowledged += 1;
                }
                // Another client was faster, nothing was written: it is sent once more.
                Err(error) if error.code() == Some(&SqlState::T_R_SERIALIZATION_FAILURE) => self.num_refused += 1,
                Err(error) => {
                    assert!(error.code().is_none(), "{sql}: {error:?}");
                    return self;
                }
            }
        }
    }
}

/// The rows of each client; a key that is there twice is a failure.
async fn stored(session: &Session) -> Result<BTreeMap<i64, Rows>> {
    let mut stored: BTreeMap<i64, Rows> = BTreeMap::new();
    for batch in run(session, "SELECT id, client, n FROM t").await? {
        let [ids, clients, n] = [0, 1, 2].map(|column| batch.column(column).as_primitive::<Int64Type>());
        for row in 0..batch.num_rows() {
            let rows = stored.entry(clients.value(row)).or_default();
            assert!(rows.insert(ids.value(row), n.value(row)).is_none(), "two rows with the key {}", ids.value(row));
        }
    }
    Ok(stored)
}

/// Compares the table with what the writers know. Returns how many statements were committed and not acknowledged.
async fn check(session: &Session, writers: &mut [Writer], when: &str) -> Result<i64> {
    let mut stored = stored(session).await?;
    let mut in_flight = 0;
    for writer in writers.iter_mut() {
        let found = stored.remove(&writer.client).unwrap_or_default();
        if found != writer.rows {
            writer.apply();
            in_flight += 1;
        }
        assert_eq!(found, writer.rows, "{when}, client {} at its statement {}", writer.client, writer.number);
        // Done or not, it is not sent a second time.
        writer.number += 1;
    }
    assert!(stored.is_empty(), "{when}, rows of nobody: {stored:?}");
    check_indexes(session, writers, when).await?;
    Ok(in_flight)
}

async fn check_indexes(session: &Session, writers: &[Writer], when: &str) -> Result<()> {
    let rows = || writers.iter().flat_map(|writer| &writer.rows);
    let ones = rows().filter(|(_, n)| **n == 1).count() as i64;
    assert_eq!(number(session, "SELECT count(*) FROM t WHERE n = 1").await?, ones, "btree, {when}");
    let same_words = rows().filter(|(id, _)| words(**id) == words(3)).count() as i64;
    let sql = format!("SELECT count(*) FROM t WHERE words = '{}'", words(3));
    assert_eq!(number(session, &sql).await?, same_words, "words, {when}");
    if number(session, "SELECT count(*) FROM rollout.indexes WHERE name = 't_words'").await? > 0 {
        let found = number(session, "SELECT count(*) FROM text_search(t, 'word3', k => 100000)").await?;
        assert_eq!(found, same_words, "bm25, {when}");
    }
    let torn = number(session, "SELECT count(*) FROM rollout.torn_versions").await?;
    assert_eq!(torn, 0, "a kill tears no manifest, {when}");
    Ok(())
}

/// Lets all writers write to a server, and kills it.
async fn write_until_killed(writers: Vec<Writer>, data: &Path, files: &Path, moment: Duration) -> Vec<Writer> {
    let mut server = ServerProcess::start(data);
    let mut clients = Vec::new();
    for _ in &writers {
        clients.push(server.connect().await);
    }
    let tasks: Vec<_> =
        writers.into_iter().zip(clients).map(|(writer, client)| tokio::spawn(writer.write(client, files.to_owned()))).collect();
    tokio::time::sleep(moment).await;
    server.kill();
    let mut writers = Vec::new();
    for task in tasks {
        writers.push(task.await.expect("a client does not panic"));
    }
    writers
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_were_told_at_once_survives_kills() -> Result<()> {
    let (data, files) = (temporary(), temporary());
    {
        let session = Database::open(data.path()).await?.session();
        run(&session, "CREATE TABLE t (id bigint PRIMARY KEY, client bigint, n bigint, words text)").await?;
    }
    let kills = times("KILLS", KILLS);
    let mut writers: Vec<Writer> = (0..CLIENTS).map(Writer::new).collect();
    let mut in_flight = 0;
    for kill in 0..kills {
        // Other moments for each kill, the same ones in every run of the test.
        let moment = Duration::from_millis(400 + kill * 7919 % 2000);
        writers = write_until_killed(writers, data.path(), files.path(), moment).await;
        let database = Database::open(data.path()).await?;
        in_flight += check(&database.session(), &mut writers, &format!("kill {kill}")).await?;
        database.settle().await;
    }
    let sum = |of: fn(&Writer) -> i64| writers.iter().map(of).sum::<i64>();
    let (acknowledged, refused) = (sum(|writer| writer.num_acknowledged), sum(|writer| writer.num_refused));
    let _ = writeln!(
        std::io::stderr(),
        "{kills} kills, {acknowledged} statements of {CLIENTS} clients acknowledged, {refused} refused and repeated, {in_flight} more were \
         committed when the kill came"
    );
    assert!(acknowledged > kills as i64, "the server was killed before it got to work");
    Ok(())
}
