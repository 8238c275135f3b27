//! Power losses after and during every statement that writes. A trace of the server's system calls tells what it had synced; all else is taken out
//! of a copy of its files. The database that opens the copy has every acknowledged statement, the one in flight whole or not at all, and indexes
//! that answer as the rows do; and what was not done can be done.
//!
//! This takes strace, and a system that lets it trace. `POWER_LOSSES=500` makes other numbers of them: the first ones, one at the end of each
//! statement, lose all that they can, the next ones come just before something is synced.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rolloutdb::{Database, Result, Session};
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::database::{number, rows, run, temporary};
use crate::disk::{Disk, Survivor, Unsynced};
use crate::process::{ServerProcess, binary};
use crate::round::{COPY_TO, ROUND, State, check_answers, row, setup, statement, stored, write_files};
use crate::times;

/// One at the end of each statement, and one during each of [`OTHERS`].
const LOSSES: u64 = 60;
/// The number of the first statement of the round.
const FIRST: i64 = ROUND;
/// In these the server writes; they are there before it starts.
const FOLDERS: [&str; 2] = ["data", "files"];
/// What may change files or make them durable. A system without one of these has others in its place.
const CALLS: &str = "trace=?open,?openat,?write,?pwrite64,?writev,?pwritev,?pwritev2,?sendfile,?copy_file_range,?truncate,?ftruncate,?fsync,\
    ?fdatasync,?mkdir,?mkdirat,?rename,?renameat,?renameat2,?link,?linkat,?unlink,?unlinkat,?rmdir";

/// Statements beside those of a round, each with what there is after it: agents, models, schemas, tables and views with the number of their rows,
/// tags with that of their version.
const OTHERS: [(&str, &str); 16] = [
    ("CREATE MODEL spare FROM 'builtin://tinyhop' WITH (task = 'generate')", "model encoder, model spare"),
    ("CREATE SCHEMA s", "model encoder, model spare, schema s"),
    (
        "CREATE TABLE s.old AS SELECT value AS id, 'text ' || value AS contents FROM generate_series(1, 3) s(value)",
        "model encoder, model spare, schema s, table s.old: 3",
    ),
    ("ALTER TABLE s.old RENAME TO kept", "model encoder, model spare, schema s, table s.kept: 3"),
    ("CREATE INDEX kept_text ON s.kept USING bm25 (contents)", "model encoder, model spare, schema s, table s.kept: 3"),
    ("CREATE VIEW w AS SELECT id FROM s.kept WHERE id > 1", "model encoder, model spare, schema s, table public.w: 2, table s.kept: 3"),
    (
        "CREATE AGENT qa WITH (policy = 'spare', corpus = 's.kept', retriever = 'text', prompts = 'short', max_tokens = 48)",
        "agent qa, model encoder, model spare, schema s, table public.w: 2, table s.kept: 3",
    ),
    (
        "ALTER TABLE s.kept CREATE TAG first",
        "agent qa, model encoder, model spare, schema s, table public.w: 2, table s.kept: 3, tag first: 3",
    ),
    ("DELETE FROM s.kept WHERE id = 2", "agent qa, model encoder, model spare, schema s, table public.w: 1, table s.kept: 2, tag first: 3"),
    (
        "ALTER TABLE s.kept CREATE OR REPLACE TAG first",
        "agent qa, model encoder, model spare, schema s, table public.w: 1, table s.kept: 2, tag first: 2",
    ),
    ("ALTER TABLE s.kept DROP TAG first", "agent qa, model encoder, model spare, schema s, table public.w: 1, table s.kept: 2"),
    ("DROP AGENT qa", "model encoder, model spare, schema s, table public.w: 1, table s.kept: 2"),
    ("DROP MODEL spare", "model encoder, schema s, table public.w: 1, table s.kept: 2"),
    ("DROP VIEW w", "model encoder, schema s, table s.kept: 2"),
    ("DROP TABLE s.kept", "model encoder, schema s"),
    ("DROP SCHEMA s", "model encoder"),
];

