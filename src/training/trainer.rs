//! The loop that all methods share: forward, head, loss, backward, clip, update, validate, keep, report.
//!
//! The head is never in the autograd graph. The trunk gives hidden states `[N, H]`; the rows that count pass the
//! head with hand-written derivatives, and `backward.rs` takes their gradient through the trunk. This module knows no tables: it
//! reports each step and returns. What it leaves on the disk are checkpoints, if the caller asks for them: a run that goes on from
//! one ends with the same weights, bit for bit, as a run that was never ended.

use std::collections::BTreeMap;
use std::time::Instant;

use candle_core::{Tensor, Var};

use super::adamw::{AdamW, AdamWOptions, clip_scale};
use super::backward::{activation_bytes, add_batch};
use super::batch::Batch;
use super::checkpoint::{self, Progress};
use super::gradients::Gradients;
use super::head::{DecoderHead, HeadGradients};
use super::metrics::{MEMORY_MB, TOKENS_PER_S, VALIDATION_LOSS, memory_mb};
use super::options::RunOptions;
use super::plan::{Plan, StepPlan};
use super::schedule::LearningRate;
use super::sharing::Sharing;
use super::stop::Stop;
use super::thread::with_deep_stack;
use super::validation::{decisive, evaluate, set_weights};
use crate::error::{Error, Result};
use crate::models::Decoder;

/// Where the options do not say, blocks run a second time in the backward pass once keeping what they computed takes more than this.
pub(super) const ACTIVATION_BYTES_MAX: usize = 512 << 20;

/// The root mean square of a weight matrix, beyond which it has been spoilt: those of models are below 10.
const WEIGHT_MAX: f64 = 1e4;

