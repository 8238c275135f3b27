//! What model calls took: in EXPLAIN ANALYZE, and in `rollout.task_history`, which lasts.

use std::path::Path;
use std::time::{Duration, Instant};

use rolloutdb::{Database, DatabaseOptions, Result, Session};
use tokio_postgres::{Client, NoTls};

use crate::database::{rows, temporary};
use crate::openai_server::{OpenAiServer, Reply};
use crate::process::{ServerProcess, kill_when, sql_command, start_unheard};

/// A number that EXPLAIN ANALYZE shows of the nodes that may call models, summed; `None` if it does not.
fn metric(plan: &[String], name: &str) -> Option<f64> {
    let words = plan.iter().filter(|line| line.contains("ApplyExec")).flat_map(|line| line.split([' ', '[']));
    let numbers = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.trim_end_matches([',', ']']).parse::<f64>().ok());
    numbers.fold(None, |sum, number| Some(sum.unwrap_or(0.0) + number))
}

/// The same of several, in order.
fn metrics<const N: usize>(plan: &[String], names: [&str; N]) -> [Option<f64>; N] {
    names.map(|name| metric(plan, name))
}

const CALLS: [&str; 3] = ["model_calls", "model_inputs", "cache_hits"];
const TOKENS: [&str; 3] = ["prompt_tokens", "cached_tokens", "generated_tokens"];

