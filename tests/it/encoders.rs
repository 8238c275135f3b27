//! What DESCRIBE MODEL says of an encoder: how it makes vectors of texts.

use arrow::array::AsArray;
use rolloutdb::{Database, Result, Session};

use crate::database::{run, temporary};
use crate::project;

/// The properties between the folder and the lineage.
async fn described(session: &Session, model: &str) -> Result<Vec<String>> {
    let rows = run(session, &format!("DESCRIBE MODEL {model}")).await?;
    let (names, values) = (rows[0].column(0).as_string::<i32>(), rows[0].column(1).as_string::<i32>());
    let all = names.iter().flatten().zip(values.iter().flatten());
    let of_texts = all.skip_while(|(name, _)| *name != "directory").skip(1).take_while(|(name, _)| !name.starts_with("lineage."));
    Ok(of_texts.map(|(name, value)| format!("{name}={value}")).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_tells_how_it_is_used() -> Result<()> {
    let (directory, models) = (temporary(), project().join("tests/fixtures/models"));
    let database = Database::open(directory.path()).await?;
    let session = database.session();
    let source = |name: &str| models.join(name).display().to_string();
    run(
        &session,
        &format!(
            "CREATE MODEL of_files FROM '{0}'; CREATE MODEL without_files FROM '{1}';
             CREATE MODEL as_said FROM '{0}' WITH (pooling = 'cls', normalize = false, query_prompt = 'q: ', passage_prompt = '')",
            source("xlm_roberta"),
            source("bert")
        ),
    )
    .await?;
    let said = ["dimensions=32", "max_tokens=64", "pooling=mean", "normalize=true", "query_prompt=query: ", "passage_prompt=passage: "];
    assert_eq!(described(&session, "of_files").await?, said);
    let said = ["dimensions=64", "max_tokens=80", "pooling=mean", "normalize=true", "query_prompt=", "passage_prompt="];
    assert_eq!(described(&session, "without_files").await?, said);
    let said = ["dimensions=32", "max_tokens=64", "pooling=cls", "normalize=false", "query_prompt=q: ", "passage_prompt="];
    assert_eq!(described(&session, "as_said").await?, said);
    Ok(())
}
