//! What is told of the trajectories of a step, before anything is learned from them.

use super::advantages::num_without_signal;
use super::trajectory::SampledTrajectory;
use crate::training::metrics::ENTROPY;
use crate::training::trainer::Metrics;

/// Mean reward of the trajectories; what early stopping compares unless it is told otherwise, of questions that are only measured.
pub(super) const REWARD: &str = "reward";
pub(super) const VALIDATION_REWARD: &str = "validation_reward";
/// Share of the groups whose trajectories all earned the same.
pub(super) const GROUPS_WITHOUT_SIGNAL: &str = "groups_without_signal";

/// The metrics of what was sampled: means over the trajectories of a step, but for `completion_tokens`, which is the sum of all tokens that the policy wrote.
///
/// `entropy`: an estimate, the mean of `−log p` over the sampled tokens, by the policy at temperature 1, in nats. `correct_logps`: the mean log-probability of
/// the tokens of trajectories whose answer is right; there is none where none is right.
pub(super) fn of_sampled(groups: &[Vec<SampledTrajectory>]) -> Metrics {
    let all: Vec<&SampledTrajectory> = groups.iter().flatten().collect();
    let mut metrics = of_outcomes(&all);
    let rewards: Vec<f64> = all.iter().map(|trajectory| trajectory.reward).collect();
    metrics.insert(1, ("reward_std", deviation(&rewards)));
    metrics.extend([
        (GROUPS_WITHOUT_SIGNAL, num_without_signal(groups) as f64 / groups.len().max(1) as f64),
        ("policy_calls", mean(all.iter().map(|trajectory| trajectory.calls.len() as f64))),
        ("completion_length", mean(all.iter().map(|trajectory| trajectory.num_tokens() as f64))),
        ("completion_tokens", all.iter().map(|trajectory| trajectory.num_tokens() as f64).sum::<f64>()),
        (ENTROPY, mean(logprobs(&all, |_| true).map(|logprob| -logprob))),
    ]);
    let is_right = |trajectory: &SampledTrajectory| trajectory.exact_match == 1.0;
    if all.iter().any(|trajectory| is_right(trajectory) && !trajectory.calls.is_empty()) {
        metrics.push(("correct_logps", mean(logprobs(&all, is_right))));
    }
    let scores: Vec<f64> = all.iter().flat_map(|trajectory| &trajectory.calls).filter_map(|call| call.score).collect();
    if !scores.is_empty() {
        metrics.push(("step_score", mean(scores.into_iter())));
    }
    metrics
}

/// The metrics of questions that are only measured.
pub(super) fn of_measured(trajectories: &[SampledTrajectory]) -> Metrics {
    let names = [VALIDATION_REWARD, "validation_exact_match", "validation_f1", "validation_answered", "validation_well_formed"];
    let all: Vec<&SampledTrajectory> = trajectories.iter().collect();
    names.into_iter().zip(of_outcomes(&all)).map(|(name, (_, value))| (name, value)).collect()
}

/// What they came to.
fn of_outcomes(all: &[&SampledTrajectory]) -> Metrics {
    let share = |is_so: fn(&SampledTrajectory) -> bool| mean(all.iter().map(|trajectory| f64::from(u8::from(is_so(trajectory)))));
    vec![
        (REWARD, mean(all.iter().map(|trajectory| trajectory.reward))),
        ("exact_match", mean(all.iter().map(|trajectory| trajectory.exact_match))),
        ("f1", mean(all.iter().map(|trajectory| trajectory.f1))),
        ("answered", share(|trajectory| trajectory.is_answered)),
        ("well_formed", share(|trajectory| trajectory.is_well_formed)),
    ]
}

/// Of every sampled token of these trajectories.
fn logprobs<'a>(all: &'a [&'a SampledTrajectory], is_meant: impl Fn(&SampledTrajectory) -> bool + 'a) -> impl Iterator<Item = f64> + 'a {
    let meant = all.iter().filter(move |trajectory| is_meant(trajectory));
    meant.flat_map(|trajectory| &trajectory.calls).flat_map(|call| &call.logprobs).map(|logprob| f64::from(*logprob))
}

/// 0 of nothing.
pub(super) fn mean(numbers: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0_usize), |(sum, count), number| (sum + number, count + 1));
    sum / count.max(1) as f64
}

/// Of a sample; 0 of fewer than two.
pub(super) fn deviation(numbers: &[f64]) -> f64 {
    let center = mean(numbers.iter().copied());
    let squares: f64 = numbers.iter().map(|number| (number - center).powi(2)).sum();
    (squares / numbers.len().saturating_sub(1).max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::PolicyCall;
    use super::*;
    use crate::training::metrics::known;

    fn trajectory(reward: f64, exact_match: f64, logprobs: &[f32]) -> SampledTrajectory {
        let (completion, logprobs) = (vec![1; logprobs.len()], logprobs.to_vec());
        let call = PolicyCall { completion, logprobs, score: Some(reward), ..PolicyCall::default() };
        SampledTrajectory { calls: vec![call], reward, exact_match, f1: exact_match, is_answered: true, is_well_formed: reward > 0.0 }
    }

    #[test]
    fn what_was_sampled_is_told_in_names_that_checkpoints_know() {
        let groups = [
            vec![trajectory(1.0, 1.0, &[-1.0, -2.0]), trajectory(0.0, 0.0, &[-3.0])],
            vec![trajectory(0.0, 0.0, &[-2.0]), SampledTrajectory::default()],
        ];
        let metrics = of_sampled(&groups);
        let get = |name: &str| metrics.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        assert_eq!(metrics[0], (REWARD, 0.25));
        assert_eq!((get("reward_std"), get("groups_without_signal")), (Some(0.5), Some(0.5)));
        assert_eq!((get("entropy"), get("correct_logps")), (Some(2.0), Some(-1.5)));
        assert_eq!((get("completion_length"), get("completion_tokens"), get("policy_calls")), (Some(1.0), Some(4.0), Some(0.75)));
        assert_eq!((get("answered"), get("well_formed")), (Some(0.75), Some(0.25)));
        let measured = of_measured(&groups.concat());
        assert_eq!(measured[0], (VALIDATION_REWARD, 0.25));
        for (name, _) in metrics.iter().chain(&measured) {
            assert_eq!(known(name), Some(*name), "a checkpoint gives it back");
        }
        assert!(of_sampled(&groups[1..]).iter().all(|(name, _)| *name != "correct_logps"), "none is right");
    }
}
