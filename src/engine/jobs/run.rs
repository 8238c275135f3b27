//! The run of one job, in a session of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::json::LineDelimitedWriter;
use datafusion::error::DataFusionError;
use futures::{FutureExt, TryStreamExt};
use tokio_util::sync::CancellationToken;

use super::{Ended, Job, Jobs, parameters};
use crate::engine::database::Database;
use crate::engine::progress::Notice;
use crate::engine::session::{Response, Session};
use crate::engine::shown_text::shown_text;
use crate::error::{Error, Result};

/// What `pg_stat_activity` calls such a session.
const BACKEND_TYPE: &str = "rolloutdb job";

/// Each time is a write, which the disk must confirm.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Runs the job to its end, or until it is stopped: what runs then is dropped, as a cancelled statement is. What it would tell a client is kept.
pub async fn run(jobs: &Arc<Jobs>, database: &Database, job_id: i64, cancel: &CancellationToken) {
    let session = database.session();
    // Work that outlives the statement may still have something to tell, and keeps no database open by that.
    let keeper = Arc::downgrade(jobs);
    session.set_notice_sink(Arc::new(move |notice: Notice| {
        if let Some(jobs) = keeper.upgrade() {
            jobs.keep_notice(job_id, &notice);
        }
    }));
    let work = async {
        let job = jobs.begin(job_id, session.activity())?;
        // A job does what its role may do when it runs, not what this process may.
        session.set_user_id(job.role_id(database.roles()));
        perform(&session, &job).await
    };
    let ended = tokio::select! {
        biased;
        () = cancel.cancelled() => Ended::Cancelled,
        () = session.activity().cancelled() => Ended::Cancelled,
        () = session.activity().terminated() => Ended::Cancelled,
        () = keep_progress(jobs, job_id, &session) => Ended::Cancelled,
        outcome = AssertUnwindSafe(work).catch_unwind() => match outcome {
            Ok(Ok(result)) => Ended::Done(result),
            Ok(Err(error)) => Ended::Failed(error),
            Err(_) => Ended::Failed(Error::Internal(format!("job {job_id} panicked"))),
        },
    };
    // What cannot be written now reads `interrupted` when the database is opened next, which is no worse than true.
    let _ = jobs.finish(job_id, ended, session.activity());
}

/// Writes down now and then how far the job is; never ends.
async fn keep_progress(jobs: &Jobs, job_id: i64, session: &Session) {
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        jobs.keep_progress(job_id, session.activity());
    }
}

/// The command tag, or the rows as JSON, one object in each line.
async fn perform(session: &Session, job: &Job) -> Result<String> {
    for (name, value) in &job.settings {
        session.set_at_startup(name, value)?;
    }
    let Some(statement) = rolloutdb_sql::parse(&job.statement)?.pop() else {
        return Err(Error::Internal(format!("job {} has no statement", job.job_id)));
    };
    let activity = session.activity();
    activity.list(&job.user, None, BACKEND_TYPE);
    activity.begin_statement(shown_text(&statement, &job.statement));
    match session.execute(&statement, parameters::read(job.parameters.as_deref())?).await? {
        Response::Done { tag } => Ok(tag),
        Response::Rows { stream, .. } => {
            let batches: Vec<RecordBatch> = stream.try_collect().await?;
            json_lines(&batches)
        }
        Response::CopyIn(_) | Response::CopyOut(_) => Err(Error::Internal("a client's COPY is no job".to_owned())),
    }
}

fn json_lines(batches: &[RecordBatch]) -> Result<String> {
    let mut writer = LineDelimitedWriter::new(Vec::new());
    writer.write_batches(&batches.iter().collect::<Vec<_>>()).map_err(DataFusionError::from)?;
    writer.finish().map_err(DataFusionError::from)?;
    Ok(String::from_utf8_lossy(&writer.into_inner()).trim_end().to_owned())
}
