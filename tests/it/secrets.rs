//! A secret is planted, and everything that the server writes and says is searched for it.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::database::{files_with, temporary};
use crate::openai_server::{OpenAiServer, Reply};
use crate::process::{ServerProcess, binary, sql_command};

const PLANTED: &str = "planted-7f3a-0c91-secret-value";

/// Statements about the secret, right ones and wrong ones, and what tells of statements.
const STATEMENTS: [&str; 16] = [
    "CREATE SECRET by_env FROM ENV 'PLANTED_SECRET'",
    "CREATE SECRET by_file FROM FILE 'KEY'",
    "CREATE SECRET by_env FROM ENV 'PLANTED_SECRET'",
    "CREATE SECRET other FROM ENV 'PLANTED_SECRET_THAT_IS_NOT_SET'",
    "EXPLAIN CREATE SECRET again FROM ENV 'PLANTED_SECRET'",
    "SELECT * FROM rollout.secrets",
    "SELECT * FROM rollout.privileges",
    "SELECT * FROM rollout.models",
    "SHOW ALL",
    "SHOW PLANTED_SECRET",
    "SELECT * FROM read_csv('/proc/self/environ')",
    "SELECT * FROM read_csv('DATA/secrets.json')",
    "CREATE MODEL m FROM 'openai://gpt-4o' WITH (secret = 'by_env')",
    "DROP SECRET by_env",
    "CREATE SECRET by_env FROM ENV 'PLANTED_SECRET'",
    "SELECT * FROM information_schema.tables",
];

/// The first of them make the secrets.
const NUM_RIGHT: usize = 2;

#[test]
fn a_planted_secret_is_nowhere() {
    let (data, files) = (temporary(), temporary());
    let key = files.path().join("key");
    std::fs::write(&key, format!("{PLANTED}\n")).expect("a temporary file is writable");
    let mut said = String::new();
    for (number, statement) in STATEMENTS.iter().enumerate() {
        let statement = with_paths(statement, &key, data.path());
        let output = sql_command(data.path(), &statement)
            .env("PLANTED_SECRET", PLANTED)
            .env("RUST_LOG", "trace")
            .env("RUST_BACKTRACE", "1")
            .output()
            .expect("the binary runs");
        assert!(number >= NUM_RIGHT || output.status.success(), "{statement}: {output:?}");
        said += &format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    assert!(said.contains("by_env") && said.contains("by_file"), "the secrets are there by name:\n{said}");
    assert!(!said.contains(PLANTED), "it was said:\n{said}");
    let found = files_with(data.path(), PLANTED);
    assert!(found.is_empty(), "it was written: {found:?}");
}

fn with_paths(statement: &str, key: &Path, data: &Path) -> String {
    statement.replace("KEY", &key.display().to_string()).replace("DATA", &data.display().to_string())
}

/// What a server has beside: clients that see each other, jobs, a history, and models at servers that are sent the secret. `SECRET` is the secret itself,
/// where somebody writes it by mistake.
const ON_A_SERVER: [&str; 21] = [
    "CREATE SECRET spoken FROM 'SECRET'",
    "CREATE SECRET spoken FROM ENV 'SECRET'",
    "CREATE USER ann PASSWORD 'SECRET'",
    "ALTER USER ann PASSWORD 'SECRET' NO_SUCH_OPTION",
    "CREATE MODEL remote FROM 'openai://tiny' WITH (base_url = 'URL', secret = 'by_file', retries = 0)",
    "SELECT generate('remote', 'first')",
    "SELECT generate('remote', 'second')",
    "COPY (SELECT generate('remote', 'in a job')) TO 'KEY.first.csv' ASYNC",
    "WAIT FOR JOB 1",
    "COPY (SELECT generate('remote', 'in a job')) TO 'KEY.second.csv' ASYNC",
    "WAIT FOR JOB 2",
    "SELECT generate('remote', 'third')",
    "EXPLAIN ANALYZE VERBOSE SELECT generate('remote', 'fourth')",
    "DESCRIBE MODEL remote",
    "SELECT * FROM rollout.remote_models",
    "SELECT * FROM rollout.secrets",
    "SELECT * FROM pg_authid",
    "SELECT * FROM pg_settings",
    "SELECT * FROM rollout.jobs",
    "SELECT * FROM rollout.task_history",
    "SELECT * FROM pg_stat_activity",
];

/// Requests that the server of the model refuses, and says which key it got.
const NUM_REFUSED: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_secret_is_nowhere_on_a_server() {
    let (data, files) = (temporary(), temporary());
    let (key, log) = (files.path().join("key"), files.path().join("log"));
    std::fs::write(&key, format!("{PLANTED}\n")).expect("a temporary file is writable");
    let model = OpenAiServer::start(|asked, number| match number < NUM_REFUSED {
        true => Reply::error(401, asked.headers.get("authorization").map_or("", String::as_str)),
        false => Reply::chat("in", "stop"),
    });
    let mut command = Command::new(binary());
    command.env("PLANTED_SECRET", PLANTED).env("RUST_LOG", "trace").env("RUST_BACKTRACE", "1");
    let log_file = File::create(&log).expect("a temporary file is writable");
    let mut server = ServerProcess::start_with(command, data.path(), &["--allow-host", &model.host()], log_file.into());
    let (client, watcher) = (server.connect().await, server.connect().await);
    let mut said = String::new();
    for statement in STATEMENTS.iter().chain(&ON_A_SERVER) {
        let statement =
            with_paths(statement, &key, data.path()).replace("'SECRET'", &format!("'{PLANTED}'")).replace("URL", &model.base_url());
        said += &answer(&client, &statement).await;
        said += &answer(&watcher, "SELECT * FROM pg_stat_activity").await;
    }
    let keys = model.asked().into_iter().filter_map(|asked| asked.headers.get("authorization").cloned());
    assert!(keys.filter(|key| *key == format!("Bearer {PLANTED}")).count() > NUM_REFUSED, "the model's server gets it");
    for part in ["by_env", "by_file", "***", "SELECT generate", "CREATE SECRET ...", "in a job"] {
        assert!(said.contains(part), "{part} was said:\n{said}");
    }
    assert!(!said.contains(PLANTED), "it was said:\n{said}");
    assert!(server.ends_when_asked(Duration::from_secs(60)), "the server ends");
    let logged = std::fs::read_to_string(&log).expect("what the server said is text");
    assert!(logged.contains("serving"), "it says something:\n{logged}");
    assert!(!logged.contains(PLANTED), "it was logged:\n{logged}");
    let found = files_with(data.path(), PLANTED);
    assert!(found.is_empty(), "it was written: {found:?}");
}

/// Rows with the names of their columns, and all that an error has.
async fn answer(client: &Client, statement: &str) -> String {
    match client.simple_query(statement).await {
        Ok(messages) => messages.iter().map(shown).collect(),
        Err(error) => format!("{error:?}\n"),
    }
}

fn shown(message: &SimpleQueryMessage) -> String {
    let SimpleQueryMessage::Row(row) = message else { return String::new() };
    let values =
        row.columns().iter().enumerate().map(|(position, column)| format!("{}={} ", column.name(), row.get(position).unwrap_or("NULL")));
    values.collect::<String>() + "\n"
}
