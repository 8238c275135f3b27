//! The messages of a connection after its greeting, one after the other, until the client or the server ends it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use pgwire::api::{ClientInfo, NoopHandler, PgWireConnectionState, PgWireServerHandlers};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::server::{process_error, process_message};
use tokio::time::timeout;

use super::connection::{Handlers, Socket};
use super::response::{error_message, fatal};

/// What a client may do to a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConversationLimits {
    /// Of one message: a statement's text, or the values of its parameters.
    pub message_bytes_max: usize,
    /// Between two statements outside of a transaction; `None`: for ever.
    pub idle_max: Option<Duration>,
}

/// A message's first byte says its kind, the next four how long it is.
const HEADER_BYTES: usize = 5;

/// # Errors
/// Of the socket, when an answer cannot be sent.
pub(super) async fn converse(socket: &mut Socket, handlers: &Handlers, limits: ConversationLimits) -> io::Result<()> {
    loop {
        let message = match next_message(socket, limits).await {
            Some(Ok(PgWireFrontendMessage::Terminate(_))) | None => return Ok(()),
            Some(Ok(message)) => message,
            Some(Err(PgWireError::IoError(error))) => return Err(error),
            Some(Err(error)) => return say_goodbye(socket, error).await,
        };
        let waits_for_sync = match socket.state() {
            PgWireConnectionState::CopyInProgress(is_extended) => is_extended,
            _ => message.is_extended_query(),
        };
        let connection = &handlers.0;
        let outcome = process_message(
            message,
            socket,
            // Nobody is identified here: that is over before a conversation begins.
            Arc::new(NoopHandler),
            Arc::clone(connection),
            Arc::clone(connection),
            handlers.copy_handler(),
            handlers.cancel_handler(),
        )
        .await;
        let Err(error) = outcome else { continue };
        let info: ErrorInfo = error.into();
        let error = PgWireError::UserError(Box::new(info));
        if is_fatal(&error) {
            return say_goodbye(socket, error).await;
        }
        process_error(socket, error, waits_for_sync).await?;
    }
}

/// `None`: the client is gone.
async fn next_message(socket: &mut Socket, limits: ConversationLimits) -> Option<Result<PgWireFrontendMessage, PgWireError>> {
    loop {
        let waiting = std::future::poll_fn(|context| {
            // The library's decoder panics on some messages that are too short for what they say.
            let next = catch_unwind(AssertUnwindSafe(|| socket.poll_next_unpin(context)));
            let next = next.unwrap_or_else(|_| Poll::Ready(Some(Err(fatal("08P01", "invalid message format")))));
            match next {
                Poll::Pending if is_too_long(socket.read_buffer(), limits.message_bytes_max) => {
                    let message = format!("a message is longer than {} bytes, the most that this server takes", limits.message_bytes_max);
                    Poll::Ready(Some(Err(fatal("54000", &message))))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(unreadable(error)))),
                other => other,
            }
        });
        let Some(idle_max) = limits.idle_max else { return waiting.await };
        if let Ok(next) = timeout(idle_max, waiting).await {
            return next;
        }
        if is_idle(socket) {
            return Some(Err(fatal("57P05", "terminating connection due to idle-session timeout")));
        }
    }
}

/// Whether the client has nothing open, and has begun no message.
fn is_idle(socket: &Socket) -> bool {
    use pgwire::messages::response::TransactionStatus;
    let is_ready = matches!(socket.state(), PgWireConnectionState::ReadyForQuery);
    is_ready && matches!(socket.transaction_status(), TransactionStatus::Idle) && socket.read_buffer().is_empty()
}

/// Looks at the length that a message says it has, so that it need not be in memory to be refused.
fn is_too_long(buffer: &[u8], max: usize) -> bool {
    let length = buffer.get(1..HEADER_BYTES).and_then(|length| length.try_into().ok()).map(i32::from_be_bytes);
    length.is_some_and(|length| usize::try_from(length).is_ok_and(|length| length > max))
}

/// What was sent is no message, and where the next one begins nobody knows.
fn unreadable(error: PgWireError) -> PgWireError {
    match error {
        io @ PgWireError::IoError(_) => io,
        told @ PgWireError::UserError(_) => told,
        PgWireError::MessageTooLarge(max, _) => {
            fatal("54000", &format!("a message is longer than {max} bytes, the most that its kind can have"))
        }
        other => fatal("08P01", &format!("invalid message: {other}")),
    }
}

fn is_fatal(error: &PgWireError) -> bool {
    matches!(error, PgWireError::UserError(info) if info.is_fatal())
}

/// An error that ends the connection: nothing the client has sent after it counts.
async fn say_goodbye(socket: &mut Socket, error: PgWireError) -> io::Result<()> {
    socket.send(PgWireBackendMessage::ErrorResponse(error_message(error))).await?;
    socket.close().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_before_the_message() {
        for (bytes, is_long) in [
            (b"".as_slice(), false),
            (b"Q\x00\x00\x00", false),
            (b"Q\x00\x00\x00\x0a", false),
            (b"Q\x00\x00\x00\x0b", true),
            (b"Q\x7f\xff\xff\xff", true),
            // A negative length is the decoder's business.
            (b"Q\xff\xff\xff\xff", false),
        ] {
            assert_eq!(is_too_long(bytes, 10), is_long, "{bytes:?}");
        }
    }
}
