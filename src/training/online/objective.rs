//! The loss of a policy over sampled tokens, and its gradient: PPO's clipped surrogate or REINFORCE, with a KL penalty, a guard of likelihood and a bonus for
//! entropy beside it.
//!
//! Log-probabilities are those of the distribution that was sampled from: the vocabulary head sees hidden states divided by the temperature, so that its logits
//! are. Every number of the old policy and of the reference was taken in the same way.

use candle_core::Tensor;

use super::calls::Passes;
use crate::error::Result;
use crate::models::Decoder;
use crate::training::backward::{self, add_batch};
use crate::training::batch::Batch;
use crate::training::example::Sequence;
use crate::training::gradients::Gradients;
use crate::training::head::{DecoderHead, Head, HeadGradients};
use crate::training::losses::{Clip, TokenTerm, clipped_surrogate, k3, likelihood_guard, reinforce};
use crate::training::trainer::{Metrics, StepGradients, add_metrics};

/// What the loss of a policy call takes beside its log-probabilities: one entry for each token of its completion.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CallTerms {
    pub advantages: Vec<f64>,
    /// Of each of its tokens in the loss of the step.
    pub weight: f64,
    /// Of the policy that sampled; None: of the policy as it is, so that the ratio is exactly 1.
    pub old_logps: Option<Vec<f64>>,
    /// Of the reference; None: no KL penalty.
    pub reference_logps: Option<Vec<f64>>,
}

/// How the advantage of a token pulls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Surrogate {
    Clipped(Clip),
    Reinforce,
}

/// The loss of a step over its policy calls.
#[derive(Debug)]
pub(crate) struct PolicyObjective<'a> {
    pub sequences: &'a [Sequence<'a>],
    /// By sequence.
    pub terms: &'a [CallTerms],
    pub surrogate: Surrogate,
    pub temperature: f64,
    /// Of k3 in the loss; nothing without log-probabilities of a reference.
    pub kl_weight: f64,
    /// Of the guard, divided by the number of calls; nothing without log-probabilities of the old policy.
    pub guard_weight: f64,
    /// Of the entropy of what a token was sampled from, which the loss falls with.
    pub entropy_weight: f64,
}

