//! Threads of their own for what statements compute.
//!
//! A sort may compute for seconds between two points at which it waits. On the threads that serve the sockets it would hold up the other connections, and
//! the cancel request that is meant for it.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Batches that are computed ahead of those that are being sent.
const BATCHES_AHEAD: usize = 1;

/// A sort that was cancelled computes until it pauses, on as many threads as there are processors: others must be left for the next statement.
const THREADS_PER_PROCESSOR: usize = 4;

/// What is dropped ends this much later. Whoever dropped it, for a cancel as a rule, has an answer to send first: to give back hundreds of megabytes can hold up
/// all threads of a process.
const ANSWER_FIRST: Duration = Duration::from_millis(5);

/// Planning recurses over the expression tree, as on the threads of the whole program.
const STACK_BYTES: usize = 16 << 20;

/// The threads; they end with this value, without waiting for what they compute.
pub(super) struct WorkerThreads(Option<Runtime>);

/// What hands work to them. Cheap to clone.
#[derive(Clone)]
pub(super) struct Workers(Handle);

impl WorkerThreads {
    /// Some threads for each processor.
    ///
    /// # Errors
    /// Of the operating system, which has no more threads.
    pub(super) fn start() -> std::io::Result<Self> {
        let threads = THREADS_PER_PROCESSOR * std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .thread_name("statement")
            .thread_stack_size(STACK_BYTES)
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// # Panics
    /// Never: the runtime is there until this is dropped.
    pub(super) fn workers(&self) -> Workers {
        Workers(self.0.as_ref().expect("it is taken when this is dropped").handle().clone())
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // A runtime that waits for its threads must not be dropped where others wait for sockets.
            runtime.shutdown_background();
        }
    }
}

impl Workers {
    /// Runs `work`; it is dropped soon after what this returns, if it computes as soon as it pauses. A panic in it goes on where it is awaited.
    pub(super) fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Spawned<T> {
        Spawned(self.0.spawn(work))
    }

    /// The same rows, computed by these threads from now on.
    pub(super) fn rows(&self, mut rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let task = self.spawn(async move {
            while let Some(batch) = rows.next().await {
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
        });
        let batches = stream::unfold((receiver, task), |(mut receiver, mut task)| async move {
            let Some(batch) = receiver.recv().await else {
                // After the last batch, or after a panic, which goes on here.
                (&mut task).await;
                return None;
            };
            Some((batch, (receiver, task)))
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }
}

/// Work in progress.
pub(super) struct Spawned<T>(JoinHandle<T>);

impl<T> Future for Spawned<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match Pin::new(&mut self.0).poll(context) {
            Poll::Ready(Ok(output)) => Poll::Ready(output),
            Poll::Ready(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
            // The threads have ended, and with them the server: whoever waits is about to be dropped.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<T> Drop for Spawned<T> {
    fn drop(&mut self) {
        if self.0.is_finished() {
            return;
        }
        let work = self.0.abort_handle();
        match Handle::try_current() {
            Ok(here) => drop(here.spawn(async move {
                tokio::time::sleep(ANSWER_FIRST).await;
                work.abort();
            })),
            Err(_) => work.abort(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Int64Array, RecordBatch};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use futures::TryStreamExt;

    use super::*;

    fn numbers(count: i64) -> SendableRecordBatchStream {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let of_batch = Arc::clone(&schema);
        let batches = (0..count).map(move |n| Ok(RecordBatch::try_new(Arc::clone(&of_batch), vec![Arc::new(Int64Array::from(vec![n]))])?));
        Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches)))
    }

    #[tokio::test]
    async fn rows_arrive_in_order_and_all() {
        let threads = WorkerThreads::start().expect("threads");
        let batches: Vec<RecordBatch> = threads.workers().rows(numbers(20)).try_collect().await.expect("nothing fails");
        let expected: Vec<RecordBatch> = numbers(20).try_collect().await.expect("nothing fails");
        assert_eq!(batches, expected);
    }

    #[tokio::test]
    async fn work_that_never_pauses_does_not_hold_up_who_gave_it() {
        let threads = WorkerThreads::start().expect("threads");
        let work = threads.workers().spawn(async { std::thread::sleep(Duration::from_secs(60)) });
        assert!(tokio::time::timeout(Duration::from_millis(20), work).await.is_err());
    }

    #[tokio::test]
    async fn what_is_dropped_ends_after_its_owner_went_on() {
        let threads = WorkerThreads::start().expect("threads");
        let kept = Arc::new(());
        let of_work = Arc::clone(&kept);
        let work = threads.workers().spawn(async move {
            let _of_work = of_work;
            std::future::pending::<()>().await;
        });
        drop(work);
        assert_eq!(Arc::strong_count(&kept), 2, "it is there while its owner goes on");
        for _ in 0..1000 {
            if Arc::strong_count(&kept) == 1 {
                return;
            }
            tokio::time::sleep(ANSWER_FIRST).await;
        }
        panic!("it is still there");
    }

    #[tokio::test]
    #[should_panic(expected = "among the rows")]
    async fn a_panic_arrives_where_the_rows_are_read() {
        let threads = WorkerThreads::start().expect("threads");
        let rows = numbers(3).map(|batch| if batch.is_ok() { panic!("among the rows") } else { batch });
        let schema = numbers(0).schema();
        let rows = Box::pin(RecordBatchStreamAdapter::new(schema, rows));
        let _: Vec<RecordBatch> = threads.workers().rows(rows).try_collect().await.expect("it panics");
    }
}
