//! Tokens that a tokenizer adds to its vocabulary, in what an agent is asked and what it finds.

use std::path::{Path, PathBuf};

use rolloutdb::Result;
use serde_json::{Value as Json, json};

use crate::database::{number, open, rows, run, temporary};

/// The last token of the built-in policy.
const ID: u64 = 1499;

/// The built-in policy, whose last token is a special one by this name.
fn policy_with(folder: &Path, content: &str) -> PathBuf {
    let source = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo tells")).join("src/models/builtin/tinyhop");
    let directory = folder.join("policy");
    std::fs::create_dir(&directory).expect("a temporary folder is writable");
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(source.join(name), directory.join(name)).expect("a file");
    }
    let path = directory.join("tokenizer.json");
    let mut tokenizer: Json = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("it is JSON");
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().expect("an object");
    let replaced = vocabulary.iter().find(|(_, id)| **id == json!(ID)).map(|(token, _)| token.clone()).expect("there is one");
    vocabulary.remove(&replaced);
    vocabulary.insert(content.to_owned(), json!(ID));
    let merges = tokenizer["model"]["merges"].as_array_mut().expect("a list");
    let merged = |merge: &Json| match merge {
        Json::String(pair) => pair.replacen(' ', "", 1),
        pair => pair.as_array().expect("a pair").iter().filter_map(Json::as_str).collect(),
    };
    merges.retain(|merge| merged(merge) != replaced);
    let token =
        json!({"id": ID, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false});
    tokenizer["added_tokens"].as_array_mut().expect("a list").push(token);
    std::fs::write(&path, tokenizer.to_string()).expect("a file");
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_plain_text_in_questions_and_passages() -> Result<()> {
    for (token, shown) in
        [("<file_sep>", "‹file_sep>"), ("<unk>", "‹unk>"), ("<fim_prefix>", "‹fim_prefix>"), ("ENDOFTURN", "E\u{2060}NDOFTURN")]
    {
        let (data, files) = (temporary(), temporary());
        let directory = policy_with(files.path(), token);
        let session = open(data.path(), &[]).await?.session();
        for statement in [
            format!("CREATE MODEL m FROM '{}' WITH (task = 'generate')", directory.display()),
            format!("CREATE TABLE wiki AS SELECT 'a' AS id, 'Jaws {token} is a film by Steven Spielberg.' AS contents"),
            "CREATE INDEX wiki_text ON wiki USING bm25 (contents)".to_owned(),
            format!(
                "CREATE TABLE questions AS SELECT 'q' AS id, 'Who directed {token} Jaws?' AS question, ARRAY['Steven Spielberg'] AS golden_answers"
            ),
        ] {
            run(&session, &statement).await?;
        }
        for protocol in ["naive_rag", "search_r1", "reasonrag"] {
            let agent = format!(
                "CREATE AGENT {protocol} WITH (policy = 'm', corpus = 'wiki', retriever = 'text', protocol = '{protocol}', max_tokens = 16, max_steps = 2)"
            );
            run(&session, &agent).await?;
            run(
                &session,
                &format!(
                    "GENERATE ROLLOUTS INTO {protocol} USING AGENT {protocol} FROM (SELECT * FROM questions) WITH (simulations = 2, temperature = 1, seed = 3)"
                ),
            )
            .await?;
            let what = format!("{token}, {protocol}");
            let asked = format!("FROM {protocol} WHERE depth > 0");
            assert!(number(&session, &format!("SELECT count(*) {asked} AND strpos(prompt, '{shown}') > 0")).await? > 0, "{what}");
            assert_eq!(number(&session, &format!("SELECT count(*) {asked} AND strpos(prompt, '{token}') > 0")).await?, 0, "{what}");
            assert_eq!(number(&session, &format!("SELECT count(*) {asked} AND prompt_ids IS NULL")).await?, 0, "{what}");
            let encoded = format!("SELECT count(*) {asked} AND array_position(prompt_ids, {ID}) IS NOT NULL");
            assert_eq!(number(&session, &encoded).await?, 0, "{what}");
            // The question stays what it is.
            let question = format!("SELECT prompt FROM {protocol} WHERE depth = 0");
            assert_eq!(rows(&session, &question).await?, [format!("Who directed {token} Jaws?")], "{what}");
        }
    }
    Ok(())
}
