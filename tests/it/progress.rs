//! Long statements say how far they are: to their client by notices, with rate and time left, and to others by the views of progress.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, pin_mut};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::project;
use crate::server::{ENDLESS_COUNT, TestServer, code, text_value, until};

/// The longest that a test waits for a notice, which comes after two seconds at the earliest.
const PATIENCE: Duration = Duration::from_secs(120);

/// More rows than any statement here comes to the end of.
const MANY: usize = 100_000;

/// A client, and what it is told.
async fn connect(server: &TestServer) -> (Client, mpsc::UnboundedReceiver<String>) {
    let (client, mut connection) = server.config().connect(NoTls).await.expect("the server accepts a client");
    let (sender, notices) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message {
                let _ = sender.send(notice.message().to_owned());
            }
        }
    });
    (client, notices)
}

/// Runs a statement until its client is told something with all of these parts, in this order, and cancels it.
async fn is_told(server: &TestServer, statement: &str, parts: &[&str]) {
    is_told_and_seen(server, statement, parts, async {}).await;
}

/// The same; others look at the statement before it is cancelled.
async fn is_told_and_seen(server: &TestServer, statement: &str, parts: &[&str], seen: impl Future<Output = ()>) {
    let (client, mut notices) = connect(server).await;
    let cancel = client.cancel_token();
    let text = statement.to_owned();
    let running = tokio::spawn(async move { client.simple_query(&text).await.map(drop) });
    let mut told = Vec::new();
    let waiting = tokio::time::timeout(PATIENCE, async {
        while let Some(notice) = notices.recv().await {
            let is_it = has_in_order(&notice, parts);
            told.push(notice);
            if is_it {
                return true;
            }
        }
        false
    });
    let (is_told, ()) = tokio::join!(waiting, seen);
    let is_told = is_told.unwrap_or(false);
    assert!(is_told, "{statement} did not tell {parts:?} but {told:?}");
    cancel.cancel_query(NoTls).await.expect("the request arrives");
    let ended = running.await.expect("no panic").expect_err(statement);
    assert_eq!(code(&ended), "57014", "{statement}");
}

/// Whether the text begins with the first part, and the others follow.
fn has_in_order(text: &str, parts: &[&str]) -> bool {
    let mut rest = text;
    let found = parts.iter().all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    });
    found && parts.first().is_none_or(|first| text.starts_with(first))
}

