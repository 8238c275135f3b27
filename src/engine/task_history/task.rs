//! A statement while it runs, as the history will have it.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use arrow::array::RecordBatch;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt};
use rolloutdb_sql::Statement;

use super::entry::{Entry, Status, TASKS, milliseconds};
use super::{Kept, LONG};
use crate::engine::copy_streams::{CopyMessages, CopyOut};
use crate::engine::session::Response;
use crate::engine::session_user::RoleId;
use crate::engine::shown_text::shortened;
use crate::error::{Error, Result};
use crate::models::CallCounts;

/// A statement that was cancelled, or ran out of time.
const CANCELLED: &str = "57014";
/// A kind of statement.
const COPY: &str = "COPY";

/// A statement from its beginning to the end of its rows.
pub struct Task {
    kept: Arc<Kept>,
    kind: &'static str,
    statement: Arc<str>,
    role: RoleId,
    started_at: SystemTime,
    calls: Arc<CallCounts>,
    /// It starts or waits for another statement, which has an entry of its own.
    is_left_out: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    id: Option<i64>,
    /// That went through [`Watched`].
    rows_given: Option<u64>,
    /// What counts instead, where the rows are a summary.
    rows_said: Option<u64>,
    /// Who reads no more has what it wanted.
    is_enough: bool,
    /// Somebody wants it to end.
    is_stopped: bool,
    is_ended: bool,
    /// How long it ran before `since`.
    ran_before: Duration,
    /// `None`: it rests.
    since: Option<Instant>,
    /// Who reads its rows may come back for the next ones in an hour: it runs only while they are waited for.
    is_in_parts: bool,
    /// Nobody waits for its rows.
    is_unread: bool,
    /// When, and how long it had run by then.
    last_written: Option<(Instant, Duration)>,
}

impl State {
    fn ran(&self) -> Duration {
        self.ran_before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn rest(&mut self) {
        self.is_unread = true;
        if self.is_in_parts {
            self.ran_before = self.ran();
            self.since = None;
        }
    }

    fn resume(&mut self) {
        self.is_unread = false;
        self.since.get_or_insert_with(Instant::now);
    }
}

/// The task of the statement that a session runs, or that a plan runs for.
#[derive(Debug, Default)]
pub struct CurrentTask(Mutex<Weak<Task>>);

impl CurrentTask {
    pub fn set(&self, task: &Arc<Task>) {
        *self.lock() = Arc::downgrade(task);
    }

    /// As `other` is now.
    pub fn set_as(&self, other: &Self) {
        let task = other.lock().clone();
        *self.lock() = task;
    }

