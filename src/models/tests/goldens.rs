//! Our numbers equal those of Hugging Face transformers and sentence-transformers.
//!
//! The checkpoints and goldens come from `tests/fixtures/make_model_goldens.py`.

use std::io::Write;
use std::path::{Path, PathBuf};

use candle_core::safetensors::load;
use candle_core::{D, Device, IndexOp, Tensor};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::models::decoder::Decoder;
use crate::models::embedder::LoadedEmbedder;
use crate::models::embedder_settings::EmbedderSettings;
use crate::models::encoder::{Batch, CpuEncoder, Pooling, Source};
use crate::models::packed::{PackedDecoder, Segment};
use crate::models::reranker::LoadedReranker;
use crate::models::tokenizer::Tokenizer;
use crate::models::{Device as ModelDevice, EncoderConfig};

pub(super) const DECODERS: [&str; 7] = ["qwen2_tied", "qwen2_untied", "qwen3", "llama2_whole", "llama3", "llama_linear", "qwen2_yarn"];
pub(super) const TOLERANCE: f32 = 1e-4;

#[derive(Deserialize)]
struct DecoderGoldens {
    probed_ids: Vec<u32>,
    tokens: Vec<Vec<u32>>,
    greedy: Vec<u32>,
    loss: f64,
    gradients: std::collections::BTreeMap<String, GradientGolden>,
}

#[derive(Deserialize)]
struct GradientGolden {
    norm: f64,
    indices: Vec<usize>,
    values: Vec<f64>,
}

#[derive(Deserialize)]
struct EmbedderGoldens {
    sentences: Vec<String>,
    #[serde(default)]
    vectors: Vec<Vec<f32>>,
    #[serde(default)]
    lengths: Vec<usize>,
}

pub(super) fn fixture(name: &str) -> PathBuf {
    crate::fixtures::fixture("models").join(name)
}

fn goldens<T: DeserializeOwned>(name: &str) -> T {
    read_goldens(&fixture(name))
}

/// What transformers computed with the model in this folder.
pub(super) fn read_goldens<T: DeserializeOwned>(directory: &Path) -> T {
    serde_json::from_slice(&std::fs::read(directory.join("goldens.json")).unwrap()).unwrap()
}

fn golden_tensors(name: &str) -> impl Fn(&str) -> Tensor {
    let tensors = load(fixture(name).join("goldens.safetensors"), &Device::Cpu).unwrap();
    move |name| tensors[name].clone()
}

fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    let difference = (found - expected).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
    // The table of docs/models.md.
    println!("{what} differs by {difference:.1e}");
    assert!(difference < TOLERANCE, "{what} differs by {difference}");
}

fn logits(decoder: &Decoder, tokens: &[u32], lengths: &[usize]) -> Tensor {
    decoder.hidden(tokens, lengths).unwrap().matmul(&decoder.head_weight().t().unwrap()).unwrap()
}

#[test]
fn logits_equal_transformers() {
    for name in DECODERS {
        let (goldens, tensor) = (goldens::<DecoderGoldens>(name), golden_tensors(name));
        let decoder = Decoder::load(&fixture(name), &Device::Cpu, false).unwrap();
        let lengths: Vec<usize> = goldens.tokens.iter().map(Vec::len).collect();
        let together = logits(&decoder, &goldens.tokens.concat(), &lengths);
        let mut start = 0;
        for (index, tokens) in goldens.tokens.iter().enumerate() {
            let alone = logits(&decoder, tokens, &[tokens.len()]);
            assert_close(&together.narrow(0, start, tokens.len()).unwrap(), &alone, &format!("{name} {index}: batched instead of alone"));
            start += tokens.len();
            let ids = Tensor::new(goldens.probed_ids.as_slice(), &Device::Cpu).unwrap();
            assert_close(&alone.index_select(&ids, 1).unwrap(), &tensor(&format!("probed.{index}")), &format!("{name} {index}: a logit"));
            assert_close(
                &alone.log_sum_exp(D::Minus1).unwrap(),
                &tensor(&format!("logsumexp.{index}")),
                &format!("{name} {index}: log-sum-exp"),
            );
            assert_close(
                &alone.i(tokens.len() - 1).unwrap(),
                &tensor(&format!("last.{index}")),
                &format!("{name} {index}: the last logits"),
            );
        }
    }
}

