//! What a training leaves beside its weights: rows while it goes, warnings that somebody hears, event files, adapters.

use std::path::Path;
use std::time::{Duration, Instant};

use rolloutdb::{Database, Result, Session};

use crate::database::{number, rows, run, temporary};
use crate::files_below;
use crate::process::ServerProcess;
use crate::server::{text_value, until};

const BASE: &str = "CREATE MODEL seedling FROM 'random://qwen2' USING (SELECT completion FROM hopworld_demonstrations(worlds => 1, questions_per_world => 20))
    WITH (task = 'generate', vocab_size = 400, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 2, num_attention_heads = 4,
    num_key_value_heads = 2, seed = 1);
    CREATE TABLE demonstrations AS SELECT step_prompt(state, question, thoughts, passages, 'short') AS prompt, completion
    FROM hopworld_demonstrations(worlds => 1, questions_per_world => 10)";

const SFT: &str = "FROM seedling USING (SELECT prompt, completion FROM demonstrations)";

async fn with_base(data: &Path) -> Result<Session> {
    let session = Database::open(data).await?.session();
    run(&session, BASE).await?;
    Ok(session)
}

/// Rows without a version: of trainings that run, and of those that made no model.
async fn unpublished(session: &Session, model: &str) -> Result<i64> {
    number(session, &format!("SELECT count(DISTINCT step) FROM rollout.training_metrics WHERE model = '{model}' AND version IS NULL")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_that_diverges_leaves_its_rows() -> Result<()> {
    let data = temporary();
    let session = with_base(data.path()).await?;
    let diverging =
        format!("TRAIN SFT MODEL m {SFT} WITH (epochs = 1000, max_steps = 20, batch_size = 4, warmup_ratio = 0.5, learning_rate = 1e30)");
    for attempt in 1..=2 {
        run(&session, &diverging).await.expect_err("it diverges");
        assert!(unpublished(&session, "m").await? > 0);
        let runs = "SELECT count(DISTINCT run) FROM rollout.training_metrics WHERE model = 'm' AND metric = 'loss'";
        assert_eq!(number(&session, runs).await?, attempt, "each attempt is a run of its own");
    }
    run(&session, &diverging.replace("1e30", "1e-3")).await?;
    let named = "SELECT count(DISTINCT step) FROM rollout.training_metrics t JOIN rollout.models m ON t.run = (m.lineage::json ->> 'run') AND t.version = m.version";
    assert_eq!(number(&session, named).await?, 20, "the lineage names the run");
    let twice = "SELECT count(*) - count(DISTINCT run || ' ' || step || ' ' || metric) FROM rollout.training_metrics";
    assert_eq!(number(&session, twice).await?, 0);
    Ok(())
}

/// Rows are seen while the training runs, and those of before a kill are still there.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_training_leaves_its_rows() -> Result<()> {
    let data = temporary();
    let train = format!("TRAIN SFT MODEL m {SFT} WITH (epochs = 10000, batch_size = 4, checkpoint_every = 0) ASYNC");
    {
        let mut server = ServerProcess::start(data.path());
        let client = server.connect().await;
        client.batch_execute(BASE).await.expect("a base and its rows");
        assert_eq!(text_value(&client, &train).await.as_deref(), Some("1"));
        until(&client, "SELECT count(*) > 0 AND count(version) = 0 FROM rollout.training_metrics WHERE metric = 'loss'", "t").await;
        server.kill();
    }
    let session = Database::open(data.path()).await?.session();
    assert!(unpublished(&session, "m").await? > 0);
    assert_eq!(number(&session, "SELECT count(*) FROM rollout.models WHERE name = 'm'").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_warns_of_is_kept_with_the_job_and_with_the_model() -> Result<()> {
    let data = temporary();
    let session = with_base(data.path()).await?;
    run(
        &session,
        "TRAIN DPO MODEL m FROM seedling USING (SELECT prompt, completion AS chosen, completion || ' no' AS rejected, -1.0 AS reference_chosen_logps,
         -1000.0 AS reference_rejected_logps FROM demonstrations LIMIT 4) WITH (max_steps = 1) ASYNC",
    )
    .await?;
    let ended = rows(&session, "WAIT FOR JOB 1").await?;
    assert_eq!(ended[1], "done", "{ended:?}");
    let told = "the reference columns are of another model than the base";
    let notices = rows(&session, "SELECT array_to_string(notices, '/') FROM rollout.jobs").await?;
    assert!(notices[0].contains(&format!("WARNING: TRAIN DPO m: step 1: {told}")), "{notices:?}");
    let lineage = rows(&session, "SELECT lineage FROM rollout.models WHERE name = 'm'").await?;
    let lineage: serde_json::Value = serde_json::from_str(&lineage[0]).expect("a lineage is JSON");
    assert!(lineage["warnings"][0].as_str().is_some_and(|warning| warning.starts_with(&format!("step 1: {told}"))), "{lineage}");
    let described = rows(&session, "DESCRIBE MODEL m").await?;
    let named = ["statement", "method", "base", "options", "seed", "tables", "rolloutdb_version", "build", "steps", "run", "warnings"];
    for name in named.map(|name| format!("lineage.{name}")) {
        assert!(described.contains(&name), "{name} in {described:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_is_not_read_is_told() -> Result<()> {
    let data = temporary();
    let session = with_base(data.path()).await?;
    let pairs = "SELECT prompt, completion AS chosen, completion || ' no' AS rejected, 1.0 AS weight, 1.0 AS reference_chosen_logp FROM demonstrations LIMIT 4";
    run(&session, &format!("TRAIN DPO MODEL m FROM seedling USING ({pairs}) WITH (max_steps = 1) ASYNC")).await?;
    let ended = rows(&session, "WAIT FOR JOB 1").await?;
    assert_eq!(ended[1], "done", "{ended:?}");
    let notices = rows(&session, "SELECT array_to_string(notices, '/') FROM rollout.jobs").await?;
    for told in
        [r#"column "weight" is not read by TRAIN DPO; TRAIN SFT and TRAIN RFT read it"#, r#"did you mean "reference_chosen_logps"?"#]
    {
        assert!(notices[0].contains(told), "{notices:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_examples_are_told_where_questions_are_learned_from() -> Result<()> {
    let data = temporary();
    let session = with_base(data.path()).await?;
    run(
        &session,
        "CREATE TABLE wiki AS SELECT 'a' AS id, 'Ann made it.' AS contents; CREATE INDEX wiki_text ON wiki USING bm25 (contents);
         CREATE AGENT qa WITH (policy = 'seedling', corpus = 'wiki', retriever = 'text', prompts = 'short', max_steps = 1, max_tokens = 2);
         TRAIN GRPO MODEL m FROM seedling USING (SELECT 'q1' AS question_id, 'Who?' AS question, 'Ann' AS golden_answers, 1.0 AS weight, 0.5 AS reward, 3 AS hops)
         WITH (agent = 'qa', group_size = 2, max_steps = 1) ASYNC",
    )
    .await?;
    let ended = rows(&session, "WAIT FOR JOB 1").await?;
    assert_eq!(ended[1], "done", "{ended:?}");
    let notices = rows(&session, "SELECT array_to_string(notices, '/') FROM rollout.jobs").await?;
    for told in [
        r#"column "weight" is not read by TRAIN GRPO; TRAIN SFT and TRAIN RFT read it"#,
        r#"column "reward" is not read by TRAIN GRPO, whose trajectories earn what its options say"#,
        r#"column "question_id" is not read by TRAIN GRPO; did you mean "id"?"#,
    ] {
        assert!(notices[0].contains(told), "{told}: {notices:?}");
    }
    assert!(!notices[0].contains("hops"), "{notices:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_is_shown_to_tensorboard() -> Result<()> {
    let (data, elsewhere) = (temporary(), temporary());
    let session = with_base(data.path()).await?;
    let directory = elsewhere.path().join("not/there/yet");
    let train = format!("TRAIN SFT MODEL m {SFT} WITH (max_steps = 3, batch_size = 4, tensorboard = '{}')", directory.display());
    run(&session, &format!("{train} DRY RUN")).await?;
    assert!(!directory.exists(), "a dry run leaves nothing");
    for version in 1..=2 {
        run(&session, &train).await?;
        assert_eq!(files_below(&directory).len(), version, "each run has a file in a folder of its own");
    }
    let name = rows(&session, "SELECT DISTINCT 'm-' || run FROM rollout.training_metrics WHERE version = 2").await?.remove(0);
    let files = files_below(&directory.join(name));
    assert!(
        files.len() == 1 && files[0].file_name().is_some_and(|name| name.to_string_lossy().starts_with("events.out.tfevents.")),
        "{files:?}"
    );
    let bytes = std::fs::read(&files[0]).expect("it was written");
    for text in ["brain.Event:2", "train/loss", "train/learning_rate"] {
        let count = bytes.windows(text.len()).filter(|found| *found == text.as_bytes()).count();
        assert_eq!(count, if text.starts_with("train") { 3 } else { 1 }, "{text}");
    }
    // What is a file is refused before anything else is done.
    let file = elsewhere.path().join("file");
    std::fs::write(&file, "no folder").expect("it can be written");
    let refused = run(&session, &train.replace(&directory.display().to_string(), &file.display().to_string())).await;
    assert_eq!(refused.expect_err("it is a file").sqlstate(), "22023");
    Ok(())
}

fn weights(data: &Path, model: &str) -> Vec<u8> {
    std::fs::read(data.join("models").join(model).join("1/model.safetensors")).expect("the model is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_that_were_kept_make_the_same_model() -> Result<()> {
    let (data, elsewhere) = (temporary(), temporary());
    let session = with_base(data.path()).await?;
    let train = |model: &str, options: &str| {
        format!("TRAIN SFT MODEL {model} {SFT} WITH (max_steps = 3, batch_size = 4, learning_rate = 1e-2, lora_rank = 4{options})")
    };
    run(&session, &train("kept", ", lora_targets = 'q_proj, v_proj', lora_keep = true")).await?;
    run(&session, &train("merged", ", lora_targets = 'q_proj, v_proj'")).await?;
    assert!(weights(data.path(), "kept") == weights(data.path(), "merged"), "keeping them changes nothing");
    assert!(!data.path().join("models/merged/1/adapter").exists());
    let folder = data.path().join("models/kept/1");
    assert!(!folder.join("adapter_config.json").exists(), "transformers would take the model for adapters");
    let described = rows(&session, "DESCRIBE MODEL kept").await?;
    assert!(described.iter().any(|property| property == "adapter"), "{described:?}");
    let copy = elsewhere.path().join("adapter");
    std::fs::create_dir(&copy).expect("a folder");
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(folder.join("adapter").join(name), copy.join(name)).expect("it was kept");
    }

    // The adapters name their base; it may be named again, and another one of the same shape gives another model.
    run(&session, &format!("CREATE MODEL again FROM '{}'", copy.display())).await?;
    run(&session, &format!("CREATE MODEL named FROM '{}' WITH (base = 'seedling@1')", copy.display())).await?;
    run(&session, &format!("CREATE MODEL twice FROM '{}' WITH (base = 'kept')", copy.display())).await?;
    for model in ["again", "named"] {
        assert!(weights(data.path(), model) == weights(data.path(), "kept"), "{model}");
    }
    assert!(weights(data.path(), "twice") != weights(data.path(), "kept"));
    let bases = "SELECT lineage::json ->> 'base' FROM rollout.models WHERE name IN ('again', 'named', 'twice') ORDER BY name";
    assert_eq!(rows(&session, bases).await?, ["seedling@1", "seedling@1", "kept@1"]);
    run(&session, &train("further", "").replace("FROM seedling", "FROM again")).await?;

    let refused = run(&session, &train("x", ", lora_keep = true").replace("lora_rank = 4, ", "")).await;
    assert_eq!(refused.expect_err("there is nothing to keep").sqlstate(), "22023");
    Ok(())
}

/// Who may not use a model may not copy its weights by adding adapters to them.
#[tokio::test(flavor = "multi_thread")]
async fn adapters_need_the_right_to_their_base() -> Result<()> {
    let (data, elsewhere) = (temporary(), temporary());
    let database = Database::open(data.path()).await?;
    let session = database.session();
    run(&session, BASE).await?;
    run(&session, &format!("TRAIN SFT MODEL kept {SFT} WITH (max_steps = 1, lora_rank = 2, lora_keep = true)")).await?;
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        let from = data.path().join("models/kept/1/adapter").join(name);
        std::fs::copy(from, elsewhere.path().join(name)).expect("it was kept");
    }
    run(&session, "CREATE ROLE ann; GRANT CREATE ON DATABASE rolloutdb TO ann; GRANT pg_read_server_files TO ann").await?;
    drop((session, database));
    let options = rolloutdb::DatabaseOptions { file_roots: Some(vec![elsewhere.path().to_owned()]), ..Default::default() };
    let database = Database::open_with(data.path(), options).await?;
    let (owner, ann) = (database.session(), database.session());
    ann.set_user("ann");
    for base in ["", " WITH (base = 'seedling')"] {
        let create = format!("CREATE MODEL mine FROM '{}'{base}", elsewhere.path().display());
        assert_eq!(run(&ann, &create).await.expect_err("the base is another's").sqlstate(), "42501");
        run(&owner, "GRANT USAGE ON MODEL seedling TO ann").await?;
        run(&ann, &create).await?;
        run(&owner, "DROP MODEL mine; REVOKE USAGE ON MODEL seedling FROM ann").await?;
    }
    Ok(())
}

/// The rows of a statement that was cancelled are written after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_training_leaves_its_rows() -> Result<()> {
    let data = temporary();
    let session = with_base(data.path()).await?;
    let train = format!("TRAIN SFT MODEL m {SFT} WITH (epochs = 10000, batch_size = 4, checkpoint_every = 0) ASYNC");
    run(&session, &train).await?;
    let deadline = Instant::now() + Duration::from_secs(120);
    while number(&session, "SELECT coalesce(max(units_done), 0) FROM pg_stat_progress_train WHERE phase = 'steps'").await? < 3 {
        assert!(Instant::now() < deadline, "the job did not get to work within two minutes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run(&session, "CANCEL JOB 1").await?;
    while unpublished(&session, "m").await? < 3 {
        assert!(Instant::now() < deadline, "its rows did not come within two minutes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