impl PolicyObjective<'_> {
    /// The gradient of the loss over the `selected` sequences, the others having none, and its metrics, which are sums over all tokens of these. Needs a deep
    /// stack.
    ///
    /// `loss`; `kl` with a reference, the mean of k3; `clip_fraction`, the share of tokens that the clip holds; `guard_loss` with a guard.
    ///
    /// # Errors
    /// [`Error::Cancelled`](crate::error::Error::Cancelled) between two batches; those of the decoder.
    pub fn gradients(&self, decoder: &Decoder, selected: &[usize], passes: Passes<'_>) -> Result<StepGradients> {
        let num_tokens: usize = selected.iter().map(|&call| self.terms[call].advantages.len()).sum();
        let mut sum = StepGradients { gradients: Gradients::default(), metrics: Metrics::new(), num_tokens: 0, num_distinct_tokens: 0 };
        for calls in passes.batches(self.sequences, selected) {
            passes.run.stop.check()?;
            let batch = passes.batch(self.sequences, &calls);
            sum.num_tokens += batch.lengths.iter().sum::<usize>();
            sum.num_distinct_tokens += batch.tokens.len();
            let differentiate = |head: &Head, hidden: &Tensor| self.differentiate(head, hidden, &batch, &calls, num_tokens);
            let metrics = add_batch(decoder, &batch, passes.recompute, differentiate, &mut sum.gradients)?;
            add_metrics(&mut sum.metrics, metrics);
        }
        Ok(sum)
    }

    /// The sequences of which a token can have a gradient: those whose advantage is not 0, and all where there is a penalty, a guard or a bonus.
    pub fn with_gradient(&self) -> Vec<usize> {
        let has_one = |terms: &CallTerms| {
            let is_penalised = self.kl_weight > 0.0 && terms.reference_logps.is_some();
            let is_guarded = self.guard_weight > 0.0 && terms.old_logps.is_some();
            self.entropy_weight > 0.0 || is_penalised || is_guarded || terms.advantages.iter().any(|advantage| *advantage != 0.0)
        };
        (0..self.terms.len()).filter(|&call| has_one(&self.terms[call])).collect()
    }

    /// The metrics of a step in which nothing has a gradient.
    pub fn no_metrics(&self) -> Metrics {
        Sums::default().into_metrics(self, 0)
    }

    /// As [`Objective::differentiate`](crate::training::trainer::Objective::differentiate), of the batch of `calls`; `num_tokens`: of the whole step.
    fn differentiate(
        &self,
        head: &Head,
        hidden: &Tensor,
        batch: &Batch,
        calls: &[usize],
        num_tokens: usize,
    ) -> Result<(HeadGradients, Metrics)> {
        let hidden = heated(hidden, self.temperature)?;
        // Where the policy is the one that sampled, and there is no penalty, the derivatives are known without them: the head runs once.
        let known = if self.reads_logps() { head.logps(&hidden, &batch.targets)? } else { vec![0.0; batch.targets.len()] };
        let mut d_logps = vec![0.0; batch.targets.len()];
        for (&call, rows) in calls.iter().zip(&batch.row_ranges) {
            self.add_derivatives(call, &known[rows.clone()], &mut d_logps[rows.clone()]);
        }
        let mut d_entropies = Vec::new();
        if self.entropy_weight > 0.0 {
            d_entropies = vec![0.0; batch.targets.len()];
            for (&call, rows) in calls.iter().zip(&batch.row_ranges) {
                d_entropies[rows.clone()].fill(-self.terms[call].weight * self.entropy_weight);
            }
        }
        let mut gradients = head.gradients_with_entropies(&hidden, &batch.targets, &d_logps, &d_entropies)?;
        gradients.d_hidden = heated(&gradients.d_hidden, self.temperature)?;
        let mut sums = Sums::default();
        for (&call, rows) in calls.iter().zip(&batch.row_ranges) {
            sums.add(self, call, &gradients.outputs[rows.clone()], gradients.entropies.get(rows.clone()).unwrap_or_default());
        }
        let metrics = sums.into_metrics(self, num_tokens);
        Ok((gradients, metrics))
    }

    /// Whether a derivative depends on a log-probability.
    fn reads_logps(&self) -> bool {
        self.terms.iter().any(|terms| terms.old_logps.is_some() || terms.reference_logps.is_some())
    }

    fn add_derivatives(&self, call: usize, logps: &[f64], d_logps: &mut [f64]) {
        let terms = &self.terms[call];
        for (token, (&logp, d_logp)) in logps.iter().zip(&mut *d_logps).enumerate() {
            let penalty = self.penalty(terms, token, logp).map_or(0.0, |term| self.kl_weight * term.d_logp);
            *d_logp = terms.weight * (self.pull(terms, token, logp).d_logp + penalty);
        }
        if let Some((_, guarded)) = self.guard(terms, logps) {
            d_logps.iter_mut().zip(guarded).for_each(|(d_logp, guarded)| *d_logp += guarded);
        }
    }

    /// What the advantage makes of a token.
    fn pull(&self, terms: &CallTerms, token: usize, logp: f64) -> TokenTerm {
        let advantage = terms.advantages[token];
        match self.surrogate {
            Surrogate::Clipped(clip) => {
                let old_logp = terms.old_logps.as_ref().map_or(logp, |old_logps| old_logps[token]);
                clipped_surrogate(logp, old_logp, advantage, clip)
            }
            Surrogate::Reinforce => reinforce(logp, advantage),
        }
    }

    fn penalty(&self, terms: &CallTerms, token: usize, logp: f64) -> Option<TokenTerm> {
        terms.reference_logps.as_ref().map(|reference_logps| k3(logp, reference_logps[token]))
    }

    /// Each call is judged for itself, so that it does not matter which calls share a batch.
    fn guard(&self, terms: &CallTerms, logps: &[f64]) -> Option<(f64, Vec<f64>)> {
        let (old_logps, advantage) = terms.old_logps.as_ref().zip(terms.advantages.first()).filter(|_| self.guard_weight > 0.0)?;
        let weight = self.guard_weight / self.sequences.len() as f64;
        Some(likelihood_guard(logps, old_logps, &vec![true; logps.len()], *advantage, weight))
    }
}

