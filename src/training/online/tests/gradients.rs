//! Every trainable tensor learns from rollouts, of the policy and of the critic, with all weights and with adapters: one that no graph reaches, or whose gradient
//! is zero, is named here.

use super::super::advantages::call_advantages;
use super::super::calls::StepCalls;
use super::super::critic::ValueObjective;
use super::super::objective::{CallTerms, PolicyObjective, Surrogate, token_logps};
use super::golden::{critic, golden, groups};
use super::*;
use crate::models::LoraOptions;
use crate::training::losses::Clip;
use crate::training::tests::{attach_trained_lora, here, silent};

/// Nothing is clipped, and the critic is to say something else of every state.
const CLIP: Clip = Clip { low: 0.9, high: 9.0 };

fn lora() -> LoraOptions {
    LoraOptions { targets: vec!["all-linear".to_owned()], ..LoraOptions::default() }
}

/// By the losses of GRPO, alone and with a penalty and a guard, of PPO, which is the former's, and of REINFORCE.
fn check_policy(policy: &Decoder, what: &str) {
    let groups = groups(&golden());
    let calls = StepCalls::of(&groups);
    let (sequences, run) = (calls.sequences(), RunOptions::default());
    let passes = Passes { run: &run, recompute: false };
    let OnlineOptions { learner: Learner::Group(group), .. } = OnlineOptions::grpo() else { panic!("GRPO has groups") };
    let advantages = call_advantages(&groups, &group, 0.3);
    let now = token_logps(policy, &sequences, 1.0, passes).expect("finite numbers");
    let by_call = |advantage: f64, logps: &Vec<f64>, weight: f64, is_held: bool| CallTerms {
        advantages: vec![advantage; logps.len()],
        weight,
        old_logps: is_held.then(|| logps.iter().map(|logp| logp + 0.01).collect()),
        reference_logps: is_held.then(|| logps.iter().map(|logp| logp - 0.3).collect()),
    };
    let ways = [("surrogate", 1.0, false), ("surrogate, penalty and guard", 1.0, true), ("guard alone", 0.0, true)];
    for (way, weight, is_held) in ways {
        let terms = advantages.iter().zip(&now).map(|(advantage, logps)| by_call(*advantage, logps, weight, is_held));
        let terms: Vec<CallTerms> = terms.collect();
        let (kl_weight, guard_weight) = if is_held { (0.1, 0.5) } else { (0.0, 0.0) };
        for surrogate in [Surrogate::Clipped(CLIP), Surrogate::Reinforce] {
            let objective = PolicyObjective {
                sequences: &sequences,
                terms: &terms,
                surrogate,
                temperature: 1.0,
                kl_weight,
                guard_weight,
                entropy_weight: 0.0,
            };
            let selected = objective.with_gradient();
            let step = deep(|| objective.gradients(policy, &selected, passes)).expect("finite numbers");
            assert_eq!(silent(policy.parameters(), &step.gradients), [""; 0], "{what}, {way}, {surrogate:?}");
        }
    }
}

/// The parameters of the critic that have no gradient, or one of zeros.
fn silent_of(critic: &Critic) -> Vec<String> {
    let groups = groups(&golden());
    let calls = StepCalls::of(&groups);
    let (sequences, run) = (calls.sequences(), RunOptions::default());
    let passes = Passes { run: &run, recompute: false };
    let old_values = critic.values(&sequences, passes).expect("finite numbers");
    let returns: Vec<Vec<f64>> = old_values.iter().map(|values| vec![0.7; values.len()]).collect();
    let weights = vec![0.01; sequences.len()];
    let objective = ValueObjective { sequences: &sequences, old_values: &old_values, returns: &returns, weights: &weights, clip: 10.0 };
    let found = deep(|| critic.gradients(&objective, passes)).expect("finite numbers");
    silent(critic.parameters(), &found.gradients)
}

#[test]
fn every_weight_of_a_policy_learns() {
    for name in ["policy", "reference"] {
        check_policy(&checkpoint(name), name);
    }
}

#[test]
fn every_adapter_of_a_policy_learns() {
    let mut policy = checkpoint("policy");
    attach_trained_lora(&mut policy, &["all-linear"]);
    check_policy(&policy, "adapters");
}

#[test]
fn every_weight_and_adapter_of_a_critic_learns() {
    assert_eq!(silent_of(&critic(here)), [""; 0]);
    let mut policy = checkpoint("policy");
    policy.attach_lora(&lora()).expect("it has the layers");
    let critic = Critic::beside(&policy, &lora()).expect("a policy with adapters");
    for (name, parameter) in critic.parameters() {
        // Neither `B` nor the score begins with anything else than zeros.
        if name.ends_with("lora_B.weight") || name.ends_with("score.weight") {
            parameter.set(&(parameter.as_tensor() + 0.1).and_then(|sum| sum.detach().copy()).expect("memory")).expect("the same shape");
        }
    }
    assert_eq!(critic.parameters().len(), 2 * 7 * 2 + 1, "A and B of seven matrices in two blocks, and the score");
    assert_eq!(silent_of(&critic), [""; 0]);
}

/// A new critic says 0 of everything: its score learns first, and with it all the rest.
#[test]
fn a_new_critic_learns_by_its_score_first() {
    let critic = Critic::new(checkpoint("policy")).expect("a score");
    let others = critic.parameters().keys().filter(|name| !name.ends_with("score.weight")).cloned().collect::<Vec<_>>();
    assert_eq!(silent_of(&critic), others);
}
