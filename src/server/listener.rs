//! Accepting connections: from where, how many, and how they end.

use std::future::{Future, pending};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pgwire::api::ConnectionManager;
use pgwire::tokio::server::MaybeTls;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::auth::admission::{Admitted, Door, Incoming};
use super::auth::limits::{Places, Strangers};
use super::connection::{Connection, Handlers};
use super::conversation::{ConversationLimits, converse, say_goodbye};
use super::greeting::greet;
use super::keepalive::Keepalive;
use super::options::ServerOptions;
use super::unix_socket::UnixSocket;
use super::workers::{WorkerThreads, Workers};
use crate::engine::{Database, IDLE_TIMEOUT};
use crate::error::{Error, Result};

/// What a running statement gets to report its end to its client when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// Pause after a failed `accept`, for instance for want of file descriptors, which a busy loop would only make worse.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Connections whose client is not known yet, for each that may be known.
const STRANGERS_PER_PLACE: usize = 2;

/// Where clients reach a server.
#[derive(Debug, Default)]
pub struct Listeners {
    pub tcp: Option<TcpListener>,
    pub unix: Option<UnixSocket>,
}

/// As [`serve_with`], by TCP alone and with the default options.
///
/// # Errors
/// As [`serve_with`].
pub async fn serve(database: Database, listener: TcpListener, shutdown: impl Future) -> Result<()> {
    let listeners = Listeners { tcp: Some(listener), unix: None };
    serve_with(database, listeners, ServerOptions::default(), shutdown).await
}

/// Serves `database` to Postgres clients, one session each, until `shutdown` is ready.
///
/// Then running statements are cancelled (57P01) and all connections are closed before this returns.
///
/// # Errors
/// As [`check_exposure`]. [`Error::Io`] if the operating system has no more threads.
pub async fn serve_with(database: Database, listeners: Listeners, options: ServerOptions, shutdown: impl Future) -> Result<()> {
    check_exposure(&listeners, &database, &options)?;
    let threads = WorkerThreads::start().map_err(|source| Error::Io { path: PathBuf::from("threads for statements"), source })?;
    let server = Server::new(database, threads, options);
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            _ = &mut shutdown => break,
            accepted = accept_tcp(listeners.tcp.as_ref()) => accepted.map(Incoming::Tcp),
            accepted = accept_unix(listeners.unix.as_ref()) => accepted.map(Incoming::Unix),
        };
        match accepted {
            Ok(incoming) => server.spawn(incoming),
            Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
        }
    }
    server.database.announce_end();
    server.stop.cancel();
    server.connections.close();
    server.connections.wait().await;
    server.database.settle().await;
    Ok(())
}

async fn accept_tcp(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => pending().await,
    }
}

async fn accept_unix(socket: Option<&UnixSocket>) -> io::Result<tokio::net::UnixStream> {
    match socket {
        Some(socket) => socket.accept().await,
        None => pending().await,
    }
}

/// What a client's stay takes of the server.
struct Attending {
    database: Database,
    door: Arc<Door>,
    workers: Workers,
    limits: ConversationLimits,
    idle_max: Option<Duration>,
    keepalive: Keepalive,
    stop: CancellationToken,
}

