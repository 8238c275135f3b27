//! What belongs to one connection, and which handler answers which message.

use std::sync::{Arc, OnceLock};

use pgwire::api::auth::StartupHandler;
use pgwire::api::cancel::{CancelHandler, DefaultCancelHandler};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::{ConnectionGuard, ConnectionHandle, ConnectionManager, PgWireServerHandlers};
use pgwire::messages::response::TransactionStatus as WireStatus;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::deallocate::PreparedNames;
use super::interrupt::PeerWatch;
use crate::engine::{Notice, Session, TransactionStatus};

/// Notices that wait for a slow client. More are dropped: they report progress, and the next report replaces the last.
const NOTICES_MAX: usize = 256;

/// One client: its session, what may interrupt its statement, and the notices that wait for it.
pub(super) struct Connection {
    pub(super) session: Session,
    pub(super) prepared: PreparedNames,
    pub(super) notices: Mutex<mpsc::Receiver<Notice>>,
    pub(super) peer: PeerWatch,
    pub(super) stop: CancellationToken,
    pub(super) cancellations: Arc<ConnectionManager>,
    /// Set when startup has given the client its process id and secret; unregisters when the connection ends.
    pub(super) cancellation: OnceLock<(Arc<ConnectionHandle>, ConnectionGuard)>,
    /// `None` when the server is full: startup then turns the client away.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    pub(super) fn new(
        session: Session,
        socket: &TcpStream,
        cancellations: Arc<ConnectionManager>,
        place: Option<OwnedSemaphorePermit>,
        stop: CancellationToken,
    ) -> Self {
        let (sender, notices) = mpsc::channel(NOTICES_MAX);
        session.set_notice_sink(Arc::new(move |notice| {
            // Full or closed: see NOTICES_MAX; a statement must not wait for a client that does not read.
            let _ = sender.try_send(notice);
        }));
        Self {
            session,
            prepared: PreparedNames::default(),
            notices: Mutex::new(notices),
            peer: PeerWatch::new(socket),
            stop,
            cancellations,
            cancellation: OnceLock::new(),
            place,
        }
    }

    /// The session's transaction status as `ReadyForQuery` reports it.
    pub(super) fn wire_status(&self) -> WireStatus {
        match self.session.transaction_status() {
            TransactionStatus::Idle => WireStatus::Idle,
            TransactionStatus::InTransaction => WireStatus::Transaction,
            TransactionStatus::Failed => WireStatus::Error,
        }
    }
}

/// The handlers of one connection: all are the [`Connection`] itself, except cancellation, which names another one.
pub(super) struct Handlers(pub(super) Arc<Connection>);

impl PgWireServerHandlers for Handlers {
    fn startup_handler(&self) -> Arc<impl StartupHandler> {
        self.0.clone()
    }

    fn simple_query_handler(&self) -> Arc<impl SimpleQueryHandler> {
        self.0.clone()
    }

    fn extended_query_handler(&self) -> Arc<impl ExtendedQueryHandler> {
        self.0.clone()
    }

    fn cancel_handler(&self) -> Arc<impl CancelHandler> {
        Arc::new(DefaultCancelHandler::new(self.0.cancellations.clone()))
    }
}
