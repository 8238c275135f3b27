//! The step of `TRAIN GRPO`: advantages from the group, one or more updates of the policy.

use super::advantages::call_advantages;
use super::calls::{Part, StepCalls};
use super::objective::{CallTerms, PolicyObjective, Surrogate, token_logps};
use super::options::{Estimator, GroupOptions};
use super::run::{Learned, Online, check_finite};
use super::statistics::{deviation, mean};
use super::trajectory::SampledTrajectory;
use crate::error::Result;
use crate::training::adamw::{ParameterGroup, clip_scale};
use crate::training::example::Sequence;
use crate::training::trainer::{Metrics, StepGradients};

impl Online<'_> {
    pub fn learn_from_groups(
        &mut self,
        index: usize,
        groups: &[Vec<SampledTrajectory>],
        group: &GroupOptions,
        learning_rate: f64,
    ) -> Result<Learned> {
        let calls = StepCalls::of(groups);
        let sequences = calls.sequences();
        let advantages = call_advantages(groups, group, self.options.step_weight);
        let parts = calls.parts(groups, self.options.mini_batches);
        let terms = self.terms(&calls, &sequences, &advantages, &parts)?;
        let surrogate = match group.estimator {
            Estimator::Grpo => Surrogate::Clipped(self.options.clip),
            Estimator::Reinforce => Surrogate::Reinforce,
        };
        let objective = |part: Part| PolicyObjective {
            sequences: &sequences[part.calls.clone()],
            terms: &terms[part.calls],
            surrogate,
            temperature: self.options.temperature,
            kl_weight: self.options.kl_weight,
            guard_weight: group.likelihood_guard,
            entropy_weight: self.options.entropy_weight,
        };
        let objectives: Vec<PolicyObjective<'_>> = parts.into_iter().map(objective).collect();
        let mut learned = self.update(index, &objectives, learning_rate)?;
        learned.metrics.extend(of_advantages(&calls, &advantages));
        Ok(learned)
    }

    fn terms(&self, calls: &StepCalls<'_>, sequences: &[Sequence<'_>], advantages: &[f64], parts: &[Part]) -> Result<Vec<CallTerms>> {
        // With one update the policy that sampled is the policy as it is.
        let old = if self.options.num_updates(parts.len()) > 1 { Some(self.logps_now(sequences)?) } else { None };
        let reference = self.reference_logps(sequences)?;
        let term = |((call, weight), advantage): ((usize, f64), &f64)| CallTerms {
            advantages: vec![*advantage; sequences[call].completion.len()],
            weight,
            old_logps: old.as_ref().map(|logps| logps[call].clone()),
            reference_logps: reference.as_ref().map(|logps| logps[call].clone()),
        };
        Ok(self.token_weights(calls, parts).into_iter().enumerate().zip(advantages).map(term).collect())
    }

    /// By the policy as it is.
    pub fn logps_now(&self, sequences: &[Sequence<'_>]) -> Result<Vec<Vec<f64>>> {
        token_logps(self.policy, sequences, self.options.temperature, self.passes())
    }

    /// Where there is a KL penalty.
    pub fn reference_logps(&self, sequences: &[Sequence<'_>]) -> Result<Option<Vec<Vec<f64>>>> {
        let logps = |reference| token_logps(reference, sequences, self.options.temperature, self.passes());
        self.beside.reference.map(logps).transpose()
    }

    /// All updates of the step, `objectives` being its parts; metrics are means over the updates. A part in which no token has a gradient leaves the weights
    /// and the optimiser as they are.
    fn update(&mut self, index: usize, objectives: &[PolicyObjective<'_>], learning_rate: f64) -> Result<Learned> {
        let selected = objectives.iter().map(|objective| (objective, objective.with_gradient()));
        let selected: Vec<_> = selected.filter(|(_, selected)| !selected.is_empty()).collect();
        if selected.is_empty() {
            let metrics = objectives.first().map_or_else(Metrics::new, PolicyObjective::no_metrics);
            return Ok(Learned { metrics, ..Learned::default() });
        }
        let updates = std::iter::repeat_n(&selected, self.options.updates_per_batch).flatten();
        let num_updates = self.options.updates_per_batch * selected.len();
        let mut learned = Learned::default();
        for (objective, selected) in updates {
            let StepGradients { gradients, metrics, num_tokens, num_distinct_tokens } =
                objective.gradients(self.policy, selected, self.passes())?;
            let (loss, grad_norm) = (metrics.first().map_or(f64::NAN, |(_, loss)| *loss), gradients.norm()?);
            check_finite(index + 1, "loss", loss)?;
            check_finite(index + 1, "gradient norm", grad_norm)?;
            self.begin_update();
            let gradient_scale = clip_scale(grad_norm, self.options.run.max_grad_norm);
            let parameters = self.policy.parameters();
            self.optimizer.step_groups(&[ParameterGroup { parameters, gradients: &gradients, learning_rate, gradient_scale }])?;
            learned.add(metrics, grad_norm, (num_tokens, num_distinct_tokens));
        }
        Ok(learned.mean(num_updates))
    }
}

/// Mean and deviation of the advantages over the tokens that the policy wrote.
fn of_advantages(calls: &StepCalls<'_>, advantages: &[f64]) -> Metrics {
    let by_token = calls.calls.iter().zip(advantages).flat_map(|(call, advantage)| std::iter::repeat_n(*advantage, call.completion.len()));
    let all: Vec<f64> = by_token.collect();
    vec![("advantage_mean", mean(all.iter().copied())), ("advantage_std", deviation(&all))]
}
