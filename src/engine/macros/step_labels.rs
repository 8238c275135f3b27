//! `step_labels`: what training a process reward model reads, from trees.

use arrow::datatypes::DataType;

use super::Macro;
use super::call::Call;
use super::transcripts::{PROMPT, transcripts};
use crate::engine::apply::arguments::Parameter;
use crate::error::Result;

pub const MACRO: Macro = Macro {
    name: "step_labels",
    parameters: &[
        Parameter::table("nodes"),
        Parameter::constant("label", DataType::Utf8),
        Parameter::constant("threshold", DataType::Float64),
        Parameter::constant("min_visits", DataType::Int64),
        Parameter::constant("format", DataType::Utf8),
        Parameter::constant("malformed", DataType::Boolean),
        Parameter::constant("protocol", DataType::Utf8),
    ],
    sql,
};

const DEFAULT_THRESHOLD: f64 = 0.5;

/// What the search found out about a step.
const LABELS: &[(&str, &str)] = &[("process_reward", "process_reward"), ("q_value", "q_value")];

/// The layout of the labels.
#[derive(Clone, Copy)]
enum Format {
    /// One row for each step.
    RolloutDb,
    /// TRL's stepwise supervision: one row for each transcript, whose completions are judged one by one.
    Trl,
}

const FORMATS: &[(&str, Format)] = &[("rolloutdb", Format::RolloutDb), ("trl", Format::Trl)];

/// The steps that have the label; the root is no step.
fn sql(call: &Call) -> Result<String> {
    let nodes = call.nodes()?;
    let label = call.word("label", LABELS)?;
    let threshold = call.number("threshold")?.unwrap_or(DEFAULT_THRESHOLD);
    let min_visits = call.integer("min_visits", 0)?.unwrap_or(0);
    let condition = format!("{label} IS NOT NULL AND visit_count >= {min_visits}");
    let form = call.well_formed()?;
    let wanted = form.as_ref().map(|form| format!(" AND {form}")).unwrap_or_default();
    Ok(match call.word("format", FORMATS)? {
        Format::RolloutDb => format!(
            "SELECT question_id, node_id, parent_id, depth, prompt, response AS step, {label} AS label, \
             least(greatest({label}, 0.0), 1.0) AS soft_label, CAST({label} >= {threshold} AS integer) AS hard_label, visit_count \
             FROM {nodes} WHERE parent_id IS NOT NULL AND {condition}{wanted}"
        ),
        Format::Trl => {
            let steps = format!(
                "SELECT run, question_id, node_id, parent_id, depth, state, action, prompt, response, {label} >= {threshold} AS is_right \
                 FROM {nodes} WHERE parent_id IS NOT NULL AND {condition}"
            );
            let columns = format!(
                "{PROMPT}, array_agg(coalesce(put_in, '') || response ORDER BY depth) AS completions, array_agg(is_right ORDER BY depth) AS labels"
            );
            transcripts(&nodes, &steps, &steps, &columns, form.as_deref())
        }
    })
}
