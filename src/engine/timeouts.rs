//! `statement_timeout`, `idle_in_transaction_session_timeout` and `idle_session_timeout` of one session.
//!
//! The first ends a statement wherever it waits, while its rows are read too, and through the server ([`Timeouts::overdue`]) also where it computes. The other two
//! end a connection, which the server sees to.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::Stream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::error::{Error, Result};

pub const STATEMENT_TIMEOUT: &str = "statement_timeout";
pub const IDLE_IN_TRANSACTION_TIMEOUT: &str = "idle_in_transaction_session_timeout";
pub const IDLE_TIMEOUT: &str = "idle_session_timeout";

/// In which a statement ends itself, which it does between two of its steps.
const GRACE: Duration = Duration::from_millis(50);

/// The limits, in milliseconds; 0 is none.
#[derive(Debug, Default)]
pub struct Timeouts {
    statement: AtomicU64,
    idle_in_transaction: AtomicU64,
    idle: AtomicU64,
    idle_changed: Notify,
    running: Mutex<Running>,
    armed: Notify,
}

/// The statement that runs, or the last one.
#[derive(Debug, Clone, Copy, Default)]
struct Running {
    number: u64,
    deadline: Option<Instant>,
}

impl Timeouts {
    /// Whether it is one of these settings.
    pub fn is_one(name: &str) -> bool {
        [STATEMENT_TIMEOUT, IDLE_IN_TRANSACTION_TIMEOUT, IDLE_TIMEOUT].contains(&name)
    }

    pub(super) fn set(&self, name: &str, milliseconds: u64) {
        match name {
            STATEMENT_TIMEOUT => self.statement.store(milliseconds, Ordering::Relaxed),
            IDLE_IN_TRANSACTION_TIMEOUT => self.idle_in_transaction.store(milliseconds, Ordering::Relaxed),
            _ => self.idle.store(milliseconds, Ordering::Relaxed),
        }
        self.idle_changed.notify_one();
    }

    /// How long the session may wait for its client. `None`: for ever.
    pub fn idle_limit(&self, in_transaction: bool) -> Option<Duration> {
        let limit = if in_transaction { &self.idle_in_transaction } else { &self.idle };
        duration(limit.load(Ordering::Relaxed))
    }

    /// Waits until a limit is another one.
    pub async fn changed(&self) {
        self.idle_changed.notified().await;
    }

    /// The time of a statement begins. The server calls it also when a portal is asked for more of its rows.
    pub fn arm(&self) {
        let deadline = duration(self.statement.load(Ordering::Relaxed)).and_then(|limit| Instant::now().checked_add(limit));
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running = Running { number: running.number + 1, deadline };
        drop(running);
        self.armed.notify_waiters();
    }

    /// The statement that runs, or the last one.
    pub fn number(&self) -> u64 {
        self.running().number
    }

    /// When the time of the statement that runs is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.running().deadline
    }

    /// Waits until the time of a statement after number `last` is over, and some more in which it ends itself: it cannot while it computes without a pause.
    pub async fn overdue(&self, last: u64) {
        loop {
            let mut armed = std::pin::pin!(self.armed.notified());
            // From here on: what is armed between the look and the wait counts.
            armed.as_mut().enable();
            match self.running() {
                Running { number, deadline: Some(deadline) } if number > last => {
                    if timeout_at(deadline + GRACE, armed).await.is_err() {
                        return;
                    }
                }
                _ => armed.await,
            }
        }
    }

    fn running(&self) -> Running {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs what is left of a statement before its rows.
    ///
    /// # Errors
    /// [`Error::StatementTimeout`], and those of `run`.
    pub(super) async fn limited<T>(&self, run: impl Future<Output = Result<T>>) -> Result<T> {
        match self.running().deadline {
            Some(deadline) => timeout_at(deadline, run).await.unwrap_or(Err(Error::StatementTimeout)),
            None => run.await,
        }
    }

    /// The rows until the time is over; what makes them is dropped then.
    pub(super) fn limited_rows(self: &Arc<Self>, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let limited = LimitedRows { rows: Some(rows), timeouts: Arc::clone(self), number: 0, sleep: None };
        Box::pin(RecordBatchStreamAdapter::new(schema, limited))
    }
}

fn duration(milliseconds: u64) -> Option<Duration> {
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
}

struct LimitedRows {
    /// `None` after the end.
    rows: Option<SendableRecordBatchStream>,
    timeouts: Arc<Timeouts>,
    /// Of the statement that `sleep` is for.
    number: u64,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Stream for LimitedRows {
    type Item = DataFusionResult<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let Running { number, deadline } = this.timeouts.running();
        if number != this.number {
            this.number = number;
            this.sleep = deadline.map(|deadline| Box::pin(sleep_until(deadline)));
        }
        if let Some(sleep) = &mut this.sleep
            && this.rows.is_some()
            && sleep.as_mut().poll(context).is_ready()
        {
            this.rows = None;
            return Poll::Ready(Some(Err(Error::StatementTimeout.into())));
        }
        match &mut this.rows {
            Some(rows) => rows.as_mut().poll_next(context),
            None => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;
    use futures::{StreamExt, stream};

    use super::*;

    fn endless(token: Arc<()>) -> SendableRecordBatchStream {
        let rows = stream::once(async move {
            let _token = token;
            std::future::pending().await
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::new(Schema::empty()), rows))
    }

    #[tokio::test]
    async fn a_statement_ends_in_time_and_what_it_ran_is_dropped() {
        let timeouts = Arc::new(Timeouts::default());
        timeouts.set(STATEMENT_TIMEOUT, 20);
        timeouts.arm();
        let ended = timeouts.limited(std::future::pending::<Result<()>>()).await;
        assert!(matches!(ended, Err(Error::StatementTimeout)));

        timeouts.arm();
        let token = Arc::new(());
        let mut rows = timeouts.limited_rows(endless(Arc::clone(&token)));
        assert!(matches!(rows.next().await.map(|row| row.map_err(Error::from)), Some(Err(Error::StatementTimeout))));
        assert_eq!(Arc::strong_count(&token), 1, "the stream is still there");
        assert!(rows.next().await.is_none());
    }

    #[tokio::test]
    async fn one_that_does_not_end_itself_is_overdue() {
        let timeouts = Arc::new(Timeouts::default());
        timeouts.set(STATEMENT_TIMEOUT, 1);
        timeouts.arm();
        let last = timeouts.number();
        tokio::time::sleep(Duration::from_millis(5)).await;
        let overdue = tokio::time::timeout(2 * GRACE, timeouts.overdue(last)).await;
        assert!(overdue.is_err(), "it was the time of the statement before");
        let next = Arc::clone(&timeouts);
        let waiting = tokio::spawn(async move { next.overdue(last).await });
        tokio::time::sleep(Duration::from_millis(5)).await;
        timeouts.arm();
        tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("its time is over").expect("no panic");
    }

    #[tokio::test]
    async fn without_a_limit_nothing_ends() {
        let timeouts = Arc::new(Timeouts::default());
        timeouts.arm();
        assert_eq!(timeouts.limited(async { Ok(7) }).await.expect("no limit"), 7);
        let mut rows = timeouts.limited_rows(endless(Arc::new(())));
        assert!(tokio::time::timeout(Duration::from_millis(50), rows.next()).await.is_err());
    }
}
