//! Losses, gradients and updates against PyTorch in float64: `tests/fixtures/make_training_goldens.py`.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::*;
use crate::training::backward;
use crate::training::batch::Batch;
use crate::training::example::sft_sequences;
use crate::training::head::{DecoderHead, Head, HeadGradients};
use crate::training::metrics::TOKEN_ACCURACY;
use crate::training::sft::Sft;

/// One batch of all the pairs, or of all the demonstrations.
pub const ALL: &[&[usize]] = &[&[0, 1, 2]];

pub fn golden() -> Json {
    let text = std::fs::read_to_string(fixture("golden.json")).expect("the fixture is committed");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

pub fn tensors(name: &str) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(fixture(name), &Device::Cpu).expect("the fixture is committed")
}

fn tokens(json: &Json) -> Vec<u32> {
    serde_json::from_value(json.clone()).expect("a list of token ids")
}

pub fn pairs(golden: &Json) -> Vec<DpoExample> {
    let pair =
        |pair: &Json| DpoExample { prompt: tokens(&pair["prompt"]), chosen: tokens(&pair["chosen"]), rejected: tokens(&pair["rejected"]) };
    golden["pairs"].as_array().expect("a list").iter().map(pair).collect()
}

pub fn demonstrations(golden: &Json) -> Vec<SftExample> {
    let example = |example: &Json| SftExample {
        prompt: tokens(&example["prompt"]),
        completion: tokens(&example["completion"]),
        weight: number(&example["weight"]) as f32,
        mask: vec![],
    };
    golden["examples"].as_array().expect("a list").iter().map(example).collect()
}

pub fn number(json: &Json) -> f64 {
    json.as_f64().expect("a number")
}

fn options(golden: &Json) -> DpoOptions {
    DpoOptions { preference: Preference::sigmoid(number(&golden["beta"])), ..DpoOptions::default() }
}

pub fn assert_relative(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found - expected).abs() <= tolerance * expected.abs(), "{what}: {found}, expected {expected}");
}

/// Each step has torch's loss, learning rate and norm of the gradient.
pub fn assert_steps(found: &[StepMetrics], expected: &Json) {
    let expected = expected.as_array().expect("a list");
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        for name in ["loss", "learning_rate", "grad_norm"] {
            assert_relative(found.get(name).expect(name), number(&expected[name]), 1e-4, name);
        }
    }
}

/// Every parameter has its gradient, that gradient is not zero, and it is torch's.
pub fn assert_gradients(decoder: &Decoder, found: &Gradients, file: &str) {
    let expected = tensors(file);
    assert_eq!(decoder.parameters().len(), expected.len());
    let mut largest: f64 = 0.0;
    for name in decoder.parameters().keys() {
        let gradient = found.get(name).unwrap_or_else(|| panic!("{name} has no gradient"));
        assert!(values(gradient).iter().any(|value| *value != 0.0), "the gradient of {name} is zero");
        let error = relative_error(gradient, &expected[name]);
        assert!(error < 1e-4, "{file}: gradient of {name}: relative error {error}");
        largest = largest.max(error);
    }
    println!("{file}: relative errors of at most {largest:.1e}");
}

/// What five steps of AdamW have made of the parameters is what torch has.
pub fn assert_parameters(decoder: &Decoder, file: &str) {
    let expected = tensors(file);
    assert_eq!(decoder.parameters().len(), expected.len());
    let mut largest: f64 = 0.0;
    for (name, expected) in expected {
        for (found, expected) in values(&decoder.parameters()[&name]).into_iter().zip(values(&expected)) {
            assert!((found - expected).abs() <= 1e-5, "{name}: {found}, expected {expected}");
            largest = largest.max((found - expected).abs());
        }
    }
    println!("{file}: parameters differ by at most {largest:.1e}");
}

/// Where a checkpoint computes.
pub type Place = fn(Decoder) -> Decoder;