/// Names and values, in the order in which they are logged.
pub type Metrics = Vec<(&'static str, f64)>;

/// What one optimiser step reports.
#[derive(Debug, Clone, PartialEq)]
pub struct StepMetrics {
    /// Counted from 1.
    pub step: usize,
    pub num_steps: usize,
    /// `loss` first, then what the method adds, then `learning_rate`, `grad_norm` (before clipping), `tokens` of the step's sequences,
    /// `distinct_tokens` (those that went through the model: a beginning that sequences of a batch share counts once), `tokens_per_s` and
    /// `memory_mb` (MiB of this process; only where the system tells it). After a step at which the run is validated also the
    /// method's metrics over the validation's rows, `validation_loss` first.
    pub metrics: Metrics,
    /// The step was done by the run that left the checkpoint from which this one goes on.
    pub is_replayed: bool,
}

impl StepMetrics {
    /// The value of a metric.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// Optimiser steps, those before the checkpoint included.
    pub num_steps: usize,
    /// The step of the checkpoint from which the run went on; 0 if it began anew.
    pub resumed_at: usize,
    /// The step with the best validation, whose weights the decoder has now; only with `early_stopping`.
    pub best_step: Option<usize>,
    /// Whether `early_stopping` ended it before its last step.
    pub stopped_early: bool,
}

/// What the methods differ in.
pub(crate) trait Objective: Sync {
    /// Of the decoder that is trained.
    type Head: DecoderHead;

    /// Tokens of each example.
    fn costs(&self) -> Vec<usize>;

    /// What the examples share, as far as the batches of [`Self::batch`] have it once; none if they share nothing.
    fn sharing(&self) -> Option<Sharing> {
        None
    }

    /// Lays out the examples with these indices, their sequences in order.
    fn batch(&self, examples: &[usize]) -> Batch;

    /// How much these examples count in a mean: the loss of a step is a sum divided by the normaliser of all its examples.
    fn normalizer(&self, examples: &[usize]) -> f64;

    /// The loss of the batch of `examples` and its derivatives. `hidden`: `[R, H]`, the batch's rows, detached.
    ///
    /// All metrics are already divided by the step's `normalizer`, so that those of the step's batches add up; `loss` is first, and
    /// each has its name in `metrics.rs`.
    fn differentiate(
        &self,
        head: &Self::Head,
        hidden: &Tensor,
        batch: &Batch,
        examples: &[usize],
        normalizer: f64,
    ) -> Result<(HeadGradients, Metrics)>;

    /// The metrics of [`Objective::differentiate`], without the derivatives.
    fn measure(&self, head: &Self::Head, hidden: &Tensor, batch: &Batch, examples: &[usize], normalizer: f64) -> Result<Metrics>;
}

/// Trains `decoder` in place. If it returns an error, the weights are those of an unfinished run.
///
/// `validation` is evaluated every `run.evaluate_every` steps and after the last one; `run.early_stopping` ends the run after so many
/// evaluations without a better one, and then, as at its last step, the decoder gets the weights of the best. With `run.checkpoints`
/// the run goes on from the newest checkpoint of its fingerprint: it first reports the steps that the checkpoint remembers. It
/// leaves a checkpoint every `run.checkpoint_every` steps, and when it is cancelled. `run.warnings` hears of checkpoints that are not used and of
/// what could not be written or removed.
///
/// # Errors
/// [`Error::Diverged`] for a loss or a gradient that is not finite, before it touches the weights, and for weights that a step has spoilt, with the last good checkpoint, which stays; the observer's own error,
/// which ends the run after the step it has just seen; [`Error::Cancelled`]; [`Error::Io`] for a checkpoint that cannot be written or
/// read.
pub(crate) fn train<O: Objective>(
    decoder: &mut Decoder,
    objective: &O,
    validation: Option<&O>,
    run: &RunOptions,
    batch_size: Option<usize>,
    observer: &mut dyn FnMut(&StepMetrics) -> Result<()>,
) -> Result<Trained> {
    if decoder.parameters().is_empty() {
        return Err(Error::Internal("training needs a decoder that was loaded as trainable".into()));
    }
    let costs = objective.costs();
    let sharing = sharing(objective, run);
    let plan = Plan::new(&costs, run, batch_size).with_sharing(sharing.as_ref());
    let num_steps = plan.num_steps();
    let options = AdamWOptions::of(run, decoder);
    let mut trainer = Trainer {
        objective,
        validation,
        run,
        num_steps,
        recompute: recompute(decoder, run, plan.full_batch()),
        learning_rate: LearningRate::new(run.learning_rate, run.warmup_ratio, num_steps, run.schedule),
        optimizer: AdamW::new(options),
        progress: Progress::default(),
        saved_at: None,
        is_unproven: false,
        decoder,
    };
    trainer.restore(options)?;
    let work = |report: &mut dyn FnMut(StepMetrics) -> Result<()>| trainer.run(plan, report);
    with_deep_stack(work, &mut |metrics| observer(&metrics))
}

/// What the examples of `objective` share, if the run asks for that.
pub(super) fn sharing(objective: &impl Objective, run: &RunOptions) -> Option<Sharing> {
    if Sharing::is_asked_for(run) { objective.sharing() } else { None }
}

/// Whether a block's activations are computed again in the backward pass, by the tokens of a full batch. Both ways give the same bits.
fn recompute(decoder: &Decoder, run: &RunOptions, full_batch: usize) -> bool {
    let kept = || activation_bytes(decoder.config(), decoder.lora(), decoder.arithmetic(), full_batch);
    run.recompute.unwrap_or_else(|| kept() > ACTIVATION_BYTES_MAX)
}

struct Trainer<'a, O> {
    decoder: &'a mut Decoder,
    objective: &'a O,
    validation: Option<&'a O>,
    run: &'a RunOptions,
    num_steps: usize,
    recompute: bool,
    learning_rate: LearningRate,
    optimizer: AdamW,
    progress: Progress,
    /// The step of the newest checkpoint on the disk.
    saved_at: Option<usize>,
    /// Whether no step has begun with the weights of that checkpoint yet: the one before it stays until then.
    is_unproven: bool,
}

