//! Accepting connections: who may connect, how many, and how they end.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pgwire::api::ConnectionManager;
use pgwire::tokio::process_socket;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{Connection, Handlers};
use crate::engine::Database;
use crate::error::{Error, Result};

/// Connections at once; the next one is told "too many clients" (53300). Postgres' default.
const CONNECTIONS_MAX: usize = 100;

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
        stop: CancellationToken::new(),
        connections: TaskTracker::new(),
    };
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

struct Server {
    database: Database,
    cancellations: Arc<ConnectionManager>,
    places: Arc<Semaphore>,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl Server {
    fn spawn(&self, socket: TcpStream) {
        let place = self.places.clone().try_acquire_owned().ok();
        let stop = self.stop.clone();
        let (session, cancellations) = (self.database.session(), self.cancellations.clone());
        self.connections.spawn(async move {
            let connection = Connection::new(session, &socket, cancellations, place, stop.clone());
            tokio::select! {
                // The client hears of what goes wrong with its socket or not at all: an error here has no other reader.
                _ = process_socket(socket, None, Handlers(Arc::new(connection))) => {}
                () = after_grace(&stop) => {}
            }
        });
    }
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
