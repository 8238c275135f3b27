//! Accepting connections: who may connect, how many, and how they end.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pgwire::api::ConnectionManager;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{Connection, Handlers};
use super::interrupt::PeerWatch;
use super::socket::serve_tcp;
use crate::engine::Database;
use crate::error::{Error, Result};

/// Connections at once; the next one is told "too many clients" (53300). Postgres' default.
const CONNECTIONS_MAX: usize = 100;

/// Clients at once that have not said yet who they are. They have no session and no place among the connections; another one is hung up on.
const STARTING_MAX: usize = 400;

/// How long sockets may wait for a worker thread that plans a statement, see [`keep_polled`].
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// What a running statement gets to report its end to its client when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// Pause after a failed `accept`, for instance for want of file descriptors, which a busy loop would only make worse.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves `database` to Postgres clients that connect to `listener`, one session each, until `shutdown` is ready.
///
/// Then running statements are cancelled (57P01) and all connections are closed before this returns.
///
/// # Errors
/// [`Error::NotSupported`] if `listener` can be reached from another machine: there is no authentication yet.
/// [`Error::Io`] if the listener has no local address.
pub async fn serve(database: Database, listener: TcpListener, shutdown: impl Future) -> Result<()> {
    require_loopback(&listener)?;
    let server = Server {
        database,
        cancellations: Arc::new(ConnectionManager::new()),
        places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        starting: Arc::new(Semaphore::new(STARTING_MAX)),
        stop: CancellationToken::new(),
        connections: TaskTracker::new(),
    };
    keep_polled(&server.stop);
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            _ = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => server.spawn(socket),
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            },
        }
    }
    server.stop.cancel();
    server.connections.close();
    server.connections.wait().await;
    server.database.settle().await;
    Ok(())
}

#[derive(Clone)]
struct Server {
    database: Database,
    cancellations: Arc<ConnectionManager>,
    places: Arc<Semaphore>,
    starting: Arc<Semaphore>,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl Server {
    fn spawn(&self, socket: TcpStream) {
        let Ok(starting) = Arc::clone(&self.starting).try_acquire_owned() else { return };
        let peer = PeerWatch::new(&socket);
        let server = self.clone();
        self.connections.spawn(async move {
            let connect = || {
                drop(starting);
                server.handlers(peer)
            };
            tokio::select! {
                // The client hears of what goes wrong with its socket or not at all: an error here has no other reader.
                _ = serve_tcp(socket, None, connect) => {}
                () = after_grace(&server.stop) => {}
            }
        });
    }

    /// Without its catalog a session is of no use to a client; the closed socket says so. It takes a bug to get here.
    fn handlers(&self, peer: PeerWatch) -> Option<Handlers> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        let connection = Connection::new(self.database.session(), peer, Arc::clone(&self.cancellations), place, self.stop.clone());
        Some(Handlers(Arc::new(connection.ok()?)))
    }
}

/// Wakes a worker thread of the runtime again and again.
///
/// One of them waits for all sockets; if it then takes up a statement that is long to plan, the others sleep on, and nobody hears of new clients and of
/// requests to cancel. A task from outside wakes one of those, which waits for the sockets next.
fn keep_polled(stop: &CancellationToken) {
    let (runtime, stop) = (Handle::current(), stop.clone());
    let pulse = move || {
        while !stop.is_cancelled() {
            std::thread::sleep(POLL_PAUSE);
            drop(runtime.spawn(async {}));
        }
    };
    // Without this thread the server is slower to answer under load, and serves all the same.
    let _ = std::thread::Builder::new().name("rolloutdb-pulse".to_owned()).spawn(pulse);
}

async fn after_grace(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(SHUTDOWN_GRACE).await;
}

/// # Errors
/// [`Error::NotSupported`] for an address that others can reach: there is no authentication yet.
pub fn require_loopback(listener: &TcpListener) -> Result<()> {
    let address = listener.local_addr().map_err(|source| Error::Io { path: PathBuf::from("listening socket"), source })?;
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(Error::NotSupported(format!(
        "listening on {address} is not supported yet, because there is no authentication: anyone who reaches the port could read and \
         change everything; listen on 127.0.0.1:{} and reach it through an SSH tunnel",
        address.port()
    )))
}
