//! Trajectories as rows: what `answer()` and `answer_steps()` return.

use std::sync::{Arc, LazyLock};

use arrow::array::{Float64Array, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;

use super::answer::Trajectory;
use super::columns::{int4, int4_list, int8, list_of, schema, text, text_list};
use super::environment::StepRecord;
use crate::error::Result;

/// Columns of `answer()`: one row per question.
pub fn answer_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        schema(&[
            ("answer", DataType::Utf8),
            ("steps", DataType::Int32),
            ("retrievals", DataType::Int32),
            ("stop_reason", DataType::Utf8),
            ("passage_ids", list_of(DataType::Utf8)),
            ("prompt_tokens", DataType::Int64),
            ("generated_tokens", DataType::Int64),
            ("latency_ms", DataType::Float64),
            ("cost", DataType::Float64),
        ])
    });
    Arc::clone(&SCHEMA)
}

/// Columns of `answer_steps()`: one row per policy call, `step` from 1.
pub fn answer_steps_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        schema(&[
            ("step", DataType::Int32),
            ("state", DataType::Utf8),
            ("action", DataType::Utf8),
            ("prompt", DataType::Utf8),
            ("response", DataType::Utf8),
            ("query", DataType::Utf8),
            ("evidence", DataType::Utf8),
            ("answer", DataType::Utf8),
            ("passage_ids", list_of(DataType::Utf8)),
            ("prompt_tokens", DataType::Int32),
            ("generated_tokens", DataType::Int32),
            ("logprob", DataType::Float64),
            ("latency_ms", DataType::Float64),
            ("cost", DataType::Float64),
            ("prompt_ids", list_of(DataType::Int32)),
            ("token_ids", list_of(DataType::Int32)),
            ("token_mask", list_of(DataType::Int32)),
        ])
    });
    Arc::clone(&SCHEMA)
}

/// One row per trajectory, in order; columns of [`answer_schema`].
///
/// # Errors
/// None that can be caused: columns and schema stand side by side in this file.
pub fn answer_batch(trajectories: &[Trajectory]) -> Result<RecordBatch> {
    let rows = || trajectories.iter();
    let columns = vec![
        text(rows().map(|row| row.answer.as_deref())),
        int4(rows().map(|row| row.steps.len())),
        int4(rows().map(|row| row.retrieval_count)),
        text(rows().map(|row| Some(row.stop_reason.as_str()))),
        text_list(rows().map(|row| Some(row.passage_ids()))),
        int8(rows().map(|row| Some(row.prompt_tokens as u64))),
        int8(rows().map(|row| Some(row.generated_tokens as u64))),
        Arc::new(rows().map(|row| Some(row.latency_ms)).collect::<Float64Array>()),
        Arc::new(rows().map(|row| row.cost.known()).collect::<Float64Array>()),
    ];
    RecordBatch::try_new(answer_schema(), columns).map_err(internal)
}

/// One row per step of a trajectory, in order; columns of [`answer_steps_schema`].
///
/// # Errors
/// As [`answer_batch`].
pub fn answer_steps_batch(trajectory: &Trajectory) -> Result<RecordBatch> {
    let rows = || trajectory.steps.iter();
    let columns = vec![
        int4(1..=trajectory.steps.len()),
        text(rows().map(|row| Some(row.state.as_str()))),
        text(rows().map(|row| Some(row.action.as_str()))),
        text(rows().map(|row| Some(&*row.prompt))),
        text(rows().map(|row| Some(&*row.response))),
        text(rows().map(StepRecord::query)),
        text(rows().map(|row| row.action.evidence())),
        text(rows().map(|row| row.action.answer())),
        text_list(rows().map(passage_ids)),
        int4(rows().map(|row| row.prompt_tokens)),
        int4(rows().map(|row| row.generated_tokens)),
        Arc::new(rows().map(StepRecord::logprob).collect::<Float64Array>()),
        Arc::new(rows().map(|row| Some(row.latency_ms)).collect::<Float64Array>()),
        Arc::new(rows().map(|row| row.cost.known()).collect::<Float64Array>()),
        int4_list(rows().map(StepRecord::known_prompt_ids)),
        int4_list(rows().map(|row| Some(row.token_ids.as_slice()))),
        int4_list(rows().map(StepRecord::token_mask)),
    ];
    RecordBatch::try_new(answer_steps_schema(), columns).map_err(internal)
}

pub(super) fn passage_ids(step: &StepRecord) -> Option<impl Iterator<Item = &str>> {
    step.passage_ids.as_ref().map(|ids| ids.iter().map(String::as_str))
}

pub(super) fn internal(error: ArrowError) -> crate::error::Error {
    crate::error::Error::Internal(error.to_string())
}
