//! `rollout.training_metrics`: what TRAIN reports, one row per step and metric.

use arrow::datatypes::DataType::{Float64, Int32, Int64, Utf8};

use super::{define, required};
use crate::TableDefinition;

pub(super) fn definition() -> TableDefinition {
    let columns = vec![
        required("model", Utf8, "Name of the model being made."),
        required("version", Int32, "Version of the model being made."),
        required("method", Utf8, "sft, rft or dpo."),
        required("step", Int32, "Optimizer step, from 1."),
        required("metric", Utf8, "loss, reward_margin, reward_accuracy, learning_rate, grad_norm, ..."),
        required("value", Float64, "Value of the metric at the step."),
        required("at_ms", Int64, "When the step ended, in milliseconds since 1970 UTC."),
    ];
    define(columns, &["model", "version", "step", "metric"])
}
