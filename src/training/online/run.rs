//! The loop of online training: questions, trajectories by the weights of the moment, rewards, one or more updates, validation, a checkpoint.
//!
//! What a step does hangs on the weights, the options and the number of the step alone, so that a run that goes on from a checkpoint, which stands between two
//! steps, ends with the same weights as one that was never ended, bit for bit, if its source gives the same trajectories.

use std::collections::BTreeMap;
use std::time::Instant;

use candle_core::Var;

use super::calls::{Part, Passes, StepCalls};
use super::critic::Critic;
use super::options::{Learner, OnlineOptions};
use super::order::QuestionOrder;
use super::statistics::{GROUPS_WITHOUT_SIGNAL, VALIDATION_REWARD, of_measured, of_sampled};
use super::trajectory::{Draw, RolloutSource, SampledTrajectory};
use crate::error::{Error, Result};
use crate::models::Decoder;
use crate::training::adamw::{AdamW, AdamWOptions};
use crate::training::backward::activation_bytes;
use crate::training::checkpoint::{self, Progress};
use crate::training::losses::token_weights;
use crate::training::metrics::{MEMORY_MB, ROLLOUT_S, TOKENS_PER_S, memory_mb};
use crate::training::schedule::LearningRate;
use crate::training::thread::with_deep_stack;
use crate::training::trainer::{ACTIVATION_BYTES_MAX, Metrics, StepMetrics, Trained, add_metrics, check_weights};
use crate::training::validation::{decisive, set_weights};

/// After so many steps in a row without a difference between the rewards of any group, the run says so.
const SILENT_STEPS: usize = 5;

/// Models beside the policy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside<'a> {
    /// What the KL penalty compares with; needed exactly if its weight is above 0.
    pub reference: Option<&'a Decoder>,
    /// Needed exactly by [`Learner::Critic`]; trained, too.
    pub critic: Option<&'a Critic>,
}

/// Trains `policy` in place on what it samples. If it returns an error, the weights are those of an unfinished run.
///
/// Validation is measured every `run.evaluate_every` steps and after the last one; `run.early_stopping` ends the run after so many without a larger mean
/// reward, with the weights of the best. The observer sees each step; its error ends the run. Checkpoints are as in the other methods, between two steps: a
/// run that is ended within a step, after the first of several updates, goes on at the last one that was written.
///
/// # Errors
/// [`Error::InvalidParameter`] for options that do not fit together; [`Error::NotReady`] without a question; [`Error::Diverged`] for a reward, a loss or a
/// gradient that is not finite, before it touches the weights; those of `source`; [`Error::Cancelled`]; [`Error::Io`] for a checkpoint that cannot be written
/// or read; [`Error::Internal`] for a decoder that is not trainable, and where a model that is needed is not beside it.
pub fn train_online(
    policy: &mut Decoder,
    beside: Beside<'_>,
    source: &dyn RolloutSource,
    options: &OnlineOptions,
    observer: &mut dyn FnMut(&StepMetrics) -> Result<()>,
) -> Result<Trained> {
    options.check()?;
    options.run.check_early_stopping(source.num_validation_questions() > 0)?;
    if source.num_questions() == 0 {
        return Err(Error::NotReady(format!("{} needs at least one question", options.statement())));
    }
    let mut online = Online::new(policy, beside, source, options)?;
    online.restore()?;
    let work = |report: &mut dyn FnMut(StepMetrics) -> Result<()>| online.run(report);
    with_deep_stack(work, &mut |metrics| observer(&metrics))
}

/// A run at work. Between two steps it is what a checkpoint can hold.
pub(super) struct Online<'a> {
    pub policy: &'a Decoder,
    pub beside: Beside<'a>,
    pub source: &'a dyn RolloutSource,
    pub options: &'a OnlineOptions,
    pub optimizer: AdamW,
    /// Those of the policy, and of the critic under names of their own.
    parameters: BTreeMap<String, Var>,
    order: QuestionOrder<'a>,
    num_steps: usize,
    recompute: bool,
    progress: Progress,
    /// The step of the newest checkpoint on the disk.
    saved_at: Option<usize>,
    /// Whether no step has begun with the weights of that checkpoint yet: the one before it stays until then.
    is_unproven: bool,
    /// The weights have moved, and the step is not done.
    is_within_step: bool,
    /// A checkpoint could not be written: it is not tried again.
    cannot_save: bool,
}

/// What the updates of a step gave.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// `loss` first.
    pub metrics: Metrics,
    pub grad_norm: f64,
    /// Of the sequences that went through the policy to be learned from, and those of them that did so, a common beginning once.
    pub num_tokens: usize,
    pub num_distinct_tokens: usize,
}