#[test]
fn generation_equals_transformers() {
    for name in DECODERS {
        let (goldens, tensor) = (goldens::<DecoderGoldens>(name), golden_tensors(name));
        let decoder = PackedDecoder::load(&fixture(name)).unwrap();
        check_greedy(name, &decoder, &goldens.tokens[1], &goldens.greedy);
        let long = goldens.tokens.len() - 1;
        let expected = tensor(&format!("next_logps.{long}")).to_vec1::<f32>().unwrap();
        let mut cache = decoder.new_cache();
        for (pair, expected) in goldens.tokens[long].windows(2).zip(expected) {
            let logits = decoder.forward(&mut [Segment { cache: &mut cache, tokens: &pair[..1] }]);
            let logits = Tensor::new(logits, &Device::Cpu).unwrap();
            let logprob = (logits.i(pair[1] as usize).unwrap() - logits.log_sum_exp(0).unwrap()).unwrap().to_scalar::<f32>().unwrap();
            assert!((logprob - expected).abs() < TOLERANCE, "{name}: log-probability {logprob} instead of {expected}");
        }
    }
}

/// `expected`: the most probable token after the prompt, the one after both, and so on.
pub(super) fn check_greedy(name: &str, decoder: &PackedDecoder, prompt: &[u32], expected: &[u32]) {
    let mut cache = decoder.new_cache();
    let mut tokens = prompt.to_vec();
    for expected in expected {
        let start = cache.len();
        let logits = decoder.forward(&mut [Segment { cache: &mut cache, tokens: &tokens[start..] }]);
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32;
        assert_eq!(best, *expected, "{name}: greedy token {}", tokens.len() - prompt.len());
        tokens.push(best);
    }
}

#[test]
fn gradients_equal_pytorch() {
    for name in DECODERS {
        let goldens = goldens::<DecoderGoldens>(name);
        let decoder = Decoder::load(&fixture(name), &Device::Cpu, true).unwrap();
        let lengths: Vec<usize> = goldens.tokens[..2].iter().map(Vec::len).collect();
        let logits = logits(&decoder, &goldens.tokens[..2].concat(), &lengths);
        let (mut rows, mut targets, mut start) = (Vec::new(), Vec::new(), 0_u32);
        for tokens in &goldens.tokens[..2] {
            rows.extend(start..start + tokens.len() as u32 - 1);
            targets.extend_from_slice(&tokens[1..]);
            start += tokens.len() as u32;
        }
        let count = targets.len();
        let logits = logits.index_select(&Tensor::new(rows, &Device::Cpu).unwrap(), 0).unwrap();
        let targets = Tensor::from_vec(targets, (count, 1), &Device::Cpu).unwrap();
        let logps = (logits.gather(&targets, 1).unwrap().squeeze(1).unwrap() - logits.log_sum_exp(D::Minus1).unwrap()).unwrap();
        let loss = logps.mean_all().unwrap().neg().unwrap();
        let found = f64::from(loss.to_scalar::<f32>().unwrap());
        assert!((found - goldens.loss).abs() < 1e-5 * goldens.loss, "{name}: loss {found} instead of {}", goldens.loss);
        let gradients = loss.backward().unwrap();
        assert_eq!(decoder.parameters().keys().collect::<Vec<_>>(), goldens.gradients.keys().collect::<Vec<_>>());
        for (parameter, variable) in decoder.parameters() {
            let gradient = gradients.get(variable).unwrap_or_else(|| panic!("the graph is cut: {name} {parameter} has no gradient"));
            check_gradient(
                &gradient.flatten_all().unwrap().to_vec1().unwrap(),
                &goldens.gradients[parameter],
                &format!("{name} {parameter}"),
            );
        }
    }
}

fn check_gradient(found: &[f32], expected: &GradientGolden, what: &str) {
    let norm = found.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    assert!(norm > 0.0 && (norm - expected.norm).abs() < 1e-4 * expected.norm, "{what}: norm {norm} instead of {}", expected.norm);
    let scale = expected.norm / (found.len() as f64).sqrt();
    for (index, value) in expected.indices.iter().zip(&expected.values) {
        let found = f64::from(found[*index]);
        assert!((found - value).abs() < 1e-4 * value.abs().max(scale), "{what}[{index}]: {found} instead of {value}");
    }
}