    /// `None`: it has ended, and so have its rows.
    pub fn get(&self) -> Option<Arc<Task>> {
        self.lock().upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, Weak<Task>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What counts the calls of the statement that a plan runs for.
pub fn calls_of(context: &TaskContext) -> Option<Arc<CallCounts>> {
    let task = context.session_config().get_extension::<CurrentTask>()?.get()?;
    Some(Arc::clone(task.calls()))
}

impl Task {
    pub(super) fn new(kept: &Arc<Kept>, statement: &Statement, text: Arc<str>, role: RoleId) -> Self {
        Self {
            kept: Arc::clone(kept),
            kind: statement.tag(),
            statement: text,
            role,
            started_at: SystemTime::now(),
            calls: Arc::default(),
            is_left_out: matches!(statement, Statement::Async(_) | Statement::JobCommand(_)),
            state: Mutex::new(State { since: Some(Instant::now()), ..State::default() }),
        }
    }

    /// What it asks of models is counted here.
    pub fn calls(&self) -> &Arc<CallCounts> {
        &self.calls
    }

    /// How many rows it has written or read, where those that it gives are a summary.
    pub fn say_rows(&self, count: usize) {
        self.lock().rows_said = Some(count as u64);
    }

    /// What came of the statement, which is watched to the end of its rows.
    pub fn followed(self: &Arc<Self>, statement: &Statement, result: Result<Response>) -> Result<Response> {
        let response = result.inspect_err(|error| self.failed(error))?;
        // Those of a query are its work; others have done theirs when they show rows.
        if !matches!(statement, Statement::Query(_) | Statement::CopyFrom(_) | Statement::CopyTo(_)) {
            self.lock().is_enough = true;
        }
        Ok(match response {
            // A cursor's rows are read later.
            Response::Done { tag } if matches!(statement, Statement::Declare(_)) => {
                self.read_in_parts();
                Response::Done { tag }
            }
            Response::Done { tag } => {
                self.done(&tag);
                Response::Done { tag }
            }
            Response::Rows { stream, tag } => Response::Rows { stream: self.watch_rows(stream), tag },
            Response::CopyIn(copy) => Response::CopyIn(copy.of_task(self)),
            Response::CopyOut(copy) => {
                Response::CopyOut(CopyOut { messages: Watched { items: copy.messages, task: Arc::clone(self) }.boxed(), ..copy })
            }
        })
    }

    /// The rows, which are counted, and whose end is that of the task.
    pub fn watch_rows(self: &Arc<Self>, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = rows.schema();
        self.give(0);
        Box::pin(RecordBatchStreamAdapter::new(schema, Watched { items: rows, task: Arc::clone(self) }))
    }

    /// Its rows are read some at a time, by a cursor or a portal: what passes while nobody waits for them is not its time, and it is listed beside what
    /// its session runs then.
    pub fn read_in_parts(self: &Arc<Self>) {
        let is_new = {
            let mut state = self.lock();
            let is_new = !std::mem::replace(&mut state.is_in_parts, true) && !state.is_ended;
            if state.is_unread {
                state.rest();
            }
            is_new
        };
        if is_new {
            self.kept.in_parts().push(Arc::downgrade(self));
        }
    }

    /// Who waited for rows has given up.
    pub fn rest(&self) {
        self.lock().rest();
    }

    /// It has done its work; its command tag may end in a number of rows.
    pub fn done(&self, tag: &str) {
        if let Some(count) = tag.rsplit(' ').next().and_then(|count| count.parse().ok()) {
            self.lock().rows_said.get_or_insert(count);
        }
        self.end(Status::Done, None);
    }

    pub fn failed(&self, error: &Error) {
        let status = if error.sqlstate() == CANCELLED { Status::Cancelled } else { Status::Failed };
        self.end(status, Some(error));
    }

    /// It is about to be dropped, because somebody wants it to end.
    pub fn stop(&self) {
        self.lock().is_stopped = true;
    }

    /// The first end is the one that counts.
    fn end(&self, status: Status, error: Option<&Error>) {
        let has_ended = std::mem::replace(&mut self.lock().is_ended, true);
        if !has_ended && self.is_kept() {
            self.kept.add(self.entry(status, error));
        }
    }

    fn give(&self, rows: usize) {
        let mut state = self.lock();
        *state.rows_given.get_or_insert(0) += rows as u64;
        // A client may ask for the first row alone. A COPY is for all of them.
        state.is_enough |= rows > 0 && self.kind != COPY;
        state.rest();
    }

    pub(super) fn is_running(&self) -> bool {
        !self.lock().is_ended
    }

    /// Whether it is worth an entry, by what is known so far: once it is, it stays so.
    pub(super) fn is_kept(&self) -> bool {
        let is_worth_it = || TASKS.contains(&self.kind) || self.lock().ran() >= LONG || self.calls.calls().asked() > 0;
        !self.is_left_out && is_worth_it()
    }

    /// What has run for a while without being written, or has run on and was written a minute ago.
    pub(super) fn is_due(&self) -> bool {
        const REFRESH_SECONDS: u64 = 60;
        let mut state = self.lock();
        let ran = state.ran();
        let is_old = |(at, ran_then): (Instant, Duration)| at.elapsed().as_secs() >= REFRESH_SECONDS && ran > ran_then;
        let is_due = ran >= LONG && state.last_written.is_none_or(is_old);
        if is_due {
            state.last_written = Some((Instant::now(), ran));
        }
        is_due
    }

    pub(super) fn entry(&self, status: Status, error: Option<&Error>) -> Entry {
        let (task_id, rows, ran) = {
            let mut state = self.lock();
            (*state.id.get_or_insert_with(|| self.kept.next_id()), state.rows_said.or(state.rows_given), state.ran())
        };
        Entry {
            task_id,
            role: self.role.current_name(&self.kept.roles),
            role_oid: self.role.oid(),
            kind: self.kind.to_owned(),
            statement: self.statement.to_string(),
            status,
            started_at_ms: milliseconds(self.started_at),
            finished_at_ms: (status != Status::Running).then(|| milliseconds(SystemTime::now())),
            seconds: ran.as_secs_f64(),
            rows,
            calls: self.calls.calls(),
            error: error.map(|error| shortened(&error.client_message())),
            sqlstate: error.map(|error| error.sqlstate().to_owned()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let (is_enough, is_stopped) = {
            let state = self.lock();
            (state.is_enough, state.is_stopped)
        };
        let status = match is_enough && !is_stopped {
            true => Status::Done,
            false if std::thread::panicking() => Status::Failed,
            false if self.kept.is_ending.load(Ordering::Relaxed) => Status::Interrupted,
            false => Status::Cancelled,
        };
        self.end(status, None);
    }
}

/// Batches of rows on their way to whoever asked.
struct Watched<S> {
    items: S,
    task: Arc<Task>,
}

/// What has rows.
trait Rows {
    fn count(&self) -> usize;
}

impl Rows for RecordBatch {
    fn count(&self) -> usize {
        self.num_rows()
    }
}

impl Rows for CopyMessages {
    fn count(&self) -> usize {
        self.num_rows
    }
}

impl<S, T, E> Stream for Watched<S>
where
    S: Stream<Item = Result<T, E>> + Unpin,
    T: Rows,
    E: Into<Error> + From<Error>,
{
    type Item = Result<T, E>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.task.lock().resume();
        let polled = self.items.poll_next_unpin(context);
        match polled {
            Poll::Ready(Some(Ok(rows))) => {
                self.task.give(rows.count());
                Poll::Ready(Some(Ok(rows)))
            }
            Poll::Ready(Some(Err(error))) => {
                let error: Error = error.into();
                self.task.failed(&error);
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                self.task.end(Status::Done, None);
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
