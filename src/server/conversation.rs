//! The messages of a connection after its greeting, one after the other, until the client or the server ends it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::SinkExt;
use pgwire::api::{ClientInfo, NoopHandler, PgWireConnectionState, PgWireServerHandlers};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::server::{process_error, process_message};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::connection::{Handlers, Socket};
use super::messages::next_frame;
use super::response::error_message;

/// What a client may do to a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConversationLimits {
    /// Of one message: a statement's text, or the values of its parameters.
    pub message_bytes_max: usize,
}

/// Sent at once, rather than in the library's pieces of 8 KiB.
const SEND_BYTES: usize = 64 << 10;

/// After a FATAL error, how long the client's unread messages are still taken in: to close the socket over them would take the error back.
const LINGER: Duration = Duration::from_millis(500);

/// # Errors
/// Of the socket, when an answer cannot be sent.
pub(super) async fn converse(socket: &mut Socket, handlers: &Handlers, limits: ConversationLimits) -> io::Result<()> {
    socket.set_backpressure_boundary(SEND_BYTES);
    let connection = &handlers.0;
    loop {
        let frame = match next_frame(socket, limits.message_bytes_max).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(PgWireError::IoError(error)) => return Err(error),
            Err(error) => return say_goodbye(socket, error).await,
        };
        let waits_for_sync = match socket.state() {
            PgWireConnectionState::CopyInProgress(is_extended) => is_extended,
            _ => frame.is_extended(),
        };
        let outcome = match frame.decode() {
            Ok(PgWireFrontendMessage::Terminate(_)) => return Ok(()),
            Ok(message) => {
                process_message(
                    message,
                    socket,
                    // Nobody is identified here: that is over before a conversation begins.
                    Arc::new(NoopHandler),
                    Arc::clone(connection),
                    Arc::clone(connection),
                    handlers.copy_handler(),
                    handlers.cancel_handler(),
                )
                .await
            }
            Err(error) => Err(error),
        };
        let Err(error) = outcome else {
            connection.take_copies(socket).await?;
            continue;
        };
        // Errors of the conversation itself fail a transaction as those of statements do.
        connection.session.fail_transaction();
        let info: ErrorInfo = error.into();
        let error = PgWireError::UserError(Box::new(info));
        if is_fatal(&error) {
            return say_goodbye(socket, error).await;
        }
        process_error(socket, error, waits_for_sync).await?;
    }
}

fn is_fatal(error: &PgWireError) -> bool {
    matches!(error, PgWireError::UserError(info) if info.is_fatal())
}

/// An error that ends the connection: nothing the client has sent after it counts.
pub(super) async fn say_goodbye(socket: &mut Socket, error: PgWireError) -> io::Result<()> {
    socket.send(PgWireBackendMessage::ErrorResponse(error_message(error))).await?;
    socket.close().await?;
    let source = socket.get_mut();
    let mut rest = [0; 1024];
    // Whoever sends on for longer has not read the error either.
    let _ = timeout(LINGER, async { while source.read(&mut rest).await.is_ok_and(|count| count > 0) {} }).await;
    Ok(())
}
