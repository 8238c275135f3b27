//! The options of `TRAIN SFT` and `TRAIN DPO`: names, defaults and ranges.
//!
//! Both statements share [`RunOptions`]; what only one of them has stands beside it. The values come as [`Value`]s, so this
//! module reads no SQL.

use super::schedule::Schedule;
use super::stop::Stop;
use crate::error::{Error, Result};
use crate::value::Value;

/// What both kinds of training share: how long, how fast, in which order, how much at once.
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
    /// The gradient is scaled down to this global L2 norm, > 0.
    pub max_grad_norm: f64,
    /// Upper bound on the tokens of one forward and backward pass. It bounds memory; for DPO and wherever `batch_size` is
    /// given it does not change what is learned.
    pub batch_tokens: usize,
    /// Batches per optimiser step.
    pub gradient_accumulation: usize,
    /// Longest sequence, prompt and completion together, in tokens; a longer prompt loses its beginning.
    pub max_length: usize,
    /// New order in each epoch; `false` keeps the query's order.
    pub shuffle: bool,
    /// Seed of the order.
    pub seed: u64,
    /// Ends the run between two batches; no option of the statement.
    pub stop: Stop,
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
            max_grad_norm: 1.0,
            batch_tokens: 4096,
            gradient_accumulation: 1,
            max_length: 2048,
            shuffle: true,
            seed: 0,
            stop: Stop::default(),
        }
    }
}

/// Names of [`RunOptions`], in the order of the manual, before what only one statement has.
macro_rules! names_with {
    ($($own:literal),*) => {
        &[
            "epochs", "max_steps", "learning_rate", "schedule", "warmup_ratio", "weight_decay", "max_grad_norm", "batch_tokens",
            "gradient_accumulation", "max_length", "shuffle", "seed", $($own),*
        ]
    };
}

impl RunOptions {
    /// Sets the option `name`; `false` if there is none of this name.
    fn set(&mut self, name: &str, value: &Value) -> Result<bool> {
        match name {
            "epochs" => self.epochs = epochs(name, value)?,
            "max_steps" => self.max_steps = Some(count(name, value)?),
            "learning_rate" => self.learning_rate = positive(name, value)?,
            "schedule" => self.schedule = Schedule::parse(text(name, value)?)?,
            "warmup_ratio" => self.warmup_ratio = between_0_and_1(name, value)?,
            "weight_decay" => self.weight_decay = not_negative(name, value)?,
            "max_grad_norm" => self.max_grad_norm = positive(name, value)?,
            "batch_tokens" => self.batch_tokens = count(name, value)?,
            "gradient_accumulation" => self.gradient_accumulation = count(name, value)?,
            "max_length" => self.max_length = count(name, value)?,
            "shuffle" => self.shuffle = boolean(name, value)?,
            "seed" => self.seed = seed(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
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
    pub const NAMES: &'static [&'static str] = names_with!("batch_size", "prompt_weight");

    /// Sets one option.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::InvalidParameter`] for a value of the wrong type or out of range.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "batch_size" => self.batch_size = Some(count(name, value)?),
            "prompt_weight" => self.prompt_weight = between_0_and_1(name, value)?,
            _ if self.run.set(name, value)? => {}
            _ => return Err(unknown(name, "TRAIN SFT", Self::NAMES)),
        }
        Ok(())
    }
}

/// Options of `TRAIN DPO`. The defaults are ReasonRAG's (arXiv:2505.14069): `beta` 0.3, `learning_rate` 1e-6, one epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct DpoOptions {
    pub run: RunOptions,
    /// DPO's temperature, > 0; larger keeps the policy closer to the reference.
    pub beta: f64,
    /// Preference pairs per batch.
    pub batch_size: usize,
}

impl Default for DpoOptions {
    fn default() -> Self {
        Self { run: RunOptions { learning_rate: 1e-6, ..RunOptions::default() }, beta: 0.3, batch_size: 8 }
    }
}

impl DpoOptions {
    pub const NAMES: &'static [&'static str] = names_with!("batch_size", "beta");

    /// Sets one option.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::InvalidParameter`] for a value of the wrong type or out of range.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "beta" => self.beta = positive(name, value)?,
            "batch_size" => self.batch_size = count(name, value)?,
            _ if self.run.set(name, value)? => {}
            _ => return Err(unknown(name, "TRAIN DPO", Self::NAMES)),
        }
        Ok(())
    }
}

fn unknown(name: &str, of: &str, known: &[&str]) -> Error {
    Error::UnknownOption { kind: "option", name: name.into(), of: of.into(), known: known.iter().map(|known| known.to_string()).collect() }
}

fn invalid(name: &str, value: &Value, expected: &str) -> Error {
    Error::InvalidParameter { name: name.into(), found: value.to_string(), expected: expected.into() }
}

/// A finite number that `accept`s; an integer is a number too.
fn number(name: &str, value: &Value, accept: impl Fn(f64) -> bool, expected: &str) -> Result<f64> {
    let found = match value {
        Value::Int(value) => *value as f64,
        Value::Float(value) => *value,
        Value::Text(_) | Value::Bool(_) => return Err(invalid(name, value, expected)),
    };
    if found.is_finite() && accept(found) { Ok(found) } else { Err(invalid(name, value, expected)) }
}

fn positive(name: &str, value: &Value) -> Result<f64> {
    number(name, value, |found| found > 0.0, "a number > 0")
}

/// The order of all epochs is walked through once before training, to know the number of steps; hence an upper bound.
fn epochs(name: &str, value: &Value) -> Result<f64> {
    number(name, value, |found| found > 0.0 && found <= 10_000.0, "a number > 0 and at most 10000")
}

fn not_negative(name: &str, value: &Value) -> Result<f64> {
    number(name, value, |found| found >= 0.0, "a number >= 0")
}

fn between_0_and_1(name: &str, value: &Value) -> Result<f64> {
    number(name, value, |found| (0.0..=1.0).contains(&found), "a number from 0 to 1")
}

fn count(name: &str, value: &Value) -> Result<usize> {
    match value {
        Value::Int(found) if *found > 0 => usize::try_from(*found).map_err(|_| invalid(name, value, "a smaller integer")),
        _ => Err(invalid(name, value, "an integer >= 1")),
    }
}

fn seed(name: &str, value: &Value) -> Result<u64> {
    match value {
        Value::Int(found) if *found >= 0 => Ok(found.unsigned_abs()),
        _ => Err(invalid(name, value, "an integer >= 0")),
    }
}

fn boolean(name: &str, value: &Value) -> Result<bool> {
    match value {
        Value::Bool(found) => Ok(*found),
        _ => Err(invalid(name, value, "true or false")),
    }
}

fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str> {
    match value {
        Value::Text(found) => Ok(found),
        _ => Err(invalid(name, value, "a text")),
    }
}
