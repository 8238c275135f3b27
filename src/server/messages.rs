//! The messages of one connection, from its first to its last.
//!
//! As the protocol library's own loop, but for COPY FROM STDIN: that one answers a simple query with "idle" also within a transaction, and cannot
//! go on with the statements behind the COPY.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use pgwire::api::{ClientInfo, NoopHandler, PgWireConnectionState};
use pgwire::messages::PgWireFrontendMessage;
use pgwire::tokio::TlsAcceptor;
use pgwire::tokio::server::{MaybeTls, PgWireMessageServerCodec, negotiate_tls, process_error, process_message};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::codec::Framed;

use super::connection::Connection;
use super::extended::Prepared;

/// A client, and what the protocol library knows of it.
pub(super) type Socket = Framed<MaybeTls, PgWireMessageServerCodec<Arc<Prepared>>>;

/// Who has not said within this time who it is, is gone.
const STARTUP_LIMIT: Duration = Duration::from_secs(60);

/// Sent at once, rather than in the library's pieces of 8 KiB.
const SEND_BYTES: usize = 64 << 10;

/// Speaks with one client until it leaves.
///
/// # Errors
/// The socket cannot be read or written.
pub(super) async fn process_socket(socket: TcpStream, tls: Option<TlsAcceptor>, connection: Arc<Connection>) -> io::Result<()> {
    let deadline = Instant::now() + STARTUP_LIMIT;
    let Ok(negotiated) = timeout_at(deadline, negotiate_tls(socket, tls)).await else { return Ok(()) };
    // None: it speaks TLS, and there is none.
    let Some(socket) = negotiated? else { return Ok(()) };
    converse(socket, deadline, connection).await
}

/// The same for a socket that needs no negotiation any more, such as one of the local machine. `deadline`: of its startup.
pub(super) async fn converse(mut socket: Socket, deadline: Instant, connection: Arc<Connection>) -> io::Result<()> {
    // COPY FROM STDIN is no business of the library's handler: see `super::copy`.
    let (no_copy, cancel) = (Arc::new(NoopHandler), Arc::new(connection.cancel_handler()));
    socket.set_backpressure_boundary(SEND_BYTES);
    loop {
        let is_starting =
            matches!(socket.state(), PgWireConnectionState::AwaitingStartup | PgWireConnectionState::AuthenticationInProgress);
        let message = match is_starting {
            true => timeout_at(deadline, socket.next()).await.unwrap_or(None),
            false => socket.next().await,
        };
        let message = match message {
            Some(Ok(PgWireFrontendMessage::Terminate(_)) | Err(_)) | None => return Ok(()),
            Some(Ok(message)) => message,
        };
        let is_extended = message.is_extended_query();
        let (startup, simple, extended) = (connection.clone(), connection.clone(), connection.clone());
        match process_message(message, &mut socket, startup, simple, extended, no_copy.clone(), cancel.clone()).await {
            Ok(()) => connection.take_copies(&mut socket).await?,
            Err(error) => process_error(&mut socket, error, is_extended).await?,
        }
    }
}
