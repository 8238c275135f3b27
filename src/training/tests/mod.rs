//! Tests of training: the pure parts, the numbers of PyTorch, and small real training runs.

mod adamw;
mod backward;
mod batch;
mod device;
mod every_gradient;
mod golden;
mod golden_lora;
mod golden_preference;
#[cfg(feature = "cuda-policies")]
mod gpu;
mod head;
mod learning;
mod options;
mod packing;
mod plan;
mod prm;
mod resume;
mod schedule;
mod score_head;
mod validation;

use std::collections::BTreeMap;
use std::path::PathBuf;

use candle_core::{Device, Tensor, Var};

pub(super) use self::device::in_f32;
pub(super) use self::golden::{Place, here};
pub(super) use self::golden_lora::{adapted, lora_golden};
use super::dpo::Dpo;
use super::example::dpo_sequences;
use super::thread::with_deep_stack;
use super::trainer::{Objective, StepGradients, gradients};
use super::*;
use crate::error::{Error, Result};
use crate::models::config::{DecoderArchitecture, OutputHead, RopeConfig, ScoreConfig};
use crate::models::lora::LoraOptions;
use crate::models::random::CounterRng;
use crate::models::{Decoder, DecoderConfig};
use crate::value::Value;

/// A file made by `make_training_goldens.py`.
pub(super) fn fixture(name: &str) -> PathBuf {
    crate::fixtures::fixture("training").join(name)
}

/// A trainable copy of a checkpoint among the fixtures.
pub(super) fn checkpoint(name: &str) -> Decoder {
    Decoder::load(&fixture(name), &Device::Cpu, true).expect("the checkpoint is committed")
}

/// A policy small enough to learn something within a second.
pub(super) fn tiny_decoder(vocab_size: usize, seed: u64) -> Decoder {
    let config = DecoderConfig {
        architecture: DecoderArchitecture::Qwen2,
        vocab_size,
        hidden_size: 32,
        intermediate_size: 64,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        rms_norm_eps: 1e-6,
        rope: RopeConfig::plain(10_000.0),
        tie_word_embeddings: true,
        head: OutputHead::Vocabulary,
        max_position_embeddings: 64,
        eos_token_ids: vec![0],
    };
    Decoder::random(config, seed).expect("the sizes fit each other")
}

/// The same with a score.
fn tiny_reward_model(vocab_size: usize, seed: u64) -> Decoder {
    let config = tiny_decoder(vocab_size, seed).config().clone().with_score(ScoreConfig::default());
    Decoder::random(config, seed).expect("the sizes fit each other")
}

/// Size of the vocabulary of the copying task.
const VOCAB: usize = 24;
/// The end of a text in it.
const EOS: u32 = 0;
/// Separates what is copied from its copy.
const SEPARATOR: u32 = 1;

/// `prompt`: three tokens and a separator; `completion`: the same three tokens and the end of the text.
fn copy_task(num_examples: usize) -> Vec<SftExample> {
    let token = |index: usize| 2 + (index * index * 7 + index * 3) as u32 % (VOCAB as u32 - 2);
    let example = |index: usize| {
        let copied: Vec<u32> = (0..3).map(|offset| token(3 * index + offset)).collect();
        let (prompt, completion) = ([&copied[..], &[SEPARATOR]].concat(), [&copied[..], &[EOS]].concat());
        SftExample { prompt, completion, weight: 1.0, mask: vec![] }
    };
    (0..num_examples).map(example).collect()
}

/// The chosen completion copies the prompt, the rejected one ends at once.
fn copy_pairs(num_pairs: usize) -> Vec<DpoExample> {
    let pair = |example: SftExample| DpoExample { prompt: example.prompt, chosen: example.completion, rejected: vec![EOS] };
    copy_task(num_pairs).into_iter().map(pair).collect()
}

/// Gradients of one optimiser step made of these batches of examples.
fn step_gradients(decoder: &Decoder, objective: &impl Objective, batches: &[&[usize]]) -> Result<StepGradients> {
    let plan = batches.iter().map(|batch| batch.to_vec()).collect();
    let work = |_: &mut dyn FnMut(()) -> Result<()>| gradients(decoder, objective, &plan, &Stop::default(), false);
    with_deep_stack(work, &mut |()| Ok(()))
}

/// `‖found − expected‖ / ‖expected‖`, in f64.
pub(super) fn relative_error(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(found.shape(), expected.shape());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let (found, expected) = (values(found), values(expected));
    norm(&mut found.iter().zip(&expected).map(|(found, expected)| found - expected)) / norm(&mut expected.iter().copied())
}

/// The parameters that do not learn: those without a gradient, and those whose gradient is zero.
pub(super) fn silent(parameters: &BTreeMap<String, Var>, gradients: &Gradients) -> Vec<String> {
    let learns = |gradient: &Tensor| values(gradient).iter().any(|value| *value != 0.0);
    parameters.keys().filter(|name| !gradients.get(name).is_some_and(learns)).cloned().collect()
}

/// Adapters whose `B` is not zero, as after some steps.
pub(super) fn attach_trained_lora(decoder: &mut Decoder, targets: &[&str]) {
    let targets = targets.iter().map(ToString::to_string).collect();
    decoder.attach_lora(&LoraOptions { rank: 4, alpha: 8.0, targets, ..LoraOptions::default() }).expect("the layers exist");
    for (index, parameter) in decoder.parameters().values().enumerate() {
        let rng = CounterRng::new(23).stream(index as u64);
        let values: Vec<f32> = (0..parameter.elem_count() as u64).map(|at| (0.1 * rng.normal(at)) as f32).collect();
        parameter.set(&Tensor::from_vec(values, parameter.shape(), parameter.device()).expect("the shape fits")).expect("the shape fits");
    }
}

/// All trainable weights, in the order of their names.
pub(super) fn weights(decoder: &Decoder) -> Vec<f64> {
    decoder.parameters().values().flat_map(|parameter| values(parameter)).collect()
}

pub(super) fn values(tensor: &Tensor) -> Vec<f64> {
    let values = tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("an f32 tensor on the CPU");
    values.into_iter().map(f64::from).collect()
}
