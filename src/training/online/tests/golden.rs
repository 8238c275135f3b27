//! Losses, advantages and gradients against PyTorch in float64 and TRL: `tests/fixtures/make_grpo_goldens.py`, which has the layout of the numbers.

use std::collections::{BTreeMap, HashMap};

use candle_core::{Device, Tensor, Var};
use serde_json::Value as Json;

use super::super::advantages::call_advantages;
use super::super::calls::StepCalls;
use super::super::critic::{ValueGradients, ValueObjective};
use super::super::objective::{CallTerms, PolicyObjective, Surrogate, token_logps};
use super::*;
use crate::training::gradients::Gradients;
use crate::training::losses::{AdvantageScaling, Clip, gae, token_weights, whiten};
use crate::training::tests::{Place, adapted, here, in_f32, lora_golden};
use crate::training::trainer::StepGradients;

pub fn golden() -> Json {
    let text = std::fs::read_to_string(fixture("online.json")).expect("the fixture is committed");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

pub fn number(json: &Json) -> f64 {
    json.as_f64().expect("a number")
}

fn list<T: serde::de::DeserializeOwned>(json: &Json) -> Vec<T> {
    serde_json::from_value(json.clone()).expect("a list")
}

pub fn array(json: &Json) -> &[Json] {
    json.as_array().expect("a list")
}

/// Each step of a transcript is a policy call, whose prompt is all before it.
pub fn groups(golden: &Json) -> Vec<Vec<SampledTrajectory>> {
    let call = |step: &Json| PolicyCall {
        prompt: list(&step["prompt"]),
        completion: list(&step["completion"]),
        logprobs: vec![],
        score: Some(number(&step["score"])),
    };
    let trajectory = |trajectory: &Json| SampledTrajectory {
        calls: array(&trajectory["steps"]).iter().map(call).collect(),
        reward: number(&trajectory["reward"]),
        ..SampledTrajectory::default()
    };
    array(&golden["groups"]).iter().map(|group| array(group).iter().map(trajectory).collect()).collect()
}

/// Numbers of the tokens that the policy wrote, by call: the others of a transcript are left out.
pub fn by_call(golden: &Json, rows: &Json, calls: &StepCalls<'_>) -> Vec<Vec<f64>> {
    let masks = array(&golden["groups"]).iter().flat_map(array).map(|trajectory| list::<u8>(&trajectory["mask"]));
    let mut written: Vec<f64> = Vec::new();
    for (row, mask) in array(rows).iter().zip(masks) {
        written.extend(list::<f64>(row).into_iter().zip(mask).filter(|(_, mask)| *mask == 1).map(|(value, _)| value));
    }
    let mut rest = written.into_iter();
    calls.calls.iter().map(|call| rest.by_ref().take(call.completion.len()).collect()).collect()
}

pub fn assert_close(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found - expected).abs() <= tolerance * expected.abs().max(0.1), "{what}: {found}, expected {expected}");
}

fn assert_gradients(parameters: &BTreeMap<String, Var>, found: &Gradients, file: &str, prefix: &str) {
    let expected: HashMap<String, Tensor> = candle_core::safetensors::load(fixture(file), &Device::Cpu).expect("the fixture is committed");
    assert_eq!(parameters.len(), expected.len());
    let mut largest: f64 = 0.0;
    for name in parameters.keys() {
        let gradient = found.get(name).unwrap_or_else(|| panic!("{name} has no gradient"));
        let error = relative_error(gradient, &expected[name.strip_prefix(prefix).expect("its prefix")]);
        assert!(error < 1e-4, "{file}: gradient of {name}: relative error {error}");
        largest = largest.max(error);
    }
    println!("{file}: relative errors of at most {largest:.1e}");
}

/// The normaliser and the scaling by name; leave one out is no scaling.
pub fn group_options(options: &Json) -> GroupOptions {
    let scaling = match options["scaling"].as_str() {
        Some("group") => AdvantageScaling::GroupStd,
        Some("batch") => AdvantageScaling::BatchStd,
        _ => AdvantageScaling::None,
    };
    let estimator = if options["scaling"] == "leave_one_out" { Estimator::Reinforce } else { Estimator::Grpo };
    GroupOptions { estimator, scaling, likelihood_guard: number(&options["guard_weight"]) }
}

