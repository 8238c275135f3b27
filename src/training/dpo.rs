//! Learning from preference pairs: direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290) and its relatives.
//!
//! The reference's log-probabilities are numbers computed once, before training: one model is in memory, not two. Which loss is a
//! parameter ([`Preference`]); this file runs the pairs through the model and gives its derivatives to the vocabulary head.

use std::ops::Range;

use candle_core::Tensor;

use super::backward;
use super::batch::Batch;
use super::example::{DpoExample, Sequence, dpo_sequences};
use super::head::{DecoderHead, Head, HeadGradients};
use super::losses::{PairLengths, PairLogps, Preference, PreferenceTerm};
use super::metrics::ENTROPY;
use super::options::DpoOptions;
use super::plan::all_in_batches;
use super::sharing::Sharing;
use super::thread::with_deep_stack;
use super::trainer::{Metrics, Objective, StepMetrics, Trained, sharing, train};
use crate::error::{Error, Result};
use crate::models::Decoder;

/// The reference's log-probabilities of a pair's completions: natural log, summed over their tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReferenceLogps {
    pub chosen: f64,
    pub rejected: f64,
}

/// Log-probabilities of all pairs under `reference`, in the order of `examples`. Where the reference is the policy that is going to
/// be trained, call this before [`train_dpo`] with the same decoder. It does not ask whether the loss needs a reference.
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
    let objective = Dpo { pairs, reference: &[], preference: options.preference, tree_packing: options.run.tree_packing };
    let (costs, sharing) = (objective.costs(), sharing(&objective, &options.run));
    let work = |report: &mut dyn FnMut(usize) -> Result<()>| {
        let mut logps = vec![ReferenceLogps { chosen: 0.0, rejected: 0.0 }; num_pairs];
        let mut num_done = 0;
        // Pairs that share a beginning follow each other, whatever their own order is.
        for examples in all_in_batches(&costs, sharing.as_ref(), &options.run) {
            for (&example, scored) in examples.iter().zip(objective.score(reference, &examples)?) {
                logps[example] = scored;
            }
            num_done += examples.len();
            report(num_done)?;
        }
        Ok(logps)
    };
    with_deep_stack(work, &mut |done| observer(done, num_pairs))
}

/// As [`train_dpo_validated`], without validation pairs.
///
/// # Errors
/// As [`train_dpo_validated`].
pub fn train_dpo(
    decoder: &mut Decoder,
    reference: &[ReferenceLogps],
    examples: &[DpoExample],
    options: &DpoOptions,
    observer: &mut dyn FnMut(&StepMetrics) -> Result<()>,
) -> Result<Trained> {
    train_dpo_validated(decoder, reference, examples, (&[], &[]), options, observer)
}

/// Trains `decoder`, in place, to prefer each pair's chosen completion.
///
/// `reference`: one entry per example, of [`reference_logps`]; a loss that needs no reference takes none. `validation`: the same two, of
/// pairs that are not learned from; may be empty. The loss of a step is the mean over all its pairs. The observer sees each step; its
/// error ends the run. If this function returns an error, `decoder` holds the weights of an unfinished run: drop it.
///
/// # Errors
/// [`Error::InvalidParameter`] for a parameter of the loss out of its range, for a pair that does not fit or whose completions are the
/// same, naming its row, and for early stopping without evaluations; [`Error::NotReady`] without a pair; [`Error::Diverged`];
/// [`Error::Cancelled`]; [`Error::Io`] for a checkpoint that cannot be written; [`Error::Internal`] if `reference` has another length
/// than its examples.
pub fn train_dpo_validated(
    decoder: &mut Decoder,
    reference: &[ReferenceLogps],
    examples: &[DpoExample],
    validation: (&[ReferenceLogps], &[DpoExample]),
    options: &DpoOptions,
    observer: &mut dyn FnMut(&StepMetrics) -> Result<()>,
) -> Result<Trained> {
    let (validation_reference, validation_examples) = validation;
    options.preference.check()?;
    options.run.check_early_stopping(!validation_examples.is_empty())?;
    let objective = Dpo::new(reference, examples, options)?;
    let validation =
        if validation_examples.is_empty() { None } else { Some(Dpo::new(validation_reference, validation_examples, options)?) };
    train(decoder, &objective, validation.as_ref(), &options.run, Some(options.batch_size), observer)
}

pub(crate) struct Dpo<'a> {
    /// Chosen and rejected.
    pub pairs: Vec<[Sequence<'a>; 2]>,
    /// By pair; not read where the loss needs no reference.
    pub reference: &'a [ReferenceLogps],
    pub preference: Preference,
    /// See [`RunOptions::tree_packing`](super::options::RunOptions).
    pub tree_packing: bool,
}

impl<'a> Dpo<'a> {
    fn new(reference: &'a [ReferenceLogps], examples: &'a [DpoExample], options: &DpoOptions) -> Result<Self> {
        if options.preference.loss.needs_reference() && reference.len() != examples.len() {
            return Err(Error::Internal(format!("{} pairs have {} reference log-probabilities", examples.len(), reference.len())));
        }
        let pairs = dpo_sequences(examples, &options.run)?;
        Ok(Self { pairs, reference, preference: options.preference, tree_packing: options.run.tree_packing })
    }

    /// Log-probabilities of these pairs under `reference`.
    fn score(&self, reference: &Decoder, examples: &[usize]) -> Result<Vec<ReferenceLogps>> {
        let batch = self.batch(examples);
        let hidden = backward::rows(reference, &batch)?; // [R, H]
        let logps = Head::of(reference)?.logps(&hidden, &batch.targets)?;
        let sums = sum_by_sequence(&batch, &logps);
        Ok(sums.chunks_exact(2).map(|pair| ReferenceLogps { chosen: pair[0], rejected: pair[1] }).collect())
    }