/// One of the statements.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The place in [`OTHERS`].
    Other(usize),
    /// The number of a statement of the round.
    Round(i64),
}

fn steps() -> Vec<Step> {
    (0..OTHERS.len()).map(Step::Other).chain((FIRST..FIRST + ROUND).map(Step::Round)).collect()
}

impl Step {
    fn sql(self, files: &Path) -> String {
        match self {
            Self::Other(place) => OTHERS[place].0.to_owned(),
            Self::Round(number) => statement(number, files),
        }
    }
}

/// What the statements have made.
#[derive(Debug, Clone, PartialEq)]
struct Contents {
    state: State,
    names: String,
    /// Lines of the file of COPY TO, when there is one.
    exported: Option<usize>,
}

impl Contents {
    /// Of [`preparations`]. The round removes their two rows.
    fn new() -> Self {
        let state = State { rows: [(900, 0), (901, 1)].into(), ..State::default() };
        Self { state, names: "model encoder".to_owned(), exported: None }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Other(place) => self.names = OTHERS[place].1.to_owned(),
            Step::Round(number) => {
                self.state.apply(number);
                if number % ROUND == COPY_TO {
                    self.exported = Some(self.state.rows.len() + 1);
                }
            }
        }
    }
}

fn preparations() -> Vec<String> {
    let mut statements = Vec::from(setup());
    statements.push(format!("INSERT INTO t (id, n, words, v) VALUES {}, {}", row(900, 0), row(901, 1)));
    statements
}

/// What there is before the first step, and after each.
fn contents_by_step(steps: &[Step]) -> Vec<Contents> {
    let mut contents = vec![Contents::new()];
    for step in steps {
        let mut next = contents[contents.len() - 1].clone();
        next.apply(*step);
        contents.push(next);
    }
    contents
}

/// As in [`OTHERS`].
async fn names(session: &Session) -> Result<String> {
    let objects = "SELECT 'model ' || name AS name FROM rollout.models UNION ALL SELECT 'agent ' || name FROM rollout.agents \
        UNION ALL SELECT 'schema ' || schema_name FROM information_schema.schemata WHERE schema_name = 's'";
    let tables = "SELECT table_schema || '.' || table_name AS name FROM information_schema.tables \
        WHERE table_schema IN ('public', 's') AND table_name NOT IN ('t', 'c')";
    let tags = "SELECT unnest(tags) AS tag FROM rollout.table_versions WHERE table_name = 'kept'";
    let mut names = rows(session, objects).await?;
    for table in rows(session, tables).await? {
        let num_rows = number(session, &format!("SELECT count(*) FROM {table}")).await?;
        names.push(format!("table {table}: {num_rows}"));
    }
    for tag in rows(session, tags).await? {
        let num_rows = number(session, &format!("SELECT count(*) FROM s.kept VERSION AS OF '{tag}'")).await?;
        names.push(format!("tag {tag}: {num_rows}"));
    }
    names.sort();
    Ok(names.join(", "))
}

async fn found(session: &Session, files: &Path) -> Result<Contents> {
    let exported = fs::read_to_string(files.join("out.csv")).ok();
    let is_whole = exported.as_ref().is_none_or(|text| text.starts_with("id,n\n") && text.ends_with('\n'));
    assert!(is_whole, "a file appears when it is complete: {exported:?}");
    let exported = exported.map(|text| text.lines().count());
    Ok(Contents { state: stored(session).await?, names: names(session).await?, exported })
}

fn strace(trace: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-s", "0", "-e", "signal=none", "-e", CALLS, "-o"]).arg(trace);
    command
}

/// Whether strace is there and may trace a process.
fn may_trace() -> bool {
    let directory = temporary();
    let trace = directory.path().join("trace");
    let traced = strace(&trace).arg("mkdir").arg(directory.path().join("made")).output();
    traced.is_ok_and(|output| output.status.success()) && fs::read_to_string(&trace).is_ok_and(|lines| lines.contains("mkdir"))
}

