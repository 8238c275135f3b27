//! The step of `TRAIN PPO`: rewards by token, advantages by a critic, and updates of both.

use super::calls::{Part, StepCalls};
use super::critic::{Critic, ValueGradients, ValueObjective};
use super::objective::{CallTerms, PolicyObjective, Surrogate};
use super::options::{CriticOptions, GaeScope};
use super::run::{Learned, Online, check_finite};
use super::statistics::{deviation, mean};
use super::trajectory::SampledTrajectory;
use crate::error::{Error, Result};
use crate::training::adamw::{ParameterGroup, clip_scale};
use crate::training::losses::{gae, k3, whiten};
use crate::training::trainer::{Metrics, StepGradients};

/// Numbers by policy call and by token of what it wrote.
pub(super) type ByToken = Vec<Vec<f64>>;

/// The learning rates of a step.
#[derive(Debug, Clone, Copy)]
struct LearningRates {
    policy: f64,
    critic: f64,
}

impl Online<'_> {
    pub fn learn_from_critic(
        &mut self,
        index: usize,
        groups: &[Vec<SampledTrajectory>],
        options: &CriticOptions,
        learning_rate: f64,
    ) -> Result<Learned> {
        let critic = self.beside.critic.ok_or_else(|| Error::Internal("PPO has no critic".into()))?;
        let calls = StepCalls::of(groups);
        if calls.calls.is_empty() {
            // The policy could read none of the questions.
            return Ok(Learned { metrics: vec![("loss", 0.0)], ..Learned::default() });
        }
        let sequences = calls.sequences();
        let reference = self.reference_logps(&sequences)?;
        let parts = calls.parts(groups, self.options.mini_batches);
        let has_ratio = self.options.num_updates(parts.len()) > 1;
        // The penalty compares the policy that sampled.
        let needs_old = has_ratio || reference.is_some();
        let old = if needs_old { Some(self.logps_now(&sequences)?) } else { None };
        let old_values = critic.values(&sequences, self.passes())?;
        let mut rewards = of_outcomes(groups, self.options.step_weight);
        let mut kl = None;
        if let (Some(old), Some(reference)) = (&old, &reference) {
            kl = Some(mean(old.iter().flatten().zip(reference.iter().flatten()).map(|(old, reference)| k3(*old, *reference).loss)));
            penalise(&mut rewards, old, reference, self.options.kl_weight);
        }
        let (mut advantages, returns) = credit(&calls, &rewards, &old_values, options);
        let metrics = of_credit(&advantages, &returns, &old_values, kl);
        if options.whiten {
            whiten_all(&mut advantages);
        }
        let weights = self.token_weights(&calls, &parts);
        let term = |((advantages, weight), call): ((Vec<f64>, &f64), usize)| CallTerms {
            advantages,
            weight: *weight,
            old_logps: old.as_ref().filter(|_| has_ratio).map(|old| old[call].clone()),
            reference_logps: None,
        };
        let terms: Vec<CallTerms> = advantages.into_iter().zip(&weights).zip(0..).map(term).collect();
        let policy = |part: &Part| PolicyObjective {
            sequences: &sequences[part.calls.clone()],
            terms: &terms[part.calls.clone()],
            surrogate: Surrogate::Clipped(self.options.clip),
            temperature: self.options.temperature,
            kl_weight: 0.0,
            guard_weight: 0.0,
            entropy_weight: self.options.entropy_weight,
        };
        let values = |part: &Part| ValueObjective {
            sequences: &sequences[part.calls.clone()],
            old_values: &old_values[part.calls.clone()],
            returns: &returns[part.calls.clone()],
            weights: &weights[part.calls.clone()],
            clip: options.value_clip,
        };
        // Of some questions the policy may have been able to read none.
        let parts = parts.iter().filter(|part| !part.calls.is_empty());
        let objectives: Vec<_> = parts.map(|part| (policy(part), values(part))).collect();
        let rates = LearningRates { policy: learning_rate, critic: self.learning_rate(options.critic_learning_rate).at(index) };
        let mut learned = self.update_both(index, critic, &objectives, rates)?;
        learned.metrics.extend(metrics);
        Ok(learned)
    }

    /// All updates of the step, `objectives` being its parts; metrics are means over the updates.
    fn update_both(
        &mut self,
        index: usize,
        critic: &Critic,
        objectives: &[(PolicyObjective<'_>, ValueObjective<'_>)],
        rates: LearningRates,
    ) -> Result<Learned> {
        let updates = std::iter::repeat_n(objectives, self.options.updates_per_batch).flatten();
        let mut learned = Learned::default();
        for (policy, values) in updates {
            let selected = policy.with_gradient();
            let num_values: usize = values.returns.iter().map(Vec::len).sum();
            let StepGradients { gradients, mut metrics, num_tokens, num_distinct_tokens } =
                policy.gradients(self.policy, &selected, self.passes())?;
            if selected.is_empty() {
                metrics = policy.no_metrics();
            }
            let ValueGradients { gradients: of_critic, loss: value_loss, num_clipped } = critic.gradients(values, self.passes())?;
            let (grad_norm, critic_grad_norm) = (gradients.norm()?, of_critic.norm()?);
            let loss = metrics.first().map_or(f64::NAN, |(_, loss)| *loss);
            check_finite(index + 1, "loss", loss)?;
            check_finite(index + 1, "loss of the critic", value_loss)?;
            check_finite(index + 1, "gradient norm", grad_norm)?;
            check_finite(index + 1, "gradient norm of the critic", critic_grad_norm)?;
            self.begin_update();
            let max_grad_norm = self.options.run.max_grad_norm;
            let groups = [
                ParameterGroup {
                    parameters: critic.parameters(),
                    gradients: &of_critic,
                    learning_rate: rates.critic,
                    gradient_scale: clip_scale(critic_grad_norm, max_grad_norm),
                },
                ParameterGroup {
                    parameters: self.policy.parameters(),
                    gradients: &gradients,
                    learning_rate: rates.policy,
                    gradient_scale: clip_scale(grad_norm, max_grad_norm),
                },
            ];
            // Without an advantage the policy has no gradient.
            self.optimizer.step_groups(if selected.is_empty() { &groups[..1] } else { &groups })?;
            metrics.extend([
                ("value_loss", value_loss),
                ("value_clip_fraction", num_clipped as f64 / num_values.max(1) as f64),
                ("critic_grad_norm", critic_grad_norm),
            ]);
            learned.add(metrics, grad_norm, (num_tokens, num_distinct_tokens));
        }
        Ok(learned.mean(self.options.updates_per_batch * objectives.len()))
    }
}

