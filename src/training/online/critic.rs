//! The critic of PPO: a decoder that says of every state what is still to be earned.
//!
//! It has weights of its own and a score in the place of the vocabulary head. The value of a state stands where the decoder has read what came before the token
//! that is about to be written. A new critic has the policy's blocks and a score of zeros, so that its first values are all 0, and advantages begin as rewards.
//! It goes with the run; its checkpoints have it.

use std::collections::BTreeMap;

use candle_core::{DType, Tensor, Var};

use super::calls::Passes;
use crate::error::Result;
use crate::models::Decoder;
use crate::models::config::SCORE;
use crate::models::decoder::Keep;
use crate::models::lora::LoraOptions;
use crate::training::backward;
use crate::training::batch::Batch;
use crate::training::example::Sequence;
use crate::training::gradients::Gradients;
use crate::training::head::HeadGradients;
use crate::training::losses::{ScoreTerm, clipped_value};
use crate::training::score_head::ScoreHead;

/// What the names of its parameters begin with, beside those of the policy.
const PREFIX: &str = "critic.";
/// A vocabulary head of the decoder's own, which has no part in a value.
const VOCABULARY_HEAD: &str = "lm_head.weight";

/// A decoder with a score, trainable. Its parameters are called as those of the decoder, with `critic.` before them.
#[derive(Debug)]
pub struct Critic {
    decoder: Decoder,
    /// `[1, H]`
    score: Var,
    parameters: BTreeMap<String, Var>,
}

/// What the values of a step are to become, by call and token.
#[derive(Debug)]
pub(super) struct ValueObjective<'a> {
    pub sequences: &'a [Sequence<'a>],
    /// Before the first update.
    pub old_values: &'a [Vec<f64>],
    pub returns: &'a [Vec<f64>],
    /// Of each token of a call in the loss.
    pub weights: &'a [f64],
    pub clip: f64,
}

/// Of one update.
#[derive(Debug, Default)]
pub(super) struct ValueGradients {
    pub gradients: Gradients,
    pub loss: f64,
    /// Values that are held, since they have moved far enough.
    pub num_clipped: usize,
}

impl Critic {
    /// A critic whose blocks are those of `policy`, in the same memory, under adapters of its own. `policy`: one with adapters.
    ///
    /// # Errors
    /// As [`Decoder::without_adapters`] and [`Decoder::attach_lora`].
    pub fn beside(policy: &Decoder, lora: &LoraOptions) -> Result<Self> {
        let mut decoder = policy.without_adapters()?;
        decoder.attach_lora(lora)?;
        Self::new(decoder)
    }

    /// A critic of these blocks: all that is trainable of them, and a new score.
    ///
    /// # Errors
    /// [`Error::Tensor`](crate::error::Error::Tensor).
    pub fn new(decoder: Decoder) -> Result<Self> {
        let score = Var::zeros((1, decoder.config().hidden_size), DType::F32, decoder.device())?;
        Ok(Self::with_score(decoder, score))
    }

    pub(super) fn with_score(decoder: Decoder, score: Var) -> Self {
        let own = |name: &str, parameter: &Var| (format!("{PREFIX}{name}"), parameter.clone());
        let of_blocks = decoder.parameters().iter().filter(|(name, _)| *name != VOCABULARY_HEAD);
        let all = of_blocks.map(|(name, parameter)| own(name, parameter)).chain([own(SCORE, &score)]);
        let parameters = all.collect();
        Self { decoder, score, parameters }
    }

    /// What training changes; the values are those that the critic computes with.
    pub fn parameters(&self) -> &BTreeMap<String, Var> {
        &self.parameters
    }

    /// The value of the state before each token, by sequence; nothing is kept for a gradient.
    ///
    /// # Errors
    /// [`Error::Cancelled`](crate::error::Error::Cancelled) between two batches; those of the decoder.
    pub(super) fn values(&self, sequences: &[Sequence<'_>], passes: Passes<'_>) -> Result<Vec<Vec<f64>>> {
        let all: Vec<usize> = (0..sequences.len()).collect();
        let mut values = vec![Vec::new(); sequences.len()];
        let head = ScoreHead::new(&self.score)?;
        for calls in passes.batches(sequences, &all) {
            passes.run.stop.check()?;
            let batch = passes.batch(sequences, &calls);
            let found = head.scores(&backward::rows(&self.decoder, &batch)?)?;
            for (&call, rows) in calls.iter().zip(&batch.row_ranges) {
                values[call] = found[rows.clone()].to_vec();
            }
        }
        Ok(values)
    }

    /// The loss of the values as they are and its gradient, under the names of [`Self::parameters`]. Needs a deep stack.
    ///
    /// # Errors
    /// [`Error::Cancelled`](crate::error::Error::Cancelled) between two batches; [`Error::Internal`](crate::error::Error::Internal) if a parameter received
    /// no gradient.
    pub(super) fn gradients(&self, objective: &ValueObjective<'_>, passes: Passes<'_>) -> Result<ValueGradients> {
        let all: Vec<usize> = (0..objective.sequences.len()).collect();
        let mut sum = ValueGradients::default();
        for calls in passes.batches(objective.sequences, &all) {
            passes.run.stop.check()?;
            let batch = passes.batch(objective.sequences, &calls);
            self.add_batch(objective, &batch, &calls, passes.recompute, &mut sum)?;
        }
        sum.gradients = sum.gradients.with_prefix(PREFIX);
        sum.gradients.require_all(&self.parameters)?;
        Ok(sum)
    }

    fn add_batch(
        &self,
        objective: &ValueObjective<'_>,
        batch: &Batch,
        calls: &[usize],
        recompute: bool,
        sum: &mut ValueGradients,
    ) -> Result<()> {
        let keep = if recompute { Keep::Inputs } else { Keep::Graphs };
        let forward = self.decoder.forward_blocks(&batch.tokens, &batch.layout, keep)?;
        let rows = Tensor::from_slice(&batch.rows, batch.rows.len(), forward.hidden.device())?;
        let counted = forward.hidden.index_select(&rows, 0)?; // [R, H]
        let head = ScoreHead::new(&self.score)?;
        let values = head.scores(&counted)?;
        let mut d_values = vec![0.0; values.len()];
        for (&call, rows) in calls.iter().zip(&batch.row_ranges) {
            for (token, row) in rows.clone().enumerate() {
                let term = objective.term(call, token, values[row]);
                sum.loss += term.loss;
                sum.num_clipped += usize::from(term.d_score == 0.0 && term.loss > 0.0);
                d_values[row] = term.d_score;
            }
        }
        let HeadGradients { d_hidden, d_weight, .. } = head.gradients(&counted, &d_values)?;
        let d_hidden = forward.hidden.zeros_like()?.index_add(&rows, &d_hidden, 0)?; // [N, H]
        self.decoder.backward_blocks(forward, &d_hidden, &mut |name, gradient| sum.gradients.add_one(name, gradient))?;
        d_weight.map_or(Ok(()), |d_weight| sum.gradients.add_one(SCORE, &d_weight))
    }
}

impl ValueObjective<'_> {
    fn term(&self, call: usize, token: usize, value: f64) -> ScoreTerm {
        let ScoreTerm { loss, d_score } = clipped_value(value, self.old_values[call][token], self.returns[call][token], self.clip);
        let weight = self.weights[call];
        ScoreTerm { loss: weight * loss, d_score: weight * d_score }
    }
}

#[cfg(test)]
mod tests;
