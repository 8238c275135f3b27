//! What must last: tables, agents and models survive a restart; rollouts go on where they stopped.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::TryStreamExt;
use rolloutdb::{Database, Result, Session};

async fn batches(session: &Session, sql: &str) -> Result<Vec<RecordBatch>> {
    Ok(session.sql(sql).await?.try_collect().await?)
}

async fn count(session: &Session, sql: &str) -> Result<i64> {
    let batches = batches(session, sql).await?;
    Ok(batches[0].column(0).as_primitive::<Int64Type>().value(0))
}

async fn build_world(session: &Session) -> Result<()> {
    batches(
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

/// Columns that a rerun reproduces: everything but the clock.
const TREE: &str = "SELECT question_id, node_id, parent_id, action, response, visit_count, q_value, process_reward FROM run ORDER BY 1, 2";

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_everything_and_rollouts_go_on() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    {
        let database = Database::open(directory.path()).await?;
        let session = database.session();
        build_world(&session).await?;
        let first = format!("GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions ORDER BY id LIMIT 2) {GENERATE}");
        batches(&session, &first).await?;
    }
    let database = Database::open(directory.path()).await?;
    let session = database.session();
    let nodes_before = count(&session, "SELECT count(*) FROM run").await?;
    let rest = format!("GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions) {GENERATE}");
    let summary = batches(&session, &rest).await?;
    let column = |name: &str| summary[0].column_by_name(name).expect("a column of the summary").as_primitive::<Int64Type>().value(0);
    assert_eq!((column("questions"), column("skipped")), (4, 2), "questions that are done are not done again");
    assert_eq!(count(&session, "SELECT count(*) FROM run").await?, nodes_before + column("nodes"));
    assert_eq!(count(&session, "SELECT count(DISTINCT question_id) FROM run").await?, 6);

    let resumed = batches(&session, TREE).await?;
    batches(&session, "DROP TABLE run").await?;
    batches(&session, &rest).await?;
    let in_one_go = batches(&session, TREE).await?;
    assert_eq!(text(&resumed), text(&in_one_go), "the same seed gives the same trees, resumed or not");
    Ok(())
}

fn text(batches: &[RecordBatch]) -> String {
    arrow::util::pretty::pretty_format_batches(batches).expect("rows can be shown").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_refused() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let _database = Database::open(directory.path()).await?;
    let refused = Database::open(directory.path()).await.err().expect("the directory is locked");
    assert_eq!(rolloutdb::server::sqlstate(&refused), "55006", "{refused}");
    Ok(())
}
