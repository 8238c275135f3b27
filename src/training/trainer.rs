//! The loop that SFT and DPO share: forward, head, loss, backward, clip, update, report.
//!
//! The vocabulary head is never in the autograd graph. The trunk gives hidden states `[N, H]`; the rows that count pass the
//! head with hand-written derivatives; the trunk's gradient is that of `Σ hidden ⊙ d_hidden` with `d_hidden` held constant.
//! This module knows no weights on disk and no tables: it reports each step and returns.

use std::time::Instant;

use candle_core::{DType, Tensor};

use super::adamw::{AdamW, AdamWOptions, clip_scale};
use super::batch::Batch;
use super::gradients::Gradients;
use super::head::{Head, HeadGradients};
use super::options::RunOptions;
use super::plan::{Plan, StepPlan};
use super::schedule::LearningRate;
use super::stop::Stop;
use super::thread::with_deep_stack;
use crate::error::{Error, Result};
use crate::models::Decoder;

/// Names and values, in the order in which they are logged.
pub type Metrics = Vec<(&'static str, f64)>;

/// What one optimiser step reports.
#[derive(Debug, Clone, PartialEq)]
pub struct StepMetrics {
    /// Counted from 1.
    pub step: usize,
    pub num_steps: usize,
    /// `loss` first, then what the method adds, then `learning_rate`, `grad_norm` (before clipping), `tokens`, `tokens_per_s`.
    pub metrics: Metrics,
}

impl StepMetrics {
    /// The value of a metric.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// What SFT and DPO differ in.
pub(crate) trait Objective: Sync {
    /// Tokens of each example.
    fn costs(&self) -> Vec<usize>;

    /// Lays the examples with these indices end to end.
    fn batch(&self, examples: &[usize]) -> Batch;

    /// How much these examples count in a mean: the loss of a step is a sum divided by the normaliser of all its examples.
    fn normalizer(&self, examples: &[usize]) -> f64;

    /// The loss of the batch of `examples` and its derivatives. `hidden`: `[R, H]`, the batch's rows, detached.
    ///
    /// All metrics are already divided by the step's `normalizer`, so that those of the step's batches add up; `loss` is first.
    fn differentiate(
        &self,
        head: &Head,
        hidden: &Tensor,
        batch: &Batch,
        examples: &[usize],
        normalizer: f64,
    ) -> Result<(HeadGradients, Metrics)>;
}

/// Trains `decoder` in place. If it returns an error, the weights are those of an unfinished run.
///
/// # Errors
/// [`Error::Diverged`] for a loss or a gradient that is not finite, before it touches the weights; the observer's own error,
/// which ends the run after the step it has just seen.
pub(crate) fn train(
    decoder: &mut Decoder,
    objective: &impl Objective,
    run: &RunOptions,
    batch_size: Option<usize>,
    observer: &mut dyn FnMut(&StepMetrics) -> Result<()>,
) -> Result<()> {
    if decoder.parameters().is_empty() {
        return Err(Error::Internal("training needs a decoder that was loaded as trainable".into()));
    }
    let costs = objective.costs();
    let plan = Plan::new(&costs, run, batch_size);
    let num_steps = plan.num_steps();
    let mut trainer = Trainer {
        decoder,
        optimizer: AdamW::new(AdamWOptions { weight_decay: run.weight_decay, ..AdamWOptions::default() }),
        learning_rate: LearningRate::new(run.learning_rate, run.warmup_ratio, num_steps, run.schedule),
        max_grad_norm: run.max_grad_norm,
        stop: &run.stop,
    };
    let work = |report: &mut dyn FnMut(StepMetrics) -> Result<()>| {
        for (index, step_plan) in plan.take(num_steps).enumerate() {
            let metrics = trainer.step(objective, index, &step_plan)?;
            report(StepMetrics { step: index + 1, num_steps, metrics })?;
        }
        // The loss of a step is of the weights before it; nothing else would see what the last step made.
        trainer.check_weights(num_steps)
    };
    with_deep_stack(work, &mut |metrics| observer(&metrics))
}

struct Trainer<'a> {
    decoder: &'a mut Decoder,
    optimizer: AdamW,
    learning_rate: LearningRate,
    max_grad_norm: f64,
    stop: &'a Stop,
}

impl Trainer<'_> {
    /// One optimiser step; `index` counts from 0.
    fn step(&mut self, objective: &impl Objective, index: usize, plan: &StepPlan) -> Result<Metrics> {
        let start = Instant::now();
        let StepGradients { gradients, mut metrics, num_tokens } = gradients(self.decoder, objective, plan, self.stop)?;
        let loss = metrics.first().map_or(f64::NAN, |(_, loss)| *loss);
        let grad_norm = gradients.norm()?;
        check_finite(index + 1, "loss", loss)?;
        check_finite(index + 1, "gradient norm", grad_norm)?;
        let learning_rate = self.learning_rate.at(index);
        let scale = clip_scale(grad_norm, self.max_grad_norm);
        self.optimizer.step(self.decoder.parameters(), &gradients, learning_rate, scale)?;
        let seconds = start.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        metrics.extend([
            ("learning_rate", learning_rate),
            ("grad_norm", grad_norm),
            ("tokens", num_tokens as f64),
            ("tokens_per_s", num_tokens as f64 / seconds),
        ]);
        Ok(metrics)
    }
}

