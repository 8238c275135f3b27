//! What a client that is let in hears first: parameters of the server, and its key for cancelling.

use std::collections::HashMap;
use std::sync::LazyLock;

use pgwire::api::auth::{ServerParameterProvider, finish_authentication};
use pgwire::api::{ClientInfo, PidSecretKeyGenerator, RandomPidSecretKeyGenerator};
use pgwire::error::PgWireResult;

use super::connection::{Connection, Socket};
use super::parameter_status::parameters;
use crate::engine::Session;

static KEYS: LazyLock<RandomPidSecretKeyGenerator> = LazyLock::new(RandomPidSecretKeyGenerator::default);

/// Ends the first exchange of a connection: from here on it takes statements.
///
/// # Errors
/// FATAL, of what the client asked for with its name; see [`Connection::start_session`].
pub(super) async fn greet(socket: &mut Socket, connection: &Connection, is_superuser: bool) -> PgWireResult<()> {
    // The number is that of the session, by which others see and signal it.
    let (_, secret) = KEYS.generate(&*socket);
    let pid = connection.session.activity().pid();
    socket.set_pid_and_secret_key(pid, secret.clone());
    // A connection is greeted once.
    let _ = connection.cancellation.set(connection.cancellations.register(pid, secret));
    connection.session.set_fixed("is_superuser", if is_superuser { "on" } else { "off" });
    connection.start_session(&*socket)?;
    finish_authentication(socket, &ServerParameters(&connection.session)).await
}

/// What clients are told about the server when they connect.
struct ServerParameters<'a>(&'a Session);

impl ServerParameterProvider for ServerParameters<'_> {
    fn server_parameters<C: ClientInfo>(&self, _: &C) -> Option<HashMap<String, String>> {
        let mut parameters: HashMap<String, String> =
            parameters(self.0).into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        parameters.insert("in_hot_standby".to_string(), "off".to_string());
        Some(parameters)
    }
}
