//! Progress of queries that call models: their client hears every few seconds how far they are. Other queries are silent, as in PostgreSQL.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::apply::CalledRows;
use super::planning::Started;
use super::progress::{INTERVAL, Notices, Progress, Work};

/// The rows of a plan that runs, on their way to its client.
pub fn watched(notices: &Notices, started: Started) -> SendableRecordBatchStream {
    let Some(called) = CalledRows::of(&started.plan) else { return started.rows };
    let called = Arc::new(called);
    // Of several calls for a row, how many it will be is not known.
    let total = if called.is_call_per_row() { called.total() } else { None };
    let progress = Progress::of(notices, Work::Query(Arc::clone(&called)), "SELECT", "model calls", total);
    Box::pin(Watched { rows: started.rows, called, progress, ticks: None })
}

struct Watched {
    rows: SendableRecordBatchStream,
    called: Arc<CalledRows>,
    progress: Progress,
    /// From when rows were waited for first: a row may take minutes.
    ticks: Option<Interval>,
}

impl Watched {
    fn tell(&self) {
        let num_calls = self.called.num_calls();
        if num_calls > 0 {
            self.progress.update(num_calls, "");
        }
    }
}

impl Stream for Watched {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.rows.poll_next_unpin(context);
        if polled.is_pending() {
            // The one that is not ready wakes the task when it is.
            while self.ticks.get_or_insert_with(ticks).poll_tick(context).is_ready() {
                self.tell();
            }
        } else {
            self.tell();
        }
        polled
    }
}

impl RecordBatchStream for Watched {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

/// More often than the client is told, which is some time after a tick.
fn ticks() -> Interval {
    let pause = INTERVAL / 4;
    let mut ticks = interval_at(Instant::now() + pause, pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