impl Trainer<'_> {
    fn check_weights(&self, step: usize) -> Result<()> {
        for weights in self.decoder.parameters().values() {
            let sum = weights.as_tensor().to_dtype(DType::F64)?.sum_all()?.to_scalar::<f64>()?;
            check_finite(step, "sum of a weight matrix", sum)?;
        }
        Ok(())
    }
}

fn check_finite(step: usize, what: &'static str, value: f64) -> Result<()> {
    if value.is_finite() { Ok(()) } else { Err(Error::Diverged { step, what, value }) }
}

/// Loss, other metrics and gradients of one optimiser step.
pub(crate) struct StepGradients {
    pub gradients: Gradients,
    pub metrics: Metrics,
    pub num_tokens: usize,
}

/// Sums over the batches of one optimiser step. Needs a deep stack.
pub(crate) fn gradients(decoder: &Decoder, objective: &impl Objective, plan: &StepPlan, stop: &Stop) -> Result<StepGradients> {
    let normalizer = objective.normalizer(&plan.concat());
    let mut sum = StepGradients { gradients: Gradients::default(), metrics: Vec::new(), num_tokens: 0 };
    for examples in plan {
        stop.check()?;
        let batch = objective.batch(examples);
        sum.num_tokens += batch.tokens.len();
        let differentiate = |head: &Head, hidden: &Tensor| objective.differentiate(head, hidden, &batch, examples, normalizer);
        let metrics = add_batch(decoder, &batch, differentiate, &mut sum.gradients)?;
        add_metrics(&mut sum.metrics, metrics);
    }
    Ok(sum)
}

/// Adds one batch's gradients to `sum` and returns its metrics.
fn add_batch(
    decoder: &Decoder,
    batch: &Batch,
    differentiate: impl FnOnce(&Head, &Tensor) -> Result<(HeadGradients, Metrics)>,
    sum: &mut Gradients,
) -> Result<Metrics> {
    let head = Head::new(decoder.head_weight())?;
    let hidden = decoder.hidden(&batch.tokens, &batch.lengths)?; // [N, H]
    let rows = Tensor::from_slice(&batch.rows, batch.rows.len(), hidden.device())?;
    let counted = hidden.detach().index_select(&rows, 0)?; // [R, H]
    let (head_gradients, metrics) = differentiate(&head, &counted)?;
    let d_hidden = hidden.zeros_like()?.detach().index_add(&rows, &head_gradients.d_hidden, 0)?; // [N, H]
    let mut trunk = (hidden * d_hidden)?.sum_all()?.backward()?;
    sum.add(decoder.parameters(), &mut trunk, &head_gradients.d_weight)?;
    Ok(metrics)
}

fn add_metrics(sum: &mut Metrics, part: Metrics) {
    if sum.is_empty() {
        *sum = part;
        return;
    }
    for ((name, value), (part_name, part_value)) in sum.iter_mut().zip(part) {
        debug_assert_eq!(*name, part_name);
        *value += part_value;
    }
}
