//! Direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290).
//!
//! The reference's log-probabilities are numbers computed once, before training: one model is in memory, not two.

use candle_core::Tensor;

use super::batch::Batch;
use super::example::{DpoExample, Sequence, dpo_sequences};
use super::head::{Head, HeadGradients};
use super::loss::{DpoTerm, PairLogps, dpo_sigmoid};
use super::options::{DpoOptions, RunOptions};
use super::plan::Plan;
use super::thread::with_deep_stack;
use super::trainer::{Metrics, Objective, StepMetrics, train};
use crate::error::{Error, Result};
use crate::models::Decoder;

/// The reference's log-probabilities of a pair's completions: natural log, summed over their tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReferenceLogps {
    pub chosen: f64,
    pub rejected: f64,
}

/// Log-probabilities of all pairs under `reference`, in the order of `examples`. Where the reference is the policy that is going to
/// be trained, call this before [`train_dpo`] with the same decoder.
///
/// The prompts are shortened as in training, so `options` must be the same. The observer sees how many pairs of how many are done; its
/// error ends the work.
///
/// # Errors
/// As [`train_dpo`].
pub fn reference_logps(
    reference: &Decoder,
    examples: &[DpoExample],
    options: &DpoOptions,
    observer: &mut dyn FnMut(usize, usize) -> Result<()>,
) -> Result<Vec<ReferenceLogps>> {
    let pairs = dpo_sequences(examples, &options.run)?;
    let num_pairs = pairs.len();
    let objective = Dpo { pairs, reference: &[], beta: options.beta };
    let costs = objective.costs();
    let in_order = RunOptions { epochs: 1.0, max_steps: None, shuffle: false, gradient_accumulation: 1, ..options.run.clone() };
    let work = |report: &mut dyn FnMut(usize) -> Result<()>| {
        let mut logps = Vec::with_capacity(num_pairs);
        for examples in Plan::new(&costs, &in_order, None).flatten() {
            logps.extend(objective.score(reference, &examples)?);
            report(logps.len())?;
        }
        Ok(logps)
    };
    with_deep_stack(work, &mut |done| observer(done, num_pairs))
}

/// Trains `decoder`, in place, to prefer each pair's chosen completion.
///
/// `reference`: one entry per example, of [`reference_logps`]. The loss of a step is the mean over all its pairs. The observer sees
/// each step; its error ends the run. If this function returns an error, `decoder` holds the weights of an unfinished run: drop it.
///
/// # Errors
/// [`Error::InvalidParameter`] for `beta <= 0` or a pair that does not fit, naming its row; [`Error::NotReady`] without a pair;
/// [`Error::Diverged`]; [`Error::Internal`] if `reference` has another length than `examples`.
pub fn train_dpo(
    decoder: &mut Decoder,
    reference: &[ReferenceLogps],
    examples: &[DpoExample],
    options: &DpoOptions,
    observer: &mut dyn FnMut(&StepMetrics) -> Result<()>,
) -> Result<()> {
    if reference.len() != examples.len() {
        return Err(Error::Internal(format!("{} pairs have {} reference log-probabilities", examples.len(), reference.len())));
    }
    let objective = Dpo { pairs: dpo_sequences(examples, &options.run)?, reference, beta: options.beta };
    train(decoder, &objective, &options.run, Some(options.batch_size), observer)
}

pub(crate) struct Dpo<'a> {
    /// Chosen and rejected.
    pub pairs: Vec<[Sequence<'a>; 2]>,
    /// By pair.
    pub reference: &'a [ReferenceLogps],
    pub beta: f64,
}