/// As it was loaded.
pub fn here(decoder: Decoder) -> Decoder {
    decoder
}

pub fn check_dpo(name: &str, reference: &str, place: Place) {
    let golden = golden();
    let (policy, reference) = (place(checkpoint("policy")), place(checkpoint(reference)));
    let (examples, options) = (pairs(&golden), options(&golden));
    let logps = reference_logps(&reference, &examples, &options, &mut |_, _| Ok(())).expect("the pairs fit");
    for (found, expected) in logps.iter().zip(golden[name]["reference_logps"].as_array().expect("a list")) {
        assert_relative(found.chosen, number(&expected[0]), 1e-5, "reference_chosen_logps");
        assert_relative(found.rejected, number(&expected[1]), 1e-5, "reference_rejected_logps");
    }
    let pairs = dpo_sequences(&examples, &options.run).expect("the pairs fit");
    let objective = Dpo { pairs, reference: &logps, preference: options.preference, tree_packing: true };
    let step = step_gradients(&policy, &objective, ALL).expect("finite numbers");
    assert_relative(step.metrics[0].1, number(&golden[name]["loss"]), 1e-5, "loss");
    assert_gradients(&policy, &step.gradients, &format!("{name}_gradients.safetensors"));
}

#[test]
fn dpo_loss_and_gradients_equal_torch() {
    check_dpo("dpo", "reference", here);
}

#[test]
fn dpo_at_the_reference_is_ln_2_and_its_gradient_is_not_zero() {
    check_dpo("dpo_at_reference", "policy", here);
    assert_relative(number(&golden()["dpo_at_reference"]["loss"]), std::f64::consts::LN_2, 1e-12, "loss");
}

pub fn check_sft(name: &str, model: &str, place: Place) {
    let golden = golden();
    let decoder = place(checkpoint(model));
    let examples = demonstrations(&golden);
    let sequences = sft_sequences(&examples, 0.0, &RunOptions::default()).expect("they fit");
    let objective = Sft { sequences, tree_packing: true };
    let step = step_gradients(&decoder, &objective, ALL).expect("finite numbers");
    assert_relative(step.metrics[0].1, number(&golden[name]["loss"]), 1e-5, "loss");
    assert_gradients(&decoder, &step.gradients, &format!("{name}_gradients.safetensors"));
}

#[test]
fn sft_loss_and_gradients_equal_torch_with_a_tied_head() {
    check_sft("sft_tied", "policy", here);
}

#[test]
fn sft_loss_and_gradients_equal_torch_with_a_head_of_its_own() {
    check_sft("sft_untied", "reference", here);
}

