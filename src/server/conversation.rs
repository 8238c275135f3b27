//! The messages of a connection after its greeting, one after the other, until the client or the server ends it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::SinkExt;
use pgwire::api::{ClientInfo, NoopHandler, PgWireConnectionState, PgWireServerHandlers};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::server::{process_error, process_message};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::connection::{Handlers, Socket};
use super::messages::{Frame, next_frame};
use super::response::{error_message, fatal};

/// What a client may do to a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConversationLimits {
    /// Of one message: a statement's text, or the values of its parameters.
    pub message_bytes_max: usize,
    /// Between two statements outside of a transaction; `None`: for ever.
    pub idle_max: Option<Duration>,
}

/// After a FATAL error, how long the client's unread messages are still taken in: to close the socket over them would take the error back.
const LINGER: Duration = Duration::from_millis(500);

/// # Errors
/// Of the socket, when an answer cannot be sent.
pub(super) async fn converse(socket: &mut Socket, handlers: &Handlers, limits: ConversationLimits) -> io::Result<()> {
    let connection = &handlers.0;
    loop {
        let frame = match next_message(socket, limits).await {
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
        let Err(error) = outcome else { continue };
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

/// `None`: the client is gone.
async fn next_message(socket: &mut Socket, limits: ConversationLimits) -> PgWireResult<Option<Frame>> {
    loop {
        let waiting = next_frame(socket, limits.message_bytes_max);
        let Some(idle_max) = limits.idle_max else { return waiting.await };
        if let Ok(next) = timeout(idle_max, waiting).await {
            return next;
        }
        if is_idle(socket) {
            return Err(fatal("57P05", "terminating connection due to idle-session timeout"));
        }
    }
}

/// Whether the client has nothing open, and has begun no message.
fn is_idle(socket: &Socket) -> bool {
    use pgwire::messages::response::TransactionStatus;
    let is_ready = matches!(socket.state(), PgWireConnectionState::ReadyForQuery);
    is_ready && matches!(socket.transaction_status(), TransactionStatus::Idle) && socket.read_buffer().is_empty()
}

fn is_fatal(error: &PgWireError) -> bool {
    matches!(error, PgWireError::UserError(info) if info.is_fatal())
}

/// An error that ends the connection: nothing the client has sent after it counts.
async fn say_goodbye(socket: &mut Socket, error: PgWireError) -> io::Result<()> {
    socket.send(PgWireBackendMessage::ErrorResponse(error_message(error))).await?;
    socket.close().await?;
    let source = socket.get_mut();
    let mut rest = [0; 1024];
    // Whoever sends on for longer has not read the error either.
    let _ = timeout(LINGER, async { while source.read(&mut rest).await.is_ok_and(|count| count > 0) {} }).await;
    Ok(())
}
