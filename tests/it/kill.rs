//! What lasts when the process is killed in the middle of a statement (SIGKILL), seen by the next one that opens the directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use rolloutdb::{Database, Result, Session};

use crate::database::{number, run, temporary};
use crate::process::{kill_when, run_and_kill, sql_command, start_unheard};
use crate::round::rows_of;
use crate::times;

/// Runs statements in a process of its own.
fn spawn(data: &Path, sql: &str) -> Child {
    start_unheard(&mut sql_command(data, sql))
}

fn num_files(directory: &Path) -> usize {
    std::fs::read_dir(directory).map_or(0, Iterator::count)
}

/// Files of rows that a process has begun to write beside the tables of a schema.
fn num_files_beside(schema: &Path, process: u32) -> usize {
    let folders = std::fs::read_dir(schema).expect("the folder is readable").flatten();
    let is_its = |folder: &std::fs::DirEntry| folder.file_name().to_string_lossy().starts_with(&format!(".tmp-{process}-"));
    folders.filter(is_its).map(|folder| num_files(&folder.path().join("data"))).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_rollouts_keep_whole_trees_and_go_on() -> Result<()> {
    let data = temporary();
    {
        let database = Database::open(data.path()).await?;
        let setup = "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
            CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
            CREATE INDEX wiki_text ON wiki USING bm25 (contents);
            CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 40);
            CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 48)";
        run(&database.session(), setup).await?;
    }
    let generate = "GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions)
        WITH (simulations = 4, children = 2, parallel = 2, max_depth = 6, temperature = 1.0, seed = 5, concurrency = 1)";
    let committed = data.path().join("tables/public/run.lance/data");
    kill_when(spawn(data.path(), generate), "GENERATE ROLLOUTS", || num_files(&committed) >= 2);

    let database = Database::open(data.path()).await?;
    let session = database.session();
    let done = number(&session, "SELECT count(DISTINCT question_id) FROM run").await?;
    assert!((1..40).contains(&done), "{done} of 40 questions were committed");
    assert_eq!(number(&session, "SELECT count(*) FROM run WHERE node_id = 0").await?, done, "a tree is there with its root or not at all");
    run(&session, generate).await?;
    assert_eq!(number(&session, "SELECT count(*) FROM run WHERE node_id = 0").await?, 40);
    // In one go, and with others in flight: the trees that the kill interrupted became what they would have been.
    let at_once = generate.replace("INTO run", "INTO whole").replace("concurrency = 1", "concurrency = 8");
    run(&session, &at_once).await?;
    assert_eq!(trees(&session, "run").await?, trees(&session, "whole").await?);
    Ok(())
}

