//! The Postgres wire as a driver sees it: `tokio-postgres` speaks both protocols, in binary form.

use std::io::Write as _;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, pin_mut};
use rolloutdb::engine::{Database, DatabaseOptions};
use rolloutdb::error::Result;
use rolloutdb::server::{serve, sqlstate};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage, SimpleQueryRow};

/// Rows without an end that a test would live to see.
const ENDLESS: &str = "SELECT a.value FROM generate_series(1, 100000000) a(value) CROSS JOIN generate_series(1, 1000) b(value)";
pub(crate) const ENDLESS_COUNT: &str = "SELECT count(*) FROM generate_series(1, 100000000) a(value) CROSS JOIN generate_series(1, 1000000) b(value) WHERE a.value % 7 = b.value";

pub(crate) struct TestServer {
    pub(crate) port: u16,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
    directory: tempfile::TempDir,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = DatabaseOptions { superuser: Some("someone".to_owned()), ..DatabaseOptions::default() };
        let database = Database::open_with(directory.path(), options).await.expect("an empty database opens");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(database, listener, stopped));
        Self { port, stop, task, directory }
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port).user("someone").dbname("rolloutdb");
        config
    }

    async fn try_connect(&self) -> std::result::Result<Client, Error> {
        let (client, connection) = self.config().connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    pub(crate) async fn connect(&self) -> Client {
        self.try_connect().await.expect("the server accepts a client")
    }

    /// Gives what is left of it.
    pub(crate) async fn stop(self) -> tempfile::TempDir {
        let _ = self.stop.send(());
        self.task.await.expect("serve does not panic").expect("serve ends well");
        self.directory
    }
}

pub(crate) fn code(error: &Error) -> &str {
    error.code().map_or("no SQLSTATE", |code| code.code())
}

pub(crate) async fn code_of(client: &Client, text: &str) -> String {
    code(&client.simple_query(text).await.expect_err(text)).to_string()
}

pub(crate) async fn text_rows(client: &Client, text: &str) -> Vec<SimpleQueryRow> {
    let messages = client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    messages
        .into_iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        })
        .collect()
}

pub(crate) async fn text_value(client: &Client, text: &str) -> Option<String> {
    text_rows(client, text).await[0].get(0).map(str::to_string)
}

/// Asks until the answer is `expected`.
pub(crate) async fn until(client: &Client, text: &str, expected: &str) {
    const PATIENCE: Duration = Duration::from_secs(120);
    let asking = async {
        while text_rows(client, text).await.first().and_then(|row| row.get(0)) != Some(expected) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, asking).await.is_ok(), "{text} does not come to be {expected}");
}

#[tokio::test]
async fn a_text_of_several_statements_gets_a_response_for_each() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let text = "CREATE TABLE t (a bigint, b text); INSERT INTO t VALUES (1, 'x'), (2, NULL); ; SELECT a, b FROM t ORDER BY a";
    let mut seen = Vec::new();
    for message in client.simple_query(text).await.expect("all statements run") {
        seen.push(match message {
            SimpleQueryMessage::Row(row) => format!("{:?} {:?}", row.get("a"), row.get("b")),
            SimpleQueryMessage::CommandComplete(count) => format!("complete {count}"),
            SimpleQueryMessage::RowDescription(columns) => format!("{} columns", columns.len()),
            _ => "other".to_string(),
        });
    }
    let expected = ["complete 0", "complete 2", "2 columns", "Some(\"1\") Some(\"x\")", "Some(\"2\") None", "complete 2"];
    assert_eq!(seen, expected);
    assert!(text_rows(&client, "").await.is_empty());
    assert!(text_rows(&client, " ; -- nothing\n").await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn statements_have_the_parameters_of_the_queries_in_them() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let created =
        client.execute("CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 5) s(value) WHERE value > $1", &[&3_i64]).await;
    created.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(text_value(&client, "SELECT sum(a) FROM t").await.as_deref(), Some("9"));
    client.batch_execute("CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate')").await.expect("it is built in");
    let train = "TRAIN SFT MODEL learned FROM policy USING (SELECT 'a' AS prompt, $2::text AS completion FROM t WHERE a > $1) \
                 VALIDATE USING (SELECT $3::text AS prompt, 'c' AS completion) WITH (max_steps = 1)";
    let rows = client.query(train, &[&4_i64, &"it's", &"p"]).await.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(rows[0].get::<_, i64>("examples"), 1);
    let parameters = text_value(&client, "SELECT lineage::json ->> 'parameters' FROM rollout.models WHERE name = 'learned'").await;
    assert_eq!(parameters.as_deref(), Some("[\"4\",\"it's\",\"p\"]"));
    server.stop().await;
}

