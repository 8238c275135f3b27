//! What is left of a run that diverged: the weights of its last good checkpoint.

use std::collections::BTreeMap;

use candle_core::Var;

use super::adamw::AdamWOptions;
use super::checkpoint;
use super::online::Critic;
use super::options::RunOptions;
use super::validation::set_weights;
use crate::error::Result;
use crate::models::Decoder;

/// Where a run that diverged has been put back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Whole steps before the checkpoint.
    pub step: usize,
    /// The step whose evaluation was the best up to there, and whose weights these are; only with `early_stopping`.
    pub best_step: Option<usize>,
}

/// Gives `decoder` the weights of the last good checkpoint of the run that diverged; with early stopping those of the best evaluation that the checkpoint knows.
/// `critic`: that of the run, if it has one. `None`: there is no such checkpoint, and the weights are those of an unfinished run.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) if the disk cannot be read.
pub fn recover(decoder: &Decoder, critic: Option<&Critic>, run: &RunOptions) -> Result<Option<Recovered>> {
    let Some(checkpoints) = &run.checkpoints else { return Ok(None) };
    let mut parameters: BTreeMap<String, Var> = decoder.parameters().clone();
    parameters.extend(critic.into_iter().flat_map(|critic| critic.parameters().clone()));
    // The moments are checked and not used.
    let found = checkpoint::load(checkpoints, AdamWOptions::default(), &parameters, usize::MAX, &run.warnings)?;
    let Some(restored) = found else { return Ok(None) };
    let best = restored.progress.judgement.best;
    set_weights(&parameters, best.as_ref().map_or(&restored.weights, |best| &best.weights))?;
    Ok(Some(Recovered { step: restored.progress.steps.len(), best_step: best.map(|best| best.step) }))
}
