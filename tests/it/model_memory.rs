//! Models in memory: those unused longest go when there is no room for the weights of all, and the next use loads them again.

use std::path::Path;

use rolloutdb::{Database, DatabaseOptions, Result, Session};

use crate::database::{number, rows, run, temporary};

const MODELS: &str = "CREATE TABLE texts AS SELECT contents FROM hopworld_passages(seed => 1) LIMIT 40;
    CREATE MODEL ash FROM 'random://qwen2' USING (SELECT contents FROM texts) WITH (task = 'generate', vocab_size = 300, hidden_size = 32,
        num_hidden_layers = 2, num_attention_heads = 2, num_key_value_heads = 1, seed = 1);
    CREATE MODEL oak FROM 'random://qwen2' USING (SELECT contents FROM texts) WITH (task = 'generate', vocab_size = 300, hidden_size = 32,
        num_hidden_layers = 2, num_attention_heads = 2, num_key_value_heads = 1, seed = 2)";
const LOADED: &str = "SELECT name FROM rollout.loaded_models ORDER BY last_use";

async fn open(directory: &Path, model_memory: Option<u64>, prefix_cache: Option<u64>) -> Result<Session> {
    let options = DatabaseOptions { model_memory, prefix_cache, ..DatabaseOptions::default() };
    Ok(Database::open_with(directory, options).await?.session())
}

/// What a model writes. Answers are kept by prompt and model, so that each session asks for its own.
async fn says(session: &Session, model: &str) -> Result<Vec<String>> {
    rows(session, &format!("SELECT generate('{model}', 'Question: who?', max_tokens => 12, temperature => 1.0, seed => 5)")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_unused_longest_makes_room() -> Result<()> {
    let directory = temporary();
    let (bytes, by_ash, by_oak) = {
        let session = open(directory.path(), None, None).await?;
        run(&session, MODELS).await?;
        let (by_ash, by_oak) = (says(&session, "ash").await?, says(&session, "oak").await?);
        assert_eq!(rows(&session, LOADED).await?, ["ash", "oak"], "there is room for both");
        let shown = rows(&session, "SELECT DISTINCT device, bytes > 0, prefix_bytes > 0 FROM rollout.loaded_models").await?;
        assert_eq!(shown, ["cpu", "true", "true"]);
        (number(&session, "SELECT max(bytes) FROM rollout.loaded_models").await?.unsigned_abs(), by_ash, by_oak)
    };
    assert_ne!(by_ash, by_oak);

    // A quarter is for sequences in flight and an eighth for prefixes: weights have five eighths.
    for (weights, loaded) in [(bytes * 3 / 2, vec!["ash"]), (bytes * 5 / 2, vec!["oak", "ash"])] {
        let session = open(directory.path(), Some(weights * 8 / 5), None).await?;
        assert_eq!(says(&session, "ash").await?, by_ash, "a sequence that is alone always runs");
        assert_eq!(says(&session, "oak").await?, by_oak);
        assert_eq!(says(&session, "ash").await?, by_ash);
        assert_eq!(rows(&session, LOADED).await?, loaded, "room for {weights} bytes of weights");
        let again = rows(&session, "SELECT generate('ash', 'Question: who?', max_tokens => 12, temperature => 1.0, seed => 6)").await?;
        assert_eq!(rows(&session, LOADED).await?, loaded);
        assert_ne!(again, by_ash);
    }
    Ok(())
}

/// Prefixes are a part of what models may take, and can be none.
#[tokio::test(flavor = "multi_thread")]
async fn what_policies_keep_is_within_its_part() -> Result<()> {
    const KEPT: &str = "SELECT sum(prefix_bytes) FROM rollout.loaded_models";
    const READ: &str =
        "SELECT count(generate('ash', contents, max_tokens => 2)) + count(generate('oak', contents, max_tokens => 2)) FROM texts";
    let directory = temporary();
    run(&open(directory.path(), None, None).await?, MODELS).await?;
    for (prefix_cache, least, most) in [(1 << 20, 1, 1 << 20), (0, 0, 0)] {
        let session = open(directory.path(), Some(64 << 20), Some(prefix_cache)).await?;
        assert_eq!(number(&session, READ).await?, 80);
        let kept = number(&session, KEPT).await?;
        assert!((least..=most).contains(&kept), "{kept} bytes are kept with --prefix-cache {prefix_cache}");
    }
    Ok(())
}