pub fn normalization(options: &Json) -> Normalization {
    let all = [Normalization::Sequence, Normalization::Tokens, Normalization::DrGrpo, Normalization::Dapo];
    all.into_iter().find(|known| options["normalization"] == known.name()).expect("a name")
}

pub fn clip(options: &Json) -> Clip {
    Clip { low: number(&options["clip_low"]), high: number(&options["clip_high"]) }
}

fn check(name: &str, tree_packing: bool, place: Place) {
    let golden = golden();
    let options = &golden[name];
    let (policy, groups) = (place(checkpoint("policy")), groups(&golden));
    let calls = StepCalls::of(&groups);
    let advantages = call_advantages(&groups, &group_options(options), number(&options["step_weight"]));
    for (found, expected) in advantages.iter().zip(by_call(&golden, &options["advantages"], &calls)) {
        expected.iter().for_each(|expected| assert_close(*found, *expected, 1e-9, "advantage"));
    }
    let temperature = number(&options["temperature"]);
    let known = &golden["logps"][format!("{temperature:?}")];
    let [of_policy, old, reference] = ["policy", "old", "reference"].map(|of| by_call(&golden, &known[of], &calls));
    let run = RunOptions { tree_packing, ..RunOptions::default() };
    let now = token_logps(&policy, &calls.sequences(), temperature, Passes { run: &run, recompute: false }).expect("finite numbers");
    for (found, expected) in now.iter().flatten().zip(of_policy.iter().flatten()) {
        assert_close(*found, *expected, 1e-5, "log-probability");
    }
    check_objective(&policy, &groups, options, [&old, &reference], &run, &format!("online_{name}_gradients.safetensors"));
}

/// Adapters alone learn, and the reference is the policy without them.
fn check_adapters(place: Place) {
    let (golden, of_adapters) = (golden(), lora_golden());
    let groups = groups(&golden);
    let calls = StepCalls::of(&groups);
    let old = by_call(&golden, &golden["logps"]["1.0"]["old"], &calls);
    let run = RunOptions::default();
    let base = place(checkpoint("policy"));
    let reference = token_logps(&base, &calls.sequences(), 1.0, Passes { run: &run, recompute: false }).expect("finite numbers");
    let policy = place(adapted("lora"));
    check_objective(&policy, &groups, &of_adapters["grpo"], [&old, &reference], &run, "lora_grpo_gradients.safetensors");
}

/// The loss, what is counted beside it, and every gradient; `logps`: of the policy that sampled, and of the reference, by call.
fn check_objective(
    policy: &Decoder,
    groups: &[Vec<SampledTrajectory>],
    options: &Json,
    logps: [&Vec<Vec<f64>>; 2],
    run: &RunOptions,
    file: &str,
) {
    let calls = StepCalls::of(groups);
    let (sequences, group, [old, reference]) = (calls.sequences(), group_options(options), logps);
    let advantages = call_advantages(groups, &group, number(&options["step_weight"]));
    let passes = Passes { run, recompute: false };
    let temperature = number(&options["temperature"]);
    let normalizer = normalization(options).normalizer(options["completion_tokens_max"].as_u64().unwrap_or_default() as usize);
    let (is_reinforce, kl_weight) = (group.estimator == Estimator::Reinforce, number(&options["kl_weight"]));
    let terms = (0..calls.calls.len()).map(|call| CallTerms {
        advantages: vec![advantages[call]; sequences[call].completion.len()],
        weight: token_weights(normalizer, calls.trajectory[call], &calls.num_tokens, calls.total_tokens()),
        old_logps: (!is_reinforce).then(|| old[call].clone()),
        reference_logps: (kl_weight > 0.0).then(|| reference[call].clone()),
    });
    let terms: Vec<CallTerms> = terms.collect();
    let surrogate = if is_reinforce { Surrogate::Reinforce } else { Surrogate::Clipped(clip(options)) };
    let (guard_weight, entropy_weight) = (group.likelihood_guard, number(&options["entropy_weight"]));
    let objective =
        PolicyObjective { sequences: &sequences, terms: &terms, surrogate, temperature, kl_weight, guard_weight, entropy_weight };
    let selected = objective.with_gradient();
    let StepGradients { gradients, metrics, .. } = deep(|| objective.gradients(policy, &selected, passes)).expect("finite numbers");
    assert_close(metrics[0].1, number(&options["loss"]), 1e-4, "loss");
    let metric = |wanted: &str| metrics.iter().find(|(name, _)| *name == wanted).expect(wanted).1;
    if let Some(num_clipped) = options["num_clipped"].as_f64() {
        assert_close(metric("clip_fraction") * calls.total_tokens() as f64, num_clipped, 1e-9, "clipped tokens");
    }
    if guard_weight > 0.0 {
        assert_close(metric("guard_loss"), number(&options["guard_loss"]), 1e-4, "guard_loss");
    }
    assert_gradients(policy.parameters(), &gradients, file, "");
}

