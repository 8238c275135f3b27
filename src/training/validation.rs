//! The metrics of rows that are not learned from, and what they decide: when a run has gone on for long enough, and which weights it keeps.

use std::collections::BTreeMap;

use candle_core::{Tensor, Var};

use super::backward;
use super::head::DecoderHead;
use super::metrics::{StoppingMetric, of_validation};
use super::options::RunOptions;
use super::plan::all_in_batches;
use super::trainer::{Metrics, Objective, add_metrics, sharing};
use crate::error::{Error, Result};
use crate::models::Decoder;

/// Weights by the names of their parameters.
pub(super) type NamedTensors = BTreeMap<String, Tensor>;

/// The weights of the step with the best validation so far.
#[derive(Debug, Clone)]
pub(super) struct Best {
    pub step: usize,
    /// Of the metric that decides, the smaller the better.
    pub value: f64,
    pub weights: NamedTensors,
}

/// What the evaluations of a run have shown so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Judgement {
    pub best: Option<Best>,
    /// Evaluations since the best one.
    pub num_worse: usize,
}

impl Judgement {
    /// Takes in the validation after `step`: `value` of the metric that decides, the smaller the better. The weights are copied only when none before were better: there is one such copy.
    ///
    /// The first evaluation is always the best so far, so a first step of a warm-up, which has the learning rate 0, is never a worse one.
    pub fn add(&mut self, step: usize, value: f64, parameters: &BTreeMap<String, Var>) -> Result<()> {
        if self.best.as_ref().is_some_and(|best| value >= best.value) {
            self.num_worse += 1;
            return Ok(());
        }
        // Two copies never exist at once.
        self.best = None;
        let copy =
            |(name, parameter): (&String, &Var)| -> Result<(String, Tensor)> { Ok((name.clone(), parameter.as_detached_tensor().copy()?)) };
        self.best = Some(Best { step, value, weights: parameters.iter().map(copy).collect::<Result<_>>()? });
        self.num_worse = 0;
        Ok(())
    }
}

/// What early stopping compares of a validation, the smaller the better: the metric that the run names, or `default`, which is one that can decide.
///
/// # Errors
/// [`Error::InvalidParameter`] if the validation does not give it.
pub(super) fn decisive(run: &RunOptions, default: &'static str, validated: &[(&'static str, f64)]) -> Result<f64> {
    let metric = run.early_stopping_metric.or_else(|| StoppingMetric::of_name(default));
    let missing = || Error::InvalidParameter {
        name: "early_stopping_metric".to_owned(),
        found: format!("'{}'", metric.map_or(default, StoppingMetric::name)),
        expected: format!("one of what is measured here: {}", validated.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")),
    };
    metric.and_then(|metric| metric.of(validated)).ok_or_else(missing)
}

/// Puts these values into the parameters.
///
/// # Errors
/// [`Error::Internal`] if one is missing, [`Error::Tensor`] if one has another shape.
pub(super) fn set_weights(parameters: &BTreeMap<String, Var>, weights: &NamedTensors) -> Result<()> {
    for (name, parameter) in parameters {
        let value = weights.get(name).ok_or_else(|| Error::Internal(format!("no kept value of the parameter {name}")))?;
        parameter.set(value)?;
    }
    Ok(())
}

/// The metrics of the objective over all its examples, under their names of a validation; the weights and their gradients are not
/// touched. Needs no deep stack: no graph is made.
///
/// # Errors
/// [`Error::Cancelled`] between two batches.
pub(crate) fn evaluate<O: Objective>(decoder: &Decoder, objective: &O, run: &RunOptions) -> Result<Metrics> {
    let costs = objective.costs();
    let sharing = sharing(objective, run);
    let all: Vec<usize> = (0..costs.len()).collect();
    let normalizer = objective.normalizer(&all);
    let head = O::Head::of(decoder)?;
    let mut sum = Metrics::new();
    for examples in all_in_batches(&costs, sharing.as_ref(), run) {
        run.stop.check()?;
        let batch = objective.batch(&examples);
        let hidden = backward::rows(decoder, &batch)?; // [R, H]
        add_metrics(&mut sum, objective.measure(&head, &hidden, &batch, &examples, normalizer)?);
    }
    let rename = |(name, value): (&'static str, f64)| -> Result<(&'static str, f64)> {
        let name = of_validation(name).ok_or_else(|| Error::Internal(format!("the metric {name} has no name in a validation")))?;
        Ok((name, value))
    };
    sum.into_iter().map(rename).collect()
}
