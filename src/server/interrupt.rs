//! What can end a statement from outside: its client or another session cancels it, its client is gone, the server stops.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::time::Duration;

use pgwire::error::PgWireError;
use pgwire::tokio::server::MaybeTls;
use tokio::io::{Interest, Ready};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio::time::{Instant, Sleep, sleep};

use super::connection::Connection;
use super::idle::terminated;
use super::response::{fatal, wire_error};
use crate::error::Error;

/// How soon a vanished client is noticed.
const PEER_CHECK: Duration = Duration::from_millis(150);

impl Connection {
    /// Waits until the statement that starts now must end, and says why.
    ///
    /// A cancel request that came before this call is void, as in Postgres: it meant an earlier statement. So is the time of the statement number `last`.
    pub(super) async fn interrupted(&self, last: u64) -> PgWireError {
        tokio::select! {
            () = self.session.timeouts().overdue(last) => wire_error(Error::StatementTimeout),
            () = self.cancelled() => wire_error(Error::Cancelled("statement")),
            () = self.session.activity().cancelled() => wire_error(Error::Cancelled("statement")),
            () = self.session.activity().terminated() => terminated(),
            () = self.stop.cancelled() => fatal("57P01", "terminating connection because the server is stopping"),
            () = self.peer.closed() => PgWireError::IoError(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    async fn cancelled(&self) {
        let Some((handle, _)) = self.cancellation.get() else { return pending().await };
        if handle.start_query().await.await.is_err() {
            // The sender is gone without a request: a later statement has taken its place.
            pending().await
        }
    }
}

/// A second handle on a client's socket, which sees that the client is gone while nobody reads from the first.
pub(super) struct PeerWatch {
    socket: Option<PeerSocket>,
    /// Runs on from one statement to the next: short ones need not set it anew.
    pause: Mutex<Pin<Box<Sleep>>>,
}

impl PeerWatch {
    /// Without a second handle (no file descriptors left), a lost client is noticed when the next row is written.
    pub(super) fn new(socket: &MaybeTls) -> Self {
        Self { socket: duplicate(socket).ok(), pause: Mutex::new(Box::pin(sleep(PEER_CHECK))) }
    }

    async fn closed(&self) {
        let Some(socket) = &self.socket else { return pending().await };
        let mut pause = self.pause.lock().await;
        loop {
            // `ready` returns at once while unread input waits, hence the pause.
            pause.as_mut().await;
            pause.as_mut().reset(Instant::now() + PEER_CHECK);
            if socket.ready(Interest::READABLE).await.is_ok_and(|ready| ready.is_read_closed()) {
                return;
            }
        }
    }
}

enum PeerSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl PeerSocket {
    async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Self::Tcp(stream) => stream.ready(interest).await,
            Self::Unix(stream) => stream.ready(interest).await,
        }
    }
}

fn duplicate(socket: &MaybeTls) -> io::Result<PeerSocket> {
    let descriptor = descriptor(socket)?;
    match socket {
        MaybeTls::Unix(_) => UnixStream::from_std(descriptor.into()).map(PeerSocket::Unix),
        _ => TcpStream::from_std(descriptor.into()).map(PeerSocket::Tcp),
    }
}

/// A second handle on a socket.
pub(super) fn descriptor(socket: &MaybeTls) -> io::Result<OwnedFd> {
    match socket {
        MaybeTls::Plain(stream) => stream.as_fd().try_clone_to_owned(),
        MaybeTls::Tls(stream) => stream.get_ref().0.as_fd().try_clone_to_owned(),
        MaybeTls::Unix(stream) => stream.as_fd().try_clone_to_owned(),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_client_that_is_gone_is_noticed_behind_unread_input() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut client = TcpStream::connect(address).await.expect("it listens");
        let (socket, _) = listener.accept().await.expect("a client");
        let socket = MaybeTls::Plain(socket);
        let watch = PeerWatch::new(&socket);
        client.write_all(b"unread").await.expect("it is connected");
        assert!(timeout(PEER_CHECK * 2, watch.closed()).await.is_err(), "it is still there");
        drop(client);
        timeout(PEER_CHECK * 8, watch.closed()).await.expect("it is gone");
    }
}