impl<O: Objective> Trainer<'_, O> {
    /// Takes everything from the newest checkpoint, if there is one.
    fn restore(&mut self, options: AdamWOptions) -> Result<()> {
        let Some(checkpoints) = &self.run.checkpoints else { return Ok(()) };
        let Some(restored) = checkpoint::load(checkpoints, options, self.decoder.parameters(), self.num_steps, &self.run.warnings)? else {
            return Ok(());
        };
        set_weights(self.decoder.parameters(), &restored.weights)?;
        self.optimizer = restored.optimizer;
        self.progress = restored.progress;
        self.saved_at = Some(self.num_done());
        self.is_unproven = true;
        Ok(())
    }

    fn run(&mut self, plan: Plan<'_>, report: &mut dyn FnMut(StepMetrics) -> Result<()>) -> Result<Trained> {
        let resumed_at = self.num_done();
        let result = self.steps(plan, report).and_then(|()| self.take_best());
        match result {
            Ok(()) => self.settle(),
            Err(error @ Error::Cancelled(_)) => {
                if let Err(error) = self.save() {
                    // Who cancels hears that it is cancelled, whatever the disk says: the checkpoint before is still there.
                    self.run.warnings.say(format!("no checkpoint could be written at step {}: {error}", self.num_done()));
                }
                return Err(error);
            }
            Err(error) => return Err(self.with_last_good(error)),
        }
        Ok(Trained {
            num_steps: self.num_done(),
            resumed_at,
            best_step: self.progress.judgement.best.as_ref().map(|best| best.step),
            stopped_early: self.num_done() < self.num_steps,
        })
    }

    /// The newest checkpoint is good, and the one before it goes.
    fn settle(&mut self) {
        if let (Some(checkpoints), Some(step), true) = (&self.run.checkpoints, self.saved_at, self.is_unproven) {
            checkpoint::settle(checkpoints, step, &self.run.warnings);
            self.is_unproven = false;
        }
    }

    /// A run that diverged goes back to its last good checkpoint: the newest one goes, if it is the step behind it that has no loss.
    fn with_last_good(&self, error: Error) -> Error {
        let newest = self.saved_at.filter(|_| self.is_unproven);
        checkpoint::after_divergence(error, self.run.checkpoints.as_ref(), newest, &self.run.warnings)
    }

    /// All steps that are left. Between any two of its lines the trainer is what a checkpoint can hold.
    fn steps(&mut self, plan: Plan<'_>, report: &mut dyn FnMut(StepMetrics) -> Result<()>) -> Result<()> {
        // A run that was cancelled within an evaluation does it again.
        self.validate()?;
        for (index, metrics) in self.progress.steps.iter().enumerate() {
            report(StepMetrics { step: index + 1, num_steps: self.num_steps, metrics: metrics.clone(), is_replayed: true })?;
        }
        for (index, step_plan) in plan.take(self.num_steps).enumerate().skip(self.num_done()) {
            if self.is_enough() {
                break;
            }
            let metrics = self.step(index, &step_plan)?;
            self.progress.steps.push(metrics);
            self.validate()?;
            if self.num_done().checked_rem(self.run.checkpoint_every) == Some(0) {
                self.save()?;
            }
            report(self.last_step())?;
        }
        Ok(())
    }

    /// Whole optimiser steps behind the run.
    fn num_done(&self) -> usize {
        self.progress.steps.len()
    }

    /// Whether validation has not become better for too long.
    fn is_enough(&self) -> bool {
        self.run.early_stopping.is_some_and(|patience| self.progress.judgement.num_worse >= patience)
    }

    fn last_step(&self) -> StepMetrics {
        let metrics = self.progress.steps.last().cloned().unwrap_or_default();
        StepMetrics { step: self.num_done(), num_steps: self.num_steps, metrics, is_replayed: false }
    }

    /// One optimiser step; `index` counts from 0. The weights change once nothing but what becomes of them can end it any more.
    fn step(&mut self, index: usize, plan: &StepPlan) -> Result<Metrics> {
        let start = Instant::now();
        let StepGradients { gradients, mut metrics, num_tokens, num_distinct_tokens } =
            gradients(self.decoder, self.objective, plan, &self.run.stop, self.recompute)?;
        let loss = metrics.first().map_or(f64::NAN, |(_, loss)| *loss);
        let grad_norm = gradients.norm()?;
        self.check_finite(index + 1, "loss", loss)?;
        self.check_finite(index + 1, "gradient norm", grad_norm)?;
        // With the weights before it the step has a loss, whatever becomes of them now.
        self.settle();
        let learning_rate = self.learning_rate.at(index);
        let scale = clip_scale(grad_norm, self.run.max_grad_norm);
        self.optimizer.step(self.decoder.parameters(), &gradients, learning_rate, scale)?;
        // The loss of a step is of the weights before it.
        check_weights(index + 1, self.decoder.parameters())?;
        let seconds = start.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        metrics.extend([
            ("learning_rate", learning_rate),
            ("grad_norm", grad_norm),
            ("tokens", num_tokens as f64),
            ("distinct_tokens", num_distinct_tokens as f64),
            (TOKENS_PER_S, num_tokens as f64 / seconds),
        ]);
        metrics.extend(memory_mb().map(|memory| (MEMORY_MB, memory)));
        if index == 0 {
            metrics.extend(&self.run.first_metrics);
        }
        Ok(metrics)
    }

    /// Evaluates the last step, if that is due and not done, and adds what it gives to the step's metrics.
    fn validate(&mut self) -> Result<()> {
        let (Some(validation), Some(metrics)) = (self.validation, self.progress.steps.last()) else { return Ok(()) };
        let step = self.num_done();
        let is_due = step == self.num_steps || self.run.evaluate_every.is_some_and(|every| step.checked_rem(every) == Some(0));
        if !is_due || metrics.iter().any(|(name, _)| *name == VALIDATION_LOSS) {
            return Ok(());
        }
        let validated = evaluate(self.decoder, validation, self.run)?;
        let loss = validated.first().map_or(f64::NAN, |(_, loss)| *loss);
        self.check_finite(step, "validation loss", loss)?;
        if self.run.early_stopping.is_some() {
            let value = decisive(self.run, VALIDATION_LOSS, &validated)?;
            self.check_finite(step, "metric of the validation", value)?;
            self.progress.judgement.add(step, value, self.decoder.parameters())?;
        }
        if let Some(metrics) = self.progress.steps.last_mut() {
            metrics.extend(validated);
        }
        Ok(())
    }

    /// Leaves a checkpoint of the last whole step, if there is none.
    fn save(&mut self) -> Result<()> {
        let Some(checkpoints) = &self.run.checkpoints else { return Ok(()) };
        let step = self.num_done();
        if step == 0 || self.saved_at == Some(step) {
            return Ok(());
        }
        checkpoint::save(checkpoints, self.decoder.parameters(), &self.optimizer, &mut self.progress)?;
        self.saved_at = Some(step);
        self.is_unproven = true;
        Ok(())
    }

    /// Gives the decoder the weights of the best evaluation, where early stopping kept them.
    fn take_best(&mut self) -> Result<()> {
        match &self.progress.judgement.best {
            Some(best) => set_weights(self.decoder.parameters(), &best.weights),
            None => Ok(()),
        }
    }

    fn check_finite(&self, step: usize, what: &'static str, value: f64) -> Result<()> {
        if value.is_finite() { Ok(()) } else { Err(Error::Diverged { step, what, value, checkpoint: None }) }
    }
}

