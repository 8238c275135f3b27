//! The end of a connection whose client is silent: its timeouts, and `pg_terminate_backend`.
//!
//! While a statement runs, `interrupt.rs` sees to its end; between statements nobody reads but the protocol library, so this runs beside it.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::PgWireBackendMessage;
use pgwire::tokio::server::MaybeTls;
use tokio::time::sleep;

use super::connection::Connection;
use super::interrupt::descriptor;
use super::response::fatal;

/// What a statement that was ended with its session gets to tell its client so.
const GRACE: Duration = Duration::from_millis(500);

/// Why the connection ends that ran the statement, or waited.
pub(super) fn terminated() -> PgWireError {
    fatal("57P01", "terminating connection due to administrator command")
}

impl Connection {
    /// Waits until the connection must end, and tells its client why.
    pub(super) async fn expired(&self) {
        let (activity, timeouts) = (self.session.activity(), self.session.timeouts());
        loop {
            let limits = [true, false].into_iter().filter_map(|in_transaction| timeouts.idle_limit(in_transaction));
            let shortest = limits.min();
            let left = activity.idle().and_then(|idle| {
                let limit = timeouts.idle_limit(idle.in_transaction)?;
                Some((limit.saturating_sub(idle.since.elapsed().unwrap_or_default()), idle.in_transaction))
            });
            if let Some((left, in_transaction)) = left
                && left.is_zero()
            {
                self.farewell.say(match in_transaction {
                    true => fatal("25P03", "terminating connection due to idle-in-transaction timeout"),
                    false => fatal("57P05", "terminating connection due to idle-session timeout"),
                });
                return;
            }
            // Who becomes silent after this has the whole of a limit before it.
            let pause = left.map(|(left, _)| left).min(shortest).or(shortest);
            tokio::select! {
                () = activity.terminated() => break,
                () = timeouts.changed() => {}
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
        if activity.idle().is_some() {
            self.farewell.say(terminated());
        } else {
            sleep(GRACE).await;
        }
    }
}

/// A second handle on a client's socket, for the last message to a client that nobody writes to otherwise.
pub(super) struct Farewell {
    socket: Option<OwnedFd>,
    /// The client expects encrypted messages, which this cannot make: for it the connection just ends.
    is_secure: AtomicBool,
}

impl Farewell {
    pub(super) fn new(socket: &MaybeTls) -> Self {
        Self { socket: descriptor(socket).ok(), is_secure: AtomicBool::new(false) }
    }

    pub(super) fn set_secure(&self, is_secure: bool) {
        self.is_secure.store(is_secure, Ordering::Relaxed);
    }

    /// A client that does not read misses it: the socket does not block.
    fn say(&self, error: PgWireError) {
        let Some(socket) = self.socket.as_ref().filter(|_| !self.is_secure.load(Ordering::Relaxed)) else { return };
        let Ok(socket) = socket.try_clone() else { return };
        let mut message = BytesMut::new();
        if PgWireBackendMessage::ErrorResponse(ErrorInfo::from(error).into()).encode(&mut message).is_ok() {
            let _ = File::from(socket).write_all(&message);
        }
    }
}