async fn with_models(data: &Path) -> Result<Session> {
    let session = Database::open(data).await?.session();
    let models = crate::project().join("tests/fixtures/models");
    let models = models.display();
    let setup = format!(
        "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
         CREATE MODEL encoder FROM '{models}/bert' WITH (task = 'embed');
         CREATE MODEL judge FROM '{models}/bert_reranker';
         CREATE TABLE t AS SELECT n AS id, 'film ' || (n % 4) AS text FROM generate_series(1, 10) s(n);
         CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
         CREATE INDEX wiki_text ON wiki USING bm25 (contents);
         CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', k = 3, prompts = 'short', max_tokens = 48)"
    );
    rows(&session, &setup).await?;
    Ok(session)
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_analyze_shows_calls_and_tokens() -> Result<()> {
    let data = temporary();
    let session = with_models(data.path()).await?;

    let generate = "EXPLAIN ANALYZE SELECT generate('policy', 'Question: ' || text, max_tokens => 3) FROM t";
    let plan = rows(&session, generate).await?;
    assert_eq!(metrics(&plan, CALLS), [Some(10.0), Some(4.0), Some(0.0)], "{plan:#?}");
    let [prompt, cached, generated] = metrics(&plan, TOKENS);
    assert!(generated == Some(12.0) && prompt > cached && metric(&plan, "tokens_per_second") > Some(0.0), "{plan:#?}");
    assert_eq!(metrics(&plan, ["requests", "cost"]), [None, None], "there is no server: {plan:#?}");
    let plan = rows(&session, generate).await?;
    assert_eq!(metrics(&plan, CALLS), [Some(10.0), Some(0.0), Some(4.0)], "{plan:#?}");
    assert_eq!(metrics(&plan, TOKENS), [Some(0.0); 3], "answers that are kept take no tokens: {plan:#?}");

    let plan = rows(&session, "EXPLAIN ANALYZE SELECT embed('encoder', text) FROM t").await?;
    assert_eq!(metrics(&plan, CALLS), [Some(10.0), Some(4.0), Some(0.0)], "{plan:#?}");
    assert!(metric(&plan, "prompt_tokens") >= Some(4.0 * 3.0) && metric(&plan, "generated_tokens") == Some(0.0), "{plan:#?}");
    let plan = rows(&session, "EXPLAIN ANALYZE SELECT rerank('judge', 'a film', text) FROM t").await?;
    assert_eq!(metrics(&plan, CALLS), [Some(10.0), Some(4.0), Some(0.0)], "{plan:#?}");

    let answers = "SELECT a.steps, a.prompt_tokens, a.generated_tokens FROM hopworld_questions(seed => 3, count => 2) q
        CROSS JOIN LATERAL answer(q.question, agent => 'qa') a";
    let found: Vec<f64> = rows(&session, answers).await?.iter().map(|value| value.parse().expect("a number")).collect();
    let sum = |column: usize| Some(found.iter().skip(column).step_by(3).sum::<f64>());
    let plan = rows(&session, &format!("EXPLAIN ANALYZE {answers}")).await?;
    assert_eq!(metrics(&plan, ["model_calls", "prompt_tokens", "generated_tokens"]), [sum(0), sum(1), sum(2)], "{plan:#?}");
    assert!(metric(&plan, "cached_tokens") > Some(0.0), "the prompts were read before: {plan:#?}");

    // A node that asks no model shows nothing new, and neither does a plan that has not run.
    let plan = rows(&session, "EXPLAIN ANALYZE SELECT s.id FROM text_search(wiki, 'film', k => 2) s").await?;
    assert_eq!(metrics(&plan, ["model_inputs", "model_calls", "prompt_tokens"]), [Some(0.0), None, None], "{plan:#?}");
    let plan = rows(&session, "EXPLAIN SELECT embed('encoder', text) FROM t").await?;
    assert_eq!(metric(&plan, "model_inputs"), None, "{plan:#?}");
    let kept = rows(&session, "SELECT count(*) FROM rollout.task_history WHERE kind = 'EXPLAIN' AND model_calls > 0").await?;
    assert_eq!(kept, ["5"], "one that runs is a statement as any other");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_was_asked_is_counted_where_it_was_asked() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, number| match number {
        0 => Reply::error(503, "busy"),
        _ => Reply::chat(&format!("{}!", asked.prompt()), "stop"),
    });
    let options = DatabaseOptions { allowed_hosts: vec![server.host()], ..DatabaseOptions::default() };
    let session = Database::open_with(data.path(), options).await?.session();
    let create = "CREATE MODEL m FROM 'openai://tiny' WITH (task = 'generate', price_input = 2, price_cached = 1, price_output = 10";
    rows(&session, &format!("{create}, base_url = '{}')", server.base_url())).await?;

    let ask = "SELECT generate('m', prompt, max_tokens => 8) FROM (VALUES ('a'), ('b'), ('a')) p(prompt)";
    let plan = rows(&session, &format!("EXPLAIN ANALYZE {ask}")).await?;
    // Each answer has 100 tokens read, 40 of them from a cache, and 10 written; one request has failed before.
    assert_eq!(metrics(&plan, CALLS), [Some(3.0), Some(2.0), Some(0.0)], "{plan:#?}");
    assert_eq!(metrics(&plan, TOKENS), [Some(200.0), Some(80.0), Some(20.0)], "{plan:#?}");
    assert_eq!(metrics(&plan, ["requests", "cost"]), [Some(3.0), Some(0.00052)], "{plan:#?}");

    let history = "SELECT status, model_calls, model_inputs, prompt_tokens, cached_tokens, generated_tokens, requests, round(cost * 1e6) FROM rollout.task_history
        WHERE kind = 'EXPLAIN'";
    assert_eq!(rows(&session, history).await?, ["done", "3", "2", "200", "80", "20", "3", "520.0"]);

    // Another statement pays for what is new.
    rows(&session, &ask.replace("('b')", "('c')")).await?;
    let history = "SELECT model_calls, model_inputs, cache_hits, requests, generated_tokens FROM rollout.task_history
        WHERE statement LIKE '%''c''%' AND model_calls > 0";
    assert_eq!(rows(&session, history).await?, ["3", "1", "1", "1", "10"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_survives_a_restart() -> Result<()> {
    let data = temporary();
    let history = "SELECT task_id, role_name, kind, statement, status, started_at, finished_at, round(seconds * 1000), rows, model_calls, prompt_tokens, generated_tokens,
        tokens_per_second > 0, sqlstate FROM rollout.task_history ORDER BY task_id";
    let before = {
        let session = with_models(data.path()).await?;
        rows(&session, "SELECT generate('policy', text, max_tokens => 2) FROM t").await?;
        rows(&session, "SELECT generate('policy', '')").await.expect_err("an empty prompt");
        rows(&session, history).await?
    };
    assert!(before.len() >= 3 * 14, "{before:?}");
    let database = Database::open(data.path()).await?;
    let session = database.session();
    assert_eq!(rows(&session, history).await?, before);
    // Numbers go on.
    rows(&session, "SELECT generate('policy', 'one more', max_tokens => 2)").await?;
    let last = rows(&session, "SELECT max(task_id) - count(*) FROM rollout.task_history").await?;
    assert_eq!(last, ["0"]);
    Ok(())
}

/// The status of the newest statement that has this text in it, once it has ended.
async fn status(client: &Client, text: &str) -> String {
    let sql = format!(
        "SELECT status FROM rollout.task_history WHERE statement LIKE '%{text}%' AND statement NOT LIKE '%task_history%' AND status <> 'running'
         ORDER BY task_id DESC LIMIT 1"
    );
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(row) = client.query_opt(&sql, &[]).await.expect("the history is readable") {
            return row.get(0);
        }
        assert!(Instant::now() < deadline, "no entry of {text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_wants_no_more_rows_has_not_cancelled() {
    let data = temporary();
    let mut server = ServerProcess::start(data.path());
    let (mut client, other) = (server.connect().await, server.connect().await);
    let model = "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate')";
    client.batch_execute(model).await.expect("a model");

    let transaction = client.transaction().await.expect("a block");
    let few = transaction
        .prepare("SELECT generate('policy', 'few ' || n, max_tokens => 1) FROM generate_series(1, 5) s(n)")
        .await
        .expect("a query");
    let portal = transaction.bind(&few, &[]).await.expect("a portal");
    assert_eq!(transaction.query_portal(&portal, 2).await.expect("rows").len(), 2);
    transaction.commit().await.expect("nothing was written");
    assert_eq!(status(&other, "few ").await, "done");

    let endless = "SELECT count(generate('policy', 'endless ' || a, max_tokens => 1)) FROM generate_series(1, 100000000) s(a)";
    let cancel = client.cancel_token();
    let (ended, ()) = tokio::join!(client.query(endless, &[]), async {
        while other.query("SELECT 1 FROM rollout.task_history WHERE status = 'running'", &[]).await.expect("rows").is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        cancel.cancel_query(NoTls).await.expect("the server takes it");
    });
    assert_eq!(ended.expect_err("it was cancelled").code().map(|code| code.code().to_owned()).as_deref(), Some("57014"));
    assert_eq!(status(&other, "endless ").await, "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_statement_reads_interrupted() -> Result<()> {
    let data = temporary();
    drop(with_models(data.path()).await?);
    let generate = "GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM hopworld_questions(seed => 3, count => 200))
        WITH (simulations = 32, children = 2, max_depth = 6, temperature = 1.0, seed = 5, concurrency = 1)";
    let child = start_unheard(&mut sql_command(data.path(), generate));
    let file = data.path().join("task_history.jsonl");
    let is_listed = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains("GENERATE ROLLOUTS"));
    kill_when(child, "GENERATE ROLLOUTS", is_listed);

    let session = Database::open(data.path()).await?.session();
    let found = "SELECT status, finished_at IS NULL, seconds >= 1, model_calls > 0, sqlstate IS NULL FROM rollout.task_history
        WHERE kind = 'GENERATE ROLLOUTS'";
    assert_eq!(rows(&session, found).await?, ["interrupted", "true", "true", "true", "true"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_analyze_shows_what_agents_searched_for() -> Result<()> {
    const RETRIEVALS: [&str; 2] = ["retrievals", "retrieval_hits"];
    let data = temporary();
    let session = with_models(data.path()).await?;
    let answers = "EXPLAIN ANALYZE SELECT a.answer FROM hopworld_questions(seed => 3, count => 2) q
        CROSS JOIN LATERAL answer(q.question, agent => 'qa') a";
    let first = rows(&session, answers).await?;
    let [asked, known] = metrics(&first, RETRIEVALS).map(|count| count.expect("agents search"));
    assert!(asked >= 2.0 && known < asked, "{first:#?}");
    let cached = "SELECT searches, hits + shared FROM rollout.retrieval_cache";
    assert_eq!(rows(&session, cached).await?, [asked - known, known].map(|count| count.to_string()));
    // The same questions search for nothing new.
    let second = rows(&session, answers).await?;
    assert_eq!(metrics(&second, RETRIEVALS), [Some(asked), Some(asked)], "{second:#?}");
    let history = "SELECT retrievals, retrieval_hits FROM rollout.task_history WHERE kind = 'EXPLAIN' ORDER BY task_id";
    assert_eq!(rows(&session, history).await?, [asked, known, asked, asked].map(|count| count.to_string()));

    let generate = rows(&session, "EXPLAIN ANALYZE SELECT generate('policy', text, max_tokens => 1) FROM t").await?;
    assert_eq!(metrics(&generate, RETRIEVALS), [None, None], "a policy alone searches for nothing: {generate:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_takes_no_time_while_its_client_is_away() {
    let data = temporary();
    let mut server = ServerProcess::start(data.path());
    let (mut client, other) = (server.connect().await, server.connect().await);
    client.batch_execute("CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate')").await.expect("a model");
    let transaction = client.transaction().await.expect("a block");
    let query = "SELECT generate('policy', 'part ' || n, max_tokens => 1) FROM generate_series(1, 1000000) s(n)";
    let query = transaction.prepare(query).await.expect("a query");
    let portal = transaction.bind(&query, &[]).await.expect("a portal");
    assert_eq!(transaction.query_portal(&portal, 2).await.expect("rows").len(), 2);

    let seconds = "SELECT seconds FROM rollout.task_history WHERE statement LIKE '%part %' AND status = 'running' AND model_calls > 0";
    let read = async || -> f64 { other.query_one(seconds, &[]).await.expect("it is listed").get(0) };
    // A batch or two are computed ahead.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let before = read().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        if read().await.to_bits() == before.to_bits() {
            break;
        }
        assert!(Instant::now() < deadline, "it runs on though nobody reads");
    }
    // Beside another statement of the session too.
    transaction.batch_execute("SELECT 1").await.expect("a query");
    let rested = read().await;
    // More than the batch that it has begun.
    assert_eq!(transaction.query_portal(&portal, 1_500).await.expect("rows").len(), 1_500);
    while read().await <= rested {
        assert!(Instant::now() < deadline + Duration::from_secs(60), "it does not run on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