/// What is earned at each token: the outcome's reward at the last one that the trajectory has, `step_weight` times its score at the last one of each call.
pub(super) fn of_outcomes(groups: &[Vec<SampledTrajectory>], step_weight: f64) -> ByToken {
    let mut rewards = Vec::new();
    for trajectory in groups.iter().flatten() {
        for call in &trajectory.calls {
            let mut earned = vec![0.0; call.completion.len()];
            if let (Some(last), Some(score)) = (earned.last_mut(), call.score) {
                *last = step_weight * score;
            }
            rewards.push(earned);
        }
        if !trajectory.calls.is_empty()
            && let Some(last) = rewards.last_mut().and_then(|earned: &mut Vec<f64>| earned.last_mut())
        {
            *last += trajectory.reward;
        }
    }
    rewards
}

/// Takes the KL penalty off each token's reward: `kl_weight · (log p − log p of the reference)`, as InstructGPT has it (arXiv:2203.02155).
pub(super) fn penalise(rewards: &mut [Vec<f64>], logps: &[Vec<f64>], reference: &[Vec<f64>], kl_weight: f64) {
    let tokens = logps.iter().flatten().zip(reference.iter().flatten());
    for (reward, (logp, reference)) in rewards.iter_mut().flatten().zip(tokens) {
        *reward -= kl_weight * (logp - reference);
    }
}

/// Advantages and returns by generalised advantage estimation, over the tokens that the policy wrote and no others: the token after a passage follows the one
/// before it.
pub(super) fn credit(calls: &StepCalls<'_>, rewards: &[Vec<f64>], values: &[Vec<f64>], options: &CriticOptions) -> (ByToken, ByToken) {
    let (mut advantages, mut returns) = (Vec::with_capacity(rewards.len()), Vec::with_capacity(rewards.len()));
    let mut start = 0;
    while start < rewards.len() {
        let of_trajectory = calls.trajectory[start..].iter().take_while(|owner| **owner == calls.trajectory[start]).count();
        let len = match options.scope {
            GaeScope::Trajectory => of_trajectory,
            GaeScope::Step => 1,
        };
        let end = start + len;
        let (rewards, old_values) = (rewards[start..end].concat(), values[start..end].concat());
        let trainable = vec![true; rewards.len()];
        let (found, targets) = gae(&rewards, &old_values, &trainable, options.gamma, options.lambda);
        let (mut found, mut targets) = (found.into_iter(), targets.into_iter());
        for tokens in values[start..end].iter().map(Vec::len) {
            advantages.push(found.by_ref().take(tokens).collect());
            returns.push(targets.by_ref().take(tokens).collect());
        }
        start = end;
    }
    (advantages, returns)
}

/// Mean 0 and variance 1 over all tokens of the step.
pub(super) fn whiten_all(advantages: &mut [Vec<f64>]) {
    let mut all = advantages.concat();
    let trainable = vec![true; all.len()];
    whiten(&mut all, &trainable, true);
    advantages.iter_mut().flatten().zip(all).for_each(|(advantage, whitened)| *advantage = whitened);
}