impl Learned {
    /// Adds an update. `metrics`: those of its gradients, and what else is known of it.
    pub fn add(&mut self, metrics: Metrics, grad_norm: f64, (num_tokens, num_distinct_tokens): (usize, usize)) {
        add_metrics(&mut self.metrics, metrics);
        self.grad_norm += grad_norm;
        self.num_tokens += num_tokens;
        self.num_distinct_tokens += num_distinct_tokens;
    }

    /// The means over this many updates; tokens stay sums.
    pub fn mean(mut self, num_updates: usize) -> Self {
        let values = self.metrics.iter_mut().map(|(_, value)| value).chain([&mut self.grad_norm]);
        values.for_each(|value| *value /= num_updates as f64);
        self
    }
}

impl<'a> Online<'a> {
    fn new(policy: &'a Decoder, beside: Beside<'a>, source: &'a dyn RolloutSource, options: &'a OnlineOptions) -> Result<Self> {
        if policy.parameters().is_empty() {
            return Err(Error::Internal("training needs a decoder that was loaded as trainable".into()));
        }
        let needed = (options.kl_weight > 0.0, matches!(options.learner, Learner::Critic(_)));
        if (beside.reference.is_some(), beside.critic.is_some()) != needed {
            return Err(Error::Internal("an online training has other models beside it than its options ask for".into()));
        }
        let run = &options.run;
        let mut parameters = policy.parameters().clone();
        parameters.extend(beside.critic.into_iter().flat_map(|critic| critic.parameters().clone()));
        let order = QuestionOrder::new(source.num_questions(), options.batch_size, run);
        let kept = activation_bytes(policy.config(), policy.lora(), policy.arithmetic(), run.batch_tokens);
        Ok(Self {
            policy,
            beside,
            source,
            options,
            // A checkpoint may come before the first step that teaches anything.
            optimizer: AdamW::of(AdamWOptions::of(run, policy), &parameters)?,
            parameters,
            num_steps: order.num_steps(),
            order,
            recompute: run.recompute.unwrap_or(kept > ACTIVATION_BYTES_MAX),
            progress: Progress::default(),
            saved_at: None,
            is_unproven: false,
            is_within_step: false,
            cannot_save: false,
        })
    }

    /// Takes everything from the newest checkpoint, if there is one.
    fn restore(&mut self) -> Result<()> {
        let run = &self.options.run;
        let Some(checkpoints) = &run.checkpoints else { return Ok(()) };
        let found = checkpoint::load(checkpoints, AdamWOptions::of(run, self.policy), &self.parameters, self.num_steps, &run.warnings)?;
        let Some(restored) = found else { return Ok(()) };
        set_weights(&self.parameters, &restored.weights)?;
        self.optimizer = restored.optimizer;
        self.progress = restored.progress;
        self.saved_at = Some(self.num_done());
        self.is_unproven = true;
        Ok(())
    }

    fn run(&mut self, report: &mut dyn FnMut(StepMetrics) -> Result<()>) -> Result<Trained> {
        let resumed_at = self.num_done();
        if let Err(error) = self.steps(report).and_then(|()| self.take_best()) {
            return Err(self.leave(error));
        }
        self.settle();
        Ok(Trained {
            num_steps: self.num_done(),
            resumed_at,
            best_step: self.progress.judgement.best.as_ref().map(|best| best.step),
            stopped_early: self.num_done() < self.num_steps,
        })
    }

    /// Gives the policy the weights of the best evaluation, where early stopping kept them.
    fn take_best(&mut self) -> Result<()> {
        match &self.progress.judgement.best {
            Some(best) => set_weights(&self.parameters, &best.weights),
            None => Ok(()),
        }
    }

    /// The newest checkpoint is good, and the one before it goes.
    fn settle(&mut self) {
        let run = &self.options.run;
        if let (Some(checkpoints), Some(step), true) = (&run.checkpoints, self.saved_at, self.is_unproven) {
            checkpoint::settle(checkpoints, step, &run.warnings);
            self.is_unproven = false;
        }
    }

    /// A run that ends before its time leaves what it has done: after a cancel, and where a model or a corpus that it asks could not answer. One that diverged
    /// goes back to its last good checkpoint.
    fn leave(&mut self, error: Error) -> Error {
        let run = &self.options.run;
        if let Error::Diverged { .. } = error {
            let newest = self.saved_at.filter(|_| self.is_unproven);
            return checkpoint::after_divergence(error, run.checkpoints.as_ref(), newest, &run.warnings);
        }
        self.leave_checkpoint();
        error
    }

