//! A statement while it runs: notices go out as they come, rows as they are made, and an interruption drops it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::task::Poll;

use futures::{FutureExt, Sink, SinkExt, StreamExt, poll};
use pgwire::api::results::SendableRowStream;
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::DataRow;
use tokio::sync::{MutexGuard, mpsc};

use super::connection::Connection;
use super::response::{notice_message, wire_error};
use crate::engine::Notice;
use crate::error::Error;

/// The sending half of a client, with the protocol library's error type.
pub(super) trait Outbox: Send {
    /// Queues a message; waits only while the client is too slow for what is queued already.
    fn put(&mut self, message: PgWireBackendMessage) -> impl Future<Output = PgWireResult<()>> + Send;

    /// Sends what is queued.
    fn push(&mut self) -> impl Future<Output = PgWireResult<()>> + Send;
}

impl<C> Outbox for C
where
    C: Sink<PgWireBackendMessage> + Unpin + Send,
    PgWireError: From<C::Error>,
{
    async fn put(&mut self, message: PgWireBackendMessage) -> PgWireResult<()> {
        Ok(self.feed(message).await?)
    }

    async fn push(&mut self) -> PgWireResult<()> {
        Ok(self.flush().await?)
    }
}

/// How far [`Running::send_rows`] came.
pub(super) enum Sent {
    /// All rows are sent: their number.
    All(usize),
    /// The limit was reached; there may be more rows.
    Limit,
}

impl Connection {
    /// Polls `work` to its end unless the statement is interrupted, which drops it.
    ///
    /// A panic in `work` costs the client this statement, not the connection.
    pub(super) async fn uninterrupted<T>(&self, work: impl Future<Output = PgWireResult<T>>) -> PgWireResult<T> {
        let activity = self.session.activity();
        activity.begin();
        let last = self.session.timeouts().number();
        let interrupted = async {
            let reason = self.interrupted(last).await;
            // Before the work is dropped: what cannot be dropped yet, because it computes, hears of it so.
            self.session.interrupt();
            reason
        };
        let outcome = tokio::select! {
            biased;
            reason = interrupted => Err(reason),
            outcome = AssertUnwindSafe(work).catch_unwind() => outcome.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))),
        };
        let outcome = outcome.inspect_err(|_| self.session.fail_transaction());
        activity.rest(self.session.transaction_status());
        outcome
    }

    pub(super) async fn running<'a, O: Outbox>(&'a self, client: &'a mut O) -> Running<'a, O> {
        Running { client, notices: self.notices.lock().await }
    }
}

/// A client that waits for a statement, and the notices for it.
pub(super) struct Running<'a, O> {
    pub(super) client: &'a mut O,
    pub(super) notices: MutexGuard<'a, mpsc::Receiver<Notice>>,
}

impl<O: Outbox> Running<'_, O> {
    /// The output of `work`; notices that come meanwhile are sent before this returns.
    pub(super) async fn wait<T>(&mut self, work: impl Future<Output = T>) -> PgWireResult<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                Some(notice) = self.notices.recv() => {
                    self.client.put(notice_message(notice)).await?;
                    self.client.push().await?;
                }
                output = &mut work => {
                    self.send_waiting_notices().await?;
                    return Ok(output);
                }
            }
        }
    }

    /// Sends up to `max_rows` rows, all if it is 0.
    ///
    /// What is queued is sent whenever the next row is not ready yet, so rows arrive as they are made.
    pub(super) async fn send_rows(&mut self, rows: &mut SendableRowStream, max_rows: usize) -> PgWireResult<Sent> {
        let mut count = 0;
        while max_rows == 0 || count < max_rows {
            let Some(row) = self.next_row(rows).await? else { return Ok(Sent::All(count)) };
            self.client.put(PgWireBackendMessage::DataRow(row)).await?;
            count += 1;
        }
        Ok(Sent::Limit)
    }

    async fn next_row(&mut self, rows: &mut SendableRowStream) -> PgWireResult<Option<DataRow>> {
        let row = match poll!(rows.next()) {
            Poll::Ready(row) => {
                self.send_waiting_notices().await?;
                row
            }
            Poll::Pending => {
                self.client.push().await?;
                self.wait(rows.next()).await?
            }
        };
        row.transpose()
    }

    /// Tells the client which of the settings that it is told of have changed.
    pub(super) async fn send_parameters(&mut self, connection: &Connection) -> PgWireResult<()> {
        for message in connection.reported.changes(&connection.session) {
            self.client.put(message).await?;
        }
        Ok(())
    }

    async fn send_waiting_notices(&mut self) -> PgWireResult<()> {
        while let Ok(notice) = self.notices.try_recv() {
            self.client.put(notice_message(notice)).await?;
        }
        Ok(())
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> PgWireError {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    wire_error(Error::Internal(text.unwrap_or("a panic without a message").to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::stream;
    use tokio::sync::Mutex;

    use super::*;
    use crate::engine::Severity;

    /// Keeps the kind of every message it is sent, and `push` for a flush.
    #[derive(Default)]
    struct Recorder(Vec<&'static str>);

    impl Outbox for Recorder {
        async fn put(&mut self, message: PgWireBackendMessage) -> PgWireResult<()> {
            self.0.push(match message {
                PgWireBackendMessage::NoticeResponse(_) => "notice",
                PgWireBackendMessage::DataRow(_) => "row",
                _ => "other",
            });
            Ok(())
        }

        async fn push(&mut self) -> PgWireResult<()> {
            self.0.push("push");
            Ok(())
        }
    }

    fn notice(message: &str) -> Notice {
        Notice { severity: Severity::Notice, code: "00000", message: message.to_string() }
    }

    #[tokio::test]
    async fn notices_arrive_while_the_statement_runs_and_before_its_rows() {
        let (sender, receiver) = mpsc::channel(8);
        let notices = Arc::new(Mutex::new(receiver));
        let mut recorder = Recorder::default();
        let mut running = Running { client: &mut recorder, notices: notices.lock().await };
        let work = async {
            sender.send(notice("first")).await.expect("it is read");
            tokio::task::yield_now().await;
            sender.send(notice("last")).await.expect("it is read");
            7
        };
        assert_eq!(running.wait(work).await.expect("nothing fails"), 7);
        sender.send(notice("with the rows")).await.expect("it is read");
        let mut rows: SendableRowStream = Box::pin(stream::iter([Ok(DataRow::default()), Ok(DataRow::default())]));
        assert!(matches!(running.send_rows(&mut rows, 0).await.expect("nothing fails"), Sent::All(2)));
        drop(running);
        assert_eq!(recorder.0, ["notice", "push", "notice", "notice", "row", "row"]);
    }
}