/// A server under strace. strace ends with the process that it traces, which would outlive strace.
struct Traced {
    server: ServerProcess,
    trace: PathBuf,
}

impl Traced {
    fn start(trace: PathBuf, data: &Path) -> Self {
        let mut command = strace(&trace);
        command.arg(binary());
        Self { server: ServerProcess::start_by(command, data), trace }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let trace = fs::read_to_string(&self.trace).unwrap_or_default();
        // Each line begins with the number of a thread, the first one with that of the process.
        if let Some(process) = trace.split_whitespace().next() {
            let _ = Command::new("sh").arg("-c").arg(format!("kill -KILL {process}")).output();
        }
    }
}

/// A run of the server over all statements.
struct Recording {
    /// The parent of [`FOLDERS`].
    root: TempDir,
    /// Beside the trace, the files that were seen between two statements, by the numbers that they have on `disk`.
    kept: TempDir,
    disk: Disk,
    lines: Vec<String>,
    /// Bytes of the trace that were read.
    position: usize,
    /// Lines of the trace when the preparations, and each step after them, were acknowledged.
    acknowledged: Vec<usize>,
}

impl Recording {
    async fn of(steps: &[Step]) -> Self {
        // The trace has paths without links.
        let folder = std::env::temp_dir().canonicalize().expect("there is a folder for temporary files");
        let root = tempfile::tempdir_in(folder).expect("a temporary directory");
        FOLDERS.iter().for_each(|folder| fs::create_dir(root.path().join(folder)).expect("it is made"));
        let files = root.path().join("files");
        write_files(FIRST..FIRST + ROUND, &files);
        let disk = Disk::new(root.path(), &FOLDERS);
        let kept = temporary();
        let mut recording = Self { root, kept, disk, lines: Vec::new(), position: 0, acknowledged: Vec::new() };
        let mut traced = Traced::start(recording.trace(), &recording.root.path().join("data"));
        let client = traced.server.connect().await;
        for sql in preparations() {
            execute(&client, &sql).await;
        }
        recording.acknowledge();
        for step in steps {
            execute(&client, &step.sql(&files)).await;
            recording.acknowledge();
        }
        recording
    }

    fn trace(&self) -> PathBuf {
        self.kept.path().join("trace")
    }

    fn kept(&self, node: usize) -> PathBuf {
        self.kept.path().join(node.to_string())
    }

    /// To be called as soon as a statement is acknowledged: what is not in the trace by now came later, or was no condition of it.
    fn acknowledge(&mut self) {
        self.read();
        self.acknowledged.push(self.lines.len());
        self.keep_files();
    }

    /// Reads on. Returns whether anything happened to files below the root.
    fn read(&mut self) -> bool {
        let trace = fs::read(self.trace()).expect("the trace is readable");
        let news = &trace[self.position..];
        let end = news.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.position += end;
        let root = self.root.path().display().to_string();
        let mut has_happened = false;
        for line in String::from_utf8_lossy(&news[..end]).lines() {
            self.disk.apply(line);
            // The end of a call that was interrupted does not name its file.
            has_happened |= line.contains(&root) || line.contains("<... ");
            self.lines.push(line.to_owned());
        }
        has_happened
    }

