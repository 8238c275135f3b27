//! Losses, gradients and updates against PyTorch in float64: `tests/fixtures/make_training_goldens.py`.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::*;
use crate::training::example::sft_sequences;
use crate::training::sft::Sft;

const ALL: &[&[usize]] = &[&[0, 1, 2]];

pub fn golden() -> Json {
    let text = std::fs::read_to_string(fixture("golden.json")).expect("the fixture is committed");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

fn tensors(name: &str) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(fixture(name), &Device::Cpu).expect("the fixture is committed")
}

fn tokens(json: &Json) -> Vec<u32> {
    serde_json::from_value(json.clone()).expect("a list of token ids")
}

fn pairs(golden: &Json) -> Vec<DpoExample> {
    let pair =
        |pair: &Json| DpoExample { prompt: tokens(&pair["prompt"]), chosen: tokens(&pair["chosen"]), rejected: tokens(&pair["rejected"]) };
    golden["pairs"].as_array().expect("a list").iter().map(pair).collect()
}

fn demonstrations(golden: &Json) -> Vec<SftExample> {
    let example = |example: &Json| SftExample {
        prompt: tokens(&example["prompt"]),
        completion: tokens(&example["completion"]),
        weight: number(&example["weight"]) as f32,
    };
    golden["examples"].as_array().expect("a list").iter().map(example).collect()
}

fn number(json: &Json) -> f64 {
    json.as_f64().expect("a number")
}

fn options(golden: &Json) -> DpoOptions {
    DpoOptions { beta: number(&golden["beta"]), ..DpoOptions::default() }
}

fn assert_relative(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found - expected).abs() <= tolerance * expected.abs(), "{what}: {found}, expected {expected}");
}

/// Every parameter has its gradient, that gradient is not zero, and it is torch's.
fn assert_gradients(decoder: &Decoder, found: &Gradients, file: &str) {
    let expected = tensors(file);
    assert_eq!(decoder.parameters().len(), expected.len());
    for name in decoder.parameters().keys() {
        let gradient = found.get(name).unwrap_or_else(|| panic!("{name} has no gradient"));
        assert!(values(gradient).iter().any(|value| *value != 0.0), "the gradient of {name} is zero");
        let error = relative_error(gradient, &expected[name]);
        assert!(error < 1e-4, "{file}: gradient of {name}: relative error {error}");
    }
}

fn check_dpo(name: &str, reference: &str) {
    let golden = golden();
    let (policy, reference) = (checkpoint("policy"), checkpoint(reference));
    let (examples, options) = (pairs(&golden), options(&golden));
    let logps = reference_logps(&reference, &examples, &options, &mut |_, _| Ok(())).expect("the pairs fit");
    for (found, expected) in logps.iter().zip(golden[name]["reference_logps"].as_array().expect("a list")) {
        assert_relative(found.chosen, number(&expected[0]), 1e-5, "reference_chosen_logps");
        assert_relative(found.rejected, number(&expected[1]), 1e-5, "reference_rejected_logps");
    }
    let pairs = dpo_sequences(&examples, &options.run).expect("the pairs fit");
    let objective = Dpo { pairs, reference: &logps, beta: options.beta };
    let step = step_gradients(&policy, &objective, ALL).expect("finite numbers");
    assert_relative(step.metrics[0].1, number(&golden[name]["loss"]), 1e-5, "loss");
    assert_gradients(&policy, &step.gradients, &format!("{name}_gradients.safetensors"));
}

#[test]
fn dpo_loss_and_gradients_equal_torch() {
    check_dpo("dpo", "reference");
}

#[test]
fn dpo_at_the_reference_is_ln_2_and_its_gradient_is_not_zero() {
    check_dpo("dpo_at_reference", "policy");
    assert_relative(number(&golden()["dpo_at_reference"]["loss"]), std::f64::consts::LN_2, 1e-12, "loss");
}

fn check_sft(name: &str, model: &str) {
    let golden = golden();
    let decoder = checkpoint(model);
    let examples = demonstrations(&golden);
    let objective = Sft { sequences: sft_sequences(&examples, 0.0, &RunOptions::default()).expect("they fit") };
    let step = step_gradients(&decoder, &objective, ALL).expect("finite numbers");
    assert_relative(step.metrics[0].1, number(&golden[name]["loss"]), 1e-5, "loss");
    assert_gradients(&decoder, &step.gradients, &format!("{name}_gradients.safetensors"));
}

#[test]
fn sft_loss_and_gradients_equal_torch_with_a_tied_head() {
    check_sft("sft_tied", "policy");
}

#[test]
fn sft_loss_and_gradients_equal_torch_with_a_head_of_its_own() {
    check_sft("sft_untied", "reference");
}

#[test]
fn five_clipped_steps_with_warm_up_equal_torch() {
    let golden = golden();
    let adamw = &golden["adamw"];
    let (mut policy, reference) = (checkpoint("policy"), checkpoint("reference"));
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
    let expected_steps = adamw["steps"].as_array().expect("a list");
    assert_eq!(steps.len(), expected_steps.len());
    for (found, expected) in steps.iter().zip(expected_steps) {
        for name in ["loss", "learning_rate", "grad_norm"] {
            assert_relative(found.get(name).expect(name), number(&expected[name]), 1e-4, name);
        }
    }
    for (name, expected) in tensors("adamw_parameters.safetensors") {
        for (found, expected) in values(&policy.parameters()[&name]).into_iter().zip(values(&expected)) {
            assert!((found - expected).abs() <= 1e-5, "{name}: {found}, expected {expected}");
        }
    }
}
