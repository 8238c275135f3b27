//! What PPO pays by token, and whole steps of GRPO and PPO, against PyTorch in float64: `tests/fixtures/make_online_update_goldens.py`, which has the layout of
//! the numbers.

use std::collections::BTreeMap;

use candle_core::{Device, Var};
use serde_json::Value as Json;

use super::super::actor_critic::{ByToken, credit, of_outcomes, penalise, whiten_all};
use super::super::calls::StepCalls;
use super::golden::{Credit, array, by_call, check_credit, clip, critic, golden, group_options, groups, normalization, number};
use super::*;
use crate::training::Schedule;
use crate::training::tests::{Place, here, in_f32, values};

/// As they are loaded, and as on a GPU.
const PLACES: [Place; 2] = [here, in_f32];

fn updates() -> Json {
    let text = std::fs::read_to_string(fixture("online_updates.json")).expect("the fixture is committed");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

fn critic_options(options: &Json) -> CriticOptions {
    let scope = if options["scope"] == "step" { GaeScope::Step } else { GaeScope::Trajectory };
    let OnlineOptions { learner: Learner::Critic(defaults), .. } = OnlineOptions::ppo() else { panic!("PPO has a critic") };
    let [gamma, lambda, value_clip] = ["gamma", "lambda", "value_clip"].map(|name| number(&options[name]));
    CriticOptions { gamma, lambda, scope, value_clip, ..defaults }
}

fn assert_all_close(found: &ByToken, expected: &ByToken, what: &str) {
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), expected.iter().map(Vec::len).collect::<Vec<_>>(), "{what}");
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!((found - expected).abs() < 1e-9 * expected.abs().max(1.0), "{what}: {found}, expected {expected}");
    }
}

fn check_rewards(name: &str) {
    let (golden, updates) = (golden(), updates());
    let options = &updates[name];
    let groups = groups(&golden);
    let calls = StepCalls::of(&groups);
    let rows = |json: &Json| by_call(&golden, json, &calls);
    let known = &golden["logps"]["1.0"];
    let (old, reference, old_values) = (rows(&known["old"]), rows(&known["reference"]), rows(&golden["ppo"]["old_values"]));
    let mut rewards = of_outcomes(&groups, number(&options["step_weight"]));
    penalise(&mut rewards, &old, &reference, number(&options["kl_weight"]));
    assert_all_close(&rewards, &rows(&options["rewards"]), "reward");
    let (mut advantages, returns) = credit(&calls, &rewards, &old_values, &critic_options(options));
    whiten_all(&mut advantages);
    assert_all_close(&advantages, &rows(&options["advantages"]), "advantage");
    assert_all_close(&returns, &rows(&options["returns"]), "return");
    let credit = Credit { old, old_values, advantages, returns };
    let files = [format!("online_{name}_gradients"), format!("online_{name}_critic_gradients")];
    check_credit(options, &checkpoint("policy"), &critic(here), &calls, &credit, files.each_ref().map(String::as_str));
}

#[test]
fn a_penalty_within_the_rewards_equals_torch() {
    check_rewards("ppo_kl");
}

#[test]
fn steps_that_are_episodes_of_their_own_equal_torch() {
    check_rewards("ppo_steps");
}

/// The trajectories of the fixture, whatever the weights are.
struct Recorded(Vec<Vec<SampledTrajectory>>);

impl RolloutSource for Recorded {
    fn num_questions(&self) -> usize {
        self.0.len()
    }

    fn num_validation_questions(&self) -> usize {
        0
    }

    fn completion_tokens_max(&self) -> usize {
        64
    }

    fn sample(&self, _: &Decoder, draw: &Draw<'_>, _: &Stop) -> Result<Vec<Vec<SampledTrajectory>>> {
        Ok(draw.questions.iter().map(|question| self.0[*question].clone()).collect())
    }

    fn measure(&self, _: &Decoder, _: &Stop) -> Result<Vec<SampledTrajectory>> {
        Ok(vec![])
    }
}

