//! A training that was killed or cancelled goes on at its last checkpoint, and its model is the one that it would have been, bit by bit.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rolloutdb::{Database, Result, Session};

use crate::database::{number, rows, run, temporary};
use crate::process::ServerProcess;
use crate::server::{text_value, until};

const BASE: &str = "CREATE MODEL seedling FROM 'random://qwen2' USING (SELECT completion FROM hopworld_demonstrations(worlds => 1, questions_per_world => 20))
    WITH (task = 'generate', vocab_size = 400, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 2, num_attention_heads = 4,
    num_key_value_heads = 2, seed = 1);
    CREATE TABLE demonstrations AS SELECT step_prompt(state, question, thoughts, passages, 'short') AS prompt, completion
    FROM hopworld_demonstrations(worlds => 1, questions_per_world => 10);
    CREATE TABLE pairs AS SELECT DISTINCT prompt, completion AS chosen, completion || ' no' AS rejected FROM demonstrations ORDER BY 1, 2 LIMIT 40";

/// `checkpoint_every` takes the place of EVERY.
const SFT: &str = "FROM seedling USING (SELECT prompt, completion FROM demonstrations)
    VALIDATE USING (SELECT prompt, completion FROM demonstrations ORDER BY prompt, completion LIMIT 5)
    WITH (epochs = 1000, max_steps = 100, batch_size = 4, learning_rate = 1e-3, evaluate_every = 20, checkpoint_every = EVERY)";
const DPO: &str = "FROM seedling USING (SELECT prompt, chosen, rejected FROM pairs)
    WITH (epochs = 1000, max_steps = 80, batch_size = 2, learning_rate = 1e-4, lora_rank = 4, checkpoint_every = EVERY)";

const PRM: &str = "FROM seedling USING (SELECT prompt, chosen, rejected FROM pairs)
    WITH (epochs = 1000, max_steps = 60, batch_size = 2, learning_rate = 1e-3, checkpoint_every = EVERY)";

const HOPPER: &str = "CREATE MODEL hopper FROM 'builtin://tinyhop' WITH (task = 'generate');
    CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
    CREATE INDEX wiki_text ON wiki USING bm25 (contents);
    CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 4);
    CREATE AGENT qa WITH (policy = 'hopper', corpus = 'wiki', retriever = 'text', k = 3, prompts = 'short', max_steps = 4, max_tokens = 32)";
const GRPO: &str = "FROM hopper USING (SELECT question, golden_answers FROM questions ORDER BY id)
    WITH (agent = 'qa', reward = 'f1', batch_size = 2, group_size = 4, epochs = 100, max_steps = 4, learning_rate = 1e-4, checkpoint_every = EVERY)";

/// The metrics of a model that its statement decides.
fn metrics(model: &str) -> String {
    format!(
        "SELECT step, metric, value FROM rollout.training_metrics WHERE model = '{model}' AND metric NOT IN ('tokens_per_s', 'memory_mb', 'rollout_s') ORDER BY step, metric"
    )
}

fn weights(data: &Path, model: &str) -> Vec<u8> {
    std::fs::read(data.join("models").join(model).join("1/model.safetensors")).expect("the model is there")
}

/// The checkpoints of all trainings.
fn checkpoints(data: &Path) -> Vec<PathBuf> {
    let below = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let mut found: Vec<PathBuf> = below(&data.join("training")).iter().flat_map(|run| below(run)).collect();
    found.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("step-")));
    found
}

