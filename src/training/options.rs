//! The options of `TRAIN SFT`, `TRAIN RFT`, `TRAIN DPO` and `TRAIN PRM`: names, defaults and ranges.
//!
//! All statements share [`RunOptions`]; what only one of them has stands beside it. The values come as [`Value`]s, so this
//! module reads no SQL.

use std::collections::BTreeMap;

use super::checkpoint::Checkpoints;
use super::losses::{LengthNormalization, Preference, PreferenceLoss, RewardLoss};
use super::metrics::StoppingMetric;
use super::schedule::Schedule;
use super::stop::Stop;
use super::token_weights::TokenWeights;
use super::warnings::Warnings;
use crate::error::{Error, Result};
use crate::models::Device;
use crate::models::lora::LoraOptions;
use crate::value::Value;

/// The margin of SimPO where none is given, as in TRL.
const SIMPO_GAMMA: f64 = 0.5;

/// Options of every TRAIN that its statement reads itself, since they change nothing of what is computed: whether it goes on at a checkpoint, what it
/// leaves beside its model, and what becomes of a run that diverges. `tensorboard` is a path.
pub const STATEMENT_OPTIONS: &[&str] = &["resume", "tensorboard", "lora_keep", "on_divergence"];

/// What happens to an example whose prompt does not fit beside its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LongPrompts {
    /// The prompt loses its beginning.
    #[default]
    Truncate,
    /// The example is left out.
    Drop,
    /// The training is refused and names the row.
    Error,
}

impl LongPrompts {
    /// Reads `truncate`, `drop` or `error`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for any other text.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "truncate" => Ok(Self::Truncate),
            "drop" => Ok(Self::Drop),
            "error" => Ok(Self::Error),
            _ => Err(Error::InvalidParameter {
                name: "long_prompts".into(),
                found: format!("'{text}'"),
                expected: "'truncate', 'drop' or 'error'".into(),
            }),
        }
    }

    /// The text that [`Self::parse`] reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Truncate => "truncate",
            Self::Drop => "drop",
            Self::Error => "error",
        }
    }
}