async fn with_models(server: &TestServer) -> Client {
    let client = server.connect().await;
    let models = project().join("tests/fixtures/models");
    let setup = format!(
        "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
         CREATE MODEL encoder FROM '{}/bert' WITH (task = 'embed');
         CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
         CREATE INDEX wiki_text ON wiki USING bm25 (contents);
         CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 48);
         CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 5000);
         CREATE TABLE prompts AS SELECT n AS id, 'Question: who directed film ' || n AS text FROM generate_series(1, {MANY}) s(n)",
        models.display()
    );
    client.batch_execute(&setup).await.expect("models and tables");
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_long_statements_hear_how_far_they_are() {
    let server = TestServer::start().await;
    let client = with_models(&server).await;
    let total = format!(" of {MANY} model calls, ");
    let generate = "SELECT count(generate('policy', text, max_tokens => 48)) FROM prompts";
    is_told(&server, generate, &["SELECT: ", &total, "/s, ", " left"]).await;
    // Each question takes several calls, nobody knows how many.
    let answer = "SELECT a.answer FROM questions q CROSS JOIN LATERAL answer(q.question, agent => 'qa') a";
    is_told(&server, answer, &["SELECT: ", " model calls, ", "/s, ", " left, ", " of 5000 rows"]).await;
    let total = format!(" of {MANY} rows, ");
    let update = "UPDATE prompts SET text = generate('policy', text, max_tokens => 8)";
    is_told(&server, update, &["UPDATE prompts: ", &total, "/s, ", " left"]).await;
    let create = "CREATE TABLE made AS SELECT id, generate('policy', 'In short. ' || text, max_tokens => 8) AS text FROM prompts";
    is_told(&server, create, &["CREATE TABLE made: ", &total, "/s, ", " left"]).await;
    // How many rows a condition leaves, only the run tells.
    let insert = "INSERT INTO prompts SELECT id, generate('policy', 'Briefly. ' || text, max_tokens => 8) FROM prompts WHERE id % 2 = 0";
    is_told(&server, insert, &["INSERT INTO prompts: ", " rows, ", "/s"]).await;
    drop(client);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_without_models_is_silent() {
    let server = TestServer::start().await;
    let (client, mut notices) = connect(&server).await;
    client.batch_execute("SET statement_timeout = '3s'").await.expect("a setting");
    let ended = client.simple_query(ENDLESS_COUNT).await.map(drop).expect_err("it has no end");
    assert_eq!(code(&ended), "57014");
    assert!(notices.try_recv().is_err());
    drop(client);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_file_knows_its_bytes() {
    let server = TestServer::start().await;
    let client = with_models(&server).await;
    let files = tempfile::tempdir().expect("a temporary directory");
    let file = files.path().join("passages.jsonl");
    let mut lines = String::new();
    for id in 0..60_000 {
        let words = format!("word{} ", id % 977).repeat(40);
        writeln!(lines, r#"{{"id": {id}, "contents": "passage {id} {words}"}}"#).expect("a text grows");
    }
    std::fs::write(&file, &lines).expect("a temporary file is writable");
    let create = "CREATE TABLE passages (id bigint, contents text, v vector(64) GENERATED ALWAYS AS (embed('encoder', contents)) STORED)";
    client.batch_execute(create).await.expect("a table");
    let copy = format!("COPY passages FROM '{}'", file.display());
    let total = format!(" of {:.1} MB", lines.len() as f64 / 1e6);
    let watching = async {
        let copied = format!(
            "SELECT count(*) FROM pg_stat_progress_copy WHERE command = 'COPY FROM' AND type = 'FILE' AND table_name = 'passages' \
             AND tuples_processed > 0 AND bytes_processed > 0 AND bytes_processed <= bytes_total AND bytes_total = {}",
            lines.len()
        );
        until(&client, &copied, "1").await;
        let embedded = "SELECT count(*) FROM pg_stat_progress_embed WHERE table_name = 'passages' AND column_name = 'v' AND rows_done > 0";
        until(&client, embedded, "1").await;
    };
    let told = ["COPY passages: ", " rows, ", "/s, ", " left, ", &total];
    is_told_and_seen(&server, &copy, &told, watching).await;
    until(&client, "SELECT count(*) FROM pg_stat_progress_copy", "0").await;
    assert_eq!(text_value(&client, "SELECT count(*) FROM passages").await.as_deref(), Some("0"));
    drop(client);
    server.stop().await;
}

/// Runs a statement until another session sees it in a view, and cancels it.
async fn is_seen(server: &TestServer, statement: &str, seen: &str) {
    let (worker, watcher) = (server.connect().await, server.connect().await);
    let cancel = worker.cancel_token();
    let text = statement.to_owned();
    let running = tokio::spawn(async move { worker.simple_query(&text).await.map(drop) });
    let query = format!("SELECT count(*) FROM {seen}");
    until(&watcher, &query, "1").await;
    cancel.cancel_query(NoTls).await.expect("the request arrives");
    assert_eq!(code(&running.await.expect("no panic").expect_err(statement)), "57014", "{statement}");
    until(&watcher, &query, "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn others_see_what_models_do() {
    let server = TestServer::start().await;
    let client = with_models(&server).await;
    is_seen(
        &server,
        "GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions) WITH (simulations = 32, seed = 5)",
        "pg_stat_progress_rollout WHERE table_name = 'run' AND agent = 'qa' AND questions_total = 5000 AND questions_done > 0
         AND simulations_done > questions_done AND per_second > 0 AND simulations_per_second > per_second AND tokens_per_second > simulations_per_second
         AND cache_hit_rate > 0.5 AND cache_hit_rate < 1 AND retrievals > 0 AND retrieval_hit_rate >= 0 AND seconds_left > seconds",
    )
    .await;
    is_seen(
        &server,
        "TRAIN SFT MODEL learnt FROM policy USING (SELECT question AS prompt, golden_answers[1] AS completion FROM questions)
         WITH (epochs = 1000, gradient_accumulation = 64)",
        "pg_stat_progress_train WHERE model = 'learnt' AND method = 'sft' AND phase = 'steps' AND units_done > 0 AND seconds_left > 0",
    )
    .await;
    is_seen(
        &server,
        "ALTER TABLE prompts ADD COLUMN v vector(64) GENERATED ALWAYS AS (embed('encoder', text)) STORED",
        &format!(
            "pg_stat_progress_embed WHERE table_name = 'prompts' AND column_name = 'v' AND rows_total = {MANY} AND rows_done > 0 \
             AND seconds_left > 0"
        ),
    )
    .await;
    drop(client);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn others_see_the_bytes_of_a_client_that_copies() {
    let server = TestServer::start().await;
    let (client, watcher) = (server.connect().await, server.connect().await);
    client.batch_execute("CREATE TABLE copied (id bigint, text text)").await.expect("a table");
    {
        let sink = client.copy_in::<_, Bytes>("COPY copied FROM STDIN").await.expect("it waits for rows");
        pin_mut!(sink);
        // Four megabytes, of which the server reads one after the other; the client takes its time for the rest.
        let row = format!("7\t{}\n", "x".repeat(1000));
        for _ in 0..40 {
            sink.send(Bytes::from(row.repeat(100))).await.expect("it takes them");
        }
        let seen = "SELECT count(*) FROM pg_stat_progress_copy WHERE command = 'COPY FROM' AND type = 'PIPE' AND table_name = 'copied' \
                    AND bytes_processed > 1000000 AND bytes_total IS NULL AND tuples_processed > 0";
        until(&watcher, seen, "1").await;
        // Dropped: the driver sends CopyFail.
    }
    until(&watcher, "SELECT count(*) FROM pg_stat_progress_copy", "0").await;
    assert_eq!(text_value(&client, "SELECT count(*) FROM copied").await.as_deref(), Some("0"));
    drop(client);
    server.stop().await;
}