/// Five steps of all trajectories; each shows the metrics of the fixture.
fn train_recorded(golden: &Json, options: OnlineOptions, policy: &mut Decoder, critic: Option<&Critic>) {
    let groups = groups(&super::golden::golden());
    let count = |name: &str| golden[name].as_u64().expect("a count") as usize;
    let run = RunOptions {
        epochs: number(&golden["num_steps"]),
        learning_rate: number(&golden["learning_rate"]),
        weight_decay: number(&golden["weight_decay"]),
        max_grad_norm: number(&golden["max_grad_norm"]),
        warmup_ratio: number(&golden["warmup_ratio"]),
        schedule: Schedule::Cosine,
        shuffle: false,
        ..options.run
    };
    let options = OnlineOptions {
        run,
        batch_size: groups.len(),
        group_size: groups[0].len(),
        temperature: number(&golden["temperature"]),
        updates_per_batch: count("updates_per_batch"),
        normalization: normalization(golden),
        clip: clip(golden),
        kl_weight: number(&golden["kl_weight"]),
        step_weight: number(&golden["step_weight"]),
        ..options
    };
    let reference = checkpoint("reference");
    let beside = Beside { reference: Some(&reference), critic };
    let mut steps = Vec::new();
    train_online(policy, beside, &Recorded(groups), &options, &mut |step| {
        steps.push(step.clone());
        Ok(())
    })
    .expect("finite numbers");
    assert_eq!(steps.len(), array(&golden["steps"]).len());
    for (step, expected) in steps.iter().zip(array(&golden["steps"])) {
        for (name, expected) in expected.as_object().expect("metrics") {
            let (found, expected) = (step.get(name).expect(name), number(expected));
            // A loss of advantages whose mean is 0 is 0 at first.
            let error = (found - expected).abs();
            assert!(error <= 1e-4 * expected.abs().max(0.1), "{name} of step {}: {found}, expected {expected}", step.step);
        }
    }
}

fn assert_parameters(parameters: &BTreeMap<String, Var>, file: &str, prefix: &str, before: &Decoder) {
    let expected = candle_core::safetensors::load(fixture(file), &Device::Cpu).expect("the fixture is committed");
    assert_eq!(parameters.len(), expected.len());
    let (mut largest, mut moved): (f64, f64) = (0.0, 0.0);
    for (name, parameter) in parameters {
        let name = name.strip_prefix(prefix).expect("its prefix");
        for (found, expected) in values(parameter).into_iter().zip(values(&expected[name])) {
            assert!((found - expected).abs() <= 1e-5, "{file}: {name}: {found}, expected {expected}");
            largest = largest.max((found - expected).abs());
        }
        if let Some(before) = before.parameters().get(name) {
            let change = values(before).into_iter().zip(values(parameter)).map(|(before, after)| (after - before).abs());
            moved = change.fold(moved, f64::max);
        }
    }
    assert!(moved > 1e-4, "{file}: the steps move the weights by {moved}, so little that nothing is shown");
    println!("{file}: parameters differ by at most {largest:.1e}");
}

#[test]
fn five_steps_of_grpo_equal_torch() {
    PLACES.into_iter().for_each(check_grpo);
}

fn check_grpo(place: Place) {
    let golden = &updates()["grpo_adamw"];
    let mut policy = place(checkpoint("policy"));
    let options = OnlineOptions { learner: Learner::Group(group_options(golden)), ..OnlineOptions::grpo() };
    train_recorded(golden, options, &mut policy, None);
    assert_parameters(policy.parameters(), "online_grpo_adamw.safetensors", "", &checkpoint("policy"));
}

#[test]
fn five_steps_of_ppo_and_its_critic_equal_torch() {
    PLACES.into_iter().for_each(check_ppo);
}

fn check_ppo(place: Place) {
    let golden = &updates()["ppo_adamw"];
    let (mut policy, critic) = (place(checkpoint("policy")), critic(place));
    let of_critic = CriticOptions { critic_learning_rate: number(&golden["critic_learning_rate"]), ..critic_options(golden) };
    let options = OnlineOptions { learner: Learner::Critic(of_critic), ..OnlineOptions::ppo() };
    train_recorded(golden, options, &mut policy, Some(&critic));
    assert_parameters(policy.parameters(), "online_ppo_adamw.safetensors", "", &checkpoint("policy"));
    // The blocks of the critic began as those of the reward model.
    assert_parameters(critic.parameters(), "online_ppo_adamw_critic.safetensors", "critic.", &checkpoint("prm"));
}