/// What all kinds of training share: how long, how fast, in which order, how much at once.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOptions {
    /// Passes over the examples, > 0 and at most 10,000; 0.5 trains on the first half of the order.
    pub epochs: f64,
    /// Stop after so many optimiser steps even when `epochs` is not reached; the schedule ends there too.
    pub max_steps: Option<usize>,
    /// Peak learning rate of AdamW, > 0.
    pub learning_rate: f64,
    /// What the learning rate does after the warm-up.
    pub schedule: Schedule,
    /// Share of the steps that warm up, 0 to 1.
    pub warmup_ratio: f64,
    /// AdamW's decoupled decay of matrices, >= 0.
    pub weight_decay: f64,
    /// AdamW's decays of the mean of the gradients and of the mean of their squares, 0 to below 1.
    pub adam_betas: [f64; 2],
    /// The gradient is scaled down to this global L2 norm, > 0.
    pub max_grad_norm: f64,
    /// Upper bound on the tokens of one forward and backward pass; with `tree_packing` a beginning that sequences share counts once. It
    /// bounds memory. For DPO and wherever `batch_size` is given it does not change which examples share a step; but a sequence, or the two
    /// of a pair together, must fit: below `max_length`, or twice that for pairs, it cuts their prompts.
    pub batch_tokens: usize,
    /// Batches per optimiser step.
    pub gradient_accumulation: usize,
    /// Tokens per optimiser step, >= 1: a step takes examples until they have so many.
    pub step_tokens: Option<usize>,
    /// Longest sequence, prompt and completion together, in tokens; see `long_prompts` for a longer one.
    pub max_length: usize,
    /// What [`keep_sft`](super::keep_sft) and [`keep_dpo`](super::keep_dpo) do with a prompt that does not fit. A training that
    /// is given such examples without them cuts the prompts.
    pub long_prompts: LongPrompts,
    /// New order in each epoch; `false` keeps the query's order.
    pub shuffle: bool,
    /// Examples whose prompts begin alike are shuffled as one group, so that they share steps; see [`Self::shuffle`].
    pub group_by_prefix: bool,
    /// Whether a beginning that sequences of a batch share goes through the model once: less time and memory, and the same steps with the
    /// same gradients but for rounding.
    pub tree_packing: bool,
    /// Seed of the order, of new adapters, and of the score of a new reward model.
    pub seed: u64,
    /// Optimiser steps between two checkpoints; 0 writes one only when the run is cancelled.
    pub checkpoint_every: usize,
    /// Optimiser steps between two evaluations of the validation examples, >= 1; without it there is one, at the end.
    pub evaluate_every: Option<usize>,
    /// The run ends after so many evaluations, >= 1, without a better one, with the weights of the best.
    pub early_stopping: Option<usize>,
    /// What early stopping compares; without it the loss, or the reward where the policy is asked.
    pub early_stopping_metric: Option<StoppingMetric>,
    /// Whether the backward pass computes the activations of a block again instead of keeping them: less memory, more time, the
    /// same gradients. Without it the size of a full batch decides.
    pub recompute: Option<bool>,
    /// Where it computes.
    pub device: Device,
    /// Trains adapters of low rank instead of the weights.
    pub lora: Option<LoraOptions>,
    /// Texts within completions whose tokens have a weight of their own, of demonstrations alone. Who makes the examples gives it to their masks.
    pub token_weights: TokenWeights,
    /// Where checkpoints are; no option of the statement.
    pub checkpoints: Option<Checkpoints>,
    /// Ends the run between two batches; no option of the statement.
    pub stop: Stop,
    /// Metrics that the first step has beside its own, by names of `training::metrics`; no option of the statement.
    pub first_metrics: Vec<(&'static str, f64)>,
    /// Hears of what ends nothing; no option of the statement.
    pub warnings: Warnings,
    /// What was set by name, because the default of one option may depend on another.
    pub given: BTreeMap<String, Value>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            epochs: 1.0,
            max_steps: None,
            learning_rate: 2e-5,
            schedule: Schedule::Cosine,
            warmup_ratio: 0.1,
            weight_decay: 0.0,
            adam_betas: [0.9, 0.999],
            max_grad_norm: 1.0,
            batch_tokens: 4096,
            gradient_accumulation: 1,
            step_tokens: None,
            max_length: 2048,
            long_prompts: LongPrompts::default(),
            shuffle: true,
            group_by_prefix: false,
            tree_packing: true,
            seed: 0,
            checkpoint_every: 50,
            evaluate_every: None,
            early_stopping: None,
            early_stopping_metric: None,
            recompute: None,
            device: Device::Auto,
            lora: None,
            token_weights: TokenWeights::default(),
            checkpoints: None,
            stop: Stop::default(),
            first_metrics: Vec::new(),
            warnings: Warnings::default(),
            given: BTreeMap::new(),
        }
    }
}

/// Names of [`RunOptions`], in the order of the manual, before what only one statement has.
macro_rules! names_with {
    ($($own:literal),*) => {
        &[
            "epochs", "max_steps", "learning_rate", "schedule", "warmup_ratio", "weight_decay", "adam_beta1", "adam_beta2", "max_grad_norm", "batch_tokens",
            "gradient_accumulation", "step_tokens", "max_length", "long_prompts", "shuffle", "group_by_prefix", "tree_packing", "seed",
            "checkpoint_every", "evaluate_every", "early_stopping", "early_stopping_metric", "recompute", "device", "lora_rank",
            "lora_alpha", "lora_targets", "lora_rslora",
            $($own),*
        ]
    };
}