#[test]
fn grpo_and_its_normalisers_equal_trl() {
    for name in ["grpo_sequence", "grpo_tokens", "grpo_dr_grpo", "grpo_dapo"] {
        check(name, true, here);
    }
}

#[test]
fn a_penalty_at_another_temperature_equals_trl() {
    check("grpo_temperature", true, here);
}

#[test]
fn advantages_of_outcomes_and_steps_equal_torch() {
    check("grpo_dual", true, here);
}

/// Each call is held for itself, as it is in LLDS: where its advantage is not negative and it fell as a whole, the tokens that fell.
#[test]
fn the_guard_of_likelihood_equals_torch() {
    check("grpo_guard", true, here);
    check("grpo_guard", false, here);
}

#[test]
fn a_bonus_for_entropy_equals_trl() {
    check("grpo_entropy", true, here);
    check("grpo_entropy", false, here);
}

#[test]
fn adapters_equal_peft() {
    check_adapters(here);
    check_adapters(in_f32);
}

#[test]
fn reinforce_equals_torch() {
    check("reinforce", true, here);
}

#[test]
fn calls_that_share_no_layout_have_the_same_gradients() {
    check("grpo_dapo", false, here);
    check("reinforce", false, here);
}

/// As on a GPU, on candle's CPU device.
#[test]
fn by_the_operations_of_a_device_all_of_them_are_the_same() {
    let names = ["sequence", "tokens", "dr_grpo", "dapo", "temperature", "dual", "guard", "entropy"];
    names.iter().for_each(|name| check(&format!("grpo_{name}"), true, in_f32));
    check("reinforce", false, in_f32);
    check_ppo(in_f32);
}

/// The reward model of the fixtures: the policy's shape, with weights and a score of its own.
pub fn critic(place: Place) -> Critic {
    let tensors = candle_core::safetensors::load(fixture("prm/model.safetensors"), &Device::Cpu).expect("the fixture is committed");
    let decoder = checkpoint("policy");
    for (name, parameter) in decoder.parameters() {
        parameter.set(&tensors[name]).expect("the same shape");
    }
    let score = Var::from_tensor(&tensors["score.weight"]).expect("a matrix");
    Critic::with_score(place(decoder), score)
}

#[test]
fn ppo_and_its_critic_equal_torch() {
    check_ppo(here);
}

