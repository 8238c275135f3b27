//! Decoders with a score: what they read, what they say of it, and their directories.

use std::collections::HashMap;
use std::path::Path;

use candle_core::safetensors::{load, save};
use candle_core::{Device as CandleDevice, Tensor};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::error::Error;
use crate::fixtures::fixture;
use crate::models::checkpoint::inspect;
use crate::models::config::{DecoderArchitecture, OutputHead, SCORE};
use crate::models::decoder::Decoder;
use crate::models::packed::{PackedDecoder, Segment};
use crate::models::registry::{CreateModel, Registry, Task};
use crate::models::reranker::Scale;
use crate::models::scorer::LoadedScorer;
use crate::models::tokenizer::Tokenizer;
use crate::models::{DecoderConfig, Device, ScoreConfig, ScoredText};

const TINYHOP: &str = "../../src/models/builtin/tinyhop";

/// A reward model over the blocks of the built-in policy, with its files.
fn reward_model(score: ScoreConfig) -> TempDir {
    let (base, directory) = (fixture(TINYHOP), tempfile::tempdir().unwrap());
    Decoder::load_with_score(&base, score, 5).unwrap().save(directory.path()).unwrap();
    Tokenizer::copy_files(&base, directory.path()).unwrap();
    directory
}

fn config(directory: &Path) -> Json {
    serde_json::from_slice(&std::fs::read(directory.join("config.json")).unwrap()).unwrap()
}

fn set(directory: &Path, field: &str, value: Json) {
    let mut config = config(directory);
    config[field] = value;
    std::fs::write(directory.join("config.json"), config.to_string()).unwrap();
}

/// `tests/fixtures/make_prm_goldens.py` made them.
#[test]
fn packed_scores_equal_transformers() {
    let golden: Json = serde_json::from_slice(&std::fs::read(fixture("training/prm.json")).unwrap()).unwrap();
    let decoder = PackedDecoder::load(&fixture("training/prm")).unwrap();
    let tokens = |json: &Json| serde_json::from_value::<Vec<u32>>(json.clone()).unwrap();
    let texts: Vec<Vec<u32>> =
        golden["steps"].as_array().unwrap().iter().map(|step| [tokens(&step["prompt"]), tokens(&step["step"])].concat()).collect();
    let score = |texts: &[Vec<u32>]| {
        let mut caches: Vec<_> = texts.iter().map(|_| decoder.new_cache()).collect();
        let mut segments: Vec<_> = caches.iter_mut().zip(texts).map(|(cache, text)| Segment { cache, tokens: text.as_slice() }).collect();
        decoder.forward(&mut segments)
    };
    let together = score(&texts);
    let expected = golden["cross_entropy"]["scores"].as_array().unwrap();
    assert_eq!(together.len(), expected.len());
    for (index, (found, expected)) in together.iter().zip(expected).enumerate() {
        assert_eq!(score(&texts[index..=index]), [*found], "{index}: alone differs from batched");
        assert!((f64::from(*found) - expected.as_f64().unwrap()).abs() < 1e-4, "{index}: {found} instead of {expected}");
    }
}

#[test]
fn a_score_is_that_of_training() {
    let directory = reward_model(ScoreConfig { pad_token_id: Some(0), is_value: false });
    let model = LoadedScorer::load(directory.path()).unwrap();
    let tokenizer = Tokenizer::load(directory.path()).unwrap();
    let text = ScoredText::new(&tokenizer, ScoreConfig { pad_token_id: Some(0), is_value: false });
    let tokens = text.sequence(&tokenizer, "Question: Who directed Jaws?\nThought:", " So the query is Jaws", 100).unwrap().unwrap();
    let decoder = Decoder::load(directory.path(), &CandleDevice::Cpu, false).unwrap();
    let hidden = decoder.hidden(&tokens, &[tokens.len()]).unwrap();
    let scores = hidden.matmul(&decoder.head_weight().t().unwrap()).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let found = model.score_tokens(&[tokens]);
    assert!((found[0] - scores[scores.len() - 1]).abs() < 1e-4, "{found:?} and {scores:?}");
    assert!(found[0] != 0.0);
}

#[test]
fn a_step_is_read_whole_and_ends_where_transformers_looks() {
    let tokenizer = Tokenizer::load(&fixture(TINYHOP)).unwrap();
    let end = tokenizer.eos_token_id().unwrap();
    assert_eq!(tokenizer.pad_token_id(), Some(end), "the end of a text is padding too");
    let [prompt, step] = ["Question: Who directed Jaws?", " Jaws"].map(|text| tokenizer.encode(text).unwrap());
    let of_base = ScoredText::of_base(&DecoderConfig::load(&fixture(TINYHOP)).unwrap(), &tokenizer);
    assert_eq!((of_base.padding(), of_base.step(&tokenizer, " Jaws").unwrap()), (Some(end), step.clone()));
    assert_eq!(of_base.step(&tokenizer, " Jaws<|endoftext|><|endoftext|>").unwrap(), step, "no score stands at padding");
    let with_end = [step.as_slice(), &[end]].concat();
    for pad_token_id in [None, Some(7)] {
        let text = ScoredText::new(&tokenizer, ScoreConfig { pad_token_id, is_value: false });
        assert_eq!(text.step(&tokenizer, " Jaws").unwrap(), with_end);
        assert_eq!(text.padding(), pad_token_id);
    }
    let text = ScoredText::new(&tokenizer, ScoreConfig::default());
    let sequence = |max_tokens| text.sequence(&tokenizer, "Question: Who directed Jaws?", " Jaws", max_tokens).unwrap();
    assert_eq!(sequence(100), Some([prompt.as_slice(), with_end.as_slice()].concat()));
    let cut = [&prompt[prompt.len() - 2..], with_end.as_slice()].concat();
    assert_eq!(sequence(with_end.len() + 2), Some(cut), "the prompt loses its beginning");
    assert_eq!(sequence(with_end.len()), Some(with_end.clone()));
    assert_eq!(sequence(with_end.len() - 1), None, "the step alone is too long");
    assert_eq!(of_base.sequence(&tokenizer, "Question: Who directed Jaws?", "", 100).unwrap(), Some(prompt));
    assert!(matches!(of_base.sequence(&tokenizer, "", "", 100), Err(Error::InvalidParameter { .. })));
}