impl RunOptions {
    /// Sets the option `name`; `false` if there is none of this name.
    pub(super) fn set(&mut self, name: &str, value: &Value) -> Result<bool> {
        match name {
            "epochs" => self.epochs = epochs(name, value)?,
            "max_steps" => self.max_steps = Some(count(name, value)?),
            "learning_rate" => self.learning_rate = positive(name, value)?,
            "schedule" => self.schedule = Schedule::parse(text(name, value)?)?,
            "warmup_ratio" => self.warmup_ratio = between_0_and_1(name, value)?,
            "weight_decay" => self.weight_decay = not_negative(name, value)?,
            "adam_beta1" => self.adam_betas[0] = number(name, value, |found| (0.0..1.0).contains(&found), "a number >= 0 and below 1")?,
            "adam_beta2" => self.adam_betas[1] = number(name, value, |found| (0.0..1.0).contains(&found), "a number >= 0 and below 1")?,
            "max_grad_norm" => self.max_grad_norm = positive(name, value)?,
            "batch_tokens" => self.batch_tokens = count(name, value)?,
            "gradient_accumulation" => self.gradient_accumulation = count(name, value)?,
            "step_tokens" => self.step_tokens = Some(count(name, value)?),
            "max_length" => self.max_length = count(name, value)?,
            "long_prompts" => self.long_prompts = LongPrompts::parse(text(name, value)?)?,
            "shuffle" => self.shuffle = boolean(name, value)?,
            "group_by_prefix" => self.group_by_prefix = boolean(name, value)?,
            "tree_packing" => self.tree_packing = boolean(name, value)?,
            "seed" => self.set_seed(seed(name, value)?),
            "checkpoint_every" => self.checkpoint_every = count_or_zero(name, value)?,
            "evaluate_every" => self.evaluate_every = Some(count(name, value)?),
            "early_stopping" => self.early_stopping = Some(count(name, value)?),
            "early_stopping_metric" => self.early_stopping_metric = Some(stopping_metric(name, value)?),
            "recompute" => self.recompute = Some(boolean(name, value)?),
            "device" => self.device = text(name, value)?.parse()?,
            "lora_rank" => self.adapters().rank = count(name, value)?,
            "lora_alpha" => self.adapters().alpha = positive(name, value)?,
            "lora_targets" => self.adapters().targets = list(name, value)?,
            "lora_rslora" => self.adapters().is_rank_stabilized = boolean(name, value)?,
            _ => return Ok(false),
        }
        self.remember(name, value);
        Ok(true)
    }

    /// The options of adapters. The first one that is set turns them on.
    fn adapters(&mut self) -> &mut LoraOptions {
        let seed = self.seed;
        self.lora.get_or_insert_with(|| LoraOptions { seed, ..LoraOptions::default() })
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
        if let Some(lora) = &mut self.lora {
            lora.seed = seed;
        }
    }

    pub(super) fn remember(&mut self, name: &str, value: &Value) {
        self.given.insert(name.to_owned(), value.clone());
    }

    /// Early stopping compares evaluations, so there must be some.
    pub(super) fn check_early_stopping(&self, has_validation: bool) -> Result<()> {
        let (Some(patience), false) = (self.early_stopping, has_validation && self.evaluate_every.is_some()) else { return Ok(()) };
        let expected = if has_validation { "evaluate_every beside it" } else { "validation examples, which VALIDATE USING gives" };
        Err(Error::InvalidParameter { name: "early_stopping".into(), found: patience.to_string(), expected: expected.into() })
    }
}

/// Options of `TRAIN SFT`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SftOptions {
    pub run: RunOptions,
    /// Examples per batch; without it a batch is as many examples as fit in `batch_tokens`.
    pub batch_size: Option<usize>,
    /// Weight of a prompt token in the loss, 0 to 1; a completion token has weight 1. Both times the example's own weight.
    pub prompt_weight: f64,
}

impl SftOptions {
    pub const NAMES: &'static [&'static str] = names_with!("batch_size", "prompt_weight", "token_weights");

    /// Sets one option.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::InvalidParameter`] for a value of the wrong type or out of range.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        if self.set_known(name, value)? { Ok(()) } else { Err(unknown(name, "TRAIN SFT", Self::NAMES)) }
    }

    /// Sets the option `name`; `false` if there is none of this name.
    fn set_known(&mut self, name: &str, value: &Value) -> Result<bool> {
        match name {
            "batch_size" => self.batch_size = Some(count(name, value)?),
            "prompt_weight" => self.prompt_weight = between_0_and_1(name, value)?,
            "token_weights" => self.run.token_weights = TokenWeights::parse(name, value)?,
            _ => return self.run.set(name, value),
        }
        self.run.remember(name, value);
        Ok(true)
    }
}