    /// The loss of each pair of the batch of `examples`, from the log-probabilities of its rows.
    fn terms(&self, batch: &Batch, logps: &[f64], examples: &[usize]) -> Vec<(PairLogps, PreferenceTerm)> {
        let sums = sum_by_sequence(batch, logps);
        let pairs = sums.chunks_exact(2).zip(batch.row_ranges.chunks_exact(2)).zip(examples);
        let term = |((sums, rows), &example): ((&[f64], &[Range<usize>]), &usize)| {
            let reference = self.reference_of(example);
            let logps = PairLogps {
                policy_chosen: sums[0],
                policy_rejected: sums[1],
                reference_chosen: reference.chosen,
                reference_rejected: reference.rejected,
            };
            (logps, self.preference.term(&logps, PairLengths { chosen: rows[0].len(), rejected: rows[1].len() }))
        };
        pairs.map(term).collect()
    }

    fn reference_of(&self, example: usize) -> ReferenceLogps {
        if self.preference.loss.needs_reference() { self.reference[example] } else { ReferenceLogps { chosen: 0.0, rejected: 0.0 } }
    }

    fn metrics(&self, terms: &[(PairLogps, PreferenceTerm)], entropy: f64, num_pairs: f64) -> Metrics {
        let mut sum = MeanMetrics { entropy, ..MeanMetrics::default() };
        for (logps, term) in terms {
            sum.add(logps, term, num_pairs);
        }
        sum.into_metrics(self.preference.sft_weight > 0.0)
    }
}

impl Objective for Dpo<'_> {
    type Head = Head;

    fn costs(&self) -> Vec<usize> {
        self.pairs.iter().map(|pair| pair.iter().map(Sequence::num_inputs).sum()).collect()
    }

    fn sharing(&self) -> Option<Sharing> {
        Some(Sharing::new(self.pairs.iter().map(<[Sequence<'_>; 2]>::as_slice)))
    }

    fn batch(&self, examples: &[usize]) -> Batch {
        Batch::of(examples.iter().flat_map(|&example| &self.pairs[example]), self.tree_packing)
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
        let terms = self.terms(batch, &head.logps(hidden, &batch.targets)?, examples);
        let mut d_logps = vec![0.0; batch.rows.len()];
        for ((_, term), rows) in terms.iter().zip(batch.row_ranges.chunks_exact(2)) {
            // A completion's log-probability is the sum over its rows: each row has the sum's derivative.
            d_logps[rows[0].clone()].fill(term.d_chosen / normalizer);
            d_logps[rows[1].clone()].fill(term.d_rejected / normalizer);
        }
        let gradients = head.gradients(hidden, &batch.targets, &d_logps)?;
        let metrics = self.metrics(&terms, mean_entropy(batch, &gradients.entropies, normalizer), normalizer);
        Ok((gradients, metrics))
    }

    fn measure(&self, head: &Head, hidden: &Tensor, batch: &Batch, examples: &[usize], normalizer: f64) -> Result<Metrics> {
        let (logps, entropies): (Vec<f64>, Vec<f64>) =
            head.measured(hidden, &batch.targets)?.into_iter().map(|row| (row.logp, row.entropy)).unzip();
        Ok(self.metrics(&self.terms(batch, &logps, examples), mean_entropy(batch, &entropies, normalizer), normalizer))
    }
}

/// Log-probability of each sequence of the batch.
fn sum_by_sequence(batch: &Batch, logps: &[f64]) -> Vec<f64> {
    batch.row_ranges.iter().map(|rows| logps[rows.clone()].iter().sum()).collect()
}

/// Mean over the pairs of a step of what the tokens of both completions have on average, as a share that adds up.
fn mean_entropy(batch: &Batch, entropies: &[f64], num_pairs: f64) -> f64 {
    let of_pair = |rows: &[Range<usize>]| {
        let (sum, count) =
            rows.iter().fold((0.0, 0), |(sum, count), rows| (sum + entropies[rows.clone()].iter().sum::<f64>(), count + rows.len()));
        sum / count.max(1) as f64
    };
    batch.row_ranges.chunks_exact(2).map(of_pair).sum::<f64>() / num_pairs
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
    entropy: f64,
    sft_loss: f64,
}

impl MeanMetrics {
    fn add(&mut self, logps: &PairLogps, term: &PreferenceTerm, num_pairs: f64) {
        self.loss += term.loss / num_pairs;
        self.reward_margin += term.reward_margin() / num_pairs;
        self.reward_accuracy += f64::from(u8::from(term.reward_margin() > 0.0)) / num_pairs;
        self.chosen_reward += term.chosen_reward / num_pairs;
        self.rejected_reward += term.rejected_reward / num_pairs;
        self.chosen_logps += logps.policy_chosen / num_pairs;
        self.rejected_logps += logps.policy_rejected / num_pairs;
        self.sft_loss += term.sft_loss / num_pairs;
    }

    fn into_metrics(self, has_sft_term: bool) -> Metrics {
        let mut metrics = vec![
            ("loss", self.loss),
            ("reward_margin", self.reward_margin),
            ("reward_accuracy", self.reward_accuracy),
            ("chosen_reward", self.chosen_reward),
            ("rejected_reward", self.rejected_reward),
            ("chosen_logps", self.chosen_logps),
            ("rejected_logps", self.rejected_logps),
            (ENTROPY, self.entropy),
        ];
        if has_sft_term {
            metrics.push(("sft_loss", self.sft_loss));
        }
        metrics
    }
}