#[test]
fn a_saved_decoder_loads_with_the_same_numbers() {
    for name in DECODERS {
        let decoder = Decoder::load(&fixture(name), &Device::Cpu, true).unwrap();
        let directory = tempfile::tempdir().unwrap();
        decoder.save(directory.path()).unwrap();
        let again = Decoder::load(directory.path(), &Device::Cpu, false).unwrap();
        assert_eq!(decoder.config(), again.config());
        let tokens = [3, 1, 4, 1, 5];
        assert_eq!(logits(&decoder, &tokens, &[5]).to_vec2::<f32>().unwrap(), logits(&again, &tokens, &[5]).to_vec2::<f32>().unwrap());
    }
}

/// As its files say.
fn embedder(directory: &Path) -> LoadedEmbedder {
    LoadedEmbedder::load(directory, ModelDevice::Cpu, EmbedderSettings::load(directory).unwrap()).unwrap()
}

#[test]
fn pooled_vectors_equal_transformers() {
    let (goldens, tensor) = (goldens::<EmbedderGoldens>("bert"), golden_tensors("bert"));
    let expected = tensor("mean").to_vec2::<f32>().unwrap();
    let model = embedder(&fixture("bert"));
    let tokenizer = Tokenizer::load_truncating(&fixture("bert"), 80).unwrap();
    let tokens: Vec<Vec<u32>> = goldens.sentences.iter().map(|text| tokenizer.encode_with_special_tokens(text).unwrap()).collect();
    assert_eq!(tokens.iter().map(Vec::len).collect::<Vec<_>>(), goldens.lengths);
    let together = model.embed_tokens(&tokens).unwrap();
    for (index, vector) in together.chunks_exact(model.dim()).enumerate() {
        assert_eq!(model.embed_tokens(&tokens[index..=index]).unwrap(), vector, "sentence {index}: alone differs from batched");
        let norm = expected[index].iter().map(|x| x * x).sum::<f32>().sqrt();
        let expected: Vec<f32> = expected[index].iter().map(|x| x / norm).collect();
        let tensor = |values: &[f32]| Tensor::new(values, &Device::Cpu).unwrap();
        assert_close(&tensor(vector), &tensor(&expected), &format!("bert {index}: mean"));
    }
}

/// Without a file that says how its vectors are made they are means, and as they are if the statement says so (`normalize = false`).
#[test]
fn vectors_of_contriever_equal_its_own() {
    let (goldens, tensor) = (goldens::<EmbedderGoldens>("contriever"), golden_tensors("contriever"));
    let settings = EmbedderSettings { normalise: false, ..EmbedderSettings::load(&fixture("contriever")).unwrap() };
    let model = LoadedEmbedder::load(&fixture("contriever"), ModelDevice::Cpu, settings).unwrap();
    let tokens = model.encode(&goldens.sentences, "").unwrap();
    assert_eq!(tokens.iter().map(Vec::len).collect::<Vec<_>>(), goldens.lengths);
    let found = Tensor::from_vec(model.embed_tokens(&tokens).unwrap(), (tokens.len(), model.dim()), &Device::Cpu).unwrap();
    assert_close(&found, &tensor("mean"), "contriever");
}