/// Options of `TRAIN RFT`: which samples of the policy it learns from, and how, which is [`SftOptions`].
#[derive(Debug, Clone, PartialEq)]
pub struct RftOptions {
    pub sft: SftOptions,
    /// Rows of a smaller reward are left out.
    pub min_reward: f64,
    /// At most so many rows of one prompt, >= 1; without it all.
    pub per_prompt: Option<usize>,
    /// Rows of a smaller score are left out; without it the score is not looked at.
    pub min_score: Option<f64>,
}

impl Default for RftOptions {
    fn default() -> Self {
        Self { sft: SftOptions::default(), min_reward: 1.0, per_prompt: None, min_score: None }
    }
}

impl RftOptions {
    pub const NAMES: &'static [&'static str] =
        names_with!("batch_size", "prompt_weight", "token_weights", "min_reward", "per_prompt", "min_score");

    /// Sets one option.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::InvalidParameter`] for a value of the wrong type or out of range.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "min_reward" => self.min_reward = any(name, value)?,
            "per_prompt" => self.per_prompt = Some(count(name, value)?),
            "min_score" => self.min_score = Some(any(name, value)?),
            _ if self.sft.set_known(name, value)? => return Ok(()),
            _ => return Err(unknown(name, "TRAIN RFT", Self::NAMES)),
        }
        self.sft.run.remember(name, value);
        Ok(())
    }
}

/// Options of `TRAIN DPO`. The defaults are ReasonRAG's (arXiv:2505.14069): the sigmoid loss with `beta` 0.3, `learning_rate` 1e-6,
/// one epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct DpoOptions {
    pub run: RunOptions,
    /// The loss of a pair: `loss`, `beta`, `label_smoothing`, `gamma`, `length_normalization`, `sft_weight`.
    pub preference: Preference,
    /// Preference pairs per batch.
    pub batch_size: usize,
}

impl Default for DpoOptions {
    fn default() -> Self {
        let run = RunOptions { learning_rate: 1e-6, ..RunOptions::default() };
        Self { run, preference: Preference::sigmoid(0.3), batch_size: 8 }
    }
}