impl Dpo<'_> {
    /// Log-probabilities of these pairs under `reference`.
    fn score(&self, reference: &Decoder, examples: &[usize]) -> Result<Vec<ReferenceLogps>> {
        let batch = self.batch(examples);
        let hidden = reference.hidden(&batch.tokens, &batch.lengths)?.detach();
        let rows = Tensor::from_slice(&batch.rows, batch.rows.len(), hidden.device())?;
        let logps = Head::new(reference.head_weight())?.logps(&hidden.index_select(&rows, 0)?, &batch.targets)?;
        let sums = sum_by_sequence(&batch, &logps);
        Ok(sums.chunks_exact(2).map(|pair| ReferenceLogps { chosen: pair[0], rejected: pair[1] }).collect())
    }
}

impl Objective for Dpo<'_> {
    fn costs(&self) -> Vec<usize> {
        self.pairs.iter().map(|pair| pair.iter().map(Sequence::num_inputs).sum()).collect()
    }

    fn batch(&self, examples: &[usize]) -> Batch {
        Batch::pack(examples.iter().flat_map(|&example| &self.pairs[example]))
    }

    fn normalizer(&self, examples: &[usize]) -> f64 {
        examples.len() as f64
    }

    /// The log-probabilities come first, because the derivative depends on them; the head then runs a second time for the
    /// gradients, which costs less memory than keeping its logits.
    fn differentiate(
        &self,
        head: &Head,
        hidden: &Tensor,
        batch: &Batch,
        examples: &[usize],
        normalizer: f64,
    ) -> Result<(HeadGradients, Metrics)> {
        let sums = sum_by_sequence(batch, &head.logps(hidden, &batch.targets)?);
        let mut d_logps = vec![0.0; batch.rows.len()];
        let mut metrics = MeanMetrics::default();
        for (pair, &example) in examples.iter().enumerate() {
            let (chosen, rejected) = (2 * pair, 2 * pair + 1);
            let logps = PairLogps {
                policy_chosen: sums[chosen],
                policy_rejected: sums[rejected],
                reference_chosen: self.reference[example].chosen,
                reference_rejected: self.reference[example].rejected,
            };
            let term = dpo_sigmoid(&logps, self.beta)?;
            // A completion's log-probability is the sum over its rows: each row has the sum's derivative.
            d_logps[batch.row_ranges[chosen].clone()].fill(term.d_chosen / normalizer);
            d_logps[batch.row_ranges[rejected].clone()].fill(-term.d_chosen / normalizer);
            metrics.add(&logps, &term, normalizer);
        }
        Ok((head.gradients(hidden, &batch.targets, &d_logps)?, metrics.into_metrics()))
    }
}

/// Log-probability of each sequence of the batch.
fn sum_by_sequence(batch: &Batch, logps: &[f64]) -> Vec<f64> {
    batch.row_ranges.iter().map(|rows| logps[rows.clone()].iter().sum()).collect()
}

/// Means over the pairs of a step, as shares that add up.
#[derive(Debug, Default)]
struct MeanMetrics {
    loss: f64,
    reward_margin: f64,
    reward_accuracy: f64,
    chosen_reward: f64,
    rejected_reward: f64,
    chosen_logps: f64,
    rejected_logps: f64,
}

impl MeanMetrics {
    fn add(&mut self, logps: &PairLogps, term: &DpoTerm, num_pairs: f64) {
        self.loss += term.loss / num_pairs;
        self.reward_margin += term.reward_margin() / num_pairs;
        self.reward_accuracy += f64::from(u8::from(term.reward_margin() > 0.0)) / num_pairs;
        self.chosen_reward += term.chosen_reward / num_pairs;
        self.rejected_reward += term.rejected_reward / num_pairs;
        self.chosen_logps += logps.policy_chosen / num_pairs;
        self.rejected_logps += logps.policy_rejected / num_pairs;
    }

    fn into_metrics(self) -> Metrics {
        vec![
            ("loss", self.loss),
            ("reward_margin", self.reward_margin),
            ("reward_accuracy", self.reward_accuracy),
            ("chosen_reward", self.chosen_reward),
            ("rejected_reward", self.rejected_reward),
            ("chosen_logps", self.chosen_logps),
            ("rejected_logps", self.rejected_logps),
        ]
    }
}