/// Refuses weights that `step` has spoilt: those that are no numbers, and those so large that norms and products of what they compute overflow. A norm of such is
/// 0, and a loss behind it may look well.
///
/// # Errors
/// [`Error::Diverged`]; [`Error::Tensor`].
pub(super) fn check_weights(step: usize, parameters: &BTreeMap<String, Var>) -> Result<()> {
    for weights in parameters.values() {
        let squares = f64::from(weights.as_tensor().sqr()?.sum_all()?.to_scalar::<f32>()?);
        let value = (squares / weights.elem_count().max(1) as f64).sqrt();
        // What is no number is not below it either.
        let is_sound = value <= WEIGHT_MAX;
        if !is_sound {
            return Err(Error::Diverged { step, what: "root mean square of a weight matrix", value, checkpoint: None });
        }
    }
    Ok(())
}

/// Loss, other metrics and gradients of one optimiser step.
pub(crate) struct StepGradients {
    pub gradients: Gradients,
    pub metrics: Metrics,
    /// Of all sequences.
    pub num_tokens: usize,
    /// That went through the model: a beginning that sequences of a batch share counts once.
    pub num_distinct_tokens: usize,
}

/// Sums over the batches of one optimiser step. Needs a deep stack.
pub(crate) fn gradients<O: Objective>(
    decoder: &Decoder,
    objective: &O,
    plan: &StepPlan,
    stop: &Stop,
    recompute: bool,
) -> Result<StepGradients> {
    let normalizer = objective.normalizer(&plan.concat());
    let mut sum = StepGradients { gradients: Gradients::default(), metrics: Vec::new(), num_tokens: 0, num_distinct_tokens: 0 };
    for examples in plan {
        stop.check()?;
        let batch = objective.batch(examples);
        sum.num_tokens += batch.lengths.iter().sum::<usize>();
        sum.num_distinct_tokens += batch.tokens.len();
        let differentiate = |head: &O::Head, hidden: &Tensor| objective.differentiate(head, hidden, &batch, examples, normalizer);
        let metrics = add_batch(decoder, &batch, recompute, differentiate, &mut sum.gradients)?;
        add_metrics(&mut sum.metrics, metrics);
    }
    Ok(sum)
}

/// Adds the shares of one batch to those of the batches before it.
pub(super) fn add_metrics(sum: &mut Metrics, part: Metrics) {
    if sum.is_empty() {
        *sum = part;
        return;
    }
    for ((name, value), (part_name, part_value)) in sum.iter_mut().zip(part) {
        debug_assert_eq!(*name, part_name);
        *value += part_value;
    }
}
