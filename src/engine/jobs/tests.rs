use std::time::Duration;

use arrow::array::AsArray;
use futures::TryStreamExt;

use super::*;
use crate::engine::progress::Progress;
use crate::{Database, DatabaseOptions};

async fn run(session: &crate::Session, sql: &str) -> Result<Vec<arrow::array::RecordBatch>> {
    Ok(session.sql(sql).await?.try_collect().await?)
}

fn new(statement: &str) -> NewJob {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let roles = Roles::for_tests(directory.path(), &crate::engine::operating_system::user_name());
    // The superuser has the same number in every directory.
    let role = RoleId::named(&roles, &roles.superuser());
    let (kind, statement, user) = ("TEST".to_owned(), statement.to_owned(), "ann".to_owned());
    NewJob { kind, statement, parameters: vec![], user, role, settings: BTreeMap::new() }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_one_after_the_other_and_are_remembered() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    {
        let database = Database::open(data.path()).await?;
        let jobs = &database.shared.jobs;
        let (first, second) =
            (jobs.start(&database, new("CREATE TABLE t AS SELECT 1 AS a"))?, jobs.start(&database, new("INSERT INTO t VALUES (2)"))?);
        let failing = jobs.start(&database, new("SELECT missing FROM t"))?;
        assert_eq!(jobs.wait(second).await?.result.as_deref(), Some("INSERT 0 1"));
        assert_eq!(jobs.get(first)?.status, JobStatus::Done, "the first came first");
        let failed = jobs.wait(failing).await?;
        assert_eq!((failed.status, failed.sqlstate.as_deref()), (JobStatus::Failed, Some("42703")));
        assert!(matches!(jobs.wait(99).await, Err(Error::UnknownObject { .. })));
        assert!(matches!(jobs.cancel(first).await, Err(Error::NotReady(_))));
        assert!(matches!(jobs.resume(&database, first), Err(Error::NotReady(_))));
        run(&database.session(), "ALTER TABLE t ADD COLUMN missing bigint").await?;
        jobs.resume(&database, failing)?;
        let done = jobs.wait(failing).await?;
        assert_eq!((done.status, done.error), (JobStatus::Done, None));
        database.settle().await;
    }
    let database = Database::open(data.path()).await?;
    let kept: Vec<(i64, JobStatus)> = database.shared.jobs.list().iter().map(|job| (job.job_id, job.status)).collect();
    assert_eq!(kept, [(1, JobStatus::Done), (2, JobStatus::Done), (3, JobStatus::Done)]);
    assert_eq!(database.shared.jobs.start(&database, new("SELECT 1"))?, 4, "numbers go on");
    database.shared.jobs.wait(4).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_tells_is_kept() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let expected = ["NOTICE: model \"missing\" does not exist, skipping"];
    {
        let database = Database::open(data.path()).await?;
        let jobs = &database.shared.jobs;
        let job = jobs.start(&database, new("DROP MODEL IF EXISTS missing"))?;
        assert_eq!(jobs.wait(job).await?.notices, expected);
        // Of work that goes on after its statement, as a training that was cancelled does.
        let late = |severity| Notice { severity, code: "01000", message: "late".to_owned() };
        jobs.keep_notice(job, &late(Severity::Info));
        jobs.keep_notice(job, &late(Severity::Warning));
        jobs.keep_notice(99, &late(Severity::Warning));
        for _ in 0..2 * NOTICES_MAX {
            jobs.keep_notice(job, &late(Severity::Notice));
        }
        assert_eq!(jobs.get(job)?.notices.len(), NOTICES_MAX);
        let told = run(&database.session(), "SELECT notices[2] FROM rollout.jobs").await?;
        assert_eq!(told[0].column(0).as_string::<i32>().value(0), "WARNING: late");
        database.settle().await;
    }
    let jobs = Database::open(data.path()).await?.shared.jobs.list();
    assert_eq!(jobs[0].notices[..1], expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn how_far_a_killed_job_was_is_known() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    {
        let database = Database::open(data.path()).await?;
        let jobs = &database.shared.jobs;
        let session = database.session();
        let job_id = jobs.start(&database, new(ENDLESS))?;
        until_it_runs(jobs, job_id).await?;
        jobs.keep_progress(job_id, session.activity());
        let progress = Progress::new(session.notices(), "TEST", "rows", Some(100));
        progress.update(40, "");
        jobs.keep_progress(job_id, session.activity());
        // As a process leaves it that is killed.
        let killed = tempfile::tempdir().expect("a temporary directory");
        std::fs::copy(data.path().join(format!("jobs/{job_id}.json")), killed.path().join(format!("{job_id}.json")))
            .expect("there is a file");
        let found = Jobs::open(killed.path(), 1, database.roles().clone())?.get(job_id)?;
        assert_eq!(
            (found.status, found.progress, found.total, found.unit.as_deref()),
            (JobStatus::Interrupted, 40, Some(100), Some("rows"))
        );
        jobs.cancel(job_id).await?;
        database.settle().await;
    }
    Ok(())
}

const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 100000000) a(value) CROSS JOIN generate_series(1, 1000000) b(value) WHERE a.value % 7 = b.value";

