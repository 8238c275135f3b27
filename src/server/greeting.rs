//! What a client that is let in hears first: parameters of the server, and its key for cancelling.

use std::collections::HashMap;
use std::sync::LazyLock;

use pgwire::api::auth::{ServerParameterProvider, finish_authentication};
use pgwire::api::{ClientInfo, METADATA_APPLICATION_NAME, METADATA_USER, PidSecretKeyGenerator, RandomPidSecretKeyGenerator};
use pgwire::error::PgWireResult;

use super::connection::{Connection, Socket};
use crate::SERVER_VERSION;

static KEYS: LazyLock<RandomPidSecretKeyGenerator> = LazyLock::new(RandomPidSecretKeyGenerator::default);

/// Ends the first exchange of a connection: from here on it takes statements.
pub(super) async fn greet(socket: &mut Socket, connection: &Connection, is_superuser: bool) -> PgWireResult<()> {
    let (pid, secret) = KEYS.generate(&*socket);
    socket.set_pid_and_secret_key(pid, secret.clone());
    // A connection is greeted once.
    let _ = connection.cancellation.set(connection.cancellations.register(pid, secret));
    finish_authentication(socket, &ServerParameters { is_superuser }).await
}

/// What clients are told about the server when they connect.
struct ServerParameters {
    is_superuser: bool,
}

impl ServerParameterProvider for ServerParameters {
    fn server_parameters<C: ClientInfo>(&self, client: &C) -> Option<HashMap<String, String>> {
        let fixed = [
            ("server_version", SERVER_VERSION),
            ("server_encoding", "UTF8"),
            ("client_encoding", "UTF8"),
            ("DateStyle", "ISO, YMD"),
            ("IntervalStyle", "postgres"),
            ("TimeZone", "UTC"),
            ("integer_datetimes", "on"),
            ("standard_conforming_strings", "on"),
            ("in_hot_standby", "off"),
            ("is_superuser", if self.is_superuser { "on" } else { "off" }),
        ];
        let given = [("application_name", METADATA_APPLICATION_NAME), ("session_authorization", METADATA_USER)];
        let given = given.iter().filter_map(|(name, key)| Some((*name, client.metadata().get(*key)?.as_str())));
        Some(fixed.into_iter().chain(given).map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }
}
