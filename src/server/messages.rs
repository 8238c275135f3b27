//! A client's next message: bytes from its socket, cut out and checked ([`super::frames`]) before the protocol library decodes them.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use pgwire::api::{ClientInfo, PgWireConnectionState};
use pgwire::error::PgWireResult;
use pgwire::messages::{PgWireFrontendMessage, ProtocolVersion};
use tokio::io::AsyncReadExt;

use super::connection::Socket;
use super::frames::{Extent, Phase, decode, extent};

/// Room for what a client sends next; a long message gets more, but never much more than has come.
const READ_BYTES_MIN: usize = 16 << 10;
const READ_BYTES_MAX: usize = 256 << 10;

/// The longest message unless a server is told another: a gigabyte in PostgreSQL.
pub(super) const DATA_BYTES_MAX: usize = 256 << 20;

/// All bytes of a message, which nobody has looked into yet.
pub(super) struct Frame {
    bytes: BytesMut,
    phase: Phase,
    version: ProtocolVersion,
}

impl Frame {
    /// # Errors
    /// As [`decode`].
    pub(super) fn decode(self) -> PgWireResult<PgWireFrontendMessage> {
        decode(self.bytes, self.phase, self.version)
    }

    /// Whether the message is one of the extended protocol: after an error in one of them nothing counts until Sync.
    pub(super) fn is_extended(&self) -> bool {
        self.phase == Phase::Established && b"PBCDEHS".contains(&self.bytes[0])
    }

    fn ends_discarding(&self) -> bool {
        matches!(self.bytes[0], b'S' | b'X')
    }
}

/// The next message of a client; what comes between an error and the next Sync is passed over. `None`: the client is gone.
///
/// Nothing is lost if this is dropped while it waits.
///
/// # Errors
/// FATAL, as [`extent`] has them, and those of the socket.
pub(super) async fn next_frame(socket: &mut Socket, data_bytes_max: usize) -> PgWireResult<Option<Frame>> {
    loop {
        let phase = phase(socket);
        let missing = match extent(socket.read_buffer(), phase, data_bytes_max)? {
            Extent::Whole(bytes) => {
                let frame = Frame { bytes: take(socket.read_buffer_mut(), bytes), phase, version: socket.protocol_version() };
                let is_discarding = matches!(socket.state(), PgWireConnectionState::AwaitingSync);
                if is_discarding && !frame.ends_discarding() {
                    continue;
                }
                return Ok(Some(frame));
            }
            Extent::Missing(bytes) => bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX),
        };
        if poll_fn(|context| read(socket, missing, context)).await? == 0 {
            return Ok(None);
        }
    }
}

fn phase(socket: &Socket) -> Phase {
    match socket.state() {
        PgWireConnectionState::AwaitingSslRequest | PgWireConnectionState::AwaitingStartup => Phase::Startup,
        PgWireConnectionState::AuthenticationInProgress => Phase::Authentication,
        _ => Phase::Established,
    }
}

fn take(buffer: &mut BytesMut, bytes: usize) -> BytesMut {
    let taken = buffer.split_to(bytes);
    if buffer.is_empty() {
        // It would hold the memory of the longest message for as long as the connection lasts.
        *buffer = BytesMut::new();
    }
    taken
}

fn read(socket: &mut Socket, room: usize, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let mut buffer = std::mem::take(socket.read_buffer_mut());
    buffer.reserve(room);
    let polled = {
        let reading = pin!(socket.get_mut().read_buf(&mut buffer));
        reading.poll(context)
    };
    *socket.read_buffer_mut() = buffer;
    polled
}
