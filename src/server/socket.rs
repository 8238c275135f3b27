//! A client's socket: messages in, each to its handler, until one of the two ends the conversation.
//!
//! The protocol library has such a loop. Ours cuts out and checks messages before they are decoded ([`super::frames`]), ends with the first FATAL error,
//! and lets no error of a client that is not known yet be less than that: the library's goes on to read and run what was sent behind a wrong password.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures::{FutureExt, SinkExt};
use pgwire::api::{ClientInfo, ErrorHandler, PgWireConnectionState, PgWireServerHandlers};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::TlsAcceptor;
use pgwire::tokio::server::{MaybeTls, PgWireMessageServerCodec, negotiate_tls, process_error, process_message};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::codec::Framed;

use super::connection::Handlers;
use super::extended::Prepared;
use super::frames::{Extent, Phase, decode, extent, refusal};
use super::response::fatal;

/// What a client has to say who it is.
const STARTUP_TIME: Duration = Duration::from_secs(60);

/// Room for what a client sends next; a long message gets more, but never much more than has come.
const READ_BYTES_MIN: usize = 16 << 10;
const READ_BYTES_MAX: usize = 256 << 10;

/// Requests for encryption that one client may make in vain.
const REFUSALS_MAX: usize = 2;

/// After a FATAL error, for which the client's unread messages still come in: to close the socket over them would take the error back.
const LINGER: Duration = Duration::from_millis(500);

type Socket<S> = Framed<S, PgWireMessageServerCodec<Arc<Prepared>>>;

/// Talks with a client over TCP, encrypted if it asks for it and there is `tls`.
///
/// `connect` is called when the client has sent a whole first message: those that only open sockets cost no session. `None`: it can not be served.
///
/// # Errors
/// What goes wrong with the socket.
pub(super) async fn serve_tcp(socket: TcpStream, tls: Option<TlsAcceptor>, connect: impl FnOnce() -> Option<Handlers>) -> io::Result<()> {
    let deadline = Instant::now() + STARTUP_TIME;
    let Ok(negotiated) = timeout_at(deadline, negotiate_tls(socket, tls)).await else { return Ok(()) };
    let Some(mut socket): Option<Socket<MaybeTls>> = negotiated? else { return Ok(()) };
    if socket.is_secure() && !socket.read_buffer().is_empty() {
        // It came before the handshake, in plain text: someone between the two may have put it there.
        return Err(io::ErrorKind::InvalidData.into());
    }
    serve_messages(&mut socket, deadline, connect).await
}

async fn serve_messages<S>(socket: &mut Socket<S>, deadline: Instant, connect: impl FnOnce() -> Option<Handlers>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let mut incoming = Incoming { buffer: std::mem::take(socket.read_buffer_mut()) };
    let first = timeout_at(deadline, incoming.message_bytes(socket.get_mut(), Phase::Startup)).await;
    match first {
        Ok(Ok(Some(_))) => {}
        Ok(Err(error)) => return refuse(socket, error).await,
        // Gone, or nothing but an open socket.
        Ok(Ok(None)) | Err(_) => return Ok(()),
    }
    let Some(handlers) = connect() else { return Ok(()) };
    converse(socket, &mut incoming, &handlers, deadline).await
}

