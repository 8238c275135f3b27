//! `TRAIN ... DRY RUN`: what a training would take, without its first step.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::super::arrow;
use super::examples::{BaseTokenizer, Examples};
use super::input::Row;
use super::run::{Counts, Prepared};
use super::task::Method;
use crate::error::Result;
use crate::models::{DecoderConfig, Device};
use crate::training::{Estimate, Sharing, Stop, dpo_sequences, estimate, sft_sequences};

pub fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(vec![text("property"), text("value")]))
}

/// What the figures hang on.
pub struct DryRun {
    /// Of the base.
    pub directory: PathBuf,
    pub config: DecoderConfig,
    pub method: Method,
    pub rows: Vec<Row>,
    pub validation: Vec<Row>,
}

impl DryRun {
    /// Encodes all rows, as the training would. Blocks.
    ///
    /// # Errors
    /// Those of the rows and of the adapters that the training would have; [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn run(&self, stop: &Stop) -> Result<RecordBatch> {
        let (counts, estimate) = self.figures(stop)?;
        table(&properties(counts, &estimate, self.method.run().device))
    }

    /// Examples, and what they take, with the time for the log-probabilities of the reference.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn figures(&self, stop: &Stop) -> Result<(Counts, Estimate)> {
        let Self { directory, config, method, rows, validation } = self;
        let run = method.run();
        if let Some(lora) = &run.lora {
            lora.num_parameters(config)?;
        }
        let base = BaseTokenizer::load(directory)?;
        let Prepared { examples, validation, counts, .. } = Prepared::of(rows, validation, method, &base, stop)?;
        check(&examples, method)?;
        if validation.len() > 0 {
            check(&validation, method)?;
        }
        let (costs, sharing) = (costs(&examples, method)?, sharing(&examples, method)?);
        let flops_per_second = Estimate::measured_flops_per_second(run.device)?;
        let mut estimate = estimate(&method.shape(config), &costs, sharing.as_ref(), run, method.batch_size(), flops_per_second);
        if let Method::Dpo(options) = method
            && options.preference.loss.needs_reference()
        {
            for computed in [examples.without_references(), validation.without_references()] {
                let (costs, sharing) = (self::costs(&computed, method)?, self::sharing(&computed, method)?);
                estimate.seconds += Estimate::forward_flops(config, &costs, sharing.as_ref(), run) / flops_per_second;
            }
        }
        Ok((counts, estimate))
    }
}

/// What the training finds before its first step. Each row was looked at when the examples were made.
fn check(examples: &Examples, method: &Method) -> Result<()> {
    match examples {
        Examples::Sft(examples) => sft_sequences(examples, method.prompt_weight(), method.run()).map(drop),
        Examples::Dpo(pairs, _) => dpo_sequences(pairs, method.run()).map(drop),
        Examples::Prm(examples) => examples.costs(method.run()).map(drop),
    }
}

fn costs(examples: &Examples, method: &Method) -> Result<Vec<usize>> {
    match examples {
        Examples::Sft(examples) => Ok(Estimate::costs_of_examples(examples, method.run())),
        Examples::Dpo(pairs, _) => Ok(Estimate::costs_of_pairs(pairs, method.run())),
        Examples::Prm(examples) => examples.costs(method.run()),
    }
}

/// What the examples share, where batches are trees.
fn sharing(examples: &Examples, method: &Method) -> Result<Option<Sharing>> {
    match examples {
        examples if examples.len() == 0 => Ok(None),
        Examples::Sft(examples) => Sharing::of_demonstrations(examples, method.prompt_weight(), method.run()),
        Examples::Dpo(pairs, _) => Sharing::of_pairs(pairs, method.run()),
        Examples::Prm(examples) => examples.sharing(method.run()),
    }
}

fn properties(counts: Counts, estimate: &Estimate, device: Device) -> Vec<(&'static str, String)> {
    vec![
        ("examples", counts.examples.to_string()),
        ("validation_examples", counts.validation_examples.to_string()),
        ("truncated", counts.truncated.to_string()),
        ("documents_truncated", counts.documents_truncated.to_string()),
        ("dropped", counts.dropped.to_string()),
        ("tokens", estimate.num_tokens.to_string()),
        ("distinct_tokens", estimate.num_distinct_tokens.to_string()),
        ("steps", estimate.num_steps.to_string()),
        ("device", device.of_training().description()),
        ("parameters", estimate.parameters.to_string()),
        ("trainable_parameters", estimate.trainable_parameters.to_string()),
        ("weight_bytes", estimate.weight_bytes.to_string()),
        ("optimizer_bytes", estimate.optimizer_bytes.to_string()),
        ("activation_bytes", estimate.activation_bytes.to_string()),
        ("checkpoint_bytes", estimate.checkpoint_bytes.to_string()),
        ("seconds", format!("{:.1}", estimate.seconds)),
    ]
}

/// A row for each property.
///
/// # Errors
/// None that can be caused.
pub fn table(properties: &[(&'static str, String)]) -> Result<RecordBatch> {
    let names = StringArray::from_iter_values(properties.iter().map(|(name, _)| name));
    let values = StringArray::from_iter_values(properties.iter().map(|(_, value)| value));
    RecordBatch::try_new(schema(), vec![Arc::new(names), Arc::new(values)]).map_err(arrow)
}