#[tokio::test]
async fn the_first_error_ends_a_text_and_the_connection_goes_on() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    assert_eq!(code_of(&client, "CREATE TABLE t (a bigint); SELECT missing FROM t; CREATE TABLE u (a bigint)").await, "42703");
    assert_eq!(text_value(&client, "SELECT count(*) FROM t").await.as_deref(), Some("0"));
    assert_eq!(code_of(&client, "SELECT * FROM u").await, "42P01");
    assert_eq!(code_of(&client, "SELECT missing_function(1)").await, "42883");
    assert_eq!(code_of(&client, "SELECT 1 / 0").await, "22012");
    let error = client.simple_query("SELEC 1").await.expect_err("not SQL");
    let error = error.as_db_error().expect("the server says so");
    assert_eq!((error.code().code(), error.severity()), ("42601", "ERROR"));
    server.stop().await;
}

#[tokio::test]
async fn values_keep_their_types_in_binary_form() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let row = client
        .query_one(
            "SELECT $1::smallint AS a, $2::int AS b, $3::bigint AS c, $4::real AS d, $5::double precision AS e, $6::boolean AS f, \
             $7::text AS g, $8::bytea AS h, $9::bigint AS i",
            &[&1_i16, &-2_i32, &3_i64, &0.5_f32, &-0.25_f64, &true, &"grüß", &&b"\x00\xff"[..], &None::<i64>],
        )
        .await
        .expect("the parameters have the declared types");
    assert_eq!((row.get::<_, i16>("a"), row.get::<_, i32>("b"), row.get::<_, i64>("c")), (1, -2, 3));
    assert_eq!((row.get::<_, f32>("d"), row.get::<_, f64>("e"), row.get::<_, bool>("f")), (0.5, -0.25, true));
    assert_eq!((row.get::<_, String>("g"), row.get::<_, Vec<u8>>("h")), ("grüß".to_string(), vec![0, 255]));
    assert_eq!(row.get::<_, Option<i64>>("i"), None);
    server.stop().await;
}

