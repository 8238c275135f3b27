use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type};
use futures::{StreamExt, TryStreamExt};

use super::*;
use crate::{Database, DatabaseOptions, Session};

const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 100000000) a(value) CROSS JOIN generate_series(1, 1000000) b(value) WHERE a.value % 7 = b.value";

async fn run(session: &Session, sql: &str) -> Result<Vec<RecordBatch>> {
    Ok(session.sql(sql).await?.try_collect().await?)
}

fn entry(task_id: i64, kind: &str, status: Status) -> Entry {
    Entry {
        task_id,
        role: "owner".to_owned(),
        role_oid: None,
        kind: kind.to_owned(),
        statement: format!("{kind} of a test"),
        status,
        started_at_ms: 1,
        finished_at_ms: None,
        seconds: 0.5,
        rows: Some(3),
        calls: crate::models::Calls { inputs: 2, prompt_tokens: 20, cost: crate::price::Price::Known(0.25), ..Default::default() },
        error: None,
        sqlstate: None,
    }
}

fn open(directory: &Path) -> TaskHistory {
    TaskHistory::open(&directory.join("history.jsonl"), Roles::for_tests(directory, "owner")).expect("it opens")
}

fn ids(history: &TaskHistory) -> Vec<i64> {
    history.list().iter().map(|entry| entry.task_id).collect()
}

#[test]
fn entries_last_and_what_ran_reads_interrupted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let written = [entry(1, "TRAIN", Status::Done), entry(2, "SELECT", Status::Failed), entry(3, "COPY", Status::Running)];
    {
        let history = open(directory.path());
        assert!(!directory.path().join("history.jsonl").exists(), "without an entry there is no file");
        written.iter().for_each(|entry| history.kept.add(entry.clone()));
        // The last line of an entry counts.
        history.kept.add(Entry { rows: Some(4), ..written[0].clone() });
    }
    let history = open(directory.path());
    let list = history.list();
    assert_eq!(list[0], Entry { rows: Some(4), ..written[0].clone() });
    assert_eq!(list[1], written[1]);
    assert_eq!(list[2], Entry { status: Status::Interrupted, ..written[2].clone() });
    assert_eq!(history.kept.next_id(), 4, "numbers go on");
}

#[test]
fn a_torn_line_is_passed_over_and_written_over() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("history.jsonl");
    open(directory.path()).kept.add(entry(1, "TRAIN", Status::Done));
    let mut text = std::fs::read(&path).expect("it was written");
    text.extend_from_slice(b"no entry\n{\"task_id\": 2, \"ki");
    std::fs::write(&path, &text).expect("a temporary file is writable");
    {
        let history = open(directory.path());
        assert_eq!(ids(&history), [1]);
        history.kept.add(entry(2, "TRAIN", Status::Done));
    }
    assert_eq!(ids(&open(directory.path())), [1, 2]);
    let text = String::from_utf8(std::fs::read(&path).expect("it is there")).expect("it is text");
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn the_newest_are_kept_and_brief_ones_drive_out_no_task() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let count = 2 * KEPT_MAX as i64;
    {
        let history = open(directory.path());
        history.kept.add(entry(1, "TRAIN", Status::Done));
        for id in 2..=count {
            history.kept.add(entry(id, "SELECT", Status::Done));
            if id % 1000 == 0 {
                history.flush();
            }
        }
        // More lines than the file may have.
        for _ in 0..3 {
            for id in count - 4000..=count {
                history.kept.add(entry(id, "SELECT", Status::Done));
            }
            history.flush();
        }
    }
    let file = std::fs::read_to_string(directory.path().join("history.jsonl")).expect("it was written");
    assert!(file.lines().count() < 4 * KEPT_MAX, "{} lines", file.lines().count());
    let kept = ids(&open(directory.path()));
    assert!(kept[0] == 1 && kept.len() <= 1 + KEPT_MAX && kept.last() == Some(&count), "{} from {:?}", kept.len(), kept.get(1));
}