/// Log-probabilities of each token of each sequence at this temperature, by sequence; nothing is kept for a gradient.
///
/// # Errors
/// [`Error::Cancelled`](crate::error::Error::Cancelled) between two batches; those of the decoder.
pub(crate) fn token_logps(decoder: &Decoder, sequences: &[Sequence<'_>], temperature: f64, passes: Passes<'_>) -> Result<Vec<Vec<f64>>> {
    let head = Head::of(decoder)?;
    let all: Vec<usize> = (0..sequences.len()).collect();
    let mut logps = vec![Vec::new(); sequences.len()];
    for calls in passes.batches(sequences, &all) {
        passes.run.stop.check()?;
        let batch = passes.batch(sequences, &calls);
        let hidden = heated(&backward::rows(decoder, &batch)?, temperature)?;
        let found = head.logps(&hidden, &batch.targets)?;
        for (&call, rows) in calls.iter().zip(&batch.row_ranges) {
            logps[call] = found[rows.clone()].to_vec();
        }
    }
    Ok(logps)
}

/// Logits of the same states divided by the temperature, since a vocabulary head has no bias; and derivatives by the states from those by the result.
fn heated(states: &Tensor, temperature: f64) -> Result<Tensor> {
    if temperature == 1.0 { Ok(states.clone()) } else { Ok((states * (1.0 / temperature))?) }
}

/// Shares of a batch in the metrics of its step.
#[derive(Debug, Default)]
struct Sums {
    loss: f64,
    kl: f64,
    num_clipped: usize,
    guard: f64,
    has_reference: bool,
}

impl Sums {
    /// `entropies`: one for each token, or none where the objective has no bonus.
    fn add(&mut self, objective: &PolicyObjective<'_>, call: usize, logps: &[f64], entropies: &[f64]) {
        let terms = &objective.terms[call];
        for (token, &logp) in logps.iter().enumerate() {
            let pull = objective.pull(terms, token, logp);
            let penalty = objective.penalty(terms, token, logp).map_or(0.0, |term| term.loss);
            self.loss += terms.weight * (pull.loss + objective.kl_weight * penalty);
            self.kl += penalty;
            self.num_clipped += usize::from(pull.is_clipped);
        }
        self.loss -= terms.weight * objective.entropy_weight * entropies.iter().sum::<f64>();
        let guard = objective.guard(terms, logps).map_or(0.0, |(loss, _)| loss);
        (self.loss, self.guard) = (self.loss + guard, self.guard + guard);
        self.has_reference |= terms.reference_logps.is_some();
    }

    fn into_metrics(self, objective: &PolicyObjective<'_>, num_tokens: usize) -> Metrics {
        let share = 1.0 / num_tokens.max(1) as f64;
        let mut metrics = vec![("loss", self.loss)];
        if self.has_reference {
            metrics.push(("kl", self.kl * share));
        }
        if let Surrogate::Clipped(_) = objective.surrogate {
            metrics.push(("clip_fraction", self.num_clipped as f64 * share));
        }
        if objective.guard_weight > 0.0 {
            metrics.push(("guard_loss", self.guard));
        }
        metrics
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;
    use proptest::prelude::*;

    use super::*;
    use crate::models::ops::Arithmetic;

    /// The loss of one call at these log-probabilities.
    fn loss(objective: &PolicyObjective<'_>, logps: &[f64], entropies: &[f64]) -> f64 {
        let mut sums = Sums::default();
        sums.add(objective, 0, logps, entropies);
        sums.loss
    }

    fn numbers(from: f64, to: f64) -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(from..to, 4)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// The derivatives are those of the loss, by finite differences: with a clip or without, a penalty, a guard.
        #[test]
        fn derivatives_are_those_of_the_loss(
            logps in numbers(-4.0, -0.1),
            old_logps in numbers(-4.0, -0.1),
            reference_logps in numbers(-4.0, -0.1),
            advantage in -2.0_f64..2.0,
            weight in 0.01_f64..1.0,
            is_reinforce in proptest::bool::ANY,
            kl_weight in 0.0_f64..0.5,
            guard_weight in 0.0_f64..0.5,
        ) {
            let clip = Clip { low: 0.2, high: 0.28 };
            // Where the loss has a corner, it has no derivative.
            let is_smooth = logps.iter().zip(&old_logps).all(|(logp, old)| {
                let ratio = (logp - old).exp();
                [1.0 - clip.low, 1.0, 1.0 + clip.high].iter().all(|edge| (ratio - edge).abs() > 1e-3)
            });
            let change: f64 = logps.iter().sum::<f64>() - old_logps.iter().sum::<f64>();
            prop_assume!(is_smooth && change.abs() > 1e-3);
            let sequences = [Sequence { prompt: &[1], completion: &[1; 4], mask: &[], prompt_weight: 0.0, completion_weight: 1.0 }];
            let terms = [CallTerms {
                advantages: vec![advantage; 4],
                weight,
                old_logps: Some(old_logps),
                reference_logps: Some(reference_logps),
            }];
            let surrogate = if is_reinforce { Surrogate::Reinforce } else { Surrogate::Clipped(clip) };
            let objective = PolicyObjective { sequences: &sequences, terms: &terms, surrogate, temperature: 1.0, kl_weight, guard_weight, entropy_weight: 0.0 };
            let mut derivatives = [0.0; 4];
            objective.add_derivatives(0, &logps, &mut derivatives);
            for token in 0..4 {
                let at = |step: f64| {
                    let mut moved = logps.clone();
                    moved[token] += step;
                    loss(&objective, &moved, &[])
                };
                let slope = (at(1e-6) - at(-1e-6)) / 2e-6;
                prop_assert!((slope - derivatives[token]).abs() < 1e-5 * slope.abs().max(1.0), "{slope} and {}", derivatives[token]);
            }
        }

        /// Without numbers of the old policy the ratio is exactly 1, whatever the log-probabilities are.
        #[test]
        fn the_policy_that_sampled_has_the_ratio_one(logps in numbers(-9.0, -0.1), advantage in -2.0_f64..2.0) {
            let sequences = [Sequence { prompt: &[1], completion: &[1; 4], mask: &[], prompt_weight: 0.0, completion_weight: 1.0 }];
            let terms = [CallTerms { advantages: vec![advantage; 4], weight: 0.25, ..CallTerms::default() }];
            let surrogate = Surrogate::Clipped(Clip { low: 0.2, high: 0.2 });
            let objective =
                PolicyObjective { sequences: &sequences, terms: &terms, surrogate, temperature: 1.0, kl_weight: 0.0, guard_weight: 0.0, entropy_weight: 0.0 };
            prop_assert!(!objective.reads_logps());
            let mut derivatives = [0.0; 4];
            objective.add_derivatives(0, &logps, &mut derivatives);
            prop_assert_eq!(derivatives, [-0.25 * advantage; 4]);
            prop_assert!((loss(&objective, &logps, &[]) + advantage).abs() < 1e-12);
            let mut at_zero = [0.0; 4];
            objective.add_derivatives(0, &[0.0; 4], &mut at_zero);
            prop_assert_eq!(at_zero, derivatives);
        }
    }

    /// By every number of the states and of the head, at a temperature: logits in f64, moved both ways.
    #[test]
    fn derivatives_by_states_and_head_are_central_differences() {
        const STEP: f64 = 1e-5;
        let (temperature, width, vocab) = (0.7, 3, 5);
        let sequences = [Sequence { prompt: &[1], completion: &[2, 4, 0], mask: &[], prompt_weight: 0.0, completion_weight: 1.0 }];
        // Below 1 by a ratio that the clip lets go, above by one that it holds, and in between.
        let old_logps = Some(vec![-2.9, -1.9, -0.4]);
        let terms = [CallTerms { advantages: vec![1.5; 3], weight: 0.2, old_logps, reference_logps: Some(vec![-1.0, -2.0, -3.0]) }];
        let surrogate = Surrogate::Clipped(Clip { low: 0.2, high: 0.28 });
        let objective = PolicyObjective {
            sequences: &sequences,
            terms: &terms,
            surrogate,
            temperature,
            kl_weight: 0.1,
            guard_weight: 0.3,
            entropy_weight: 0.4,
        };
        let numbers =
            |len: usize, by: f64| (0..len).map(|index| f64::from((by * (index * index + 1) as f64).sin() as f32)).collect::<Vec<_>>();
        let mut numbers = [numbers(3 * width, 1.3), numbers(vocab * width, 0.7)];
        let batch = Batch::of(sequences.iter(), false);
        let loss_at = |[hidden, weight]: &[Vec<f64>; 2]| {
            let logp_and_entropy = |(hidden, target): (&[f64], &u32)| {
                let logit = |row: &[f64]| row.iter().zip(hidden).map(|(weight, hidden)| weight * hidden).sum::<f64>() / temperature;
                let logits: Vec<f64> = weight.chunks_exact(width).map(logit).collect();
                let log_sum = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
                let entropy = logits.iter().map(|logit| (log_sum - logit) * (logit - log_sum).exp()).sum::<f64>();
                (logits[*target as usize] - log_sum, entropy)
            };
            let (logps, entropies): (Vec<f64>, Vec<f64>) = hidden.chunks_exact(width).zip(&batch.targets).map(logp_and_entropy).unzip();
            loss(&objective, &logps, &entropies)
        };
        let matrix = |values: &[f64]| {
            let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
            let rows = values.len() / width;
            Tensor::from_vec(values, (rows, width), &candle_core::Device::Cpu).expect("whole rows")
        };
        for arithmetic in [Arithmetic::Fused, Arithmetic::Plain(DType::F32)] {
            let head = Head::new(&matrix(&numbers[1])).and_then(|head| head.with_arithmetic(arithmetic)).expect("a matrix");
            let (found, metrics) = objective.differentiate(&head, &matrix(&numbers[0]), &batch, &[0], 3).expect("the tokens fit");
            assert!((metrics[0].1 - loss_at(&numbers)).abs() < 1e-5, "{metrics:?}");
            for (index, gradient) in [found.d_hidden, found.d_weight.expect("it is not frozen")].into_iter().enumerate() {
                let found = gradient.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("f32");
                assert!(found.iter().any(|value| *value != 0.0));
                for (at, found) in found.into_iter().enumerate() {
                    let value = numbers[index][at];
                    let mut moved = |by: f64| {
                        numbers[index][at] = value + by;
                        loss_at(&numbers)
                    };
                    let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                    numbers[index][at] = value;
                    assert!(
                        (f64::from(found) - slope).abs() < 1e-4 * slope.abs().max(0.1),
                        "number {at} of input {index}: {found} and {slope}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_has_no_advantage_has_no_gradient_unless_it_is_penalised() {
        let sequence = Sequence { prompt: &[1], completion: &[1], mask: &[], prompt_weight: 0.0, completion_weight: 1.0 };
        let reference_logps = Some(vec![-1.0]);
        let term =
            |advantage| CallTerms { advantages: vec![advantage], weight: 1.0, old_logps: None, reference_logps: reference_logps.clone() };
        let (sequences, terms) = ([sequence; 2], [term(0.0), term(-1.0)]);
        let selected = |kl_weight, entropy_weight| {
            let surrogate = Surrogate::Reinforce;
            let objective = PolicyObjective {
                sequences: &sequences,
                terms: &terms,
                surrogate,
                temperature: 1.0,
                kl_weight,
                guard_weight: 0.0,
                entropy_weight,
            };
            objective.with_gradient()
        };
        assert_eq!([selected(0.0, 0.0), selected(0.1, 0.0), selected(0.0, 0.1)], [vec![1], vec![0, 1], vec![0, 1]]);
    }
}
