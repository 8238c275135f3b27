//! What belongs to one connection. It answers all messages itself; see [`super::messages`].

use std::sync::{Arc, OnceLock};

use pgwire::api::cancel::{CancelHandler, DefaultCancelHandler};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::{ConnectionGuard, ConnectionHandle, ConnectionManager, PgWireServerHandlers};
use pgwire::messages::response::TransactionStatus as WireStatus;
use pgwire::tokio::server::{MaybeTls, PgWireMessageServerCodec};
use tokio::sync::{Mutex, mpsc};
use tokio_util::codec::Framed;
use tokio_util::sync::CancellationToken;

use super::auth::limits::Place;
use super::copy::Pending;
use super::idle::Farewell;
use super::interrupt::PeerWatch;
use super::parameter_status::Reported;
use super::statement_names::StoredNames;
use super::workers::Workers;
use crate::engine::{Notice, Session, TransactionStatus};

/// Notices that wait for a slow client. More are dropped: they report progress, and the next report replaces the last.
const NOTICES_MAX: usize = 256;

/// A client's socket, with the messages that come and go by it.
pub(super) type Socket = Framed<MaybeTls, PgWireMessageServerCodec<<Connection as ExtendedQueryHandler>::Statement>>;

/// One client: its session, what may interrupt its statement, and the notices that wait for it.
pub(super) struct Connection {
    pub(super) session: Session,
    pub(super) stored_names: StoredNames,
    pub(super) copies: Pending,
    pub(super) notices: Mutex<mpsc::Receiver<Notice>>,
    pub(super) peer: PeerWatch,
    pub(super) farewell: Farewell,
    pub(super) reported: Reported,
    pub(super) workers: Workers,
    pub(super) stop: CancellationToken,
    pub(super) cancellations: Arc<ConnectionManager>,
    /// Set when startup has given the client its process id and secret; unregisters when the connection ends.
    pub(super) cancellation: OnceLock<(Arc<ConnectionHandle>, ConnectionGuard)>,
    /// Among the connections that the server takes.
    _place: Place,
}

impl Connection {
    pub(super) fn new(
        session: Session,
        socket: &MaybeTls,
        cancellations: Arc<ConnectionManager>,
        place: Place,
        workers: Workers,
        stop: CancellationToken,
    ) -> Self {
        let (sender, notices) = mpsc::channel(NOTICES_MAX);
        session.set_notice_sink(Arc::new(move |notice| {
            // Full or closed: see NOTICES_MAX; a statement must not wait for a client that does not read.
            let _ = sender.try_send(notice);
        }));
        Self {
            session,
            stored_names: StoredNames::default(),
            copies: Pending::default(),
            notices: Mutex::new(notices),
            peer: PeerWatch::new(socket),
            farewell: Farewell::new(socket),
            reported: Reported::default(),
            workers,
            stop,
            cancellations,
            cancellation: OnceLock::new(),
            _place: place,
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
