//! `step_labels`: what training a process reward model reads, from trees.

use arrow::datatypes::DataType;

use super::Macro;
use super::call::Call;
use crate::engine::apply::arguments::Parameter;
use crate::error::Result;

pub const MACRO: Macro = Macro {
    name: "step_labels",
    parameters: &[
        Parameter::table("nodes"),
        Parameter::constant("label", DataType::Utf8),
        Parameter::constant("threshold", DataType::Float64),
        Parameter::constant("min_visits", DataType::Int64),
    ],
    sql,
};

const DEFAULT_THRESHOLD: f64 = 0.5;

/// What the search found out about a step.
const LABELS: &[(&str, &str)] = &[("process_reward", "process_reward"), ("q_value", "q_value")];

/// One row for each step that has the label; the root is no step.
fn sql(call: &Call) -> Result<String> {
    let nodes = call.nodes()?;
    let label = call.word("label", LABELS)?;
    let threshold = call.number("threshold")?.unwrap_or(DEFAULT_THRESHOLD);
    let min_visits = call.integer("min_visits", 0)?.unwrap_or(0);
    Ok(format!(
        "SELECT question_id, node_id, parent_id, depth, prompt, response AS step, {label} AS label, \
         least(greatest({label}, 0.0), 1.0) AS soft_label, CAST({label} >= {threshold} AS integer) AS hard_label, visit_count \
         FROM {nodes} WHERE parent_id IS NOT NULL AND {label} IS NOT NULL AND visit_count >= {min_visits}"
    ))
}
