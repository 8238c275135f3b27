//! What must last: tables, agents and models survive a restart; rollouts go on where they stopped.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use rolloutdb::{Database, Result, Session};

use crate::database::{number, run, temporary};

async fn build_world(session: &Session) -> Result<()> {
    run(
        session,
        "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
         CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
         CREATE INDEX wiki_text ON wiki USING bm25 (contents);
         CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 6);
         CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', k = 3, prompts = 'short', max_tokens = 48)",
    )
    .await
    .map(|_| ())
}

const GENERATE: &str = "WITH (simulations = 4, children = 2, max_depth = 6, temperature = 1.0, seed = 5)";

/// Columns that a rerun reproduces: everything but the clock, and what a cache happened to hold.
const TREE: &str = "SELECT question_id, node_id, parent_id, depth, state, action, prompt, response, query, evidence, answer, passage_ids, visit_count, \
    value_sum, process_reward, outcome_reward, is_terminal, token_ids, token_logprobs, prompt_tokens, generated_tokens FROM run ORDER BY 1, 2";

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_everything_and_rollouts_go_on() -> Result<()> {
    let directory = temporary();
    {
        let database = Database::open(directory.path()).await?;
        let session = database.session();
        build_world(&session).await?;
        let first = format!("GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions ORDER BY id LIMIT 2) {GENERATE}");
        run(&session, &first).await?;
    }
    let database = Database::open(directory.path()).await?;
    let session = database.session();
    let nodes_before = number(&session, "SELECT count(*) FROM run").await?;
    let rest = format!("GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions) {GENERATE}");
    let summary = run(&session, &rest).await?;
    let column = |name: &str| summary[0].column_by_name(name).expect("a column of the summary").as_primitive::<Int64Type>().value(0);
    assert_eq!((column("questions"), column("skipped")), (4, 2), "questions that are done are not done again");
    assert_eq!(number(&session, "SELECT count(*) FROM run").await?, nodes_before + column("nodes"));
    assert_eq!(number(&session, "SELECT count(DISTINCT question_id) FROM run").await?, 6);

    let resumed = run(&session, TREE).await?;
    run(&session, "DROP TABLE run").await?;
    run(&session, &rest).await?;
    let in_one_go = run(&session, TREE).await?;
    assert_eq!(text(&resumed), text(&in_one_go), "the same seed gives the same trees, resumed or not");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_rollouts_keep_what_is_finished_and_no_other_statement_joins_in() -> Result<()> {
    let directory = temporary();
    let database = Database::open(directory.path()).await?;
    let session = database.session();
    build_world(&session).await?;
    let with = |concurrency: usize| GENERATE.replace("seed = 5", &format!("seed = 5, concurrency = {concurrency}"));
    let one_by_one = format!("GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM more) {}", with(1));
    run(&session, "CREATE TABLE more AS SELECT * FROM hopworld_questions(seed => 3, count => 40)").await?;
    // A task of its own, as each client has one: a statement that nobody polls lets go of no lock that others wait for.
    let (writer, statement) = (database.session(), one_by_one.clone());
    let running = tokio::spawn(async move { run(&writer, &statement).await });
    let other = database.session();
    let kept = loop {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert!(!running.is_finished(), "the statement ended before it could be cancelled");
        // Until the statement has made it, there is no table.
        if let Ok(kept @ 1..) = number(&other, "SELECT count(DISTINCT question_id) FROM run").await {
            break kept;
        }
    };
    let refused = run(&other, &one_by_one).await.expect_err("the first statement has the table");
    assert_eq!(rolloutdb::server::sqlstate(&refused), "55006", "{refused}");
    running.abort();
    assert!(running.await.expect_err("it was ended").is_cancelled());
    database.settle().await;
    let after = number(&other, "SELECT count(DISTINCT question_id) FROM run").await?;
    assert!((kept..40).contains(&after), "{kept} trees were committed before the cancel, {after} after it");
    let at_once = one_by_one.replace(&with(1), &with(16));
    run(&session, &at_once).await?;
    let resumed = run(&session, TREE).await?;
    run(&session, "DROP TABLE run").await?;
    run(&session, &at_once).await?;
    assert_eq!(text(&resumed), text(&run(&session, TREE).await?), "cancelled or not, one at a time or sixteen: the same trees");
    Ok(())
}

fn text(batches: &[RecordBatch]) -> String {
    arrow::util::pretty::pretty_format_batches(batches).expect("rows can be shown").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_refused() -> Result<()> {
    let directory = temporary();
    let _database = Database::open(directory.path()).await?;
    let refused = Database::open(directory.path()).await.err().expect("the directory is locked");
    assert_eq!(rolloutdb::server::sqlstate(&refused), "55006", "{refused}");
    let (directory, process) = (directory.path().display(), std::process::id());
    assert!(refused.to_string().starts_with(&format!("data directory {directory} is in use by process {process}")), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_this_process_lets_go_of_is_waited_for() -> Result<()> {
    let directory = temporary();
    let database = Database::open(directory.path()).await?;
    run(&database.session(), "CREATE TABLE t AS SELECT 7 AS a").await?;
    let holder = tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        drop(database);
    });
    let again = Database::open(directory.path()).await?;
    assert_eq!(number(&again.session(), "SELECT a FROM t").await?, 7);
    holder.await.expect("it does not panic");
    Ok(())
}
