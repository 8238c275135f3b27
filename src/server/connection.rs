//! What belongs to one connection. It answers all messages itself; see [`super::messages`].

use std::sync::{Arc, OnceLock};

use pgwire::api::cancel::DefaultCancelHandler;
use pgwire::api::{ConnectionGuard, ConnectionHandle, ConnectionManager};
use pgwire::messages::response::TransactionStatus as WireStatus;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::copy::Pending;
use super::deallocate::PreparedNames;
use super::interrupt::PeerWatch;
use super::pg_catalog::install_catalog;
use crate::engine::{Notice, Session, TransactionStatus};
use crate::error::Result;

/// Notices that wait for a slow client. More are dropped: they report progress, and the next report replaces the last.
const NOTICES_MAX: usize = 256;

/// One client: its session, what may interrupt its statement, and the notices that wait for it.
pub(super) struct Connection {
    pub(super) session: Session,
    pub(super) prepared: PreparedNames,
    pub(super) copies: Pending,
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
    /// # Errors
    /// What [`install_catalog`] reports.
    pub(super) fn new(
        session: Session,
        socket: &TcpStream,
        cancellations: Arc<ConnectionManager>,
        place: Option<OwnedSemaphorePermit>,
        stop: CancellationToken,
    ) -> Result<Self> {
        let catalog_name = session.context().state().config_options().catalog.default_catalog.clone();
        install_catalog(session.context(), &catalog_name, session.session_settings())?;
        let (sender, notices) = mpsc::channel(NOTICES_MAX);
        session.set_notice_sink(Arc::new(move |notice| {
            // Full or closed: see NOTICES_MAX; a statement must not wait for a client that does not read.
            let _ = sender.try_send(notice);
        }));
        Ok(Self {
            session,
            prepared: PreparedNames::default(),
            copies: Pending::default(),
            notices: Mutex::new(notices),
            peer: PeerWatch::new(socket),
            stop,
            cancellations,
            cancellation: OnceLock::new(),
            place,
        })
    }

    /// What answers a request to cancel a statement, which comes on a connection of its own.
    pub(super) fn cancel_handler(&self) -> DefaultCancelHandler {
        DefaultCancelHandler::new(self.cancellations.clone())
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
