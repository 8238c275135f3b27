//! The messages of a connection after its greeting, one after the other, until the client or the server ends it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::{SinkExt, StreamExt};
use pgwire::api::{ClientInfo, NoopHandler, PgWireConnectionState, PgWireServerHandlers};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::server::{process_error, process_message};

use super::connection::{Handlers, Socket};
use super::response::{error_message, fatal};

/// What a client may do to a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConversationLimits {
    /// Of one message: a statement's text, or the values of its parameters.
    pub message_bytes_max: usize,
}

/// Sent at once, rather than in the library's pieces of 8 KiB.
const SEND_BYTES: usize = 64 << 10;

/// A message's first byte says its kind, the next four how long it is.
const HEADER_BYTES: usize = 5;

/// # Errors
/// Of the socket, when an answer cannot be sent.
pub(super) async fn converse(socket: &mut Socket, handlers: &Handlers, limits: ConversationLimits) -> io::Result<()> {
    socket.set_backpressure_boundary(SEND_BYTES);
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
        let Err(error) = outcome else {
            connection.take_copies(socket).await?;
            continue;
        };
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
    std::future::poll_fn(|context| match poll_message(socket, context) {
        Poll::Pending if is_too_long(socket.read_buffer(), limits.message_bytes_max) => {
            Poll::Ready(Some(Err(too_long(limits.message_bytes_max))))
        }
        // It came as a whole before its length could be looked at.
        Poll::Ready(Some(Ok(message))) if length(&message) > limits.message_bytes_max => {
            Poll::Ready(Some(Err(too_long(limits.message_bytes_max))))
        }
        Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(unreadable(error)))),
        other => other,
    })
    .await
}

/// The next message, if it is there as a whole.
pub(super) fn poll_message(socket: &mut Socket, context: &mut Context<'_>) -> Poll<Option<PgWireResult<PgWireFrontendMessage>>> {
    // The library's decoder panics on some messages that are too short for what they say.
    catch_unwind(AssertUnwindSafe(|| socket.poll_next_unpin(context)))
        .unwrap_or_else(|_| Poll::Ready(Some(Err(fatal("08P01", "invalid message format")))))
}

/// Looks at the length that a message says it has, so that it need not be in memory to be refused.
fn is_too_long(buffer: &[u8], max: usize) -> bool {
    let length = buffer.get(1..HEADER_BYTES).and_then(|length| length.try_into().ok()).map(i32::from_be_bytes);
    length.is_some_and(|length| usize::try_from(length).is_ok_and(|length| length > max))
}

/// The bytes of a message that may be long.
fn length(message: &PgWireFrontendMessage) -> usize {
    match message {
        PgWireFrontendMessage::Query(query) => query.query.len(),
        PgWireFrontendMessage::Parse(parse) => parse.query.len(),
        PgWireFrontendMessage::Bind(bind) => bind.parameters.iter().flatten().map(|value| value.len()).sum(),
        PgWireFrontendMessage::CopyData(data) => data.data.len(),
        _ => 0,
    }
}

fn too_long(max: usize) -> PgWireError {
    fatal("54000", &format!("a message is longer than {max} bytes, the most that this server takes (--max-statement-size)"))
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
pub(super) async fn say_goodbye(socket: &mut Socket, error: PgWireError) -> io::Result<()> {
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
