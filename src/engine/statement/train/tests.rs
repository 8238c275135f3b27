//! A training publishes what its role may publish when it ends; a dry run counts what the training does.

use std::collections::BTreeMap;

use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, Int64Type};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use futures::TryStreamExt;

use super::*;
use crate::Database;
use crate::engine::privileges::Object;

const BASE: &str = "CREATE MODEL base FROM 'random://qwen2' \
    USING (SELECT completion FROM hopworld_demonstrations(worlds => 1, questions_per_world => 20)) \
    WITH (task = 'generate', vocab_size = 400, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 2, num_attention_heads = 4, \
    num_key_value_heads = 2, seed = 1)";

async fn run(session: &Session, text: &str) -> Result<()> {
    session.sql(text).await?.try_collect::<Vec<_>>().await?;
    Ok(())
}

/// The name was free when the training began; its query, which runs after that, sees another role take it.
#[tokio::test(flavor = "multi_thread")]
async fn a_training_adds_no_version_to_a_model_that_another_role_made_meanwhile() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(data.path()).await?;
    let (owner, ann) = (database.session(), database.session());
    run(&owner, BASE).await?;
    run(&owner, "CREATE ROLE ann; CREATE ROLE bob; GRANT USAGE ON MODEL base TO ann; GRANT CREATE ON DATABASE rolloutdb TO ann").await?;
    ann.set_user("ann");
    let made = database.clone();
    let take_name = move |_: &[ColumnarValue]| -> DataFusionResult<ColumnarValue> {
        let shared = &made.shared;
        if !shared.knows(&Object::model("m")) {
            let base = shared.registry.get("base")?;
            let staged = shared.registry.stage()?;
            for file in std::fs::read_dir(&base.directory).expect("a model is a folder") {
                let file = file.expect("its files are readable");
                std::fs::copy(file.path(), staged.path().join(file.file_name())).expect("a copy");
            }
            shared.registry.publish("m", staged, &base, serde_json::Value::Null)?;
            shared.privileges.own(Object::model("m"), "bob")?;
        }
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some("Who?".to_owned()))))
    };
    ann.context().register_udf(create_udf("take_name", vec![], DataType::Utf8, Volatility::Volatile, Arc::new(take_name)));
    let train = |model: &str, prompt: &str| {
        format!("TRAIN SFT MODEL {model} FROM base USING (SELECT {prompt} AS prompt, 'He.' AS completion) WITH (max_steps = 1)")
    };
    let refused = run(&ann, &train("m", "take_name()")).await;
    assert!(matches!(refused, Err(Error::InsufficientPrivilege(_))), "{refused:?}");
    let versions = || database.shared.registry.list().map(|models| models.iter().map(ModelInfo::reference).collect::<Vec<_>>());
    assert_eq!(versions()?, ["base@1", "m@1"]);
    assert_eq!(database.shared.privileges.acl(&Object::model("m")).owner.as_deref(), Some("bob"));
    for version in [1, 2] {
        run(&ann, &train("own", "'Who?'")).await?;
        assert_eq!(database.shared.registry.get("own")?.version, version);
    }
    assert_eq!(database.shared.privileges.acl(&Object::model("own")).owner.as_deref(), Some("ann"));
    Ok(())
}

/// The properties that a dry run gives.
async fn properties(session: &Session, text: &str) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for batch in session.sql(text).await?.try_collect::<Vec<RecordBatch>>().await? {
        let (names, values) = (batch.column(0).as_string::<i32>(), batch.column(1).as_string::<i32>());
        found.extend((0..batch.num_rows()).map(|row| (names.value(row).to_owned(), values.value(row).to_owned())));
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_counts_what_the_training_does() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = Database::open(data.path()).await?.session();
    run(&session, BASE).await?;
    let train = "TRAIN SFT MODEL m FROM base USING (SELECT 'Who? ' || value AS prompt, 'He.' AS completion FROM generate_series(1, 10)) \
        VALIDATE USING (SELECT 'Who?' AS prompt, 'She.' AS completion) WITH (epochs = 3, batch_size = 4)";
    let dry = properties(&session, &format!("{train} DRY RUN")).await?;
    assert!(session.database().shared.registry.get("m").is_err(), "a dry run makes no model");
    assert_eq!(session.database().shared.catalog.table("rollout", "training_metrics").await?.row_count().await?, 0);
    assert!(!data.path().join("training").exists(), "nor a checkpoint");

    run(&session, train).await?;
    let asked = "SELECT max(step)::bigint, sum(value) FROM rollout.training_metrics WHERE metric = 'tokens'";
    let batches: Vec<RecordBatch> = session.sql(asked).await?.try_collect().await?;
    let (steps, tokens) =
        (batches[0].column(0).as_primitive::<Int64Type>().value(0), batches[0].column(1).as_primitive::<Float64Type>().value(0));
    let parameters = session.database().shared.registry.get("m")?.parameter_count;
    assert_eq!(dry["steps"], steps.to_string());
    assert_eq!(dry["tokens"], tokens.to_string());
    assert_eq!(dry["parameters"], parameters.to_string());
    assert_eq!(dry["trainable_parameters"], parameters.to_string());
    assert_eq!(dry["weight_bytes"], (4 * parameters).to_string());
    assert_eq!((dry["examples"].as_str(), dry["validation_examples"].as_str()), ("10", "1"));
    let seconds: f64 = dry["seconds"].parse().expect("a number");
    assert!((0.0..60.0).contains(&seconds), "{seconds}");

    let adapters =
        "TRAIN DPO MODEL m FROM base USING (SELECT 'Who?' AS prompt, 'He.' AS chosen, 'She.' AS rejected) WITH (lora_rank = 2) DRY RUN";
    let adapters = properties(&session, adapters).await?;
    let trainable: u64 = adapters["trainable_parameters"].parse().expect("a number");
    assert!((1..parameters).contains(&trainable), "{trainable}");
    assert_eq!(adapters["checkpoint_bytes"], (12 * trainable).to_string());
    Ok(())
}
