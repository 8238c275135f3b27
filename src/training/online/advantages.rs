//! From rewards and scores to the advantage of each policy call, by comparing the trajectories of a question with each other.

use super::options::{Estimator, GroupOptions};
use super::trajectory::SampledTrajectory;
use crate::training::losses::{ScoredStep, batch_advantages, dual_advantage, leave_one_out, step_advantages};

/// One advantage for each call, in the order of [`StepCalls`](super::calls::StepCalls): all tokens of a call have the same.
///
/// It is the outcome's, centred within the group, and where steps have scores `step_weight` times that of the step (ProRAG's dual granularity,
/// arXiv:2601.21912). A call without a score, among others that have one, has the outcome's alone.
pub(super) fn call_advantages(groups: &[Vec<SampledTrajectory>], options: &GroupOptions, step_weight: f64) -> Vec<f64> {
    let rewards: Vec<Vec<f64>> = groups.iter().map(|group| group.iter().map(|trajectory| trajectory.reward).collect()).collect();
    let outcomes = match options.estimator {
        Estimator::Grpo => batch_advantages(&rewards, options.scaling),
        Estimator::Reinforce => rewards.iter().map(|rewards| leave_one_out(rewards)).collect(),
    };
    let mut advantages = Vec::new();
    for (group, outcomes) in groups.iter().zip(outcomes) {
        let of_steps = step_advantages(&scored(group));
        for ((trajectory, outcome), of_steps) in group.iter().zip(outcomes).zip(of_steps) {
            let advantage = |(call, of_step): (&super::PolicyCall, f64)| match call.score {
                Some(_) => dual_advantage(outcome, of_step, step_weight),
                None => outcome,
            };
            advantages.extend(trajectory.calls.iter().zip(of_steps).map(advantage));
        }
    }
    advantages
}

/// The steps of each trajectory; one without a score counts in no mean.
fn scored(group: &[SampledTrajectory]) -> Vec<Vec<ScoredStep>> {
    let step = |call: &super::PolicyCall| ScoredStep {
        score: call.score.unwrap_or_default(),
        num_tokens: if call.score.is_some() { call.completion.len() } else { 0 },
    };
    group.iter().map(|trajectory| trajectory.calls.iter().map(step).collect()).collect()
}

/// Groups whose trajectories all earned the same: they teach nothing by their outcomes.
pub(super) fn num_without_signal(groups: &[Vec<SampledTrajectory>]) -> usize {
    let is_flat = |group: &&Vec<SampledTrajectory>| group.windows(2).all(|pair| pair[0].reward == pair[1].reward);
    groups.iter().filter(is_flat).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::PolicyCall;
    use super::*;
    use crate::training::losses::AdvantageScaling;

    const GRPO: GroupOptions = GroupOptions { estimator: Estimator::Grpo, scaling: AdvantageScaling::None, likelihood_guard: 0.0 };

    /// A trajectory with so many tokens, and a score, for each call.
    fn trajectory(reward: f64, calls: &[(usize, Option<f64>)]) -> SampledTrajectory {
        let call = |(num_tokens, score): &(usize, Option<f64>)| {
            let completion = vec![1; *num_tokens];
            PolicyCall { completion, score: *score, ..PolicyCall::default() }
        };
        SampledTrajectory { calls: calls.iter().map(call).collect(), reward, ..SampledTrajectory::default() }
    }

    #[test]
    fn every_call_has_its_trajectorys_advantage_and_that_of_its_step() {
        let group = vec![trajectory(1.0, &[(2, Some(1.0)), (1, Some(0.0))]), trajectory(0.0, &[(1, Some(0.0))])];
        let without = call_advantages(std::slice::from_ref(&group), &GRPO, 0.0);
        assert_eq!(without, [0.5, 0.5, -0.5]);
        // Of four tokens two have the score 1: mean 1/2, deviation 1/2.
        let dual = call_advantages(&[group], &GRPO, 0.3);
        for (found, expected) in dual.iter().zip([0.8, 0.2, -0.8]) {
            assert!((found - expected).abs() < 1e-6, "{dual:?}");
        }
    }

    #[test]
    fn a_call_without_a_score_has_the_outcomes_advantage_and_moves_no_mean() {
        let with = |score| vec![trajectory(1.0, &[(1, Some(1.0)), (9, score)]), trajectory(0.0, &[(1, Some(0.0))])];
        let advantages = call_advantages(&[with(None)], &GRPO, 1.0);
        assert!((advantages[0] - 1.5).abs() < 1e-6 && (advantages[2] + 1.5).abs() < 1e-6, "{advantages:?}");
        assert_eq!(advantages[1], 0.5);
        assert_ne!(call_advantages(&[with(Some(0.0))], &GRPO, 1.0)[0], advantages[0]);
    }

    #[test]
    fn groups_are_compared_within_themselves() {
        let groups = [
            vec![trajectory(1.0, &[(1, None)]), trajectory(0.0, &[(1, None)])],
            vec![trajectory(5.0, &[(1, None)]), trajectory(5.0, &[(1, None)])],
            vec![trajectory(0.0, &[]), trajectory(0.0, &[(1, None)])],
        ];
        assert_eq!(call_advantages(&groups, &GRPO, 0.3), [0.5, -0.5, 0.0, 0.0, 0.0]);
        let reinforce = GroupOptions { estimator: Estimator::Reinforce, ..GRPO };
        assert_eq!(call_advantages(&groups, &reinforce, 0.3), [1.0, -1.0, 0.0, 0.0, 0.0]);
        assert_eq!(num_without_signal(&groups), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Outcomes' advantages add up to nothing within a question, and the best trajectory never has the worst advantage.
        #[test]
        fn a_group_sums_to_zero(rewards in prop::collection::vec(-3.0_f64..3.0, 2..9), estimator in 0..2) {
            let estimator = if estimator == 0 { Estimator::Grpo } else { Estimator::Reinforce };
            let group: Vec<SampledTrajectory> = rewards.iter().map(|reward| trajectory(*reward, &[(1, None)])).collect();
            for scaling in [AdvantageScaling::GroupStd, AdvantageScaling::BatchStd, AdvantageScaling::None] {
                let options = GroupOptions { estimator, scaling, likelihood_guard: 0.0 };
                let advantages = call_advantages(std::slice::from_ref(&group), &options, 0.3);
                prop_assert!(advantages.iter().sum::<f64>().abs() < 1e-9);
                for (reward, advantage) in rewards.iter().zip(&advantages) {
                    for (other, against) in rewards.iter().zip(&advantages) {
                        prop_assert!(reward <= other || advantage >= against);
                    }
                }
            }
        }
    }
}
