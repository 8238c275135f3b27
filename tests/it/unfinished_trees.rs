//! Trees that a kill or a cancel interrupts go on at the nodes that they had: they become what they would have been, and no model is asked twice.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rolloutdb::{Database, Result, Session};

use crate::database::{number, rows, run, temporary};
use crate::files_below;
use crate::process::{kill_when, sql_command, start_unheard};

/// Of answers, before the interruption: some fifty of them, of the hundreds that two trees take.
const KEPT_BYTES: u64 = 30_000;

async fn build_world(session: &Session) -> Result<()> {
    let setup = "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
        CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
        CREATE INDEX wiki_text ON wiki USING bm25 (contents);
        CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 2);
        CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', k = 3, prompts = 'short', max_tokens = 48)";
    run(session, setup).await.map(drop)
}

fn generate(table: &str) -> String {
    format!(
        "GENERATE ROLLOUTS INTO {table} USING AGENT qa FROM (SELECT * FROM questions)
        WITH (simulations = 12, children = 2, rollouts_per_node = 6, max_depth = 6, temperature = 1.0, seed = 5)"
    )
}

/// Where the answers for trees of the table `run` are that are not committed.
fn unfinished(data: &Path) -> PathBuf {
    data.join("tables/public/run.lance/_unfinished")
}

fn bytes_below(folder: &Path) -> u64 {
    // A file may go while it is looked at.
    files_below(folder).iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// The trees of `run` are those of a run that nobody disturbs, and what was answered before the interruption was not asked again.
async fn check_resumed(session: &Session, data: &Path) -> Result<()> {
    assert!(!unfinished(data).exists(), "what was kept goes when the trees are there");
    run(session, &generate("whole")).await?;
    assert_eq!(trees(session, "run").await?, trees(session, "whole").await?);
    let [calls, kept, tokens] = calls(session, "run").await?;
    let [all_calls, none_kept, all_tokens] = self::calls(session, "whole").await?;
    assert_eq!((calls, none_kept), (all_calls, 0), "the search is the same");
    assert!((20..all_calls).contains(&kept), "{kept} of {all_calls} answers were kept");
    assert!(tokens < all_tokens, "{tokens} of {all_tokens} tokens were generated after the interruption");
    Ok(())
}

/// All that a seed decides about the trees of a table.
async fn trees(session: &Session, table: &str) -> Result<String> {
    let columns = "question_id, node_id, parent_id, depth, state, action, prompt, response, query, evidence, answer, passage_ids, visit_count, value_sum, \
        q_value, prior, process_reward, outcome_reward, is_terminal, token_ids, token_logprobs, seed, prompt_tokens, generated_tokens";
    let batches = run(session, &format!("SELECT {columns} FROM {table} ORDER BY question_id, node_id")).await?;
    Ok(arrow::util::pretty::pretty_format_batches(&batches).expect("rows can be shown").to_string())
}

/// Calls of the run that made a table, those of them whose answers were kept, and the tokens that were generated.
async fn calls(session: &Session, table: &str) -> Result<[i64; 3]> {
    let history = format!(
        "SELECT model_calls, cache_hits, generated_tokens FROM rollout.task_history
        WHERE status = 'done' AND statement LIKE 'GENERATE ROLLOUTS INTO {table} %'"
    );
    let numbers: Vec<i64> = rows(session, &history).await?.iter().map(|value| value.parse().expect("a number")).collect();
    Ok(numbers.try_into().expect("one run made the table"))
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_trees_go_on_at_their_nodes() -> Result<()> {
    let data = temporary();
    {
        let database = Database::open(data.path()).await?;
        build_world(&database.session()).await?;
    }
    let child = start_unheard(&mut sql_command(data.path(), &generate("run")));
    kill_when(child, "GENERATE ROLLOUTS", || bytes_below(&unfinished(data.path())) > KEPT_BYTES);

    let database = Database::open(data.path()).await?;
    let session = database.session();
    assert_eq!(number(&session, "SELECT count(*) FROM run").await?, 0, "no tree was done");
    run(&session, &generate("run")).await?;
    check_resumed(&session, data.path()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_of_a_cancelled_job_go_on_at_their_nodes() -> Result<()> {
    let data = temporary();
    let database = Database::open(data.path()).await?;
    let session = database.session();
    build_world(&session).await?;
    run(&session, &format!("{} ASYNC", generate("run"))).await?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while bytes_below(&unfinished(data.path())) <= KEPT_BYTES {
        assert!(Instant::now() < deadline, "the job did not get to work within a minute");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run(&session, "CANCEL JOB 1").await?;
    assert!(bytes_below(&unfinished(data.path())) > KEPT_BYTES, "what was answered stays");
    run(&session, "RESUME JOB 1").await?;
    let ended = rows(&session, "WAIT FOR JOB 1").await?;
    assert_eq!(ended[1], "done", "{ended:?}");
    check_resumed(&session, data.path()).await
}
