//! Supervised fine-tuning: weighted negative log-likelihood of the completions.

use candle_core::Tensor;

use super::batch::Batch;
use super::example::{Sequence, SftExample, sft_sequences};
use super::head::{Head, HeadGradients};
use super::loss::{d_weighted_nll, weighted_nll};
use super::options::SftOptions;
use super::trainer::{Metrics, Objective, StepMetrics, train};
use crate::error::Result;
use crate::models::Decoder;

/// Trains `decoder`, in place, to give the completions after their prompts.
///
/// The loss of a step is the weighted mean over all tokens of the step, whichever batch they are in. The observer sees each step;
/// its error ends the run. If this function returns an error, `decoder` holds the weights of an unfinished run: drop it.
///
/// # Errors
/// [`Error::InvalidParameter`](crate::error::Error::InvalidParameter) for an example that does not fit, naming its row;
/// [`Error::NotReady`](crate::error::Error::NotReady) without an example; [`Error::Diverged`](crate::error::Error::Diverged).
pub fn train_sft(
    decoder: &mut Decoder,
    examples: &[SftExample],
    options: &SftOptions,
    observer: &mut dyn FnMut(&StepMetrics) -> Result<()>,
) -> Result<()> {
    let objective = Sft { sequences: sft_sequences(examples, options.prompt_weight, &options.run)? };
    train(decoder, &objective, &options.run, options.batch_size, observer)
}

pub(crate) struct Sft<'a> {
    pub sequences: Vec<Sequence<'a>>,
}

impl Objective for Sft<'_> {
    fn costs(&self) -> Vec<usize> {
        self.sequences.iter().map(Sequence::num_inputs).collect()
    }

    fn batch(&self, examples: &[usize]) -> Batch {
        Batch::pack(examples.iter().map(|&example| &self.sequences[example]))
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
        let loss = weighted_nll(&gradients.logps, &batch.weights, normalizer);
        Ok((gradients, vec![("loss", loss)]))
    }
}