impl DpoOptions {
    pub const NAMES: &'static [&'static str] =
        names_with!("batch_size", "loss", "beta", "label_smoothing", "gamma", "length_normalization", "sft_weight");

    /// Sets one option, in any order. `loss`, `label_smoothing`, `gamma` and `length_normalization` depend on each other: they
    /// take effect in [`Self::finish`].
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::InvalidParameter`] for a value of the wrong type or out of range.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "batch_size" => self.batch_size = count(name, value)?,
            "beta" => self.preference.beta = positive(name, value)?,
            "sft_weight" => self.preference.sft_weight = not_negative(name, value)?,
            "loss" => {
                loss(name, value)?;
            }
            "label_smoothing" => {
                label_smoothing(name, value)?;
            }
            "gamma" => {
                not_negative(name, value)?;
            }
            "length_normalization" => {
                length_normalization(name, value)?;
            }
            _ if self.run.set(name, value)? => return Ok(()),
            _ => return Err(unknown(name, "TRAIN DPO", Self::NAMES)),
        }
        self.run.remember(name, value);
        Ok(())
    }

    /// Makes the loss of what was set and checks it. Without a `length_normalization` the loss has its own.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for an option that belongs to another loss, and for what [`Preference::check`] refuses.
    pub fn finish(&mut self) -> Result<()> {
        let preference = &mut self.preference;
        if let Some((found, _)) = given(&self.run, "loss", loss)? {
            preference.loss = found;
            preference.normalization = found.default_normalization();
        }
        if let Some((found, value)) = given(&self.run, "label_smoothing", label_smoothing)? {
            match &mut preference.loss {
                PreferenceLoss::Sigmoid { label_smoothing } | PreferenceLoss::Robust { label_smoothing } => *label_smoothing = found,
                other => return Err(of_another_loss("label_smoothing", value, *other, "'sigmoid' or 'robust'")),
            }
        }
        if let Some((found, value)) = given(&self.run, "gamma", not_negative)? {
            match &mut preference.loss {
                PreferenceLoss::SimPo { gamma } => *gamma = found,
                other => return Err(of_another_loss("gamma", value, *other, "'simpo'")),
            }
        }
        if let Some((found, _)) = given(&self.run, "length_normalization", length_normalization)? {
            preference.normalization = found;
        }
        preference.check()
    }
}

/// Options of `TRAIN PRM`.
#[derive(Debug, Clone, PartialEq)]
pub struct PrmOptions {
    pub run: RunOptions,
    /// The loss; without it [`RewardLoss::BradleyTerry`] of pairs and [`RewardLoss::CrossEntropy`] of steps.
    pub loss: Option<RewardLoss>,
    /// How far the score of the chosen completion shall be ahead, >= 0; of pairs alone.
    pub margin: f64,
    /// Pairs or steps per batch.
    pub batch_size: usize,
}

impl Default for PrmOptions {
    fn default() -> Self {
        Self { run: RunOptions::default(), loss: None, margin: 0.0, batch_size: 8 }
    }
}

impl PrmOptions {
    pub const NAMES: &'static [&'static str] = names_with!("batch_size", "loss", "margin");

    /// Sets one option.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::InvalidParameter`] for a value of the wrong type or out of range.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "batch_size" => self.batch_size = count(name, value)?,
            "loss" => self.loss = Some(reward_loss(name, value)?),
            "margin" => self.margin = not_negative(name, value)?,
            _ if self.run.set(name, value)? => return Ok(()),
            _ => return Err(unknown(name, "TRAIN PRM", Self::NAMES)),
        }
        self.run.remember(name, value);
        Ok(())
    }

    /// The loss for pairs, or for steps.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a loss of the other ones, and for a margin of steps.
    pub fn loss_of(&self, is_pairs: bool) -> Result<RewardLoss> {
        let otherwise = if is_pairs { RewardLoss::BradleyTerry } else { RewardLoss::CrossEntropy };
        let loss = self.loss.unwrap_or(otherwise);
        let refused = |name: &str, found: String, expected: &str| {
            Err(Error::InvalidParameter { name: name.into(), found, expected: expected.into() })
        };
        match (is_pairs, loss.needs_pairs()) {
            (true, false) => refused("loss", format!("'{}'", loss.name()), "'bradley_terry' for pairs"),
            (false, true) => refused("loss", format!("'{}'", loss.name()), "'cross_entropy' or 'squared_error' for steps with labels"),
            (false, false) if self.margin > 0.0 => {
                refused("margin", self.margin.to_string(), "pairs (prompt, chosen, rejected), whose scores it keeps apart")
            }
            _ => Ok(loss),
        }
    }
}

fn stopping_metric(name: &str, value: &Value) -> Result<StoppingMetric> {
    let expected = "a metric of the validation of which more or less is better, such as 'loss' or 'reward_accuracy'";
    StoppingMetric::of_name(text(name, value)?).ok_or_else(|| invalid(name, value, expected))
}

fn reward_loss(name: &str, value: &Value) -> Result<RewardLoss> {
    RewardLoss::of_name(text(name, value)?).ok_or_else(|| invalid(name, value, "'bradley_terry', 'cross_entropy' or 'squared_error'"))
}

/// An option that was set, read once more, and its value.
fn given<'a, T>(run: &'a RunOptions, name: &str, read: impl FnOnce(&str, &Value) -> Result<T>) -> Result<Option<(T, &'a Value)>> {
    run.given.get(name).map(|value| Ok((read(name, value)?, value))).transpose()
}

/// The loss of this name, with the defaults of what belongs to it.
fn loss(name: &str, value: &Value) -> Result<PreferenceLoss> {
    match text(name, value)? {
        "sigmoid" => Ok(PreferenceLoss::Sigmoid { label_smoothing: 0.0 }),
        "hinge" => Ok(PreferenceLoss::Hinge),
        "ipo" => Ok(PreferenceLoss::Ipo),
        "robust" => Ok(PreferenceLoss::Robust { label_smoothing: 0.0 }),
        "orpo" => Ok(PreferenceLoss::Orpo),
        "simpo" => Ok(PreferenceLoss::SimPo { gamma: SIMPO_GAMMA }),
        _ => Err(invalid(name, value, "'sigmoid', 'hinge', 'ipo', 'robust', 'orpo' or 'simpo'")),
    }
}