struct Server {
    database: Database,
    threads: WorkerThreads,
    door: Arc<Door>,
    strangers: Arc<Strangers>,
    authentication_max: Duration,
    limits: ConversationLimits,
    idle_max: Option<Duration>,
    keepalive: Keepalive,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl Server {
    fn new(database: Database, threads: WorkerThreads, options: ServerOptions) -> Self {
        let door = Door {
            roles: database.roles().clone(),
            rules: options.rules,
            tls: options.tls,
            allow_plaintext: options.allow_plaintext,
            places: Places::new(options.connections_max, options.superuser_connections),
            failures: Default::default(),
            cancellations: Arc::new(ConnectionManager::new()),
        };
        Self {
            database,
            threads,
            door: Arc::new(door),
            strangers: Strangers::new(options.connections_max.saturating_mul(STRANGERS_PER_PLACE).max(1)),
            authentication_max: options.authentication_max,
            limits: ConversationLimits { message_bytes_max: options.message_bytes_max },
            idle_max: options.idle_max,
            keepalive: options.keepalive,
            stop: CancellationToken::new(),
            connections: TaskTracker::new(),
        }
    }

    fn attending(&self) -> Attending {
        Attending {
            database: self.database.clone(),
            door: Arc::clone(&self.door),
            workers: self.threads.workers(),
            limits: self.limits,
            idle_max: self.idle_max,
            keepalive: self.keepalive,
            stop: self.stop.clone(),
        }
    }

    fn spawn(&self, incoming: Incoming) {
        if let Incoming::Tcp(stream) = &incoming {
            self.keepalive.watch(stream);
        }
        let (door, stop) = (Arc::clone(&self.door), self.stop.clone());
        let server = self.attending();
        let (stranger, authentication_max) = (self.strangers.enter(), self.authentication_max);
        self.connections.spawn(async move {
            let admitted = tokio::select! {
                // Who takes too long is not told, as in PostgreSQL.
                admitted = tokio::time::timeout(authentication_max, door.admit(incoming)) => admitted.ok().flatten(),
                () = stranger.turned_away() => None,
                () = stop.cancelled() => None,
            };
            drop(stranger);
            let Some(admitted) = admitted else { return };
            tokio::select! {
                // The client hears of what goes wrong with its socket or not at all: an error here has no other reader.
                _ = attend(server, admitted) => {}
                () = after_grace(&stop) => {}
            }
        });
    }
}

/// A client's whole stay.
async fn attend(server: Attending, Admitted { mut socket, role, place }: Admitted) -> io::Result<()> {
    let Attending { database, door, workers, limits, idle_max, keepalive, stop } = server;
    let session = database.session();
    session.set_role_of_user(&role);
    if let Some(idle_max) = idle_max {
        session.set_at_startup(IDLE_TIMEOUT, &idle_max.as_millis().to_string()).map_err(io::Error::other)?;
    }
    if !matches!(socket.get_ref(), MaybeTls::Unix(_)) {
        for (name, value) in keepalive.settings() {
            session.set_fixed(name, &value);
        }
    }
    for (name, value) in door.places.settings() {
        session.set_fixed(name, &value);
    }
    let connection = Connection::new(session, socket.get_ref(), Arc::clone(&door.cancellations), place, workers, stop);
    let handlers = Handlers(Arc::new(connection));
    if let Err(error) = greet(&mut socket, &handlers.0, role.is_superuser).await {
        return say_goodbye(&mut socket, error).await;
    }
    tokio::select! {
        ended = converse(&mut socket, &handlers, limits) => ended,
        () = handlers.0.expired() => Ok(()),
    }
}

async fn after_grace(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(SHUTDOWN_GRACE).await;
}

/// That no other machine can reach a server without a password.
///
/// # Errors
/// [`Error::NotReady`] for an address that other machines can reach, if no role could show a password there, or only in the clear without that being
/// asked for. [`Error::Io`] if the listener has no local address.
pub fn check_exposure(listeners: &Listeners, database: &Database, options: &ServerOptions) -> Result<()> {
    let Some(listener) = &listeners.tcp else { return Ok(()) };
    let address = listener.local_addr().map_err(|source| Error::Io { path: PathBuf::from("listening socket"), source })?;
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if !database.roles().has_login_with_password() {
        return Err(Error::NotReady(format!(
            "the server does not listen on {address}, where other machines reach it, before a role has a password: listen on 127.0.0.1:{port} first, \
             run CREATE USER name PASSWORD '...' (or ALTER ROLE ... PASSWORD), and start it again",
            port = address.port()
        )));
    }
    if options.tls.is_none() && !options.allow_plaintext {
        return Err(Error::NotReady(format!(
            "the server does not listen on {address}, where other machines reach it, without TLS: give it --tls-cert and --tls-key, or --allow-plaintext \
             if the network between is trusted"
        )));
    }
    Ok(())
}
