//! Settings that clients are told of when they change: drivers read from them how values are written.

use std::sync::{Mutex, PoisonError};

use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::ParameterStatus;

use crate::engine::Session;

/// The setting, and its name in messages.
const REPORTED: &[(&str, &str)] = &[
    ("application_name", "application_name"),
    ("client_encoding", "client_encoding"),
    ("datestyle", "DateStyle"),
    ("default_transaction_read_only", "default_transaction_read_only"),
    ("integer_datetimes", "integer_datetimes"),
    ("intervalstyle", "IntervalStyle"),
    ("is_superuser", "is_superuser"),
    ("server_encoding", "server_encoding"),
    ("server_version", "server_version"),
    ("session_authorization", "session_authorization"),
    ("standard_conforming_strings", "standard_conforming_strings"),
    ("timezone", "TimeZone"),
];

/// What a session's client is told, by the names in messages.
pub(super) fn parameters(session: &Session) -> Vec<(&'static str, String)> {
    let settings = session.session_settings();
    REPORTED.iter().map(|(setting, name)| (*name, settings.value(setting))).collect()
}

/// What a client was told last.
#[derive(Default)]
pub(super) struct Reported(Mutex<Option<Told>>);

struct Told {
    /// Of the settings: while it stays, nothing has changed.
    epoch: u64,
    values: Vec<(&'static str, String)>,
}

impl Reported {
    /// The client knows what the settings are now.
    pub(super) fn told(&self, session: &Session) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Told { epoch: session.settings_epoch(), values: parameters(session) });
    }

    /// Messages about what has changed since.
    pub(super) fn changes(&self, session: &Session) -> Vec<PgWireBackendMessage> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(told) = told.as_mut() else { return Vec::new() };
        let epoch = session.settings_epoch();
        if told.epoch == epoch {
            return Vec::new();
        }
        let before = std::mem::replace(&mut told.values, parameters(session));
        told.epoch = epoch;
        let changed = told.values.iter().filter(|value| !before.contains(value));
        changed
            .map(|(name, value)| PgWireBackendMessage::ParameterStatus(ParameterStatus::new((*name).to_owned(), value.clone())))
            .collect()
    }
}