    /// Gives every file a second name, so that its bytes are there after its removal. Waits for what runs in the background.
    fn keep_files(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let links = self.link_new_files();
            if !self.read() {
                return;
            }
            // Meanwhile a name may have become that of another file.
            links.iter().for_each(|link| fs::remove_file(link).expect("it was made"));
            assert!(Instant::now() < deadline, "the server did not come to rest within a minute");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn link_new_files(&self) -> Vec<PathBuf> {
        let mut links = Vec::new();
        for (path, survivor) in self.disk.survivors(Unsynced::Kept) {
            let Survivor::File { node, .. } = survivor else { continue };
            let link = self.kept(node);
            // One that is gone by now is not there to be linked.
            if !link.exists() && fs::hard_link(self.root.path().join(path), &link).is_ok() {
                links.push(link);
            }
        }
        links
    }

    fn loss(&self, number: usize, steps: &[Step]) -> Loss {
        let (pass, step) = (number / steps.len(), number % steps.len());
        let (first, end) = (self.acknowledged[step], self.acknowledged[step + 1]);
        let syncs: Vec<usize> = (first..end).filter(|line| self.lines[*line].contains("sync(")).collect();
        let during = syncs.get(pass / 2 % syncs.len().max(1)).copied().unwrap_or(end);
        let (line, unsynced) = match pass % 5 {
            0 => (end, Unsynced::Lost),
            1 => (during, Unsynced::Kept),
            2 => (during, Unsynced::Lost),
            3 => (end, Unsynced::Kept),
            _ => (during, Unsynced::Either(number as u64)),
        };
        let is_acknowledged = line == end;
        let when = if is_acknowledged { "after" } else { "during" };
        let sql = steps[step].sql(Path::new(""));
        let what = format!("power loss {number} at line {line} of the trace, {when} \"{sql}\", names that were not synced: {unsynced:?}");
        Loss { step, line, unsynced, is_acknowledged, what }
    }

    /// Writes what the loss left.
    fn rebuild(&self, loss: &Loss, copy: &Path) {
        let mut disk = Disk::new(self.root.path(), &FOLDERS);
        self.lines[..loss.line].iter().for_each(|line| disk.apply(line));
        for (path, survivor) in disk.survivors(loss.unsynced) {
            match survivor {
                Survivor::Folder => fs::create_dir(copy.join(&path)).expect("it is made"),
                Survivor::File { node, bytes } => {
                    // One that came and went between two statements was not kept: its removal has lasted.
                    let Ok(mut contents) = fs::read(self.kept(node)) else { continue };
                    assert!(contents.len() as u64 >= bytes, "{} has fewer bytes than were synced", path.display());
                    contents.truncate(bytes as usize);
                    fs::write(copy.join(&path), contents).expect("it is written");
                }
            }
        }
    }
}

async fn execute(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// A moment of a recording, and what it did to the disk.
struct Loss {
    /// The statement that was acknowledged last, or was in flight.
    step: usize,
    /// The lines of the trace before this one have happened.
    line: usize,
    unsynced: Unsynced,
    is_acknowledged: bool,
    /// For messages.
    what: String,
}

async fn check(recording: &Recording, steps: &[Step], contents: &[Contents], loss: &Loss) -> Result<()> {
    let copy = temporary();
    recording.rebuild(loss, copy.path());
    let files = copy.path().join("files");
    let database = Database::open(copy.path().join("data")).await?;
    let session = database.session();
    let (before, after) = (&contents[loss.step], &contents[loss.step + 1]);
    let mut left = found(&session, &files).await?;
    if !loss.is_acknowledged && left == *before && before != after {
        // What was not done can be done.
        write_files(FIRST..FIRST + ROUND, &files);
        run(&session, &steps[loss.step].sql(&files)).await?;
        left = found(&session, &files).await?;
    }
    assert_eq!(left, *after, "{}", loss.what);
    check_answers(&session, &after.state, &loss.what).await?;
    assert_eq!(number(&session, "SELECT count(*) FROM rollout.torn_versions").await?, 0, "a manifest is torn, {}", loss.what);
    database.settle().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_statements_survive_power_losses() {
    if !may_trace() {
        let _ = writeln!(std::io::stderr(), "skipped: strace is not there, or may not trace a process here");
        return;
    }
    let steps = steps();
    let recording = Recording::of(&steps).await;
    let contents = contents_by_step(&steps);
    let losses = times("POWER_LOSSES", LOSSES);
    for number in 0..losses {
        let loss = recording.loss(number as usize, &steps);
        check(&recording, &steps, &contents, &loss).await.unwrap_or_else(|error| panic!("{}: {error}", loss.what));
    }
    let _ = writeln!(
        std::io::stderr(),
        "{losses} power losses over {} statements, which made {} calls, took nothing that was acknowledged",
        steps.len(),
        recording.lines.len()
    );
}