/// Of `make_architecture_goldens.py`.
fn architectures() -> Json {
    let text = std::fs::read_to_string(fixture("architectures.json")).expect("the fixture is committed");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

/// DPO with an SFT term on a checkpoint of another architecture than the fixtures of training.
pub fn check_architecture(name: &str, place: Place) {
    let (golden, pairs) = (architectures(), pairs(&architectures()));
    let directory = crate::fixtures::fixture("models").join(name);
    let policy = place(Decoder::load(&directory, &Device::Cpu, true).expect("the checkpoint is committed"));
    let logps = golden[name]["reference_logps"].as_array().expect("a list").iter();
    let reference: Vec<ReferenceLogps> =
        logps.map(|pair| ReferenceLogps { chosen: number(&pair[0]), rejected: number(&pair[1]) }).collect();
    let preference = Preference { sft_weight: number(&golden["sft_weight"]), ..Preference::sigmoid(number(&golden["beta"])) };
    let sequences = dpo_sequences(&pairs, &RunOptions::default()).expect("the pairs fit");
    let objective = Dpo { pairs: sequences, reference: &reference, preference, tree_packing: true };
    let step = step_gradients(&policy, &objective, ALL).expect("finite numbers");
    assert_relative(step.metrics[0].1, number(&golden[name]["loss"]), 1e-5, name);
    assert_gradients(&policy, &step.gradients, &format!("{name}_gradients.safetensors"));
}

#[test]
fn qwen3_and_llama_3_equal_torch() {
    check_architecture("qwen3", here);
    check_architecture("llama3", here);
}

/// Tokens of prompts count too, and those of completions as their mask says.
pub fn check_weighted_sft(place: Place) {
    let golden = &architectures()["sft_weighted"];
    let masks = golden["examples"].as_array().expect("a list").iter();
    let masks = masks.map(|example| serde_json::from_value(example["mask"].clone()).expect("a list of weights"));
    let mut examples = demonstrations(golden);
    examples.iter_mut().zip(masks).for_each(|(example, mask)| example.mask = mask);
    let decoder = place(checkpoint("policy"));
    let sequences = sft_sequences(&examples, number(&golden["prompt_weight"]), &RunOptions::default()).expect("they fit");
    let step = step_gradients(&decoder, &Sft { sequences, tree_packing: true }, ALL).expect("finite numbers");
    assert_relative(step.metrics[0].1, number(&golden["loss"]), 1e-5, "loss");
    assert_gradients(&decoder, &step.gradients, "sft_weighted_gradients.safetensors");
}

#[test]
fn sft_with_weights_by_token_equals_torch() {
    check_weighted_sft(here);
}

#[test]
fn five_clipped_steps_with_warm_up_equal_torch() {
    check_steps(here);
}

pub fn check_steps(place: Place) {
    let golden = golden();
    let adamw = &golden["adamw"];
    let (mut policy, reference) = (place(checkpoint("policy")), place(checkpoint("reference")));
    let examples = pairs(&golden);
    let mut options = options(&golden);
    options.batch_size = 3;
    options.run = RunOptions {
        epochs: number(&adamw["num_steps"]),
        learning_rate: number(&adamw["learning_rate"]),
        weight_decay: number(&adamw["weight_decay"]),
        max_grad_norm: number(&adamw["max_grad_norm"]),
        warmup_ratio: number(&adamw["warmup_ratio"]),
        ..RunOptions::default()
    };
    let logps = reference_logps(&reference, &examples, &options, &mut |_, _| Ok(())).expect("the pairs fit");
    let mut steps = Vec::new();
    let mut observer = |metrics: &StepMetrics| {
        steps.push(metrics.clone());
        Ok(())
    };
    train_dpo(&mut policy, &logps, &examples, &options, &mut observer).expect("finite numbers");
    assert_steps(&steps, &adamw["steps"]);
    assert_parameters(&policy, "adamw_parameters.safetensors");
}

/// Demonstrations without a mask whose batches keep the rows of masked tokens, at weight 0.
struct ZeroWeights<'a> {
    sft: Sft<'a>,
    /// Tokens of each completion.
    masked_out: [&'a [usize]; 3],
}

impl Objective for ZeroWeights<'_> {
    type Head = Head;

    fn costs(&self) -> Vec<usize> {
        self.sft.costs()
    }

    fn batch(&self, examples: &[usize]) -> Batch {
        let mut batch = self.sft.batch(examples);
        for (&example, rows) in examples.iter().zip(batch.row_ranges.clone()) {
            // Without weights of the prompt the rows of a sequence are those of its completion's tokens.
            self.masked_out[example].iter().for_each(|index| batch.weights[rows.start + index] = 0.0);
        }
        batch
    }

    fn normalizer(&self, examples: &[usize]) -> f64 {
        self.batch(examples).weights.iter().sum()
    }

    fn differentiate(
        &self,
        head: &Head,
        hidden: &Tensor,
        batch: &Batch,
        examples: &[usize],
        normalizer: f64,
    ) -> Result<(HeadGradients, Metrics)> {
        self.sft.differentiate(head, hidden, batch, examples, normalizer)
    }

    fn measure(&self, head: &Head, hidden: &Tensor, batch: &Batch, examples: &[usize], normalizer: f64) -> Result<Metrics> {
        self.sft.measure(head, hidden, batch, examples, normalizer)
    }
}