async fn converse<S>(socket: &mut Socket<S>, incoming: &mut Incoming, handlers: &Handlers, deadline: Instant) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let (startup, simple, extended) = (handlers.startup_handler(), handlers.simple_query_handler(), Arc::clone(&handlers.0));
    let (copy, cancel, errors) = (handlers.copy_handler(), handlers.cancel_handler(), handlers.error_handler());
    let mut refusals = 0;
    loop {
        let phase = phase(socket);
        let next = incoming.next(socket.get_mut(), phase, deadline).await;
        let frame = match next {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(error) => return refuse(socket, error).await,
        };
        if phase == Phase::Startup
            && let Some(refusal) = refusal(&frame)
        {
            refusals += 1;
            if refusals > REFUSALS_MAX {
                return refuse(socket, fatal("08P01", "too many requests for encryption; the server has none here")).await;
            }
            socket.send(refusal).await?;
            continue;
        }
        let kind = frame[0];
        if is_discarded(socket, kind) {
            continue;
        }
        let decoded = decode(frame, phase, socket.protocol_version());
        if matches!(decoded, Ok(PgWireFrontendMessage::Terminate(_))) {
            return Ok(());
        }
        // A cancel request is all that its client says.
        let is_last = matches!(decoded, Ok(PgWireFrontendMessage::CancelRequest(_)));
        let is_extended = match socket.state() {
            PgWireConnectionState::CopyInProgress(is_extended) => is_extended,
            _ => b"PBCDEHS".contains(&kind),
        };
        let answered = match decoded {
            Ok(message) => {
                let answer = process_message(
                    message,
                    socket,
                    Arc::clone(&startup),
                    Arc::clone(&simple),
                    Arc::clone(&extended),
                    Arc::clone(&copy),
                    Arc::clone(&cancel),
                );
                // Of a panic the client hears; what state it left the conversation in nobody knows.
                AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| Err(fatal("XX000", "internal error: the server panicked")))
            }
            Err(error) => Err(error),
        };
        if let Err(mut error) = answered {
            errors.on_error(&*socket, &mut error);
            let info = ErrorInfo::from(error);
            if info.is_fatal() || phase != Phase::Established {
                return refuse(socket, PgWireError::UserError(Box::new(info))).await;
            }
            process_error(socket, PgWireError::UserError(Box::new(info)), is_extended).await?;
        } else if is_last {
            return Ok(());
        }
    }
}

fn phase<S>(socket: &Socket<S>) -> Phase
where
    S: 'static,
{
    match socket.state() {
        PgWireConnectionState::AwaitingSslRequest | PgWireConnectionState::AwaitingStartup => Phase::Startup,
        PgWireConnectionState::AuthenticationInProgress => Phase::Authentication,
        _ => Phase::Established,
    }
}

/// After an error nothing is read until Sync, nor checked.
fn is_discarded<S>(socket: &Socket<S>, kind: u8) -> bool
where
    S: 'static,
{
    matches!(socket.state(), PgWireConnectionState::AwaitingSync) && !matches!(kind, b'S' | b'X')
}

/// Tells the client why and ends the conversation.
async fn refuse<S>(socket: &mut Socket<S>, error: PgWireError) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let mut info = ErrorInfo::from(error);
    info.severity = "FATAL".to_string();
    info.severity_nonlocalized = Some(info.severity.clone());
    socket.send(PgWireBackendMessage::ErrorResponse(info.into())).await?;
    socket.close().await?;
    let mut rest = [0; 4096];
    let source = socket.get_mut();
    let drained = async { while source.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
    // Whoever sends on for longer has not read the error either.
    let _ = timeout(LINGER, drained).await;
    Ok(())
}

/// What has come from a client and is not read yet.
struct Incoming {
    buffer: BytesMut,
}

impl Incoming {
    /// The next message. `None`: the client is gone, or does not say in time who it is.
    async fn next(&mut self, source: &mut (impl AsyncRead + Unpin), phase: Phase, deadline: Instant) -> PgWireResult<Option<BytesMut>> {
        let bytes = self.message_bytes(source, phase);
        let bytes = match phase {
            Phase::Established => bytes.await,
            Phase::Startup | Phase::Authentication => timeout_at(deadline, bytes).await.unwrap_or(Ok(None)),
        };
        let Some(bytes) = bytes? else { return Ok(None) };
        let frame = self.buffer.split_to(bytes);
        if self.buffer.is_empty() {
            // It would hold the memory of the largest message for as long as the connection lasts.
            self.buffer = BytesMut::new();
        }
        Ok(Some(frame))
    }

    /// The length of the first message, when all of it is there.
    async fn message_bytes(&mut self, source: &mut (impl AsyncRead + Unpin), phase: Phase) -> PgWireResult<Option<usize>> {
        loop {
            let missing = match extent(&self.buffer, phase)? {
                Extent::Whole(bytes) => return Ok(Some(bytes)),
                Extent::Missing(bytes) => bytes,
            };
            self.buffer.reserve(missing.clamp(READ_BYTES_MIN, READ_BYTES_MAX));
            if source.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}