/// `kl`: the mean of k3 to the reference. `explained_variance`: the share of the variance of the returns that the critic foresaw; 1 is all of it, and it is
/// below 0 for one that is worse than a constant.
fn of_credit(advantages: &[Vec<f64>], returns: &[Vec<f64>], values: &[Vec<f64>], kl: Option<f64>) -> Metrics {
    let (advantages, returns, values) = (advantages.concat(), returns.concat(), values.concat());
    let left: Vec<f64> = returns.iter().zip(&values).map(|(target, value)| target - value).collect();
    let (all, left) = (deviation(&returns).powi(2), deviation(&left).powi(2));
    let mut metrics = vec![
        ("advantage_mean", mean(advantages.iter().copied())),
        ("advantage_std", deviation(&advantages)),
        ("explained_variance", if all > 0.0 { 1.0 - left / all } else { 0.0 }),
    ];
    metrics.extend(kl.map(|kl| ("kl", kl)));
    metrics
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::PolicyCall;
    use super::*;

    const UNDISCOUNTED: CriticOptions =
        CriticOptions { gamma: 1.0, lambda: 1.0, scope: GaeScope::Trajectory, value_clip: 0.2, critic_learning_rate: 1e-5, whiten: true };

    /// A trajectory's reward, and so many tokens, and perhaps a score, for each call.
    type Calls<'a> = (f64, &'a [(usize, Option<f64>)]);

    fn groups(trajectories: &[Calls<'_>]) -> Vec<Vec<SampledTrajectory>> {
        let call = |(num_tokens, score): &(usize, Option<f64>)| {
            let completion = vec![1; *num_tokens];
            PolicyCall { prompt: vec![2], completion, score: *score, ..PolicyCall::default() }
        };
        let trajectory = |(reward, calls): &Calls<'_>| {
            let calls = calls.iter().map(call).collect();
            SampledTrajectory { calls, reward: *reward, ..SampledTrajectory::default() }
        };
        vec![trajectories.iter().map(trajectory).collect()]
    }

    #[test]
    fn rewards_stand_where_they_are_earned() {
        let groups = groups(&[(1.0, &[(2, Some(0.5)), (3, None)]), (-1.0, &[]), (2.0, &[(1, Some(1.0))])]);
        let mut rewards = of_outcomes(&groups, 0.3);
        assert_eq!(rewards, [vec![0.0, 0.15], vec![0.0, 0.0, 1.0], vec![2.3]]);
        let logps: Vec<Vec<f64>> = rewards.iter().map(|call| vec![-1.0; call.len()]).collect();
        let reference: Vec<Vec<f64>> = rewards.iter().map(|call| vec![-1.5; call.len()]).collect();
        penalise(&mut rewards, &logps, &reference, 0.1);
        let expected = [vec![-0.05, 0.1], vec![-0.05, -0.05, 0.95], vec![2.25]];
        for (found, expected) in rewards.iter().flatten().zip(expected.iter().flatten()) {
            assert!((found - expected).abs() < 1e-12, "{rewards:?}");
        }
    }

    /// Undiscounted, the return of every token is all that is earned from it on: to the end of the trajectory, or of its call.
    #[test]
    fn credit_goes_back_as_far_as_its_scope() {
        let groups = groups(&[(1.0, &[(2, Some(1.0)), (2, None)]), (0.0, &[(1, None)])]);
        let calls = StepCalls::of(&groups);
        let rewards = of_outcomes(&groups, 0.5);
        let values = [vec![0.25, 0.25], vec![0.5, 0.5], vec![0.75]];
        let (advantages, returns) = credit(&calls, &rewards, &values, &UNDISCOUNTED);
        assert_eq!(returns, [vec![1.5, 1.5], vec![1.0, 1.0], vec![0.0]]);
        assert_eq!(advantages, [vec![1.25, 1.25], vec![0.5, 0.5], vec![-0.75]]);
        let (_, returns) = credit(&calls, &rewards, &values, &CriticOptions { scope: GaeScope::Step, ..UNDISCOUNTED });
        assert_eq!(returns, [vec![0.5, 0.5], vec![1.0, 1.0], vec![0.0]]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Where a trajectory is cut into calls decides nothing: its tokens follow each other.
        #[test]
        fn passages_between_calls_are_no_tokens(
            values in prop::collection::vec(-2.0_f64..2.0, 2..12),
            cut in 1_usize..11,
            gamma in 0.5_f64..1.0,
            lambda in 0.0_f64..1.0,
        ) {
            let cut = cut.min(values.len() - 1);
            let options = CriticOptions { gamma, lambda, ..UNDISCOUNTED };
            let whole = groups(&[(1.0, &[(values.len(), None)])]);
            let parts = groups(&[(1.0, &[(cut, None), (values.len() - cut, None)])]);
            let of_whole = credit(&StepCalls::of(&whole), &of_outcomes(&whole, 0.3), std::slice::from_ref(&values), &options);
            let values = [values[..cut].to_vec(), values[cut..].to_vec()];
            let of_parts = credit(&StepCalls::of(&parts), &of_outcomes(&parts, 0.3), &values, &options);
            prop_assert_eq!(of_whole.0.concat(), of_parts.0.concat());
            prop_assert_eq!(of_whole.1.concat(), of_parts.1.concat());
        }
    }
}
