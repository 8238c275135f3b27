//! `rollout.jobs`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::error::DataFusionError;

use super::{Job, Jobs};
use crate::engine::privileges::Access;
use crate::error::Result;

impl Jobs {
    pub fn schema() -> SchemaRef {
        let text = |name: &str, is_optional: bool| Field::new(name, DataType::Utf8, is_optional);
        let count = |name: &str, is_optional: bool| Field::new(name, DataType::Int64, is_optional);
        let time = |name: &str, is_optional: bool| {
            Field::new(name, DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())), is_optional)
        };
        Arc::new(Schema::new(vec![
            count("job_id", false),
            text("kind", false),
            text("statement", true),
            text("user_name", false),
            text("status", false),
            count("progress", false),
            count("total", true),
            text("unit", true),
            time("created_at", false),
            time("started_at", true),
            time("finished_at", true),
            text("error", true),
            text("sqlstate", true),
            text("result", true),
            Field::new("pid", DataType::Int32, true),
            Field::new("notices", DataType::new_list(DataType::Utf8, true), true),
            Field::new("parameters", DataType::new_list(DataType::Utf8, true), true),
        ]))
    }

    /// A row for each job, by number. `pid`: of the session that runs it. Of others' jobs, `reader` does not see what they do, nor what came of it;
    /// `None` sees that of no job.
    pub fn rows(&self, reader: Option<&Access>) -> Result<RecordBatch> {
        let mut jobs = self.list();
        let is_shown: Vec<bool> = jobs.iter().map(|job| reader.is_some_and(|reader| reader.sees_statements_of(&job.role))).collect();
        for (job, _) in jobs.iter_mut().zip(&is_shown).filter(|(_, is_shown)| !**is_shown) {
            (job.error, job.result) = (None, None);
        }
        let mut notices = ListBuilder::new(StringBuilder::new());
        for (job, is_shown) in jobs.iter().zip(&is_shown) {
            notices.append_option(is_shown.then(|| job.notices.iter().map(Some)));
        }
        let mut parameters = ListBuilder::new(StringBuilder::new());
        for (job, is_shown) in jobs.iter().zip(&is_shown) {
            let has_any = !job.shown_parameters.is_empty();
            parameters.append_option((*is_shown && has_any).then(|| job.shown_parameters.iter().map(Option::as_deref)));
        }
        let text = |read: &dyn Fn(&Job) -> Option<String>| -> ArrayRef { Arc::new(jobs.iter().map(read).collect::<StringArray>()) };
        let count = |read: &dyn Fn(&Job) -> Option<u64>| -> ArrayRef {
            Arc::new(jobs.iter().map(|job| read(job).and_then(|count| i64::try_from(count).ok())).collect::<Int64Array>())
        };
        let time = |read: &dyn Fn(&Job) -> Option<i64>| -> ArrayRef {
            let times = jobs.iter().map(|job| read(job).map(|milliseconds| milliseconds * 1000));
            Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("+00:00"))
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(jobs.iter().map(|job| job.job_id))),
            text(&|job| Some(job.kind.clone())),
            Arc::new(jobs.iter().zip(&is_shown).map(|(job, is_shown)| is_shown.then_some(job.statement.as_str())).collect::<StringArray>()),
            text(&|job| Some(job.user.clone())),
            text(&|job| Some(job.status.name().to_owned())),
            count(&|job| Some(job.progress)),
            count(&|job| job.total),
            text(&|job| job.unit.clone()),
            time(&|job| Some(job.created_at_ms)),
            time(&|job| job.started_at_ms),
            time(&|job| job.finished_at_ms),
            text(&|job| job.error.clone()),
            text(&|job| job.sqlstate.clone()),
            text(&|job| job.result.clone()),
            Arc::new(jobs.iter().map(|job| self.pid(job.job_id)).collect::<Int32Array>()),
            Arc::new(notices.finish()),
            Arc::new(parameters.finish()),
        ];
        Ok(RecordBatch::try_new(Self::schema(), columns).map_err(DataFusionError::from)?)
    }

    fn pid(&self, job_id: i64) -> Option<i32> {
        let activity = self.lock().running.get(&job_id)?.activity.upgrade()?;
        Some(activity.pid())
    }
}