#[tokio::test]
async fn arrays_are_arrays_and_a_text_is_a_vector() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (id bigint, tags text[], counts bigint[], embedding vector(3))")
        .await
        .expect("arrays and vectors are types of columns");
    let insert = "INSERT INTO t VALUES ($1, $2, $3, $4)";
    // What is not declared is what the columns are. A text stands for a vector, like a literal in quotes.
    let unknown = Type::from_oid(0).unwrap_or(Type::UNKNOWN);
    let types = [unknown.clone(), unknown.clone(), unknown, Type::TEXT];
    let statement = client.prepare_typed(insert, &types).await.expect("the columns imply the types");
    assert_eq!(statement.params(), [Type::INT8, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::TEXT]);
    let tags = vec![Some("a,b"), None, Some("\"quoted\""), Some("")];
    let count = client.execute(&statement, &[&7_i64, &tags, &vec![1_i64, 2], &"[1,2.5,-3]"]).await.expect("it fits");
    assert_eq!(count, 1);
    let row = client.query_one("SELECT tags, counts, embedding::text FROM t", &[]).await.expect("one row");
    assert_eq!(row.get::<_, Vec<Option<String>>>("tags"), tags.iter().map(|tag| tag.map(str::to_string)).collect::<Vec<_>>());
    assert_eq!(row.get::<_, Vec<i64>>("counts"), [1, 2]);
    assert_eq!(row.get::<_, String>("embedding"), "[1,2.5,-3]");
    let error = client.execute(&statement, &[&8_i64, &tags, &vec![1_i64], &"[1,2]"]).await.expect_err("two numbers for vector(3)");
    assert_eq!(code(&error), "22000");
    let error = client.execute(&statement, &[&8_i64, &tags, &vec![1_i64], &"(1,2,3)"]).await.expect_err("not a vector");
    assert_eq!(code(&error), "22P02");
    assert_eq!(text_value(&client, "SELECT tags FROM t").await.as_deref(), Some(r#"{"a,b",NULL,"\"quoted\"",""}"#));
    server.stop().await;
}

#[tokio::test]
async fn structs_are_records_and_maps_are_json() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let record = text_value(&client, "SELECT named_struct('a', 1, 'b', NULL, 'c', ['x y'])").await;
    assert_eq!(record.as_deref(), Some(r#"(1,,"{""x y""}")"#));
    assert_eq!(text_value(&client, "SELECT [[1, 2], [3]]").await.as_deref(), Some("{{1,2},{3}}"));
    assert_eq!(text_value(&client, "SELECT map(['a'], [1])").await.as_deref(), Some(r#"{"a":1}"#));
    let statement = client.prepare("SELECT [[1, 2], [3]] AS lists, map(['a'], [1]) AS named").await.expect("a query");
    let types = statement.columns().iter().map(|column| column.type_().clone()).collect::<Vec<_>>();
    assert_eq!(types, [Type::INT8_ARRAY, Type::JSON]);
    let ragged = client.query_one("SELECT [[1, 2], [3]]", &[]).await.expect_err("it has no binary form");
    assert_eq!(code(&ragged), "2202E");
    server.stop().await;
}

#[tokio::test]
async fn decimals_dates_and_large_numbers_keep_their_text() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    for (expression, text) in [
        ("12345.6789::numeric(20, 4)", "12345.6789"),
        ("-0.5::numeric(3, 1)", "-0.5"),
        ("DATE '2024-02-29'", "2024-02-29"),
        ("TIMESTAMP '2024-02-29 12:34:56.5'", "2024-02-29 12:34:56.5"),
        ("9223372036854775807", "9223372036854775807"),
        ("true", "t"),
        ("NULL", ""),
        ("0.1::double precision", "0.1"),
        ("1e20::double precision", "1e+20"),
        ("1::double precision", "1"),
        ("16777216::real", "1.6777216e+07"),
        ("TIMESTAMP '2024-02-29 12:34:56' - TIMESTAMP '2024-02-27 11:00:00'", "2 days 01:34:56"),
        ("INTERVAL '1 year 2 months 3 days 4 hours'", "1 year 2 mons 3 days 04:00:00"),
        ("'ab'::char(4)", "ab  "),
        ("'\\x00ff'::bytea", "\\x00ff"),
    ] {
        let value = text_value(&client, &format!("SELECT {expression}")).await;
        assert_eq!(value.unwrap_or_default(), text, "{expression}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_parameter_without_a_type_is_text() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let statement = client.prepare("SELECT $1 AS a, $2 AS b").await.expect("nothing implies a type");
    assert_eq!(statement.params(), [Type::TEXT, Type::TEXT]);
    let row = client.query_one(&statement, &[&r#"{"json": "object"}"#, &None::<String>]).await.expect("a row");
    assert_eq!(row.get::<_, String>("a"), r#"{"json": "object"}"#);
    assert_eq!(row.get::<_, Option<String>>("b"), None);
    server.stop().await;
}

#[tokio::test]
async fn parameters_of_on_conflict_and_returning_count() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, n bigint, w text)").await.unwrap();
    let upsert = "INSERT INTO t VALUES ($1, $2, 'new') ON CONFLICT (id) DO UPDATE SET n = t.n + $3, w = $4 RETURNING n, n + $5::bigint";
    let upsert = client.prepare(upsert).await.unwrap();
    for (n, sum) in [(7_i64, 107_i64), (17, 117)] {
        let row = client.query_one(&upsert, &[&1_i64, &7_i64, &10_i64, &"old", &100_i64]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (n, sum));
    }
    let update = client.prepare("UPDATE t SET n = $1 WHERE id = $2 RETURNING n - $3::bigint").await.unwrap();
    let row = client.query_one(&update, &[&50_i64, &1_i64, &8_i64]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 42);
    server.stop().await;
}

#[tokio::test]
async fn parameters_that_cannot_be_read_are_named() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (a bigint)").await.expect("a table");
    // Declared as text where the statement implies a number: read as a literal in quotes would be.
    let parameters: &[(&(dyn ToSql + Sync), Type)] = &[(&"7", Type::TEXT)];
    client.query_typed("INSERT INTO t VALUES ($1)", parameters).await.expect("it is a number");
    let parameters: &[(&(dyn ToSql + Sync), Type)] = &[(&"seven", Type::TEXT)];
    let error = client.query_typed("INSERT INTO t VALUES ($1)", parameters).await.expect_err("not a number");
    let error = error.as_db_error().expect("the server says so");
    assert_eq!(error.code().code(), "22P02");
    assert!(error.message().contains("$1") && error.message().contains("seven"), "{}", error.message());
    assert_eq!(text_value(&client, "SELECT a FROM t").await.as_deref(), Some("7"));
    server.stop().await;
}

#[tokio::test]
async fn deallocate_releases_prepared_statements() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let statement = client.prepare("SELECT 1::bigint AS one").await.expect("a query");
    assert_eq!(client.query_one(&statement, &[]).await.expect("a row").get::<_, i64>(0), 1);
    assert_eq!(code_of(&client, "DEALLOCATE never_prepared").await, "26000");
    client.simple_query("DEALLOCATE ALL").await.expect("all are released");
    assert_eq!(code(&client.query_one(&statement, &[]).await.expect_err("it is gone")), "26000");
    let statement = client.prepare("SELECT 2::bigint AS two").await.expect("a query");
    client.execute("DEALLOCATE ALL", &[]).await.expect("the same in the extended protocol");
    assert_eq!(code(&client.query_one(&statement, &[]).await.expect_err("it is gone")), "26000");
    server.stop().await;
}

#[tokio::test]
async fn a_portal_gives_its_rows_in_parts() {
    let server = TestServer::start().await;
    let mut client = server.connect().await;
    let transaction = client.transaction().await.expect("BEGIN");
    let portal = transaction.bind("SELECT value FROM generate_series(1, 10) s(value) ORDER BY value", &[]).await.expect("it binds");
    let mut sizes = Vec::new();
    let mut values = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 4).await.expect("rows");
        sizes.push(rows.len());
        values.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
        if rows.len() < 4 {
            break;
        }
    }
    assert_eq!((sizes, values), (vec![4, 4, 2], (1..=10).collect::<Vec<_>>()));
    // A portal over rows without an end holds none of them back.
    let portal = transaction.bind(ENDLESS, &[]).await.expect("it binds");
    assert_eq!(transaction.query_portal(&portal, 5).await.expect("rows").len(), 5);
    transaction.commit().await.expect("COMMIT");
    server.stop().await;
}

#[tokio::test]
async fn an_error_after_the_first_rows_reaches_the_client() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let text = "SELECT 1 / (900000 - value) FROM generate_series(1, 1000000) s(value)";
    let rows = client.query_raw(text, Vec::<i32>::new()).await.expect("it starts");
    pin_mut!(rows);
    let mut count = 0_usize;
    let error = loop {
        match rows.next().await.expect("it does not end well") {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(code(&error), "22012");
    assert!(count > 0, "rows before the error were sent");
    assert_eq!(text_value(&client, "SELECT 1").await.as_deref(), Some("1"));
    server.stop().await;
}

#[tokio::test]
async fn a_cancel_request_stops_a_statement_that_computes() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let cancel = client.cancel_token();
    let started = Instant::now();
    let statement = client.simple_query(ENDLESS_COUNT);
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cancel.cancel_query(NoTls).await
    };
    let (outcome, cancelled) = tokio::join!(statement, cancelling);
    cancelled.expect("the request is taken");
    assert_eq!(code(&outcome.expect_err("it is cancelled")), "57014");
    assert!(started.elapsed() < Duration::from_secs(20), "took {:?}", started.elapsed());
    assert_eq!(text_value(&client, "SELECT 1").await.as_deref(), Some("1"));
    // A request that comes when nothing runs is void, and does not hit the next statement.
    client.cancel_token().cancel_query(NoTls).await.expect("the request is taken");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(text_value(&client, "SELECT 2").await.as_deref(), Some("2"));
    server.stop().await;
}

#[tokio::test]
async fn a_cancel_request_stops_rows_on_their_way() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let rows = client.query_raw(ENDLESS, Vec::<i32>::new()).await.expect("it starts");
    pin_mut!(rows);
    rows.try_next().await.expect("a row").expect("there are many");
    client.cancel_token().cancel_query(NoTls).await.expect("the request is taken");
    let error = loop {
        match rows.next().await.expect("it does not end well") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(code(&error), "57014");
    assert_eq!(text_value(&client, "SELECT 1").await.as_deref(), Some("1"));
    server.stop().await;
}

#[tokio::test]
async fn stopping_the_server_ends_running_statements() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let idle = server.connect().await;
    let statement = tokio::spawn(async move { client.simple_query(ENDLESS_COUNT).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let started = Instant::now();
    server.stop().await;
    assert!(started.elapsed() < Duration::from_secs(20), "took {:?}", started.elapsed());
    assert_eq!(code(&statement.await.expect("no panic").expect_err("it was stopped")), "57P01");
    assert!(idle.simple_query("SELECT 1").await.is_err());
}

#[tokio::test]
async fn other_machines_cannot_reach_a_server_without_a_password() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(directory.path()).await.expect("an empty database opens");
    let listener = TcpListener::bind("0.0.0.0:0").await.expect("a free port");
    let error = serve(database, listener, std::future::pending::<()>()).await.expect_err("it must not listen");
    assert_eq!(sqlstate(&error), "55000");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_full_server_says_so() {
    let server = TestServer::start().await;
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(server.connect().await);
    }
    let error = server.try_connect().await.expect_err("there is no place left");
    assert_eq!(code(&error), "53300");
    clients.pop();
    let deadline = Instant::now() + Duration::from_secs(5);
    while server.try_connect().await.is_err() {
        assert!(Instant::now() < deadline, "the place of a client that left is free again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn the_catalog_knows_tables_and_the_types_of_their_columns() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE wiki (id text, tags text[], score double precision, embedding vector(3))").await.expect("a table");
    // What psql 15 sends for \dt.
    let tables = text_rows(
        &client,
        "SELECT n.nspname as \"Schema\", c.relname as \"Name\", \
         CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' END as \"Type\", \
         pg_catalog.pg_get_userbyid(c.relowner) as \"Owner\" \
         FROM pg_catalog.pg_class c \
              LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
              LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam \
         WHERE c.relkind IN ('r','p','') AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast' \
           AND n.nspname <> 'information_schema' AND pg_catalog.pg_table_is_visible(c.oid) \
         ORDER BY 1,2",
    )
    .await;
    let names = tables.iter().map(|row| (row.get("Schema"), row.get("Name"), row.get("Type"))).collect::<Vec<_>>();
    assert_eq!(names, [(Some("public"), Some("wiki"), Some("table"))]);
    // The part of \d wiki that names the types.
    let columns = text_rows(
        &client,
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a \
         WHERE a.attrelid = 'wiki'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
    )
    .await;
    let columns = columns.iter().map(|row| (row.get(0).unwrap_or_default(), row.get(1).unwrap_or_default())).collect::<Vec<_>>();
    assert_eq!(columns, [("id", "text"), ("tags", "text[]"), ("score", "double precision"), ("embedding", "vector(3)")]);
    let types = text_rows(&client, "SELECT count(*) FROM pg_catalog.pg_type WHERE typname = 'vector'").await;
    assert_eq!(types[0].get(0), Some("1"));
    server.stop().await;
}

/// Another connection sees a build while it runs, and Ctrl-C ends it without an index.
#[tokio::test]
async fn a_build_of_an_index_is_seen_and_can_be_cancelled() {
    let server = TestServer::start().await;
    let (builder, watcher) = (server.connect().await, server.connect().await);
    builder.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, v vector(32))").await.expect("a table");
    let numbers = (1..=32).map(|n| format!("sin(value * {n}.7)")).collect::<Vec<_>>().join(", ");
    let insert = format!("INSERT INTO t SELECT value, [{numbers}] FROM generate_series(1, 20000) AS g(value)");
    builder.batch_execute(&insert).await.expect("20,000 rows");

    let cancel = builder.cancel_token();
    let build = tokio::spawn(async move {
        let built = builder.simple_query("CREATE INDEX t_v ON t USING hnsw (v) WITH (ef_construction = 400, m = 64)").await;
        (builder, built)
    });
    let progress =
        "SELECT index_name, phase, tuples_total, tuples_done FROM pg_catalog.pg_stat_progress_create_index WHERE tuples_done > 0";
    let started = Instant::now();
    let row = loop {
        if let Some(row) = text_rows(&watcher, progress).await.into_iter().next() {
            break row;
        }
        assert!(!build.is_finished() && started.elapsed() < Duration::from_secs(60), "the build was not seen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!((row.get(0), row.get(1), row.get(2)), (Some("t_v"), Some("build graph"), Some("20000")));
    cancel.cancel_query(NoTls).await.expect("the request arrives");
    let (builder, built) = build.await.expect("no panic");
    assert_eq!(code(&built.expect_err("cancelled")), "57014");
    assert_eq!(text_value(&watcher, "SELECT count(*) FROM rollout.indexes").await.as_deref(), Some("0"));
    // Who cancelled has the error at once; the build ends a moment later.
    until(&watcher, "SELECT count(*) FROM pg_catalog.pg_stat_progress_create_index", "0").await;
    builder.batch_execute("INSERT INTO t VALUES (0, NULL)").await.expect("the table can be written");
    server.stop().await;
}

#[tokio::test]
async fn set_local_outside_of_a_transaction_warns() {
    let server = TestServer::start().await;
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.port).user("someone").dbname("rolloutdb");
    let (client, mut connection) = config.connect(NoTls).await.expect("the server accepts a client");
    let (sender, mut notices) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let tokio_postgres::AsyncMessage::Notice(notice) = message {
                let _ = sender.send(notice);
            }
        }
    });
    client.batch_execute("SET LOCAL hnsw.ef_search = 100").await.expect("a warning is no error");
    let notice = notices.recv().await.expect("a warning");
    assert_eq!((notice.severity(), notice.code().code()), ("WARNING", "25P01"));
    assert_eq!(text_value(&client, "SHOW hnsw.ef_search").await.as_deref(), Some("40"));
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn pg_settings_has_what_the_session_has_set() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let query = "SELECT setting FROM pg_settings WHERE name = 'hnsw.iterative_scan'";
    assert_eq!(text_value(&client, query).await.as_deref(), Some("off"));
    client.batch_execute("SET hnsw.iterative_scan = strict_order").await.expect("pgvector's setting is known");
    assert_eq!(text_value(&client, query).await.as_deref(), Some("strict_order"));
    assert_eq!(
        text_value(&client, "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'ivfflat.probes'").await.as_deref(),
        Some("20")
    );
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn catalog_columns_have_postgres_types_in_binary_form() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    let class = "SELECT oid, relname, relkind, relnatts, reltuples, relhasindex FROM pg_catalog.pg_class WHERE relname = $1";
    let row = client.query_one(class, &[&"pg_class"]).await.expect("pg_class lists itself");
    assert_eq!((row.get::<_, u32>(0), row.get::<_, String>(1), row.get::<_, i8>(2)), (1259, "pg_class".to_owned(), b'r' as i8));
    assert_eq!((row.get::<_, i16>(3), row.get::<_, f32>(4), row.get::<_, bool>(5)), (33, -1.0, false));
    let arrays = "SELECT ARRAY(SELECT oid FROM pg_type WHERE typname IN ('int4', 'text') ORDER BY oid), current_schemas(true)";
    let row = client.query_one(arrays, &[]).await.expect("arrays of numbers and names");
    assert_eq!(
        (row.get::<_, Vec<u32>>(0), row.get::<_, Vec<String>>(1)),
        (vec![23, 25], vec!["pg_catalog".to_owned(), "public".to_owned()])
    );
    let found = client.query("SELECT typname FROM pg_type WHERE oid = ANY ($1::text::oid[]) ORDER BY 1", &[&"{16380,25}"]).await;
    let found: Vec<String> = found.expect("a parameter").iter().map(|row| row.get(0)).collect();
    assert_eq!(found, ["text", "vector"]);
    server.stop().await;
}

