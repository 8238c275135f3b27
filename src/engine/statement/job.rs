//! `... ASYNC`, `CANCEL JOB`, `RESUME JOB`, `WAIT FOR JOB`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use rolloutdb_sql::{JobAction, JobCommand, Statement};

use super::{arrow, done, rows};
use crate::engine::jobs::{Job, NewJob};
use crate::engine::session::{Response, Session};
use crate::engine::setting_definitions::is_kept_for_jobs;
use crate::error::{Error, Result};

/// What a statement with ASYNC, and RESUME JOB, give: the job's number.
pub fn started_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("job_id", DataType::Int64, false)]))
}

/// The columns of a command's row; none for one without.
pub fn schema(command: JobCommand) -> SchemaRef {
    match command.action {
        JobAction::Cancel => Arc::new(Schema::empty()),
        JobAction::Resume => started_schema(),
        JobAction::Wait => {
            let text = |name: &str, is_optional: bool| Field::new(name, DataType::Utf8, is_optional);
            let number = Field::new("job_id", DataType::Int64, false);
            Arc::new(Schema::new(vec![number, text("status", false), text("error", true), text("sqlstate", true), text("result", true)]))
        }
    }
}

/// Queues the statement as a job with the session's settings.
pub fn start(session: &Session, statement: &Statement, parameters: &[ScalarValue]) -> Result<Response> {
    let settings: BTreeMap<String, String> =
        session.settings().in_force("").into_iter().filter(|(name, _)| is_kept_for_jobs(name)).collect();
    let (kind, statement) = (statement.tag().to_owned(), statement.to_string());
    let database = session.database();
    let parameters = parameters.to_vec();
    let new = NewJob { kind, statement, parameters, user: session.activity().user(), role: session.session_user().role_id(), settings };
    started(database.shared.jobs.start(database, new)?)
}

fn started(job_id: i64) -> Result<Response> {
    let batch = RecordBatch::try_new(started_schema(), vec![Arc::new(Int64Array::from(vec![job_id]))]);
    Ok(rows("SELECT", batch.map_err(arrow)?))
}

pub async fn execute(session: &Session, command: JobCommand) -> Result<Response> {
    let database = session.database();
    let jobs = &database.shared.jobs;
    let job_id = i64::try_from(command.job).unwrap_or(i64::MAX);
    match command.action {
        JobAction::Cancel => {
            jobs.cancel(job_id).await?;
            Ok(done("CANCEL JOB"))
        }
        JobAction::Resume => {
            can_run_again(&jobs.get(job_id)?)?;
            jobs.resume(database, job_id)?;
            started(job_id)
        }
        JobAction::Wait => {
            let job = jobs.wait(job_id).await?;
            let text = |value: Option<String>| Arc::new(StringArray::from(vec![value]));
            let batch = RecordBatch::try_new(
                schema(command),
                vec![
                    Arc::new(Int64Array::from(vec![job.job_id])),
                    text(Some(job.status.name().to_owned())),
                    text(job.error),
                    text(job.sqlstate),
                    text(job.result),
                ],
            );
            Ok(rows("SELECT", batch.map_err(arrow)?))
        }
    }
}

/// Rollouts and the filling of a column go on where they stopped, a training at its last checkpoint. A build, a COPY TO and the upkeep of a table begin
/// anew, and what a stopped one has made is not there or does no harm; so does CREATE TABLE AS, which finds its table if it had made it.
///
/// # Errors
/// [`Error::NotSupported`] for a COPY into a table and an INSERT that have begun: they would write rows twice if they had committed.
fn can_run_again(job: &Job) -> Result<()> {
    // One that was stopped in the queue has written nothing.
    if job.status.is_ended() && job.started_at_ms.is_none() {
        return Ok(());
    }
    let (what, table) = match rolloutdb_sql::parse(&job.statement)?.as_slice() {
        [Statement::CopyFrom(copy)] => ("a COPY into a table", copy.table.to_string()),
        [Statement::Insert(insert)] => ("an INSERT", insert.target.table.to_string()),
        _ => return Ok(()),
    };
    Err(Error::NotSupported(format!(
        "{what} that has begun cannot be resumed: it may have written its rows before it was stopped; look whether {table} has them, and run the statement again if not"
    )))
}
