//! `rollout.task_history`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::error::DataFusionError;

use super::TaskHistory;
use super::entry::Entry;
use crate::engine::privileges::Access;
use crate::error::Result;

/// One number of a row.
type Tally = fn(&Entry) -> u64;

/// Tallies of a row, in order.
const TALLIES: [(&str, Tally); 9] = [
    ("model_calls", |entry| entry.calls.asked()),
    ("model_inputs", |entry| entry.calls.inputs),
    ("cache_hits", |entry| entry.calls.cache_hits),
    ("prompt_tokens", |entry| entry.calls.prompt_tokens),
    ("cached_tokens", |entry| entry.calls.cached_tokens),
    ("generated_tokens", |entry| entry.calls.generated_tokens),
    ("requests", |entry| entry.calls.requests),
    ("retrievals", |entry| entry.calls.retrievals),
    ("retrieval_hits", |entry| entry.calls.retrieval_hits),
];

impl TaskHistory {
    pub fn schema() -> SchemaRef {
        let text = |name: &str, is_optional: bool| Field::new(name, DataType::Utf8, is_optional);
        let number = |name: &str, is_optional: bool| Field::new(name, DataType::Float64, is_optional);
        let time = |name: &str, is_optional: bool| {
            Field::new(name, DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())), is_optional)
        };
        let mut fields = vec![
            Field::new("task_id", DataType::Int64, false),
            text("role_name", false),
            text("kind", false),
            text("statement", false),
            text("status", false),
            time("started_at", false),
            time("finished_at", true),
            number("seconds", false),
            Field::new("rows", DataType::Int64, true),
        ];
        fields.extend(TALLIES.iter().map(|(name, _)| Field::new(*name, DataType::Int64, false)));
        fields.extend([number("cost", true), number("tokens_per_second", true), text("error", true), text("sqlstate", true)]);
        Arc::new(Schema::new(fields))
    }

    /// A row for each statement that `reader` may see, by number: those of its roles, or all. `None` sees none.
    pub fn rows(&self, reader: Option<&Access>) -> Result<RecordBatch> {
        let mut entries = self.list();
        let mut seen: HashMap<String, bool> = HashMap::new();
        entries.retain(|entry| {
            let sees = || reader.is_some_and(|reader| reader.sees_statements_of(&entry.role));
            *seen.entry(entry.role.clone()).or_insert_with(sees)
        });
        let text = |read: &dyn Fn(&Entry) -> &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(entries.iter().map(read))) };
        let optional_text =
            |read: &dyn Fn(&Entry) -> Option<&str>| -> ArrayRef { Arc::new(entries.iter().map(read).collect::<StringArray>()) };
        let number = |read: &dyn Fn(&Entry) -> Option<f64>| -> ArrayRef { Arc::new(entries.iter().map(read).collect::<Float64Array>()) };
        let count = |read: &dyn Fn(&Entry) -> Option<u64>| -> ArrayRef {
            Arc::new(entries.iter().map(|entry| read(entry).and_then(|count| i64::try_from(count).ok())).collect::<Int64Array>())
        };
        let time = |read: &dyn Fn(&Entry) -> Option<i64>| -> ArrayRef {
            let times = entries.iter().map(|entry| read(entry).map(|milliseconds| milliseconds * 1000));
            Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("+00:00"))
        };
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(entries.iter().map(|entry| entry.task_id))),
            text(&|entry| &entry.role),
            text(&|entry| &entry.kind),
            text(&|entry| &entry.statement),
            text(&|entry| entry.status.name()),
            time(&|entry| Some(entry.started_at_ms)),
            time(&|entry| entry.finished_at_ms),
            number(&|entry| Some(entry.seconds)),
            count(&|entry| entry.rows),
        ];
        columns.extend(TALLIES.iter().map(|(_, read)| count(&|entry| Some(read(entry)))));
        columns.extend([
            number(&|entry| entry.calls.cost.known()),
            number(&|entry| entry.calls.tokens_per_second(entry.seconds)),
            // An error may quote a row, which who may read statistics may not read.
            optional_text(&|entry| entry.error.as_deref().filter(|_| reader.is_some_and(|reader| reader.is_member(&entry.role)))),
            optional_text(&|entry| entry.sqlstate.as_deref()),
        ]);
        Ok(RecordBatch::try_new(Self::schema(), columns).map_err(DataFusionError::from)?)
    }
}