fn of_another_loss(name: &str, value: &Value, found: PreferenceLoss, losses: &str) -> Error {
    invalid(name, value, &format!("the loss {losses} for it, not '{}'", found.name()))
}

fn label_smoothing(name: &str, value: &Value) -> Result<f64> {
    number(name, value, |found| (0.0..0.5).contains(&found), "a number >= 0 and below 0.5")
}

fn length_normalization(name: &str, value: &Value) -> Result<LengthNormalization> {
    LengthNormalization::parse(text(name, value)?)
}

pub(super) fn unknown(name: &str, of: &str, known: &[&str]) -> Error {
    Error::UnknownOption { kind: "option", name: name.into(), of: of.into(), known: known.iter().map(|known| known.to_string()).collect() }
}

pub(super) fn invalid(name: &str, value: &Value, expected: &str) -> Error {
    Error::InvalidParameter { name: name.into(), found: value.to_string(), expected: expected.into() }
}

/// A finite number that `accept`s; an integer is a number too.
pub(super) fn number(name: &str, value: &Value, accept: impl Fn(f64) -> bool, expected: &str) -> Result<f64> {
    let found = match value {
        Value::Int(value) => *value as f64,
        Value::Float(value) => *value,
        Value::Text(_) | Value::Bool(_) => return Err(invalid(name, value, expected)),
    };
    if found.is_finite() && accept(found) { Ok(found) } else { Err(invalid(name, value, expected)) }
}

fn any(name: &str, value: &Value) -> Result<f64> {
    number(name, value, |_| true, "a finite number")
}

pub(super) fn positive(name: &str, value: &Value) -> Result<f64> {
    number(name, value, |found| found > 0.0, "a number > 0")
}

/// The order of all epochs is walked through once before training, to know the number of steps; hence an upper bound.
fn epochs(name: &str, value: &Value) -> Result<f64> {
    number(name, value, |found| found > 0.0 && found <= 10_000.0, "a number > 0 and at most 10000")
}

pub(super) fn not_negative(name: &str, value: &Value) -> Result<f64> {
    number(name, value, |found| found >= 0.0, "a number >= 0")
}

pub(super) fn between_0_and_1(name: &str, value: &Value) -> Result<f64> {
    number(name, value, |found| (0.0..=1.0).contains(&found), "a number from 0 to 1")
}

pub(super) fn count(name: &str, value: &Value) -> Result<usize> {
    match value {
        Value::Int(found) if *found > 0 => usize::try_from(*found).map_err(|_| invalid(name, value, "a smaller integer")),
        _ => Err(invalid(name, value, "an integer >= 1")),
    }
}

fn count_or_zero(name: &str, value: &Value) -> Result<usize> {
    match value {
        Value::Int(0) => Ok(0),
        Value::Int(_) => count(name, value).map_err(|_| invalid(name, value, "an integer >= 0")),
        _ => Err(invalid(name, value, "an integer >= 0")),
    }
}

fn seed(name: &str, value: &Value) -> Result<u64> {
    match value {
        Value::Int(found) if *found >= 0 => Ok(found.unsigned_abs()),
        _ => Err(invalid(name, value, "an integer >= 0")),
    }
}

pub(super) fn boolean(name: &str, value: &Value) -> Result<bool> {
    match value {
        Value::Bool(found) => Ok(*found),
        _ => Err(invalid(name, value, "true or false")),
    }
}

pub(super) fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str> {
    match value {
        Value::Text(found) => Ok(found),
        _ => Err(invalid(name, value, "a text")),
    }
}

/// Names between commas.
fn list(name: &str, value: &Value) -> Result<Vec<String>> {
    let names: Vec<String> = text(name, value)?.split(',').map(|part| part.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) { Err(invalid(name, value, "names between commas: 'q_proj, v_proj'")) } else { Ok(names) }
}
