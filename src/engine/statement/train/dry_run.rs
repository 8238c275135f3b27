//! `TRAIN ... DRY RUN`: what a training would take, without its first step.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::super::arrow;
use super::examples::Examples;
use super::input::Row;
use super::run::{Counts, Prepared};
use super::task::Method;
use crate::error::{Error, Result};
use crate::models::{DecoderConfig, Tokenizer};
use crate::training::{Estimate, Stop, estimate};

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
    /// Those of the rows that the training would have; [`Error::Cancelled`].
    pub fn run(&self, stop: &Stop) -> Result<RecordBatch> {
        let Self { directory, config, method, rows, validation } = self;
        let tokenizer = Tokenizer::load(directory)?;
        let Prepared { examples, validation, counts } = Prepared::of(rows, validation, method, &tokenizer, stop)?;
        let run = method.run();
        let costs = costs(&examples, method);
        let flops_per_second = Estimate::measured_flops_per_second()?;
        let estimate = estimate(config, &costs, run, method.batch_size(), flops_per_second);
        if run.lora.is_some() && estimate.trainable_parameters == 0 {
            return Err(no_target(method));
        }
        let reference = match (method, &examples) {
            (Method::Dpo(options), Examples::Dpo(_, None)) if options.preference.loss.needs_reference() => {
                let validation: Vec<usize> = self::costs(&validation, method);
                Estimate::forward_flops(config, costs.iter().chain(&validation)) / flops_per_second
            }
            _ => 0.0,
        };
        table(&properties(counts, &estimate, reference))
    }
}

fn costs(examples: &Examples, method: &Method) -> Vec<usize> {
    match examples {
        Examples::Sft(examples) => Estimate::costs_of_examples(examples, method.run()),
        Examples::Dpo(pairs, _) => Estimate::costs_of_pairs(pairs, method.run()),
    }
}

fn no_target(method: &Method) -> Error {
    let targets = method.run().lora.as_ref().map(|lora| lora.targets.join(", ")).unwrap_or_default();
    Error::InvalidParameter {
        name: "lora_targets".to_owned(),
        found: format!("'{targets}'"),
        expected: "names of matrices of the base, such as 'q_proj, v_proj'".to_owned(),
    }
}

/// `reference`: seconds for the log-probabilities of the reference.
fn properties(counts: Counts, estimate: &Estimate, reference: f64) -> Vec<(&'static str, String)> {
    vec![
        ("examples", counts.examples.to_string()),
        ("validation_examples", counts.validation_examples.to_string()),
        ("truncated", counts.truncated.to_string()),
        ("dropped", counts.dropped.to_string()),
        ("tokens", estimate.num_tokens.to_string()),
        ("steps", estimate.num_steps.to_string()),
        ("parameters", estimate.parameters.to_string()),
        ("trainable_parameters", estimate.trainable_parameters.to_string()),
        ("weight_bytes", estimate.weight_bytes.to_string()),
        ("optimizer_bytes", estimate.optimizer_bytes.to_string()),
        ("activation_bytes", estimate.activation_bytes.to_string()),
        ("checkpoint_bytes", estimate.checkpoint_bytes.to_string()),
        ("seconds", format!("{:.1}", estimate.seconds + reference)),
    ]
}

fn table(properties: &[(&'static str, String)]) -> Result<RecordBatch> {
    let names = StringArray::from_iter_values(properties.iter().map(|(name, _)| name));
    let values = StringArray::from_iter_values(properties.iter().map(|(_, value)| value));
    RecordBatch::try_new(schema(), vec![Arc::new(names), Arc::new(values)]).map_err(arrow)
}
