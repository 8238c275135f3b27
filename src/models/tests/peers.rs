//! candle-transformers, a second implementation of Qwen2, reads what we save and computes the same logits.

use candle_core::{DType, Device, IndexOp, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::qwen2::{Config, ModelForCausalLM};
use serde_json::Value as Json;

use super::tiny_config;
use crate::models::config::DecoderConfig;
use crate::models::decoder::Decoder;
use crate::models::source::Source;

/// Loads a model directory into candle-transformers, whose configuration wants fields that others may leave out.
fn peer(directory: &std::path::Path) -> ModelForCausalLM {
    let text = std::fs::read_to_string(directory.join("config.json")).unwrap();
    let mut config: Json = serde_json::from_str(&text).unwrap();
    let length = config["max_position_embeddings"].clone();
    for (name, value) in [("sliding_window", length), ("max_window_layers", 0.into()), ("use_sliding_window", false.into())] {
        config[name] = value;
    }
    let config: Config = serde_json::from_value(config).unwrap();
    let tensors = candle_core::safetensors::load(directory.join("model.safetensors"), &Device::Cpu).unwrap();
    ModelForCausalLM::new(&config, VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu)).unwrap()
}

fn assert_same_last_logits(directory: &std::path::Path, what: &str) {
    let decoder = Decoder::load(directory, &Device::Cpu, false).unwrap();
    let mut peer = peer(directory);
    for length in [1_u32, 9, 70] {
        let tokens: Vec<u32> = (0..length).map(|i| (i * 37 + 11) % 290).collect();
        let hidden = decoder.hidden(&tokens, &[tokens.len()]).unwrap().i(tokens.len() - 1..).unwrap();
        let ours = hidden.matmul(&decoder.head_weight().t().unwrap()).unwrap().i(0).unwrap();
        peer.clear_kv_cache();
        let theirs =
            peer.forward(&Tensor::new(tokens.as_slice(), &Device::Cpu).unwrap().unsqueeze(0).unwrap(), 0).unwrap().i((0, 0)).unwrap();
        let difference = (ours - theirs).unwrap().abs().unwrap().max(0).unwrap().to_scalar::<f32>().unwrap();
        assert!(difference < 1e-4, "{what}, {length} tokens: a logit differs by {difference}");
    }
}

#[test]
fn candle_transformers_reads_what_we_save() {
    for tie_word_embeddings in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        Decoder::random(DecoderConfig { tie_word_embeddings, ..tiny_config() }, 5).unwrap().save(directory.path()).unwrap();
        assert_same_last_logits(directory.path(), if tie_word_embeddings { "tied" } else { "untied" });
    }
}

#[test]
fn candle_transformers_reads_the_builtin_policy() {
    let directory = tempfile::tempdir().unwrap();
    Source::parse("builtin://tinyhop", directory.path())
        .unwrap()
        .write(&[], &[], directory.path(), &|path| panic!("{} is built in", path.display()))
        .unwrap();
    assert_same_last_logits(directory.path(), "tinyhop");
}
