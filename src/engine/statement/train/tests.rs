//! A training publishes what its role may publish when it ends.

use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};

use super::*;
use crate::Database;

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
    run(
        &owner,
        "CREATE MODEL base FROM 'random://qwen2' USING (SELECT completion FROM hopworld_demonstrations(worlds => 1, questions_per_world => 20)) \
         WITH (task = 'generate', vocab_size = 400, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 2, \
         num_attention_heads = 4, num_key_value_heads = 2, seed = 1)",
    )
    .await?;
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
