//! Adapters against PEFT in float64: `tests/fixtures/make_lora_goldens.py`.

use serde_json::Value as Json;

use super::golden::{
    ALL, Place, assert_gradients, assert_parameters, assert_relative, assert_steps, demonstrations, golden, here, number, pairs, tensors,
};
use super::golden_preference::golden as preference_golden;
use super::*;
use crate::training::example::sft_sequences;
use crate::training::sft::Sft;

/// The same adapters at the two scales; their `B` is not zero.
const ADAPTERS: [&str; 2] = ["lora", "lora_rslora"];

pub fn lora_golden() -> Json {
    let text = std::fs::read_to_string(fixture("lora.json")).expect("the fixture is committed");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

/// The policy with adapters that PEFT wrote.
pub fn adapted(name: &str) -> Decoder {
    let mut decoder = checkpoint("policy");
    decoder.load_adapter(&fixture(name)).expect("the adapter is committed");
    decoder
}

fn numbers(json: &Json) -> Vec<f64> {
    json.as_array().expect("a list").iter().map(number).collect()
}

/// `[N, V]`, row after row.
fn logits(decoder: &Decoder, tokens: &[u32]) -> Vec<f64> {
    let hidden = decoder.hidden(tokens, &[tokens.len()]).expect("the tokens fit").detach();
    let head = decoder.head_weight().detach().t().expect("a matrix");
    values(&hidden.matmul(&head).expect("the shapes fit"))
}

#[test]
fn loss_and_gradients_equal_peft() {
    check_gradients(here);
}

pub fn check_gradients(place: Place) {
    let golden_lora = lora_golden();
    let examples = demonstrations(&golden());
    for name in ADAPTERS {
        let decoder = place(adapted(name));
        assert_eq!(decoder.lora().expect("it has adapters").scale(), number(&golden_lora[name]["scale"]));
        let sequences = sft_sequences(&examples, 0.0, &RunOptions::default()).expect("they fit");
        let objective = Sft { sequences, tree_packing: true };
        let step = step_gradients(&decoder, &objective, ALL).expect("finite numbers");
        assert_relative(step.metrics[0].1, number(&golden_lora[name]["loss"]), 1e-5, "loss");
        if name == "lora" {
            assert_gradients(&decoder, &step.gradients, "lora_gradients.safetensors");
        }
    }
}

/// The reference is the policy without adapters.
#[test]
fn preferences_and_their_gradients_equal_peft() {
    check_preferences(here);
}

pub fn check_preferences(place: Place) {
    let (golden_lora, examples) = (lora_golden(), pairs(&preference_golden()));
    let expected = &golden_lora["dpo"];
    let base = place(checkpoint("policy"));
    let reference = reference_logps(&base, &examples, &DpoOptions::default(), &mut |_, _| Ok(())).expect("the pairs fit");
    let mut options = DpoOptions::default();
    options.set("beta", &Value::Float(number(&expected["beta"]))).expect("in range");
    options.finish().expect("in range");
    let DpoOptions { run, preference, .. } = options;
    let objective = Dpo { pairs: dpo_sequences(&examples, &run).expect("they fit"), reference: &reference, preference, tree_packing: true };
    let decoder = place(adapted("lora"));
    let step = step_gradients(&decoder, &objective, ALL).expect("finite numbers");
    assert_relative(step.metrics[0].1, number(&expected["loss"]), 1e-5, "loss");
    assert_gradients(&decoder, &step.gradients, "lora_dpo_gradients.safetensors");
}

#[test]
fn logits_equal_peft_before_and_after_the_merge() {
    let golden_lora = lora_golden();
    for name in ADAPTERS {
        let golden = &golden_lora[name];
        let tokens: Vec<u32> = serde_json::from_value(golden["tokens"].clone()).expect("a list of token ids");
        let expected: Vec<f64> = golden["merged_logits"].as_array().expect("a list").iter().flat_map(numbers).collect();
        let mut decoder = adapted(name);
        let check = |decoder: &Decoder, what: &str| {
            let found = logits(decoder, &tokens);
            assert_eq!(found.len(), expected.len());
            // `f64::max` passes over what is not a number.
            assert!(found.iter().all(|logit| logit.is_finite()), "{name}, {what}");
            let largest = found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f64::max);
            assert!(largest <= 1e-4, "{name}, {what}: logits differ by {largest}");
        };
        check(&decoder, "with adapters");
        decoder.merge_lora().expect("the shapes fit");
        check(&decoder, "merged");
        assert!(decoder.parameters().is_empty());
    }
}

#[test]
fn five_clipped_steps_with_warm_up_equal_peft() {
    check_steps(here);
}

pub fn check_steps(place: Place) {
    let golden_lora = lora_golden();
    let adamw = &golden_lora["adamw"];
    let mut decoder = place(adapted("lora"));
    let before: Vec<Vec<f64>> = decoder.tensors().values().map(values).collect();
    let run = RunOptions {
        epochs: number(&adamw["num_steps"]),
        learning_rate: number(&adamw["learning_rate"]),
        weight_decay: number(&adamw["weight_decay"]),
        max_grad_norm: number(&adamw["max_grad_norm"]),
        warmup_ratio: number(&adamw["warmup_ratio"]),
        ..RunOptions::default()
    };
    let options = SftOptions { run, batch_size: Some(3), ..SftOptions::default() };
    let mut steps = Vec::new();
    let mut observer = |metrics: &StepMetrics| {
        steps.push(metrics.clone());
        Ok(())
    };
    train_sft(&mut decoder, &demonstrations(&golden()), &options, &mut observer).expect("finite numbers");
    assert_steps(&steps, &adamw["steps"]);
    assert_parameters(&decoder, "lora_adamw.safetensors");
    let after: Vec<Vec<f64>> = decoder.tensors().values().map(values).collect();
    assert!(before == after, "frozen weights do not move");
}

#[test]
fn adapters_of_peft_are_saved_as_they_were_loaded() {
    for name in ADAPTERS {
        let decoder = adapted(name);
        let directory = tempfile::tempdir().expect("a folder for the adapters");
        decoder.save_adapter(directory.path(), None).expect("the folder can be written");
        let file = directory.path().join("adapter_model.safetensors");
        let found = candle_core::safetensors::load(file, &Device::Cpu).expect("safetensors");
        let expected = tensors(&format!("{name}/adapter_model.safetensors"));
        assert_eq!(found.len(), expected.len());
        for (tensor, expected) in expected {
            assert_eq!(values(&found[&tensor]), values(&expected), "{name}: {tensor}");
        }
        let mut again = checkpoint("policy");
        again.load_adapter(directory.path()).expect("it was just saved");
        assert_eq!(again.lora(), decoder.lora());
    }
}
