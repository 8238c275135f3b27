//! Every trainable tensor learns, by every method, with all weights and with adapters: one that no graph reaches, or whose gradient is zero, is named here. What
//! learns from rollouts is in `online/tests/gradients.rs`.

use super::backward::decoder_of;
use super::*;
use crate::training::prm::{PairScores, StepScores};
use crate::training::sft::Sft;

const ALL: &[&[usize]] = &[&[0, 1, 2, 3, 4]];

const LOSSES: [PreferenceLoss; 6] = [
    PreferenceLoss::Sigmoid { label_smoothing: 0.1 },
    PreferenceLoss::Hinge,
    PreferenceLoss::Ipo,
    PreferenceLoss::Robust { label_smoothing: 0.1 },
    PreferenceLoss::Orpo,
    PreferenceLoss::SimPo { gamma: 0.5 },
];

fn check(decoder: &Decoder, objective: &impl Objective, what: &str) {
    let step = step_gradients(decoder, objective, ALL).expect("finite numbers");
    assert!(!decoder.parameters().is_empty(), "{what}");
    assert_eq!(silent(decoder.parameters(), &step.gradients), [""; 0], "{what}");
}

/// SFT and rejection fine-tuning, which is SFT on what was kept, and all losses of pairs.
pub fn check_policy(decoder: &Decoder, what: &str) {
    let run = RunOptions::default();
    let examples = copy_task(5);
    let sequences = sft_sequences(&examples, 0.0, &run).expect("they fit");
    check(decoder, &Sft { sequences, tree_packing: true }, &format!("{what}, sft"));
    let pairs = copy_pairs(5);
    // The policy prefers no chosen completion so much that a hinge would let it go.
    let reference = [ReferenceLogps { chosen: -9.0, rejected: -3.0 }; 5];
    for loss in LOSSES {
        let preference = Preference { loss, beta: 0.3, normalization: loss.default_normalization(), sft_weight: 0.0 };
        let pairs = dpo_sequences(&pairs, &run).expect("the pairs fit");
        check(decoder, &Dpo { pairs, reference: &reference, preference, tree_packing: true }, &format!("{what}, {}", loss.name()));
    }
}

pub fn check_reward_model(decoder: &Decoder, what: &str) {
    let pairs = copy_pairs(5);
    let objective = PairScores::new(&pairs, &PrmOptions::default()).expect("they fit");
    check(decoder, &objective, &format!("{what}, pairs"));
    let step = |(index, pair): (usize, DpoExample)| StepExample { prompt: pair.prompt, step: pair.chosen, label: index as f64 / 5.0 };
    let steps: Vec<StepExample> = pairs.into_iter().enumerate().map(step).collect();
    for loss in [RewardLoss::CrossEntropy, RewardLoss::SquaredError] {
        let options = PrmOptions { loss: Some(loss), ..PrmOptions::default() };
        check(decoder, &StepScores::new(&steps, &options).expect("they fit"), &format!("{what}, {}", loss.name()));
    }
}

pub fn architectures() -> [DecoderArchitecture; 3] {
    [DecoderArchitecture::Qwen2, DecoderArchitecture::Qwen3, DecoderArchitecture::Llama]
}

pub fn reward_model_of(architecture: DecoderArchitecture) -> Decoder {
    let config = decoder_of(architecture, 2).config().clone().with_score(ScoreConfig::default());
    Decoder::random(config, 11).expect("the sizes fit each other")
}

#[test]
fn every_weight_learns() {
    for name in ["policy", "reference"] {
        check_policy(&checkpoint(name), name);
    }
    for architecture in architectures() {
        check_policy(&decoder_of(architecture, 2), &format!("{architecture:?}"));
        let decoder = reward_model_of(architecture);
        assert!(decoder.parameters().contains_key("score.weight"));
        check_reward_model(&decoder, &format!("{architecture:?}"));
    }
}

#[test]
fn every_adapter_learns() {
    for architecture in architectures() {
        let mut decoder = decoder_of(architecture, 2);
        let num_weights = decoder.parameters().len();
        attach_trained_lora(&mut decoder, &["all-linear"]);
        assert_eq!(decoder.parameters().len(), 2 * 7 * 2, "A and B of seven matrices in two blocks");
        check_policy(&decoder, &format!("{architecture:?} with adapters"));
        assert_eq!(decoder.tensors().len(), num_weights);
        let mut decoder = reward_model_of(architecture);
        attach_trained_lora(&mut decoder, &["all-linear"]);
        assert!(decoder.parameters().contains_key("score.weight"));
        check_reward_model(&decoder, &format!("{architecture:?} with adapters"));
    }
}

/// The check itself: it names a tensor that is missing, and one whose gradient is zero.
#[test]
fn what_does_not_learn_is_named() {
    let decoder = checkpoint("policy");
    let (cut, zero) = ("model.layers.0.self_attn.q_proj.weight", "model.norm.weight");
    let mut gradients = Gradients::default();
    for (name, parameter) in decoder.parameters().iter().filter(|(name, _)| *name != cut) {
        let gradient = if name == zero { parameter.zeros_like().expect("memory") } else { parameter.as_detached_tensor() };
        gradients.add_one(name, &gradient).expect("the first of its name");
    }
    assert_eq!(silent(decoder.parameters(), &gradients), [cut, zero]);
}
