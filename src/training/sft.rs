//! Supervised fine-tuning: weighted negative log-likelihood of the completions.

use candle_core::Tensor;

use super::batch::Batch;
use super::example::{Sequence, SftExample, sft_sequences};
use super::head::{Head, HeadGradients, MeasuredRow};
use super::losses::{d_weighted_nll, weighted_nll};
use super::metrics::{ENTROPY, TOKEN_ACCURACY};
use super::options::SftOptions;
use super::sharing::Sharing;
use super::trainer::{Metrics, Objective, StepMetrics, Trained, train};
use crate::error::{Error, Result};
use crate::models::Decoder;

/// As [`train_sft_validated`], without validation examples.
///
/// # Errors
/// As [`train_sft_validated`].
pub fn train_sft(
    decoder: &mut Decoder,
    examples: &[SftExample],
    options: &SftOptions,
    observer: &mut dyn FnMut(&StepMetrics) -> Result<()>,
) -> Result<Trained> {
    train_sft_validated(decoder, examples, &[], options, observer)
}

/// Trains `decoder`, in place, to give the completions after their prompts.
///
/// The loss of a step is the weighted mean over all tokens of the step, whichever batch they are in; that of `validation`, which may
/// be empty, is the same mean over all its tokens. The observer sees each step; its error ends the run. If this function returns an
/// error, `decoder` holds the weights of an unfinished run: drop it.
///
/// # Errors
/// [`Error::InvalidParameter`] for an example that does not fit or has nothing to learn, naming its row, and for early stopping
/// without evaluations; [`Error::NotReady`] without an example; [`Error::Diverged`]; [`Error::Cancelled`]; [`Error::Io`] for a
/// checkpoint that cannot be written.
pub fn train_sft_validated(
    decoder: &mut Decoder,
    examples: &[SftExample],
    validation: &[SftExample],
    options: &SftOptions,
    observer: &mut dyn FnMut(&StepMetrics) -> Result<()>,
) -> Result<Trained> {
    options.run.check_early_stopping(!validation.is_empty())?;
    let sft = |examples| {
        let sequences = sft_sequences(examples, options.prompt_weight, &options.run)?;
        Ok::<_, Error>(Sft { sequences, tree_packing: options.run.tree_packing })
    };
    let objective = sft(examples)?;
    let validation = if validation.is_empty() { None } else { Some(sft(validation)?) };
    train(decoder, &objective, validation.as_ref(), &options.run, options.batch_size, observer)
}

pub(crate) struct Sft<'a> {
    pub sequences: Vec<Sequence<'a>>,
    /// See [`RunOptions::tree_packing`](super::options::RunOptions).
    pub tree_packing: bool,
}

impl Objective for Sft<'_> {
    type Head = Head;

    fn costs(&self) -> Vec<usize> {
        self.sequences.iter().map(Sequence::num_inputs).collect()
    }

    fn sharing(&self) -> Option<Sharing> {
        Some(Sharing::new(self.sequences.iter().map(std::slice::from_ref)))
    }

    fn batch(&self, examples: &[usize]) -> Batch {
        Batch::of(examples.iter().map(|&example| &self.sequences[example]), self.tree_packing)
    }

    fn normalizer(&self, examples: &[usize]) -> f64 {
        examples.iter().map(|&example| self.sequences[example].total_weight()).sum()
    }

    fn differentiate(
        &self,
        head: &Head,
        hidden: &Tensor,
        batch: &Batch,
        _examples: &[usize],
        normalizer: f64,
    ) -> Result<(HeadGradients, Metrics)> {
        let gradients = head.gradients(hidden, &batch.targets, &d_weighted_nll(&batch.weights, normalizer))?;
        let loss = weighted_nll(&gradients.outputs, &batch.weights, normalizer);
        let entropy = weighted_mean(&gradients.entropies, &batch.weights, normalizer);
        Ok((gradients, vec![("loss", loss), (ENTROPY, entropy)]))
    }

    fn measure(&self, head: &Head, hidden: &Tensor, batch: &Batch, _examples: &[usize], normalizer: f64) -> Result<Metrics> {
        let rows = head.measured(hidden, &batch.targets)?;
        let column = |of: fn(&MeasuredRow) -> f64| rows.iter().map(of).collect::<Vec<_>>();
        let mean = |values: Vec<f64>| weighted_mean(&values, &batch.weights, normalizer);
        Ok(vec![
            ("loss", weighted_nll(&column(|row| row.logp), &batch.weights, normalizer)),
            (ENTROPY, mean(column(|row| row.entropy))),
            (TOKEN_ACCURACY, mean(column(|row| f64::from(u8::from(row.is_first))))),
        ])
    }
}

fn weighted_mean(values: &[f64], weights: &[f64], normalizer: f64) -> f64 {
    // The sum of no numbers is -0.
    values.iter().zip(weights).fold(0.0, |sum, (value, weight)| sum + value * weight) / normalizer
}
