//! Every kind of long statement ends when its time is over, has written nothing, and leaves neither memory nor tasks behind.

use std::time::{Duration, Instant};

use rolloutdb::{Database, Result, Session};
use tokio::runtime::Handle;

use crate::database::{number, run, temporary};
use crate::process::ServerProcess;
use crate::project;
use crate::server::until;

/// How soon the client of what was cancelled hears of it, in a development build beside other tests.
const SOON: Duration = Duration::from_secs(10);
/// The longest that a test waits for what was cancelled to be gone: a step of a model may be at work.
const PATIENCE: Duration = Duration::from_secs(30);

const MANY: &str = "SELECT value AS id FROM generate_series(1, 4000000000) s(value)";

fn memory(session: &Session) -> usize {
    session.context().runtime_env().memory_pool.reserved()
}

/// Runs statements that would not end, each with a time of its own, and waits until nothing is left of them.
///
/// Lance's readers have a task each, and its caches keep some of them: what one run leaves there the next one finds, while a task that is lost is lost
/// each time.
async fn each_ends(session: &Session, statements: &[String]) -> Result<()> {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let mut tasks_before = tasks();
    for statement in statements {
        for is_first in [true, false] {
            run(session, "SET statement_timeout = '400ms'").await?;
            let started = Instant::now();
            let error = run(session, statement).await.expect_err(statement);
            assert_eq!(error.sqlstate(), "57014", "{statement}: {error}");
            assert!(started.elapsed() < SOON, "{statement} took {:?}", started.elapsed());
            run(session, "SET statement_timeout = 0").await?;
            let ended = Instant::now();
            while (memory(session) > 0 || tasks() > tasks_before) && ended.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let (bytes, found) = (memory(session), tasks());
            assert_eq!(bytes, 0, "{statement}");
            if found <= tasks_before {
                break;
            }
            assert!(is_first, "{statement}: {found} tasks are left, {tasks_before} before it");
            tasks_before = found;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_and_writes_end_in_time() -> Result<()> {
    let data = temporary();
    let database = Database::open(data.path()).await?;
    let session = database.session();
    run(&session, "CREATE TABLE kept (id bigint PRIMARY KEY)").await?;
    let files = temporary();
    let target = files.path().join("out.csv");
    let statements = [
        format!("SELECT count(*) FROM ({MANY}) a CROSS JOIN ({MANY}) b WHERE a.id % 7 = b.id"),
        format!("SELECT id FROM ({MANY}) t ORDER BY id % 1000003"),
        format!("SELECT id % 1000003 AS k, count(*) FROM ({MANY}) t GROUP BY 1"),
        format!("SELECT sum(id) OVER (ORDER BY id) FROM ({MANY}) t"),
        format!("INSERT INTO kept {MANY}"),
        format!("CREATE TABLE half AS {MANY}"),
        format!("COPY ({MANY}) TO '{}'", target.display()),
    ];
    each_ends(&session, &statements).await?;
    assert_eq!(number(&session, "SELECT count(*) FROM kept").await?, 0);
    assert_eq!(number(&session, "SELECT count(*) FROM information_schema.tables WHERE table_name = 'half'").await?, 0);
    assert!(!target.exists(), "a file appears when it is complete");
    run(&session, "INSERT INTO kept VALUES (1)").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn work_of_models_ends_in_time() -> Result<()> {
    let data = temporary();
    let database = Database::open(data.path()).await?;
    let session = database.session();
    let setup = "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
        CREATE MODEL encoder FROM 'MODELS/bert' WITH (task = 'embed');
        CREATE TABLE texts AS SELECT value AS id, 'text number ' || value AS contents FROM generate_series(1, 300000) s(value);
        CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
        CREATE INDEX wiki_text ON wiki USING bm25 (contents);
        CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 1000);
        CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 48)";
    run(&session, &setup.replace("MODELS", &project().join("tests/fixtures/models").display().to_string())).await?;
    let statements = [
        format!("SELECT count(embed('encoder', 'text ' || id)) FROM ({MANY}) t"),
        "ALTER TABLE texts ADD COLUMN v vector(64) GENERATED ALWAYS AS (embed('encoder', contents)) STORED".to_owned(),
        "SELECT a.answer FROM questions q CROSS JOIN LATERAL answer(q.question, agent => 'qa') a".to_owned(),
        "GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions) WITH (simulations = 32, seed = 5)".to_owned(),
        "TRAIN SFT MODEL learnt FROM policy USING (SELECT question AS prompt, golden_answers[1] AS completion FROM questions)
         WITH (epochs = 1000, gradient_accumulation = 64)"
            .to_owned(),
        "TRAIN DPO MODEL preferred FROM policy
         USING (SELECT question AS prompt, golden_answers[1] AS chosen, 'no' AS rejected FROM questions) WITH (max_steps = 100000)"
            .to_owned(),
    ];
    each_ends(&session, &statements).await?;
    assert_eq!(number(&session, "SELECT count(*) FROM rollout.models").await?, 2, "a training that was stopped makes no model");
    let columns = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'texts'";
    assert_eq!(number(&session, columns).await?, 2, "a column is there when it is filled");
    database.settle().await;
    Ok(())
}

/// A pair of these in a thousand million is the last; nothing is sent, and the join pauses nowhere.
const COMPUTING: &str = "SELECT count(*) FROM generate_series(1, 10) b(value) CROSS JOIN generate_series(1, 1000000000) a(value) \
                         WHERE (a.value + b.value) % 1000000007 = 3";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_computes_hears_its_clients_and_stops_when_it_is_asked() {
    let data = temporary();
    let mut server = ServerProcess::start(data.path());
    let client = server.connect().await;
    let stop = client.cancel_token();
    let statement = tokio::spawn(async move {
        let ended = client.simple_query(COMPUTING).await.expect_err("it is cancelled");
        let next = client.simple_query("SELECT 1").await;
        (ended.code().map(|code| code.code().to_owned()), next.is_ok(), client)
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.connect().await.simple_query("SELECT 1").await.expect("others are served meanwhile");
    stop.cancel_query(tokio_postgres::NoTls).await.expect("it is heard");
    let (code, goes_on, client) = tokio::time::timeout(PATIENCE, statement).await.expect("it ends in time").expect("no panic");
    assert_eq!(code.as_deref(), Some("57014"));
    assert!(goes_on);
    let _computing = tokio::spawn(async move { client.simple_query(COMPUTING).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(server.ends_when_asked(PATIENCE), "a statement holds up the end of the server");
}

/// A statement whose plan takes seconds to make, since each step of the planner looks at all of these, and no time to run.
fn planned() -> String {
    let items = (1..=60_000).map(|n| format!("n + {n}")).collect::<Vec<_>>().join(", ");
    format!("EXPLAIN SELECT count(*) FROM numbers WHERE id IN ({items})")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_being_planned_is_cancelled() {
    let data = temporary();
    let mut server = ServerProcess::start(data.path());
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE numbers AS SELECT value AS id, value * 7 AS n FROM generate_series(1, 10) s(value)")
        .await
        .expect("a table");
    let (stop, text) = (client.cancel_token(), planned());
    let statement = tokio::spawn(async move {
        let ended = client.simple_query(&text).await.map(drop).expect_err("it is cancelled");
        let next = client.simple_query("SELECT 1").await;
        (ended.code().map(|code| code.code().to_owned()), next.is_ok())
    });
    let watcher = server.connect().await;
    until(&watcher, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'EXPLAIN SELECT count%'", "1").await;
    assert!(!statement.is_finished(), "it was planned at once");
    stop.cancel_query(tokio_postgres::NoTls).await.expect("it is heard");
    let (code, goes_on) = tokio::time::timeout(SOON, statement).await.expect("it ends in time").expect("no panic");
    assert_eq!((code.as_deref(), goes_on), (Some("57014"), true));
}

/// What the interpreter of catalog queries, a function and the planner compute in one go, for seconds.
const WITHOUT_PAUSE: [&str; 2] = [
    "SELECT count(*) FROM pg_attribute a, pg_attribute b WHERE a.attname || b.attname = 'never' OR a.attnum + b.attnum < -1000000",
    "SELECT length(replace(replace(repeat('ab', 60000000), 'a', 'ba'), 'bb', 'b'))",
];

#[tokio::test(flavor = "multi_thread")]
async fn what_computes_without_a_pause_answers_when_its_time_is_over() {
    let data = temporary();
    let mut server = ServerProcess::start(data.path());
    let client = server.connect().await;
    let tables = (1..=100).map(|n| format!("CREATE TABLE t{n} (a bigint, b bigint, c text, d text, e text)"));
    client.batch_execute(&tables.collect::<Vec<_>>().join(";")).await.expect("tables");
    client.batch_execute("SET statement_timeout = '50ms'").await.expect("a setting");
    for statement in WITHOUT_PAUSE {
        let started = Instant::now();
        let error = client.simple_query(statement).await.map(drop).expect_err(statement);
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("57014"), "{statement}: {error}");
        assert!(started.elapsed() < SOON, "{statement}: {:?}", started.elapsed());
    }
    client.batch_execute("RESET statement_timeout").await.expect("the next one runs");
    // A product of tables that nothing ties together is more than a catalog query may hold.
    let error =
        client.simple_query("SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c").await.map(drop).expect_err("too many");
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("53200"), "{error}");
    server.kill();
}
