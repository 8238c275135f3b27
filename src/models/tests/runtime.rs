//! From a name to vectors and text, through the model thread.

use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::Float32Type;
use rolloutdb_udfs::model::{EmbedKind, GenerateOptions, ModelRuntime};
use tempfile::TempDir;

use crate::error::Error;
use crate::models::generation::GenerateRequest;
use crate::models::registry::{CreateModel, Registry};
use crate::models::runtime::Runtime;
use crate::models::sampling::Sampler;

/// A runtime with the embedder `bert` and the policy `policy`.
fn runtime() -> (TempDir, Arc<Runtime>) {
    let home = tempfile::tempdir().unwrap();
    let registry = Registry::open(home.path()).unwrap();
    let bert = crate::fixtures::fixture("models/bert").display().to_string();
    for (name, source) in [("bert", bert.as_str()), ("policy", "random://qwen2")] {
        let texts = vec!["Question: who directed film 3?\nThought:".repeat(9)];
        registry
            .create(CreateModel {
                name: name.into(),
                source: source.into(),
                task: None,
                device: crate::models::Device::Auto,
                options: Vec::new(),
                texts,
            })
            .unwrap();
    }
    (home, Runtime::new(Arc::new(registry)))
}

#[tokio::test]
async fn embed_gives_one_row_per_text_and_null_for_null() {
    let (_home, runtime) = runtime();
    let texts = StringArray::from(vec![Some("Who directed Jaws?"), None, Some(""), Some("Who directed Jaws?"), Some("東京")]);
    let vectors = runtime.embed("bert", &texts, EmbedKind::Passage).await.unwrap();
    assert_eq!((vectors.len(), vectors.null_count(), vectors.value_length()), (5, 1, 64));
    assert!(vectors.is_null(1));
    assert_eq!(runtime.embedding_dim("bert@1").unwrap(), 64);
    let row = |index| vectors.value(index).as_primitive::<Float32Type>().values().to_vec();
    assert_eq!(row(0), row(3));
    for index in [0, 2, 4] {
        let norm: f32 = row(index).iter().map(|x| x * x).sum();
        assert!((norm - 1.0).abs() < 1e-5);
    }
    let many: StringArray = (0..300).map(|i| Some(format!("text number {i} {}", "word ".repeat(i % 40)))).collect();
    let together = runtime.embed("bert", &many, EmbedKind::Query).await.unwrap();
    let alone = runtime.embed("bert", &many.slice(217, 1), EmbedKind::Query).await.unwrap();
    assert_eq!(&together.value(217), &alone.value(0));
    assert_eq!(runtime.embed("bert", &StringArray::from(Vec::<&str>::new()), EmbedKind::Query).await.unwrap().len(), 0);
}

#[tokio::test]
async fn generate_is_repeatable_and_null_for_null() {
    let (_home, runtime) = runtime();
    let prompts = StringArray::from(vec![Some("Question: a"), None, Some("Question: b"), Some("Question: a")]);
    let options = GenerateOptions { max_tokens: 12, temperature: 1.0, seed: 5, ..GenerateOptions::default() };
    let texts = runtime.generate("policy", &prompts, options.clone()).await.unwrap();
    assert_eq!((texts.len(), texts.is_null(1)), (4, true));
    assert_eq!(texts.value(0), texts.value(3));
    assert_eq!(texts, runtime.generate("policy@1", &prompts, options.clone()).await.unwrap());
    assert_ne!(texts, runtime.generate("policy", &prompts, GenerateOptions { seed: 6, ..options.clone() }).await.unwrap());
    assert!(runtime.generate("policy", &StringArray::from(vec![""]), options).await.is_err());
}

#[tokio::test]
async fn a_model_of_another_task_is_refused() {
    let (_home, runtime) = runtime();
    assert!(matches!(runtime.policy("bert").await, Err(Error::WrongType { .. })));
    assert!(matches!(runtime.embedder("policy").await, Err(Error::WrongType { .. })));
    assert!(matches!(runtime.policy("nobody").await, Err(Error::UnknownObject { .. })));
    assert!(runtime.embedding_dim("policy").is_err());
}

#[tokio::test]
async fn many_callers_share_the_model() {
    let (_home, runtime) = runtime();
    let policy = runtime.policy("policy").await.unwrap();
    let prompt = policy.tokenizer().encode("Question: who directed film 3?\nThought:").unwrap();
    let request = |seed| GenerateRequest {
        prompt: prompt.clone(),
        max_new_tokens: 20,
        sampler: Sampler { temperature: 1.0, ..Sampler::default() },
        seed,
        stop: Vec::new(),
    };
    let together = futures::future::join_all((0..40).map(|seed| policy.generate(request(seed)))).await;
    for (seed, together) in together.into_iter().enumerate() {
        let (alone, together) = (policy.generate(request(seed as u64)).await.unwrap(), together.unwrap());
        assert_eq!((alone.token_ids, alone.token_logprobs), (together.token_ids, together.token_logprobs));
        assert_eq!(together.prompt_tokens, prompt.len());
    }
}