    fn leave_checkpoint(&mut self) {
        let (done, run) = (self.num_done(), &self.options.run);
        if self.cannot_save || self.saved_at == Some(done) {
            return;
        }
        let Some(checkpoints) = &run.checkpoints else { return };
        let reason = if self.is_within_step {
            let goes_on = checkpoints.last_step().map_or("begins anew".to_owned(), |step| format!("goes on at that of step {step}"));
            format!("it was ended between two updates of the next one; the same training {goes_on}")
        } else {
            match self.save() {
                Ok(()) => return,
                Err(error) => error.to_string(),
            }
        };
        run.warnings.say(format!("no checkpoint could be written at step {done}: {reason}"));
    }

    fn steps(&mut self, report: &mut dyn FnMut(StepMetrics) -> Result<()>) -> Result<()> {
        // A run that was ended within an evaluation does it again.
        self.validate()?;
        for (index, metrics) in self.progress.steps.iter().enumerate() {
            report(StepMetrics { step: index + 1, num_steps: self.num_steps, metrics: metrics.clone(), is_replayed: true })?;
        }
        while self.num_done() < self.num_steps && !self.is_enough() {
            let metrics = self.step(self.num_done())?;
            self.progress.steps.push(metrics);
            self.is_within_step = false;
            self.warn_of_silence();
            self.validate()?;
            if self.num_done().checked_rem(self.options.run.checkpoint_every) == Some(0) {
                self.save()?;
            }
            let metrics = self.progress.steps.last().cloned().unwrap_or_default();
            report(StepMetrics { step: self.num_done(), num_steps: self.num_steps, metrics, is_replayed: false })?;
        }
        Ok(())
    }

    /// One step; `index` counts from 0.
    fn step(&mut self, index: usize) -> Result<Metrics> {
        let stop = &self.options.run.stop;
        stop.check()?;
        let questions = self.order.questions(index);
        let (group_size, temperature) = (self.options.group_size, self.options.temperature);
        let started = Instant::now();
        let draw = Draw { step: index, questions: &questions, group_size, temperature };
        let groups = self.source.sample(self.policy, &draw, stop).map_err(|error| self.spoilt(index + 1, error))?;
        let rollout_s = started.elapsed().as_secs_f64();
        self.check_groups(index, questions.len(), &groups)?;
        let started = Instant::now();
        let learning_rate = self.learning_rate(self.options.run.learning_rate).at(index);
        let learned = match &self.options.learner {
            Learner::Group(group) => self.learn_from_groups(index, &groups, group, learning_rate)?,
            Learner::Critic(critic) => self.learn_from_critic(index, &groups, critic, learning_rate)?,
        };
        // With the weights before it the step has a loss, whatever becomes of them now.
        self.settle();
        check_weights(index + 1, &self.parameters)?;
        let seconds = started.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        let Learned { mut metrics, grad_norm, num_tokens, num_distinct_tokens } = learned;
        metrics.extend(of_sampled(&groups));
        metrics.extend([
            ("learning_rate", learning_rate),
            ("grad_norm", grad_norm),
            ("tokens", num_tokens as f64),
            ("distinct_tokens", num_distinct_tokens as f64),
            (TOKENS_PER_S, num_tokens as f64 / seconds),
            (ROLLOUT_S, rollout_s),
        ]);
        metrics.extend(memory_mb().map(|memory| (MEMORY_MB, memory)));
        Ok(metrics)
    }

    fn check_groups(&self, index: usize, num_questions: usize, groups: &[Vec<SampledTrajectory>]) -> Result<()> {
        if groups.len() != num_questions || groups.iter().any(|group| group.len() != self.options.group_size) {
            return Err(Error::Internal("a source of rollouts gave other groups than it was asked for".into()));
        }
        let mut calls = groups.iter().flatten().flat_map(|trajectory| &trajectory.calls);
        if calls.any(|call| call.prompt.is_empty() || call.completion.is_empty()) {
            return Err(Error::Internal("a source of rollouts gave a call without tokens".into()));
        }
        for trajectory in groups.iter().flatten() {
            check_finite(index + 1, "reward of a trajectory", trajectory.reward)?;
            for score in trajectory.calls.iter().filter_map(|call| call.score) {
                check_finite(index + 1, "score of a step", score)?;
            }
        }
        Ok(())
    }