#[test]
fn a_masked_token_is_one_of_weight_zero() {
    let decoder = checkpoint("policy");
    let examples = demonstrations(&golden());
    let masked_out: [&[usize]; 3] = [&[0, 2, 3], &[], &[1, 2]];
    let mut masked = examples.clone();
    for (example, masked_out) in masked.iter_mut().zip(masked_out) {
        example.mask = (0..example.completion.len()).map(|index| f32::from(u8::from(!masked_out.contains(&index)))).collect();
    }
    let run = RunOptions::default();
    let sft = |examples| Sft { sequences: sft_sequences(examples, 0.0, &run).expect("they fit"), tree_packing: true };
    let whole = step_gradients(&decoder, &sft(&examples), ALL).expect("finite numbers");
    let expected = step_gradients(&decoder, &ZeroWeights { sft: sft(&examples), masked_out }, ALL).expect("finite numbers");
    let found = step_gradients(&decoder, &sft(&masked), ALL).expect("finite numbers");
    assert_relative(found.metrics[0].1, expected.metrics[0].1, 1e-5, "loss");
    assert!((found.metrics[0].1 - whole.metrics[0].1).abs() > 1e-3, "without the mask those tokens count");
    for name in decoder.parameters().keys() {
        let (found, expected) = (found.gradients.get(name).expect(name), expected.gradients.get(name).expect(name));
        assert!(values(found).iter().any(|value| *value != 0.0), "the gradient of {name} is zero");
        assert!(relative_error(found, expected) < 1e-4, "{name}: relative error {}", relative_error(found, expected));
    }
}

#[test]
fn a_measured_step_has_the_metrics_of_a_differentiated_one() {
    let golden = golden();
    let decoder = checkpoint("policy");
    let (examples, pairs) = (demonstrations(&golden), pairs(&golden));
    let mut options = options(&golden);
    options.preference.sft_weight = 0.2;
    let reference = reference_logps(&checkpoint("reference"), &pairs, &options, &mut |_, _| Ok(())).expect("the pairs fit");
    let sequences = sft_sequences(&examples, 0.5, &options.run).expect("they fit");
    assert_same_metrics(&decoder, &Sft { sequences, tree_packing: true }, &["loss", "entropy", "token_accuracy"]);
    let pairs = dpo_sequences(&pairs, &options.run).expect("the pairs fit");
    let rewards =
        ["loss", "reward_margin", "reward_accuracy", "chosen_reward", "rejected_reward", "chosen_logps", "rejected_logps", "entropy"];
    let names = [&rewards[..], &["sft_loss"]].concat();
    let dpo = Dpo { pairs, reference: &reference, preference: options.preference, tree_packing: true };
    assert_same_metrics(&decoder, &dpo, &names);
}

pub fn assert_same_metrics<O: Objective>(decoder: &Decoder, objective: &O, names: &[&str]) {
    let all = [0, 1, 2];
    let batch = objective.batch(&all);
    let head = O::Head::of(decoder).expect("a matrix");
    let hidden = backward::rows(decoder, &batch).expect("the tokens fit");
    let normalizer = objective.normalizer(&all);
    let (_, learned) = objective.differentiate(&head, &hidden, &batch, &all, normalizer).expect("the tokens fit");
    let measured = objective.measure(&head, &hidden, &batch, &all, normalizer).expect("the tokens fit");
    assert_eq!(measured.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    // Which token is the first is asked of a validation alone.
    let both: Vec<_> = measured.iter().filter(|(name, _)| *name != TOKEN_ACCURACY).collect();
    for ((name, learned), (measured_name, measured)) in learned.iter().zip(&both) {
        assert_eq!(name, measured_name);
        assert_relative(*measured, *learned, 1e-9, name);
    }
    assert_eq!(learned.len(), both.len());
}