async fn until_it_runs(jobs: &Jobs, job_id: i64) -> Result<()> {
    while jobs.get(job_id)?.status == JobStatus::Queued {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_cancelled_whether_it_runs_or_waits() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(data.path()).await?;
    let jobs = &database.shared.jobs;
    let (running, waiting) = (jobs.start(&database, new(ENDLESS))?, jobs.start(&database, new("SELECT 1"))?);
    until_it_runs(jobs, running).await?;
    jobs.cancel(waiting).await?;
    assert_eq!(jobs.get(running)?.status, JobStatus::Running);
    jobs.cancel(running).await?;
    assert_eq!((jobs.get(running)?.status, jobs.get(waiting)?.status), (JobStatus::Cancelled, JobStatus::Cancelled));
    assert!(jobs.lock().running.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_when_the_database_is_closed_is_interrupted() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let options = DatabaseOptions { max_concurrent_jobs: Some(2), ..DatabaseOptions::default() };
    let database = Database::open_with(data.path(), options).await?;
    let jobs = Arc::clone(&database.shared.jobs);
    let started = [jobs.start(&database, new(ENDLESS))?, jobs.start(&database, new(ENDLESS))?, jobs.start(&database, new("SELECT 1"))?];
    until_it_runs(&jobs, started[0]).await?;
    until_it_runs(&jobs, started[1]).await?;
    assert_eq!(jobs.get(started[2])?.status, JobStatus::Queued, "two at once");
    database.settle().await;
    for job_id in started {
        assert_eq!(jobs.get(job_id)?.status, JobStatus::Interrupted);
    }
    let shared = Arc::downgrade(&database.shared);
    drop((database, jobs));
    assert!(shared.upgrade().is_none(), "a job keeps the database open");
    let files = JobFiles::open(&data.path().join("jobs"))?.1;
    assert!(files.values().all(|job| job.status == JobStatus::Interrupted));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_running_when_the_process_died_reads_interrupted() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let directory = data.path().join("jobs");
    let (files, _) = JobFiles::open(&directory)?;
    let job = |job_id: i64, status| Job {
        job_id,
        kind: "TEST".to_owned(),
        statement: "SELECT 1".to_owned(),
        parameters: None,
        shown_parameters: vec![],
        user: String::new(),
        role: String::new(),
        role_oid: None,
        settings: BTreeMap::new(),
        status,
        progress: 0,
        total: None,
        unit: None,
        created_at_ms: 0,
        started_at_ms: None,
        finished_at_ms: None,
        error: None,
        sqlstate: None,
        result: None,
        notices: vec![],
    };
    files.write(&job(7, JobStatus::Running))?;
    files.write(&job(8, JobStatus::Queued))?;
    files.write(&job(9, JobStatus::Done))?;
    let statuses = |jobs: &Jobs| jobs.list().iter().map(|job| job.status).collect::<Vec<_>>();
    let expected = [JobStatus::Interrupted, JobStatus::Interrupted, JobStatus::Done];
    let roles = Roles::for_tests(data.path(), "owner");
    let jobs = Jobs::open(&directory, 1, roles.clone())?;
    assert_eq!(statuses(&jobs), expected);
    // They are from before there were roles, and the superuser's whatever it is called.
    assert!(jobs.list().iter().all(|job| job.role == "owner"));
    roles.change(|state| state.rename("owner", "boss"))?;
    assert!(jobs.list().iter().all(|job| job.role == "boss"));
    assert_eq!(JobFiles::open(&directory)?.1.values().map(|job| job.status).collect::<Vec<_>>(), expected, "on the disk too");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_a_role_is_resumed_as_the_superuser() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let directory = data.path().join("jobs");
    std::fs::create_dir_all(&directory).expect("a folder");
    let text = r#"{"job_id": 3, "kind": "CREATE TABLE", "statement": "CREATE TABLE t AS SELECT 1 AS a", "user": "", "settings": {},
        "status": "interrupted", "progress": 0, "created_at_ms": 0}"#;
    std::fs::write(directory.join("3.json"), text).expect("a temporary file is writable");
    let database = Database::open(data.path()).await?;
    let jobs = &database.shared.jobs;
    jobs.resume(&database, 3)?;
    let done = jobs.wait(3).await?;
    assert_eq!((done.status, done.error), (JobStatus::Done, None));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_no_job_of_another_role_of_the_name() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(data.path()).await?;
    let (owner, ann) = (database.session(), database.session());
    run(&owner, "CREATE TABLE t (a bigint); CREATE ROLE ann; GRANT SELECT ON t TO ann").await?;
    ann.set_user("ann");
    let jobs = &database.shared.jobs;
    let role = ann.session_user().role_id();
    let queued = |statement: &str| NewJob { role: role.clone(), ..new(statement) };
    let running = jobs.start(&database, new(ENDLESS))?;
    let (reads, resumed) = (jobs.start(&database, queued("SELECT a FROM t"))?, jobs.start(&database, queued("DROP TABLE t"))?);
    // A change of the name changes nothing else.
    run(&owner, "ALTER ROLE ann RENAME TO bea; CREATE ROLE ann SUPERUSER").await?;
    jobs.cancel(running).await?;
    assert_eq!(jobs.wait(reads).await?.status, JobStatus::Done);
    assert_eq!((jobs.wait(resumed).await?.sqlstate.as_deref(), jobs.get(resumed)?.role.as_str()), (Some("42501"), "bea"));
    run(&owner, "REVOKE SELECT ON t FROM bea; DROP ROLE bea; CREATE ROLE bea SUPERUSER").await?;
    jobs.resume(&database, resumed)?;
    assert_eq!(jobs.wait(resumed).await?.sqlstate.as_deref(), Some("42704"));
    let refused = run(&ann, "SELECT 1").await;
    assert!(matches!(refused, Err(Error::RoleGone(_))), "{refused:?}");
    Ok(())
}

/// Of a statement with parameters, what a client has bound; `kept` prints the rows of the table that it makes.
async fn start_with(session: &crate::Session, sql: &str, parameters: Vec<ScalarValue>) -> Result<()> {
    let statement = session.parse(sql)?.remove(0);
    match session.execute(&statement, parameters).await? {
        crate::engine::Response::Rows { stream, .. } => stream.try_collect::<Vec<_>>().await.map(drop).map_err(Error::from),
        _ => Err(Error::Internal("a job has a number".to_owned())),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_kept_and_a_job_goes_on_with_them() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let key = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(key.path(), "planted-4711").expect("a temporary file is writable");
    let shown = async |database: &Database| -> Result<String> {
        let batches =
            run(&database.session(), "SELECT array_to_string(parameters, '|', 'NULL') FROM rollout.jobs WHERE job_id = 2").await?;
        Ok(batches[0].column(0).as_string::<i32>().value(0).to_owned())
    };
    let values = vec![
        ScalarValue::Int64(Some(7)),
        ScalarValue::from("it''s planted-4711"),
        ScalarValue::Int32(None),
        ScalarValue::List(ScalarValue::new_list_nullable(
            &[ScalarValue::from("a b"), ScalarValue::from("c")],
            &arrow::datatypes::DataType::Utf8,
        )),
    ];
    {
        let database = Database::open(data.path()).await?;
        let session = database.session();
        run(&session, &format!("CREATE SECRET k FROM FILE '{}'", key.path().display())).await?;
        let running = database.shared.jobs.start(&database, new(ENDLESS))?;
        until_it_runs(&database.shared.jobs, running).await?;
        let sql = "CREATE TABLE t AS SELECT $1 + 1 AS a, $2 AS b, $3 AS c, array_length($4, 1) AS d ASYNC";
        start_with(&session, sql, values).await?;
        assert_eq!(shown(&database).await?, "7|it''s ***|NULL|{\"a b\",c}");
        // As a process leaves both that is killed.
        let killed = tempfile::tempdir().expect("a temporary directory");
        std::fs::copy(data.path().join("jobs/2.json"), killed.path().join("2.json")).expect("there is a file");
        database.shared.jobs.cancel(2).await?;
        database.shared.jobs.cancel(running).await?;
        database.settle().await;
        std::fs::copy(killed.path().join("2.json"), data.path().join("jobs/2.json")).expect("the folder is writable");
    }
    let database = Database::open(data.path()).await?;
    assert_eq!(database.shared.jobs.get(2)?.status, JobStatus::Interrupted);
    database.shared.jobs.resume(&database, 2)?;
    let done = database.shared.jobs.wait(2).await?;
    assert_eq!((done.status, done.error), (JobStatus::Done, None));
    let rows = run(&database.session(), "SELECT concat_ws('|', a, b, c IS NULL, d) FROM t").await?;
    assert_eq!(rows[0].column(0).as_string::<i32>().value(0), "8|it''s planted-4711|t|2");
    Ok(())
}