fn check_ppo(place: Place) {
    let golden = golden();
    let options = &golden["ppo"];
    let (policy, critic, groups) = (place(checkpoint("policy")), critic(place), groups(&golden));
    let calls = StepCalls::of(&groups);
    let sequences = calls.sequences();
    let run = RunOptions::default();
    let passes = Passes { run: &run, recompute: false };
    let numbers = |name: &str| by_call(&golden, &options[name], &calls);
    let values = critic.values(&sequences, passes).expect("finite numbers");
    for (found, expected) in values.iter().flatten().zip(numbers("values").iter().flatten()) {
        assert_close(*found, *expected, 1e-4, "value");
    }
    let (old_values, returns, advantages) = (numbers("old_values"), numbers("returns"), numbers("advantages"));

    // The reward stands at the last token that the policy wrote.
    let (gamma, lambda) = (number(&options["gamma"]), number(&options["lambda"]));
    let (mut found, mut targets) = (Vec::new(), Vec::new());
    let mut rest = old_values.concat().into_iter();
    for trajectory in groups.iter().flatten() {
        let values: Vec<f64> = rest.by_ref().take(trajectory.num_tokens()).collect();
        let mut rewards = vec![0.0; values.len()];
        *rewards.last_mut().expect("it wrote something") = trajectory.reward;
        let (advantages, returns) = gae(&rewards, &values, &vec![true; values.len()], gamma, lambda);
        found.extend(advantages);
        targets.extend(returns);
    }
    let all = vec![true; found.len()];
    whiten(&mut found, &all, true);
    for (found, expected) in found.iter().chain(&targets).zip(advantages.iter().flatten().chain(returns.iter().flatten())) {
        assert_close(*found, *expected, 1e-9, "advantage or return");
    }

    let old = by_call(&golden, &golden["logps"]["1.0"]["old"], &calls);
    let credit = Credit { old, old_values, advantages, returns };
    let num_held = check_credit(options, &policy, &critic, &calls, &credit, ["online_ppo_gradients", "online_critic_gradients"]);
    assert_eq!(Some(num_held as u64), options["num_values_held"].as_u64());
}

/// What both losses of PPO compare with, by call and token.
pub struct Credit {
    /// Log-probabilities.
    pub old: Vec<Vec<f64>>,
    pub old_values: Vec<Vec<f64>>,
    pub advantages: Vec<Vec<f64>>,
    pub returns: Vec<Vec<f64>>,
}

/// The losses of policy and critic and their gradients are those of the fixture, which are in these `files`; gives how many values are held.
pub fn check_credit(options: &Json, policy: &Decoder, critic: &Critic, calls: &StepCalls<'_>, credit: &Credit, files: [&str; 2]) -> usize {
    let (sequences, run) = (calls.sequences(), RunOptions::default());
    let passes = Passes { run: &run, recompute: false };
    let weight = 1.0 / calls.total_tokens() as f64;
    let terms = credit.advantages.iter().zip(&credit.old).map(|(advantages, old)| CallTerms {
        advantages: advantages.clone(),
        weight,
        old_logps: Some(old.clone()),
        reference_logps: None,
    });
    let terms: Vec<CallTerms> = terms.collect();
    let surrogate = Surrogate::Clipped(clip(options));
    let objective = PolicyObjective {
        sequences: &sequences,
        terms: &terms,
        surrogate,
        temperature: 1.0,
        kl_weight: 0.0,
        guard_weight: 0.0,
        entropy_weight: 0.0,
    };
    let selected = objective.with_gradient();
    let StepGradients { gradients, metrics, .. } = deep(|| objective.gradients(policy, &selected, passes)).expect("finite numbers");
    assert_close(metrics[0].1, number(&options["policy_loss"]), 1e-4, "policy_loss");
    assert_gradients(policy.parameters(), &gradients, &format!("{}.safetensors", files[0]), "");

    let weights = vec![weight; sequences.len()];
    let objective = ValueObjective {
        sequences: &sequences,
        old_values: &credit.old_values,
        returns: &credit.returns,
        weights: &weights,
        clip: number(&options["value_clip"]),
    };
    let ValueGradients { gradients, loss, num_clipped } = deep(|| critic.gradients(&objective, passes)).expect("finite numbers");
    assert_close(loss, number(&options["value_loss"]), 1e-4, "value_loss");
    assert_gradients(critic.parameters(), &gradients, &format!("{}.safetensors", files[1]), "critic.");
    num_clipped
}