/// Waits until there is a checkpoint.
async fn first_checkpoint(data: &Path) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while checkpoints(data).is_empty() {
        assert!(Instant::now() < deadline, "the training left no checkpoint within two minutes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the training that runs has done so many steps.
async fn until_steps(session: &Session, num_steps: i64) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    while number(session, "SELECT coalesce(max(units_done), 0) FROM pg_stat_progress_train WHERE phase = 'steps'").await? < num_steps {
        assert!(Instant::now() < deadline, "the job did not get to work within two minutes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Runs a statement and drops it when it has left a checkpoint.
async fn cancel_at_first_checkpoint(session: &Session, data: &Path, train: &str) {
    let mut running = Box::pin(run(session, train));
    tokio::select! {
        ended = &mut running => panic!("the training ended before it could be cancelled: {ended:?}"),
        () = first_checkpoint(data) => {}
    }
}

/// Whether a model was made by a run that went on, and is that of a run in one go, which this makes now.
async fn check_resumed(session: &Session, data: &Path, train: &str) -> Result<()> {
    let lineage = rows(session, "SELECT lineage FROM rollout.models WHERE name = 'resumed'").await?;
    let lineage: serde_json::Value = serde_json::from_str(&lineage[0]).expect("a lineage is JSON");
    assert!(lineage["resumed_at"].as_u64() > Some(0), "{lineage}");
    assert_eq!(checkpoints(data), Vec::<PathBuf>::new(), "they go when the model is there");
    run(session, &train.replace("MODEL resumed", "MODEL whole")).await?;
    assert!(weights(data, "resumed") == weights(data, "whole"), "stopped or not: the same weights");
    assert_eq!(rows(session, &metrics("resumed")).await?, rows(session, &metrics("whole")).await?);
    // Those of before and of after, each once, are one run with one version.
    let runs = "SELECT count(DISTINCT run) + count(DISTINCT version) + count(*) - count(version) FROM rollout.training_metrics WHERE model = 'resumed'";
    assert_eq!(number(session, runs).await?, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_training_goes_on() -> Result<()> {
    let whole = DPO.replace("lora_rank = 4, ", "");
    let ppo = GRPO.replace("group_size = 4", "group_size = 2");
    let of_examples = [("SFT", BASE, SFT), ("DPO", BASE, DPO), ("DPO", BASE, &whole), ("PRM", BASE, PRM)];
    for (method, base, train) in of_examples.into_iter().chain([("GRPO", HOPPER, GRPO), ("PPO", HOPPER, &ppo)]) {
        let data = temporary();
        let train = format!("TRAIN {method} MODEL resumed {}", train.replace("EVERY", if base == HOPPER { "1" } else { "5" }));
        kill_and_resume(data.path(), base, &train).await;
        let database = Database::open(data.path()).await?;
        check_resumed(&database.session(), data.path(), &train).await?;
    }
    Ok(())
}

/// Runs a training as a job of a server that is killed at the first checkpoint, and resumes the job with another server.
async fn kill_and_resume(data: &Path, base: &str, train: &str) {
    {
        let mut server = ServerProcess::start(data);
        let client = server.connect().await;
        client.batch_execute(base).await.expect("a base and its rows");
        assert_eq!(text_value(&client, &format!("{train} ASYNC")).await.as_deref(), Some("1"));
        first_checkpoint(data).await;
        server.kill();
    }
    let mut server = ServerProcess::start(data);
    let client = server.connect().await;
    let status = "SELECT status FROM rollout.jobs WHERE job_id = 1";
    assert_eq!(text_value(&client, status).await.as_deref(), Some("interrupted"));
    assert_eq!(text_value(&client, "SELECT count(*) FROM rollout.models").await.as_deref(), Some("1"), "half a training is no model");
    client.batch_execute("RESUME JOB 1").await.expect("it is queued");
    client.batch_execute("WAIT FOR JOB 1").await.expect("it ends");
    assert_eq!(text_value(&client, "SELECT coalesce(error, status) FROM rollout.jobs").await.as_deref(), Some("done"));
    assert!(server.ends_when_asked(Duration::from_secs(30)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_goes_on_at_the_step_where_it_was_stopped() -> Result<()> {
    for (method, train) in [("SFT", SFT), ("DPO", DPO)] {
        let data = temporary();
        let database = Database::open(data.path()).await?;
        let session = database.session();
        run(&session, BASE).await?;
        // Without any other checkpoint than that of the cancel.
        let train = format!("TRAIN {method} MODEL resumed {}", train.replace("EVERY", "0"));
        run(&session, &format!("{train} ASYNC")).await?;
        until_steps(&session, 3).await?;
        run(&session, "CANCEL JOB 1").await?;
        run(&session, "RESUME JOB 1").await?;
        let ended = rows(&session, "WAIT FOR JOB 1").await?;
        assert_eq!(ended[1], "done", "{ended:?}");
        check_resumed(&session, data.path(), &train).await?;
    }
    Ok(())
}

/// The base and the versions that are there write as they did, while the next one is learned.
#[tokio::test(flavor = "multi_thread")]
async fn older_versions_are_used_while_a_training_runs() -> Result<()> {
    let data = temporary();
    let database = Database::open(data.path()).await?;
    let session = database.session();
    run(&session, BASE).await?;
    run(&session, &format!("TRAIN SFT MODEL m {}", SFT.replace("EVERY", "0").replace("max_steps = 100", "max_steps = 3"))).await?;
    // With another number for each time that it is asked, since an answer is kept.
    let ask = |tokens: usize| {
        let written = |model: &str| format!("generate('{model}', 'Question', max_tokens => {tokens})");
        format!("SELECT {}, {}, {}", written("seedling"), written("m@1"), written("m"))
    };
    let before = rows(&session, &ask(12)).await?;
    assert_eq!(before[1], before[2], "it is the newest");
    let endless = SFT.replace("EVERY", "0").replace("max_steps = 100, ", "").replace("FROM seedling", "FROM m");
    run(&session, &format!("TRAIN SFT MODEL m {endless} ASYNC")).await?;
    until_steps(&session, 3).await?;
    run(&session, "UNLOAD MODEL m").await?;
    let meanwhile = rows(&session, &ask(11)).await?;
    for (meanwhile, before) in meanwhile.iter().zip(&before) {
        assert!(!meanwhile.is_empty() && before.starts_with(meanwhile.as_str()), "{meanwhile:?} and {before:?}");
    }
    assert_eq!(rows(&session, "SELECT status FROM rollout.jobs").await?, ["running"]);
    assert_eq!(number(&session, "SELECT count(*) FROM rollout.models WHERE name = 'm'").await?, 1);
    run(&session, "CANCEL JOB 1").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_runs_of_the_same_do_not_write_one_checkpoint() -> Result<()> {
    let data = temporary();
    let mut server = ServerProcess::start(data.path());
    let (client, other) = (server.connect().await, server.connect().await);
    client.batch_execute(BASE).await.expect("a base and its rows");
    let endless = SFT.replace("EVERY", "5").replace("max_steps = 100, ", "");
    let train = |model: &str| format!("TRAIN SFT MODEL {model} {endless}");
    assert_eq!(text_value(&client, &format!("{} ASYNC", train("m"))).await.as_deref(), Some("1"));
    first_checkpoint(data.path()).await;
    assert_eq!(crate::server::code_of(&other, &train("m")).await, "55006");
    until(&client, "SELECT status FROM rollout.jobs", "running").await;
    // Of another name it is another run. What it has done stays when the server stops, and so does what the job has.
    assert_eq!(text_value(&client, &format!("{} ASYNC", train("n"))).await.as_deref(), Some("2"));
    client.batch_execute("CANCEL JOB 1").await.expect("it is stopped");
    until(&client, "SELECT units_done > 0 FROM pg_stat_progress_train WHERE model = 'n' AND phase = 'steps'", "t").await;
    assert!(server.ends_when_asked(Duration::from_secs(30)));
    let runs: BTreeSet<PathBuf> = checkpoints(data.path()).iter().filter_map(|step| step.parent().map(Path::to_owned)).collect();
    assert_eq!(runs.len(), 2, "of each there is one");
    Ok(())
}

/// What the same statement does once more is told: it goes on, or begins anew where it is asked to.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_typed_again_goes_on_unless_it_says_otherwise() -> Result<()> {
    let data = temporary();
    let database = Database::open(data.path()).await?;
    let session = database.session();
    run(&session, BASE).await?;
    let notices = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = std::sync::Arc::clone(&notices);
    session.set_notice_sink(std::sync::Arc::new(move |notice: rolloutdb::engine::Notice| {
        kept.lock().expect("no panic").push(notice.message);
    }));
    let goes_on = || notices.lock().expect("no panic").iter().filter(|notice| notice.contains("goes on at step")).count();
    let train = format!("TRAIN SFT MODEL m {}", SFT.replace("EVERY", "5"));
    for (again, expected) in [(train.clone(), 1), (train.replace("epochs", "resume = false, epochs"), 1)] {
        cancel_at_first_checkpoint(&session, data.path(), &train).await;
        run(&session, &again).await?;
        assert_eq!(goes_on(), expected, "{again}");
    }
    assert!(
        std::fs::read(data.path().join("models/m/1/model.safetensors")).expect("version 1")
            == std::fs::read(data.path().join("models/m/2/model.safetensors")).expect("version 2"),
        "the same weights"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_with_another_seed_begins_anew() -> Result<()> {
    let data = temporary();
    let database = Database::open(data.path()).await?;
    let session = database.session();
    run(&session, BASE).await?;
    let train = format!("TRAIN SFT MODEL m {}", SFT.replace("EVERY", "5"));
    cancel_at_first_checkpoint(&session, data.path(), &train).await;
    let resumed_at = "SELECT (lineage::json ->> 'resumed_at')::bigint FROM rollout.models WHERE name = 'm' ORDER BY version DESC LIMIT 1";
    run(&session, &train.replace("epochs", "seed = 1, epochs")).await?;
    assert_eq!(number(&session, resumed_at).await?, 0);
    assert!(!checkpoints(data.path()).is_empty(), "what the first run left is still there");
    run(&session, &train).await?;
    assert!(number(&session, resumed_at).await? >= 5);
    assert_eq!(checkpoints(data.path()), Vec::<PathBuf>::new());
    Ok(())
}

/// A policy that answers, a corpus, and the agent.
const WORLD: &str = "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
    CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
    CREATE INDEX wiki_text ON wiki USING bm25 (contents);
    CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', k = 2, prompts = 'short', max_steps = 4, max_tokens = 32);
    CREATE TABLE questions AS SELECT id, question, golden_answers FROM hopworld_questions(seed => 3, count => 4)";
const ONLINE: &str = "FROM policy USING (SELECT id, question, golden_answers FROM questions)
    VALIDATE USING (SELECT question, golden_answers FROM questions ORDER BY id LIMIT 1)
    WITH (agent = 'qa', reward = 'f1', epochs = 10, max_steps = 5, batch_size = 2, group_size = 3, learning_rate = 1e-4, updates_per_batch = 2,
    evaluate_every = 2, checkpoint_every = 1)";

/// What is sampled after the checkpoint is what would have been sampled.
#[tokio::test(flavor = "multi_thread")]
async fn an_online_training_goes_on_with_the_rollouts_that_it_would_have_had() -> Result<()> {
    for method in ["GRPO", "PPO"] {
        let data = temporary();
        let database = Database::open(data.path()).await?;
        let session = database.session();
        run(&session, WORLD).await?;
        let train = format!("TRAIN {method} MODEL resumed {ONLINE}");
        cancel_at_first_checkpoint(&session, data.path(), &train).await;
        // The base and the models that come of it answer meanwhile.
        run(&session, "SELECT * FROM answer((SELECT min(question) FROM questions), agent => 'qa')").await?;
        run(&session, &train).await?;
        check_resumed(&session, data.path(), &train).await?;
    }
    Ok(())
}