#[test]
fn what_cannot_be_written_stays_in_memory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let history = open(directory.path());
    // A folder is in its way.
    std::fs::create_dir(directory.path().join("history.jsonl")).expect("a temporary directory is writable");
    history.kept.add(entry(1, "TRAIN", Status::Done));
    history.flush();
    assert_eq!(ids(&history), [1]);
    std::fs::remove_dir(directory.path().join("history.jsonl")).expect("it is empty");
    drop(history);
    assert_eq!(ids(&open(directory.path())), [1]);
}

/// Status, SQLSTATE and rows of the entry of a statement, once it has one.
async fn ended(session: &Session, statement: &str) -> Result<(String, String, i64)> {
    let printed = crate::engine::shown_text::printed(&rolloutdb_sql::parse(statement)?[0]);
    let sql = format!(
        "SELECT status, coalesce(sqlstate, ''), coalesce(rows, -1) FROM rollout.task_history WHERE statement = '{}' AND status <> 'running'",
        printed.replace('\'', "''")
    );
    for _ in 0..1000 {
        let found = run(session, &sql).await?;
        if let Some(row) = found.iter().find(|batch| batch.num_rows() > 0) {
            let text = |column: usize| row.column(column).as_string::<i32>().value(0).to_owned();
            return Ok((text(0), text(1), row.column(2).as_primitive::<Int64Type>().value(0)));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no entry of {statement}");
}

fn entry_of(status: &str, sqlstate: &str, rows: i64) -> (String, String, i64) {
    (status.to_owned(), sqlstate.to_owned(), rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_says_how_a_statement_ended() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let options = DatabaseOptions { superuser: Some("owner".to_owned()), ..DatabaseOptions::default() };
    let database = Database::open_with(data.path(), options).await?;
    let (session, other) = (database.session(), database.session());
    run(&session, "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate')").await?;
    run(&session, "CREATE TABLE t AS SELECT value AS id FROM generate_series(1, 20) s(value)").await?;

    let generate = "SELECT id, generate('policy', 'Question: ' || id, max_tokens => 2) FROM t";
    run(&session, generate).await?;
    assert_eq!(ended(&other, generate).await?, entry_of("done", "", 20));

    let failing = "SELECT generate('policy', '')";
    run(&session, failing).await.expect_err("an empty prompt");
    assert_eq!(ended(&other, failing).await?, entry_of("failed", "22023", 0));

    run(&session, "CREATE INDEX missing_id ON missing USING btree (id)").await.expect_err("there is no such table");
    assert_eq!(ended(&other, "CREATE INDEX missing_id ON missing USING btree (id)").await?, entry_of("failed", "42P01", -1));

    // A client that wants the first row alone.
    let first = "SELECT id, generate('policy', 'Answer: ' || id, max_tokens => 2) FROM t";
    let mut rows = session.sql(first).await?;
    rows.next().await.expect("there are rows")?;
    drop(rows);
    assert_eq!(ended(&other, first).await?, entry_of("done", "", 20));

    // Stopped before it had a row.
    let rows = session.sql(ENDLESS).await?;
    tokio::time::timeout(LONG, rows.try_collect::<Vec<_>>()).await.expect_err("it has no end");
    assert_eq!(ended(&other, ENDLESS).await?, entry_of("cancelled", "", 0));

    run(&session, "SET statement_timeout = '1100ms'").await?;
    let timed = format!("{ENDLESS} AND a.value > 7");
    run(&session, &timed).await.expect_err("it takes too long");
    assert_eq!(ended(&other, &timed).await?, entry_of("cancelled", "57014", 0));
    run(&session, "RESET statement_timeout").await?;

    // A server stops such a statement before it drops what it has given.
    let stopped = "SELECT id, generate('policy', 'Thought: ' || id, max_tokens => 2) FROM t";
    let mut rows = session.sql(stopped).await?;
    rows.next().await.expect("there are rows")?;
    session.interrupt();
    drop(rows);
    assert_eq!(ended(&other, stopped).await?, entry_of("cancelled", "", 20));

    database.announce_end();
    let ending = format!("{ENDLESS} AND a.value > 70");
    let rows = session.sql(&ending).await?;
    tokio::time::timeout(LONG, rows.try_collect::<Vec<_>>()).await.expect_err("it has no end");
    assert_eq!(ended(&other, &ending).await?, entry_of("interrupted", "", 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_listed_and_written_before_its_end() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(data.path()).await?;
    let (session, other) = (database.session(), database.session());
    let mut running = Box::pin(run(&session, ENDLESS));
    let file = data.path().join("task_history.jsonl");
    let written = loop {
        tokio::select! {
            _ = &mut running => panic!("it has no end"),
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        if let Ok(written) = std::fs::read_to_string(&file)
            && written.ends_with('\n')
        {
            break written;
        }
    };
    assert!(written.contains("\"running\"") && written.contains("generate_series"), "{written}");
    let rows = run(&other, "SELECT kind FROM rollout.task_history WHERE status = 'running' AND finished_at IS NULL").await?;
    assert_eq!(rows[0].column(0).as_string::<i32>().value(0), "SELECT");
    drop(running);
    assert_eq!(ended(&other, ENDLESS).await?.0, "cancelled");
    Ok(())
}

/// Status and seconds of a cursor in the history.
async fn cursor(session: &Session, name: &str) -> Result<(String, f64)> {
    let sql = format!("SELECT status, seconds FROM rollout.task_history WHERE statement LIKE 'DECLARE {name} %'");
    let found = run(session, &sql).await?;
    let row = found.iter().find(|batch| batch.num_rows() > 0).expect("it is listed");
    Ok((row.column(0).as_string::<i32>().value(0).to_owned(), row.column(1).as_primitive::<Float64Type>().value(0)))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_open_cursor_is_listed_with_the_time_of_its_fetches() -> Result<()> {
    const IDLE: Duration = Duration::from_millis(300);
    let data = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(data.path()).await?;
    let (session, other) = (database.session(), database.session());
    run(&session, "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate')").await?;
    for name in ["a", "b"] {
        let query = format!("SELECT generate('policy', '{name} ' || n, max_tokens => 2) FROM generate_series(1, 20) s(n)");
        run(&session, &format!("DECLARE {name} CURSOR WITH HOLD FOR {query}")).await?;
        run(&session, &format!("FETCH 1 FROM {name}")).await?;
    }
    let before = [cursor(&other, "a").await?, cursor(&other, "b").await?];
    tokio::time::sleep(IDLE).await;
    assert_eq!([cursor(&other, "a").await?, cursor(&other, "b").await?], before, "nobody reads them");
    assert_eq!(before.map(|(status, _)| status), ["running", "running"]);

    let (_, rested) = cursor(&other, "b").await?;
    run(&session, "FETCH ALL FROM a").await?;
    run(&session, "CLOSE b").await?;
    assert_eq!(cursor(&other, "a").await?.0, "done");
    assert_eq!(cursor(&other, "b").await?, ("done".to_owned(), rested));

    // Whoever waited for its rows gives up.
    let endless = "SELECT count(generate('policy', 'c ' || n, max_tokens => 1)) FROM generate_series(1, 100000000) s(n)";
    run(&session, &format!("DECLARE c CURSOR WITH HOLD FOR {endless}")).await?;
    tokio::time::timeout(LONG, run(&session, "FETCH 1 FROM c")).await.expect_err("it has no end");
    let (status, rested) = cursor(&other, "c").await?;
    tokio::time::sleep(IDLE).await;
    assert_eq!(cursor(&other, "c").await?, (status, rested));
    assert!(rested >= LONG.as_secs_f64() / 2.0, "the time in which it was waited for counts: {rested}");
    Ok(())
}