/// All that a seed decides about the trees of a table; not the clock, and not what a cache held.
async fn trees(session: &Session, table: &str) -> Result<String> {
    let columns = "question_id, node_id, parent_id, depth, state, action, prompt, response, query, evidence, answer, passage_ids, visit_count, value_sum, \
        q_value, prior, process_reward, outcome_reward, is_terminal, token_ids, token_logprobs, seed, prompt_tokens, generated_tokens";
    let sql = format!("SELECT {columns} FROM {table} ORDER BY question_id, node_id");
    let batches = run(session, &sql).await?;
    Ok(arrow::util::pretty::pretty_format_batches(&batches).expect("rows can be shown").to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_write_has_written_nothing() -> Result<()> {
    let data = temporary();
    {
        let database = Database::open(data.path()).await?;
        run(&database.session(), "CREATE TABLE kept AS SELECT value AS id FROM generate_series(1, 3) s(value)").await?;
        run(&database.session(), "CREATE TABLE many AS SELECT value AS id FROM generate_series(1, 3000000) s(value)").await?;
    }
    let public = data.path().join("tables/public");
    let rows = "SELECT value AS id FROM generate_series(1, 4000000000) s(value)";
    for statement in [format!("INSERT INTO kept {rows}"), format!("CREATE TABLE half AS {rows}"), "UPDATE many SET id = -id".to_owned()] {
        let child = spawn(data.path(), &statement);
        let process = child.id();
        kill_when(child, &statement, || num_files_beside(&public, process) > 0);
    }
    let files = temporary();
    let target = files.path().join("out.csv");
    kill_when(spawn(data.path(), &format!("COPY ({rows}) TO '{}'", target.display())), "COPY", || num_files(files.path()) > 0);

    let database = Database::open(data.path()).await?;
    let session = database.session();
    assert_eq!(number(&session, "SELECT count(*) FROM kept").await?, 3);
    assert!(run(&session, "SELECT * FROM half").await.is_err(), "a half-made table is no table");
    assert_eq!(num_files(&public), 2, "nothing of it is left");
    assert_eq!(number(&session, "SELECT count(*) FROM many WHERE id > 0").await?, 3_000_000, "an update is whole or nothing");
    assert!(!target.exists(), "a file appears when it is complete");
    run(&session, "INSERT INTO kept VALUES (4)").await?;
    assert_eq!(number(&session, "SELECT count(*) FROM kept").await?, 4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_backfill_goes_on() -> Result<()> {
    let data = temporary();
    let model = crate::project().join("tests/fixtures/models/bert");
    {
        let session = Database::open(data.path()).await?.session();
        run(&session, &format!("CREATE MODEL encoder FROM '{}' WITH (task = 'embed')", model.display())).await?;
        run(&session, "CREATE TABLE t (id bigint PRIMARY KEY, contents text)").await?;
        for first in (0..2400).step_by(300) {
            run(&session, &format!("INSERT INTO t SELECT value, 'text ' || value FROM generate_series({first}, {}) s(value)", first + 299))
                .await?;
        }
    }
    let add = "ALTER TABLE t ADD COLUMN e vector(64) GENERATED ALWAYS AS (embed('encoder', contents)) STORED";
    let staged = data.path().join("tables/public/t.lance/_backfill/e");
    // Its description, and two runs of rows.
    kill_when(spawn(data.path(), add), "back-fill", || num_files(&staged) >= 3);

    let session = Database::open(data.path()).await?.session();
    let notices = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = std::sync::Arc::clone(&notices);
    session.set_notice_sink(std::sync::Arc::new(move |notice: rolloutdb::engine::Notice| {
        kept.lock().expect("no panic").push(notice.message);
    }));
    let done = number(&session, "SELECT rows_done FROM rollout.backfills WHERE NOT running").await?;
    assert!((300..2400).contains(&done), "{done} of 2400 rows are kept");
    assert!(run(&session, "SELECT e FROM t").await.is_err(), "the column is there when it is complete");
    run(&session, add).await?;
    let told = notices.lock().expect("no panic").iter().any(|notice| notice.contains(&format!("goes on after {done} rows")));
    assert!(told, "{notices:?}");
    assert_eq!(number(&session, "SELECT count(*) FROM t WHERE e = embed('encoder', contents)").await?, 2400);
    assert_eq!(num_files(&staged), 0, "what was staged goes");
    Ok(())
}

/// Kills of [`acknowledged_statements_survive_kills`]; `KILLS=n` makes other numbers of them.
const KILLS: u64 = 12;

/// The statements of the process that is killed, one after the other, and what each makes of `id` to `n`.
fn statement(number: i64) -> String {
    match number % 7 {
        0 | 3 => format!("INSERT INTO t VALUES ({number}, 0), ({}, 1)", -number),
        1 => "UPDATE t SET n = n + 1 WHERE id % 2 = 0".to_owned(),
        2 => format!("DELETE FROM t WHERE id = {}", number - 9),
        4 => format!("INSERT INTO t VALUES ({number}, 0), ({}, 5) ON CONFLICT (id) DO UPDATE SET n = t.n + 10", number - 4),
        5 if number % 2 == 0 => "OPTIMIZE t".to_owned(),
        5 => "CREATE INDEX IF NOT EXISTS t_n ON t USING btree (n)".to_owned(),
        _ => "DROP INDEX IF EXISTS t_n".to_owned(),
    }
}

fn apply(number: i64, rows: &mut BTreeMap<i64, i64>) {
    match number % 7 {
        0 | 3 => rows.extend([(number, 0), (-number, 1)]),
        1 => rows.iter_mut().filter(|(id, _)| *id % 2 == 0).for_each(|(_, n)| *n += 1),
        2 => drop(rows.remove(&(number - 9))),
        4 => {
            rows.insert(number, 0);
            rows.entry(number - 4).and_modify(|n| *n += 10).or_insert(5);
        }
        _ => {}
    }
}

/// Every acknowledged statement is there once, and the one in flight is there whole or not at all, after each of many kills.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_statements_survive_kills() -> Result<()> {
    let data = temporary();
    {
        let database = Database::open(data.path()).await?;
        run(&database.session(), "CREATE TABLE t (id bigint PRIMARY KEY, n bigint)").await?;
    }
    let kills = times("KILLS", KILLS);
    let (mut next, mut rows) = (1, BTreeMap::new());
    let mut in_flight = 0;
    for kill in 0..kills {
        let statements: Vec<String> = (next..next + 400).map(statement).collect();
        // Other moments after the start for each kill, the same ones in every run of the test.
        let moment = Duration::from_millis(60 + kill * 7919 % 900);
        let acknowledged = run_and_kill(data.path(), &statements, moment);
        for number in next..next + acknowledged {
            apply(number, &mut rows);
        }
        next += acknowledged;

        let database = Database::open(data.path()).await?;
        let found = rows_of(&database.session(), "t").await?;
        if found != rows {
            apply(next, &mut rows);
            next += 1;
            in_flight += 1;
        }
        assert_eq!(found, rows, "kill {kill}, after {acknowledged} statements up to number {next}");
        assert_eq!(
            number(&database.session(), "SELECT count(*) FROM t WHERE n = 1").await?,
            rows.values().filter(|n| **n == 1).count() as i64
        );
        // Where an index was dropped or made but not acknowledged, the next process meets either.
        run(&database.session(), "DROP INDEX IF EXISTS t_n").await?;
    }
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!(
            "{kills} kills, {} statements acknowledged, {in_flight} more were committed when the kill came\n",
            next - 1 - in_flight
        ),
    );
    assert!(next > kills as i64, "the processes were killed before they got to work");
    Ok(())
}

/// Files beside the targets of COPY TO that are not complete.
fn unfinished(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).expect("the folder is readable").flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name.ends_with(".unfinished")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_copy_to_leaves_no_target_and_the_next_one_tidies_up() -> Result<()> {
    let (data, files) = (temporary(), temporary());
    let target = files.path().join("out.csv");
    let copy = |count: usize| format!("COPY (SELECT value AS id FROM generate_series(1, {count}) s(value)) TO '{}'", target.display());
    kill_when(spawn(data.path(), &copy(500_000_000)), "COPY TO", || !unfinished(files.path()).is_empty());
    assert!(!target.exists(), "a killed COPY TO made its target");
    // Another target's, and one that a running COPY TO writes, are not this one's business.
    let other = std::fs::File::create(files.path().join(".out.csv.gz.Xyz123.unfinished")).expect("a file is made");
    let running = std::fs::File::create(files.path().join(".out.csv.Abc123.unfinished")).expect("a file is made");
    running.lock().expect("a new file has no lock");
    let database = Database::open(data.path()).await?;
    run(&database.session(), &copy(3)).await?;
    let mut left = unfinished(files.path());
    left.sort();
    assert_eq!(left, [".out.csv.Abc123.unfinished", ".out.csv.gz.Xyz123.unfinished"]);
    assert_eq!(std::fs::read_to_string(&target).expect("the target is there"), "id\n1\n2\n3\n");
    drop((other, running));
    Ok(())
}