#[test]
fn a_directory_says_what_its_scores_are() {
    let directory = reward_model(ScoreConfig { pad_token_id: Some(3), is_value: false });
    let checkpoint = inspect(directory.path()).unwrap();
    assert_eq!((checkpoint.task, checkpoint.architecture.as_str()), (Task::Rerank, "Qwen2ForSequenceClassification"));
    let base = inspect(&fixture(TINYHOP)).unwrap();
    let width = DecoderConfig::load(&fixture(TINYHOP)).unwrap().hidden_size as u64;
    assert_eq!(checkpoint.parameter_count, base.parameter_count + width);
    let written = config(directory.path());
    assert_eq!((&written["id2label"]["0"], &written["pad_token_id"]), (&Json::from("LABEL_0"), &Json::from(3)));
    assert_eq!(written["tie_word_embeddings"], Json::from(false));
    let read = DecoderConfig::load(directory.path()).unwrap();
    assert_eq!(read.head, OutputHead::Score(ScoreConfig { pad_token_id: Some(3), is_value: false }));

    let scale = || LoadedScorer::load(directory.path()).unwrap().scale();
    assert_eq!(scale(), Scale::Logit);
    set(directory.path(), "problem_type", Json::from("regression"));
    assert_eq!(scale(), Scale::Value);
    set(directory.path(), "sentence_transformers", serde_json::json!({ "activation_fn": "torch.nn.modules.activation.Sigmoid" }));
    assert_eq!(scale(), Scale::Probability);
    set(directory.path(), "sentence_transformers", serde_json::json!({ "activation_fn": "torch.nn.modules.activation.Tanh" }));
    assert!(matches!(inspect(directory.path()), Err(Error::NotSupported(_))));
    set(directory.path(), "sentence_transformers", Json::Null);
    assert_eq!(scale(), Scale::Value, "without a name it is what transformers gives");
    set(directory.path(), "pad_token_id", Json::from(-1));
    let read = DecoderConfig::load(directory.path()).unwrap();
    assert_eq!(read.head, OutputHead::Score(ScoreConfig { pad_token_id: None, is_value: true }));

    let of_values = reward_model(ScoreConfig { pad_token_id: None, is_value: true });
    assert_eq!(LoadedScorer::load(of_values.path()).unwrap().scale(), Scale::Value);
}

#[test]
fn scores_become_values() {
    assert_eq!([-1.0, 0.25, 3.0].map(|score| Scale::Value.value(score)), [0.0, 0.25, 1.0]);
    assert_eq!((Scale::Probability.value(0.25), Scale::Logit.value(0.0)), (0.25, 0.5));
    assert!((Scale::Logit.value(2.0) - 0.880_797).abs() < 1e-6);
    assert!([Scale::Value, Scale::Logit, Scale::Probability].iter().all(|scale| scale.value(f32::NAN).is_nan()));
}

#[test]
fn it_is_a_model_as_any_other() {
    let (home, directory) = (tempfile::tempdir().unwrap(), reward_model(ScoreConfig::default()));
    let registry = Registry::open(&home.path().join("models")).unwrap();
    let create = |name: &str, device, task| CreateModel {
        name: name.to_owned(),
        source: directory.path().display().to_string(),
        task,
        device,
        options: Vec::new(),
        texts: Vec::new(),
    };
    let info = registry.create(create("prm", Device::Auto, None)).unwrap();
    assert!(info.has_score() && info.task == Task::Rerank && DecoderArchitecture::is_score_class(&info.architecture));
    assert_eq!(info.device_description(), "auto");
    registry.create(create("named", Device::Cpu, Some(Task::Rerank))).unwrap();
    for task in [Task::Generate, Task::Embed] {
        assert!(matches!(registry.create(create("other", Device::Auto, Some(task))), Err(Error::InvalidParameter { .. })), "{task}");
    }
    assert!(matches!(registry.create(create("other", Device::Cuda(0), None)), Err(Error::NotSupported(_))));

    let path = directory.path().join("model.safetensors");
    let mut weights: HashMap<String, Tensor> = load(&path, &CandleDevice::Cpu).unwrap();
    let width = weights[SCORE].dims()[1];
    weights.insert(SCORE.to_owned(), Tensor::zeros((3, width), candle_core::DType::F32, &CandleDevice::Cpu).unwrap());
    save(&weights, &path).unwrap();
    assert!(matches!(registry.create(create("other", Device::Auto, None)), Err(Error::NotSupported(_))), "three labels rank nothing");
    weights.remove(SCORE);
    save(&weights, &path).unwrap();
    assert!(matches!(registry.create(create("other", Device::Auto, None)), Err(Error::Damaged { .. })));
}
