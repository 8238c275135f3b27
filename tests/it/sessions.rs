//! Sessions that see and signal each other: activity, timeouts, cancels from another connection, settings at startup, jobs.

use std::time::{Duration, Instant};

use futures::StreamExt;
use rolloutdb::engine::Database;
use tokio::sync::mpsc;
use tokio_postgres::{Client, Config, Error, IsolationLevel, NoTls, SimpleQueryMessage};

use crate::process::ServerProcess;
use crate::server::{ENDLESS_COUNT, TestServer, code, code_of};

/// The longest that a test waits for something that should come at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client, and the error that ends its connection.
async fn connect(config: &Config) -> std::result::Result<(Client, mpsc::UnboundedReceiver<String>), Error> {
    let (client, mut connection) = config.connect(NoTls).await?;
    let (sender, ends) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = futures::stream::poll_fn(move |context| connection.poll_message(context)).boxed();
        while let Some(message) = messages.next().await {
            if let Err(error) = message {
                let _ = sender.send(code(&error).to_owned());
                break;
            }
        }
    });
    Ok((client, ends))
}

async fn value(client: &Client, text: &str) -> Option<String> {
    let messages = client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).map(str::to_owned)),
        _ => None,
    })?
}

/// Asks until the answer is `expected`.
async fn until(client: &Client, text: &str, expected: &str) {
    let started = Instant::now();
    loop {
        let found = value(client, text).await;
        if found.as_deref() == Some(expected) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{text}: {found:?}, not {expected}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_session_sees_what_one_does_and_ends_it() {
    let server = TestServer::start().await;
    let (worker, watcher) = (server.connect().await, server.connect().await);
    worker.batch_execute("SET application_name = 'worker'").await.expect("a setting");
    let pid = value(&worker, "SELECT pg_backend_pid()").await.expect("a number");
    let state = format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}");
    until(&watcher, &state, "idle").await;
    worker.batch_execute("BEGIN").await.expect("a transaction");
    until(&watcher, &state, "idle in transaction").await;
    assert_eq!(code_of(&worker, "SELECT missing FROM nowhere").await, "42P01");
    until(&watcher, &state, "idle in transaction (aborted)").await;
    worker.batch_execute("ROLLBACK").await.expect("it ends");

    let statement = tokio::spawn(async move {
        let ended = worker.simple_query(ENDLESS_COUNT).await;
        (worker, ended)
    });
    until(&watcher, &state, "active").await;
    let shown = format!("SELECT usename || ' ' || application_name || ' ' || query FROM pg_stat_activity WHERE pid = {pid}");
    assert_eq!(value(&watcher, &shown).await, Some(format!("someone worker {ENDLESS_COUNT}")));
    assert_eq!(value(&watcher, &format!("SELECT pg_cancel_backend({pid})")).await.as_deref(), Some("t"));
    let (worker, ended) = statement.await.expect("no panic");
    assert_eq!(code(&ended.expect_err("it was cancelled")), "57014");
    assert_eq!(value(&worker, "SELECT 7").await.as_deref(), Some("7"), "the session goes on");
    // What is idle is not hit by a cancel that comes late.
    assert_eq!(value(&watcher, &format!("SELECT pg_cancel_backend({pid})")).await.as_deref(), Some("t"));
    assert_eq!(value(&worker, "SELECT 8").await.as_deref(), Some("8"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_session_ends_whether_it_runs_or_waits() {
    let server = TestServer::start().await;
    let watcher = server.connect().await;
    let (idle, mut ends) = connect(&server.config()).await.expect("a client");
    let pid = value(&idle, "SELECT pg_backend_pid()").await.expect("a number");
    assert_eq!(value(&watcher, &format!("SELECT pg_terminate_backend({pid})")).await.as_deref(), Some("t"));
    let end = tokio::time::timeout(PATIENCE, ends.recv()).await.expect("it ends");
    assert_eq!(end.as_deref(), Some("57P01"));

    let worker = server.connect().await;
    let pid = value(&worker, "SELECT pg_backend_pid()").await.expect("a number");
    let statement = tokio::spawn(async move { worker.simple_query(ENDLESS_COUNT).await });
    until(&watcher, &format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}"), "active").await;
    assert_eq!(value(&watcher, &format!("SELECT pg_terminate_backend({pid})")).await.as_deref(), Some("t"));
    assert_eq!(code(&statement.await.expect("no panic").expect_err("it was ended")), "57P01");
    until(&watcher, "SELECT count(*) FROM pg_stat_activity", "1").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_role_runs_is_hidden() {
    let server = TestServer::start().await;
    let owner = server.connect().await;
    owner.batch_execute("CREATE USER ann; CREATE USER bob; CREATE USER watcher IN ROLE pg_read_all_stats").await.expect("roles");
    let connect_as = |user: &str| {
        let mut config = server.config();
        config.user(user);
        async move { connect(&config).await.expect("a client").0 }
    };
    let (ann, bob, watcher) = (connect_as("ann").await, connect_as("bob").await, connect_as("watcher").await);
    assert_eq!(value(&ann, "SELECT 'a secret'").await.as_deref(), Some("a secret"));
    let shown = "SELECT query || ' ' || coalesce(state, 'NULL') FROM pg_stat_activity WHERE usename = 'ann'";
    let qualified = "SELECT query || ' ' || coalesce(state, 'NULL') FROM rollout.pg_stat_activity WHERE usename = 'ann'";
    for query in [shown, qualified] {
        assert_eq!(value(&bob, query).await.as_deref(), Some("<insufficient privilege> NULL"), "{query}");
        until(&watcher, query, "SELECT 'a secret' idle").await;
        until(&owner, query, "SELECT 'a secret' idle").await;
    }
    owner.batch_execute("GRANT ann TO bob").await.expect("bob has the rights of ann");
    until(&bob, shown, "SELECT 'a secret' idle").await;
    server.stop().await;
}

/// A session is its role's through all changes of the name, and no other role's that has the name later.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_role_and_not_with_its_name() {
    let server = TestServer::start().await;
    let owner = server.connect().await;
    owner.batch_execute("CREATE TABLE t (id bigint); CREATE USER ann; GRANT SELECT ON t TO ann").await.expect("a role");
    let mut config = server.config();
    config.user("ann");
    let (ann, _ends) = connect(&config).await.expect("a client");
    owner.batch_execute("ALTER ROLE ann RENAME TO bea; CREATE USER ann SUPERUSER").await.expect("another ann");
    assert_eq!(value(&ann, "SELECT current_user || ' ' || session_user").await.as_deref(), Some("bea bea"));
    assert_eq!(value(&ann, "SELECT count(*) FROM t").await.as_deref(), Some("0"));
    assert_eq!(code_of(&ann, "DROP TABLE t").await, "42501");
    let user = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'bea'";
    assert_eq!(value(&owner, user).await.as_deref(), Some("1"));
    owner.batch_execute("REVOKE SELECT ON t FROM bea; DROP ROLE bea; CREATE USER bea SUPERUSER").await.expect("another bea");
    for statement in ["SELECT 1", "DROP TABLE t", "RESET ROLE", "SET ROLE bea", "CREATE ROLE eve"] {
        assert_eq!(code_of(&ann, statement).await, "42704", "{statement}");
    }
    assert_eq!(value(&owner, "SELECT count(*) FROM t").await.as_deref(), Some("0"));

    // Of one that SET ROLE named, the user is left.
    let (worker, _ends) = connect(&config).await.expect("a client");
    owner.batch_execute("CREATE ROLE guest").await.expect("a role");
    worker.batch_execute("SET ROLE guest").await.expect("ann is a superuser");
    owner.batch_execute("DROP ROLE guest; CREATE ROLE guest SUPERUSER").await.expect("another guest");
    assert_eq!(code_of(&worker, "SELECT 1").await, "42704");
    worker.batch_execute("RESET ROLE").await.expect("ann is there");
    assert_eq!(value(&worker, "SELECT current_user").await.as_deref(), Some("ann"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_end_statements_and_silent_sessions() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("SET statement_timeout = '200ms'").await.expect("a setting");
    assert_eq!(code_of(&client, ENDLESS_COUNT).await, "57014");
    let rows =
        client.query("SELECT a.value FROM generate_series(1, 100000000) a(value) CROSS JOIN generate_series(1, 1000) b(value)", &[]).await;
    assert_eq!(code(&rows.expect_err("rows without an end")), "57014");
    // Each statement has its own time, and a statement of a text can set that of the next.
    assert_eq!(value(&client, "SET statement_timeout = 0; SELECT 1").await.as_deref(), Some("1"));

    for (setting, begin, expected) in
        [("idle_in_transaction_session_timeout", "BEGIN", "25P03"), ("idle_session_timeout", "SELECT 1", "57P05")]
    {
        let (client, mut ends) = connect(&server.config()).await.expect("a client");
        client.batch_execute(&format!("SET {setting} = '300ms'")).await.expect("a setting");
        client.batch_execute(begin).await.expect("a statement");
        let end = tokio::time::timeout(PATIENCE, ends.recv()).await.expect("it ends");
        assert_eq!(end.as_deref(), Some(expected), "{setting}");
    }
    // Outside of a transaction the first does not count.
    let client = server.connect().await;
    client.batch_execute("SET idle_in_transaction_session_timeout = '50ms'").await.expect("a setting");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(value(&client, "SELECT 1").await.as_deref(), Some("1"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_asks_for_when_it_connects_takes_effect() {
    let server = TestServer::start().await;
    let mut config = server.config();
    config.application_name("program").options("-c statement_timeout=7s -c hnsw.ef_search=90");
    let (client, _ends) = connect(&config).await.expect("a client");
    assert_eq!(value(&client, "SHOW application_name").await.as_deref(), Some("program"));
    assert_eq!(value(&client, "SHOW statement_timeout").await.as_deref(), Some("7s"));
    assert_eq!(value(&client, "SHOW session_authorization").await.as_deref(), Some("someone"));
    client.batch_execute("SET hnsw.ef_search = 50; RESET hnsw.ef_search").await.expect("it is set and reset");
    assert_eq!(value(&client, "SHOW hnsw.ef_search").await.as_deref(), Some("90"), "RESET goes back to what the client said");
    let query = "SELECT unit || ' ' || vartype || ' ' || context || ' ' || setting || ' ' || source FROM pg_settings WHERE name = 'statement_timeout'";
    assert_eq!(value(&client, query).await.as_deref(), Some("ms integer user 7000 client"));

    let mut config = server.config();
    config.options("-c search_path=app,public");
    let (client, _ends) = connect(&config).await.expect("a client");
    client
        .batch_execute("CREATE SCHEMA app; CREATE TABLE placed (a bigint); SET search_path = public; RESET search_path")
        .await
        .expect("a table");
    assert_eq!(value(&client, "SHOW search_path").await.as_deref(), Some("app,public"));
    let schema = "SELECT schemaname FROM pg_tables WHERE tablename = 'placed'";
    assert_eq!(value(&client, schema).await.as_deref(), Some("app"));

    let refused = |options: &'static str| {
        let mut config = server.config();
        config.options(options);
        async move { code(&connect(&config).await.expect_err(options)).to_owned() }
    };
    assert_eq!(refused("-c no.such=1").await, "42704");
    assert_eq!(refused("-c hnsw.ef_search=many").await, "22023");
    for missing in ["other", "template1", "Postgres"] {
        let mut config = server.config();
        config.dbname(missing);
        assert_eq!(code(&connect(&config).await.expect_err("there is one database")), "3D000", "{missing}");
    }
    // By this name programs ask for a database that is always there.
    let mut config = server.config();
    config.dbname("postgres");
    let (client, _ends) = connect(&config).await.expect("a client");
    assert_eq!(value(&client, "SELECT current_database()").await.as_deref(), Some("rolloutdb"));
    assert_eq!(value(&client, "SELECT string_agg(datname, ',') FROM pg_database").await.as_deref(), Some("rolloutdb"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_may_read_only_and_drivers_ask_for_it_in_their_way() {
    let server = TestServer::start().await;
    let mut config = server.config();
    config.options("-c default_transaction_read_only=on -c rollout.statement_memory=16MB");
    let (mut client, _ends) = connect(&config).await.expect("a client");
    let create = "CREATE TABLE t (a bigint)";
    assert_eq!(code_of(&client, create).await, "25006");
    assert_eq!(code(&client.execute(create, &[]).await.expect_err("it is no other when it is prepared")), "25006");
    assert_eq!(value(&client, "SHOW rollout.statement_memory").await.as_deref(), Some("16MB"));
    assert_eq!(value(&client, "SHOW tcp_keepalives_idle").await.as_deref(), Some("60"));

    let writing = client.build_transaction().read_only(false).start().await.expect("this one may write");
    writing.batch_execute(create).await.expect("a table");
    writing.commit().await.expect("COMMIT");
    let reading = client.build_transaction().isolation_level(IsolationLevel::Serializable).read_only(true).start().await;
    let reading = reading.expect("a warning is no error");
    reading.query("SELECT * FROM t", &[]).await.expect("it reads");
    reading.commit().await.expect("COMMIT");
    let refused = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(false).start().await;
    assert_eq!(code(&refused.map(drop).expect_err("each statement commits by itself")), "0A000");
    assert_eq!(value(&client, "SHOW transaction_isolation").await.as_deref(), Some("read committed"), "nothing has begun");

    let mut config = server.config();
    config.options("-c transaction_read_only=on");
    assert_eq!(code(&connect(&config).await.expect_err("there is no transaction yet")), "0A000");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_its_client_and_is_cancelled_by_another() {
    let server = TestServer::start().await;
    let (asker, other) = (server.connect().await, server.connect().await);
    let files = tempfile::tempdir().expect("a temporary directory");
    let target = files.path().join("out.csv");
    let copy = format!("COPY (SELECT value FROM generate_series(1, 4000000000) s(value)) TO '{}' ASYNC", target.display());
    let job = value(&asker, &copy).await.expect("the number of a job");
    drop(asker);
    let status = format!("SELECT status FROM rollout.jobs WHERE job_id = {job}");
    until(&other, &status, "running").await;
    let counted = "SELECT tuples_processed > 0 FROM pg_stat_progress_copy WHERE command = 'COPY TO'";
    until(&other, counted, "t").await;
    let session = "SELECT backend_type || ' ' || usename FROM pg_stat_activity WHERE query LIKE 'COPY%'";
    assert_eq!(value(&other, session).await.as_deref(), Some("rolloutdb job someone"));
    // A second job waits for the first.
    let waiting = value(&other, "OPTIMIZE ASYNC").await.expect("the number of a job");
    assert_eq!(value(&other, &format!("SELECT status FROM rollout.jobs WHERE job_id = {waiting}")).await.as_deref(), Some("queued"));
    other.batch_execute(&format!("CANCEL JOB {job}")).await.expect("it is stopped");
    assert_eq!(value(&other, &status).await.as_deref(), Some("cancelled"));
    assert!(!target.exists(), "a file appears when it is complete");
    other.batch_execute(&format!("WAIT FOR JOB {waiting}")).await.expect("it is its turn");
    assert_eq!(value(&other, "SELECT count(*) FROM pg_stat_progress_copy").await.as_deref(), Some("0"));

    // Jobs that run when the server stops are interrupted, and can be resumed.
    let job = value(&other, &copy).await.expect("the number of a job");
    until(&other, &format!("SELECT status FROM rollout.jobs WHERE job_id = {job}"), "running").await;
    let directory = server.stop().await;
    let database = Database::open(directory.path()).await.expect("it opens again");
    let rows = database.session().sql("SELECT job_id FROM rollout.jobs WHERE status = 'interrupted'").await.expect("a query");
    let batches: Vec<_> = rows.map(|batch| batch.expect("rows")).collect().await;
    assert_eq!(batches.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>(), 1);
    database.settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_query_are_written_by_a_job() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let job = value(&client, "CREATE TABLE numbers AS SELECT value AS id FROM generate_series(1, 1000) AS g(value) ASYNC").await;
    client.batch_execute(&format!("WAIT FOR JOB {}", job.expect("the number of a job"))).await.expect("it ends");
    let job = value(&client, "INSERT INTO numbers SELECT id + 1000 FROM numbers ASYNC").await.expect("the number of a job");
    let result = format!("SELECT status || ' ' || result FROM rollout.jobs WHERE job_id = {job}");
    client.batch_execute(&format!("WAIT FOR JOB {job}")).await.expect("it ends");
    assert_eq!(value(&client, &result).await.as_deref(), Some("done INSERT 0 1000"));

    // One that is stopped has written nothing, and may not run again, as nobody knows that but who looks.
    let endless = "INSERT INTO numbers SELECT value FROM generate_series(1, 4000000000) AS g(value) ASYNC";
    let job = value(&client, endless).await.expect("the number of a job");
    until(&client, &format!("SELECT status FROM rollout.jobs WHERE job_id = {job}"), "running").await;
    let waiting = value(&client, "INSERT INTO numbers SELECT 0 ASYNC").await.expect("the number of a job");
    client.batch_execute(&format!("CANCEL JOB {waiting}; CANCEL JOB {job}")).await.expect("they are stopped");
    assert_eq!(value(&client, "SELECT count(*) FROM numbers").await.as_deref(), Some("2000"));
    assert_eq!(code_of(&client, &format!("RESUME JOB {job}")).await, "0A000");
    // This one never began.
    client.batch_execute(&format!("RESUME JOB {waiting}; WAIT FOR JOB {waiting}")).await.expect("it runs");
    assert_eq!(value(&client, "SELECT count(*) FROM numbers WHERE id = 0").await.as_deref(), Some("1"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_killed_server_reads_interrupted_and_goes_on() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files = tempfile::tempdir().expect("a temporary directory");
    let target = files.path().join("out.csv");
    let copy = |rows: u64| format!("COPY (SELECT value FROM generate_series(1, {rows}) s(value)) TO '{}' ASYNC", target.display());
    {
        let mut server = ServerProcess::start(directory.path());
        let client = server.connect().await;
        assert_eq!(value(&client, &copy(4_000_000_000)).await.as_deref(), Some("1"));
        assert_eq!(value(&client, &copy(3)).await.as_deref(), Some("2"));
        until(&client, "SELECT status FROM rollout.jobs WHERE job_id = 1", "running").await;
        server.kill();
    }
    let mut server = ServerProcess::start(directory.path());
    let client = server.connect().await;
    assert_eq!(value(&client, "SELECT count(*) FROM rollout.jobs WHERE status = 'interrupted'").await.as_deref(), Some("2"));
    assert_eq!(value(&client, "RESUME JOB 2").await.as_deref(), Some("2"));
    client.batch_execute("WAIT FOR JOB 2").await.expect("it ends");
    assert_eq!(value(&client, "SELECT status || ' ' || result FROM rollout.jobs WHERE job_id = 2").await.as_deref(), Some("done COPY 3"));
    assert!(target.exists());
    server.kill();
}