/// What psql shows, where it is installed: every command about the catalog ends well.
#[tokio::test]
async fn psql_describes_what_there_is() {
    if std::process::Command::new("psql").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "skipped: psql is not there; make test-clients installs it");
        return;
    }
    let server = TestServer::start().await;
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE wiki (id bigint PRIMARY KEY, title text NOT NULL DEFAULT 'none', v vector(3)); \
             CREATE INDEX wiki_v ON wiki USING hnsw (v vector_l2_ops); CREATE VIEW titles AS SELECT title FROM wiki; \
             COMMENT ON TABLE wiki IS 'pages'",
        )
        .await
        .expect("a table, an index and a view");
    let port = server.port.to_string();
    let psql = async |command: &'static str| {
        let port = port.clone();
        let run = move || {
            let arguments = ["-X", "-h", "127.0.0.1", "-p", &port, "-U", "someone", "-d", "rolloutdb", "-c", command];
            std::process::Command::new("psql").args(arguments).output().expect("psql runs")
        };
        let output = tokio::task::spawn_blocking(run).await.expect("no panic");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !text.contains("ERROR"), "{command}: {text}");
        text
    };
    let table = psql("\\d+ wiki").await;
    for part in [
        "Table \"public.wiki\"",
        " title  | text      |           | not null | 'none'",
        " v      | vector(3) |",
        "\"wiki_pkey\" PRIMARY KEY, btree (id)",
        "\"wiki_v\" hnsw (v vector_l2_ops)",
        "Access method: lance",
    ] {
        assert!(table.contains(part), "{part} is not in:\n{table}");
    }
    assert!(psql("\\dt+").await.contains("pages"));
    assert!(psql("\\d+ titles").await.contains("SELECT title FROM wiki;"));
    for command in [
        "\\d",
        "\\di+",
        "\\dn+",
        "\\dv+",
        "\\df",
        "\\df+ embed",
        "\\du+",
        "\\l",
        "\\l+",
        "\\dT+",
        "\\dx",
        "\\sv titles",
        "\\sf embed",
        "\\dp",
        "\\db+",
        "\\da",
        "\\do",
        "\\dC",
        "\\dD",
        "\\dO",
        "\\dRp",
        "\\dy",
        "\\dX",
        "\\dA+",
        "\\dAc",
        "\\ddp",
        "\\drds",
        "\\dd",
        "\\dL",
        "\\dm",
        "\\dP",
        "\\dF",
        "\\dconfig",
        "\\d wiki_v",
        "\\d pg_class",
    ] {
        psql(command).await;
    }
    drop(client);
    server.stop().await;
}