/// Prompts, small letters, the longest text, each pooling and the normalisation: with the tokenizers that RoBERTa and XLM-RoBERTa have.
#[test]
fn vectors_of_sentences_equal_sentence_transformers() {
    let poolings = [(Pooling::Mean, "mean"), (Pooling::Cls, "cls"), (Pooling::Last, "lasttoken"), (Pooling::Max, "max")];
    for name in ["xlm_roberta", "roberta_bpe", "gte"] {
        let (goldens, tensor) = (goldens::<EmbedderGoldens>(name), golden_tensors(name));
        let settings = EmbedderSettings::load(&fixture(name)).unwrap();
        let check = |settings: &EmbedderSettings, prompt: &str, expected: &str| {
            let model = LoadedEmbedder::load(&fixture(name), ModelDevice::Cpu, settings.clone()).unwrap();
            let tokens = model.encode(&goldens.sentences, prompt).unwrap();
            let found = Tensor::from_vec(model.embed_tokens(&tokens).unwrap(), (tokens.len(), model.dim()), &Device::Cpu).unwrap();
            assert_close(&found, &tensor(expected), &format!("{name}: {expected}"));
            tokens.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(check(&settings, &settings.query_prompt, "query"), goldens.lengths, "{name}");
        check(&settings, &settings.passage_prompt, "passage");
        for (pooling, expected) in poolings {
            check(&EmbedderSettings { pooling, normalise: false, ..settings.clone() }, "", expected);
        }
    }
}

#[test]
fn roberta_positions_equal_transformers() {
    #[derive(Deserialize)]
    struct Goldens {
        tokens: Vec<u32>,
    }
    let tokens = goldens::<Goldens>("roberta").tokens;
    let expected = golden_tensors("roberta")("hidden");
    let directory = fixture("roberta");
    let encoder = CpuEncoder::new(EncoderConfig::load(&directory).unwrap(), &Source::load(&directory).unwrap()).unwrap();
    let batch = Batch { tokens: &tokens, segments: &vec![0; tokens.len()], lengths: &[tokens.len()] };
    let hidden = encoder.hidden(batch).unwrap();
    assert_close(&Tensor::from_vec(hidden, expected.shape(), &Device::Cpu).unwrap(), &expected, "roberta: a hidden state");
}

/// With the real weights, which the environment variable `ROLLOUTDB_MINILM` points to (`make models` fetches them).
#[test]
fn minilm_equals_sentence_transformers() {
    let Some(directory) = std::env::var_os("ROLLOUTDB_MINILM") else {
        // Past the test harness, which keeps what a passing test prints.
        let _ = writeln!(std::io::stderr(), "skipped: `make retrieval` fetches all-MiniLM-L6-v2 and compares with it");
        return;
    };
    let goldens = goldens::<EmbedderGoldens>("minilm");
    let directory = PathBuf::from(directory);
    let model = embedder(&directory);
    let tokenizer = Tokenizer::load_truncating(&directory, 256).unwrap();
    let tokens: Vec<Vec<u32>> = goldens.sentences.iter().map(|text| tokenizer.encode_with_special_tokens(text).unwrap()).collect();
    let vectors = model.embed_tokens(&tokens).unwrap();
    for ((found, expected), sentence) in vectors.chunks_exact(model.dim()).zip(&goldens.vectors).zip(&goldens.sentences) {
        let cosine: f32 = found.iter().zip(expected).map(|(a, b)| a * b).sum();
        println!("minilm: 1 - cosine is {:.1e}", 1.0 - cosine);
        assert!(cosine > 0.99999, "{sentence:?}: cosine {cosine}");
    }
}

#[test]
fn reranked_pairs_equal_transformers() {
    #[derive(Deserialize)]
    struct Goldens {
        pairs: Vec<(String, String)>,
        lengths: Vec<usize>,
        scores: Vec<f32>,
    }
    for name in ["bert_reranker", "roberta_reranker", "xlm_roberta_reranker"] {
        let goldens = goldens::<Goldens>(name);
        let model = LoadedReranker::load(&fixture(name), ModelDevice::Cpu).unwrap();
        let encoded: Vec<_> = goldens.pairs.iter().map(|(query, passage)| model.encode(query, passage).unwrap()).collect();
        assert_eq!(encoded.iter().map(|(tokens, _)| tokens.len()).collect::<Vec<_>>(), goldens.lengths, "{name}");
        let together = model.score_encoded(&encoded.iter().collect::<Vec<_>>()).unwrap();
        for (index, (found, expected)) in together.iter().zip(&goldens.scores).enumerate() {
            assert_eq!(model.score_encoded(&[&encoded[index]]).unwrap(), [*found], "{name} {index}: alone differs from batched");
            println!("{name} {index}: a score differs by {:.1e}", (found - expected).abs());
            assert!((found - expected).abs() < TOLERANCE, "{name} {index}: {found} instead of {expected}");
        }
    }
}