    /// Measures the last step, if that is due and not done, and adds what it gives to the step's metrics.
    fn validate(&mut self) -> Result<()> {
        let run = &self.options.run;
        let step = self.num_done();
        let Some(metrics) = self.progress.steps.last() else { return Ok(()) };
        let is_due = step == self.num_steps || run.evaluate_every.is_some_and(|every| step.checked_rem(every) == Some(0));
        let is_done = metrics.iter().any(|(name, _)| *name == VALIDATION_REWARD);
        if !is_due || is_done || self.source.num_validation_questions() == 0 {
            return Ok(());
        }
        let measured = self.source.measure(self.policy, &run.stop).map_err(|error| self.spoilt(step, error))?;
        let measured = of_measured(&measured);
        let reward = measured.first().map_or(f64::NAN, |(_, reward)| *reward);
        check_finite(step, "reward of the validation", reward)?;
        if run.early_stopping.is_some() {
            let value = decisive(run, VALIDATION_REWARD, &measured)?;
            check_finite(step, "metric of the validation", value)?;
            self.progress.judgement.add(step, value, &self.parameters)?;
        }
        if let Some(metrics) = self.progress.steps.last_mut() {
            metrics.extend(measured);
        }
        Ok(())
    }

    /// Whether validation has not become better for too long.
    fn is_enough(&self) -> bool {
        self.options.run.early_stopping.is_some_and(|patience| self.progress.judgement.num_worse >= patience)
    }

    /// Whole steps behind the run.
    fn num_done(&self) -> usize {
        self.progress.steps.len()
    }

    /// Says once, when it first happens, that nothing is learned from outcomes.
    fn warn_of_silence(&self) {
        let is_silent = |metrics: &Metrics| metrics.iter().any(|(name, share)| *name == GROUPS_WITHOUT_SIGNAL && *share == 1.0);
        let num_silent = self.progress.steps.iter().rev().take_while(|metrics| is_silent(metrics)).count();
        let was_told = self.progress.steps.windows(SILENT_STEPS).rev().skip(1).any(|steps| steps.iter().all(is_silent));
        if num_silent == SILENT_STEPS && !was_told {
            self.options.run.warnings.say(format!(
                "no group of the last {SILENT_STEPS} steps has trajectories of different rewards, so that their outcomes teach nothing: the questions are too \
                 hard or too easy for the policy, or it has become too sure; take others, raise group_size or temperature, or another reward"
            ));
        }
    }

    /// Leaves a checkpoint of the last whole step, if there is none.
    fn save(&mut self) -> Result<()> {
        let run = &self.options.run;
        let Some(checkpoints) = &run.checkpoints else { return Ok(()) };
        let step = self.num_done();
        if step == 0 || self.saved_at == Some(step) {
            return Ok(());
        }
        let saved = checkpoint::save(checkpoints, &self.parameters, &self.optimizer, &mut self.progress);
        match saved {
            Ok(()) => (self.saved_at, self.is_unproven) = (Some(step), true),
            Err(_) => self.cannot_save = true,
        }
        saved
    }

    /// A policy that can write no more has been spoilt by an update of this run, unless it was so before.
    fn spoilt(&self, step: usize, error: Error) -> Error {
        match error {
            Error::BrokenWeights if self.num_done() > 0 => {
                Error::Diverged { step, what: "logit of the policy", value: f64::NAN, checkpoint: None }
            }
            other => other,
        }
    }

    /// The schedule of this peak.
    pub fn learning_rate(&self, peak: f64) -> LearningRate {
        LearningRate::new(peak, self.options.run.warmup_ratio, self.num_steps, self.options.run.schedule)
    }

    pub fn passes(&self) -> Passes<'a> {
        Passes { run: &self.options.run, recompute: self.recompute }
    }

    /// Of each token in the loss of its part, by call; `parts`: all of them.
    pub fn token_weights(&self, calls: &StepCalls<'_>, parts: &[Part]) -> Vec<f64> {
        let normalizer = self.options.normalization.normalizer(self.source.completion_tokens_max());
        let of_part = |part: &Part| {
            let (num_tokens, first) = (&calls.num_tokens[part.trajectories.clone()], part.trajectories.start);
            let total = num_tokens.iter().sum();
            let weight = |trajectory: &usize| token_weights(normalizer, *trajectory - first, num_tokens, total);
            calls.trajectory[part.calls.clone()].iter().map(weight).collect::<Vec<f64>>()
        };
        parts.iter().flat_map(of_part).collect()
    }

    /// From here on the weights are those of no whole step, until the step is done.
    pub fn begin_update(&mut self) {
        self.is_within_step = true;
    }
}

pub(super) fn check_finite(step: usize, what: &'static str, value: f64) -> Result<()> {
    if value.is_finite() { Ok(()) } else { Err(Error::Diverged { step, what, value, checkpoint: None }) }
}
