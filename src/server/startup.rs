//! The first exchange of a connection: protocol version, parameters of the server, key for cancelling.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::LazyLock;

use async_trait::async_trait;
use futures::Sink;
use pgwire::api::auth::{
    ServerParameterProvider, StartupHandler, finish_authentication, protocol_negotiation, save_startup_parameters_to_metadata,
};
use pgwire::api::{ClientInfo, PidSecretKeyGenerator, RandomPidSecretKeyGenerator};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};

use super::connection::Connection;
use super::parameter_status::parameters;
use super::response::fatal;
use crate::engine::Session;

static KEYS: LazyLock<RandomPidSecretKeyGenerator> = LazyLock::new(RandomPidSecretKeyGenerator::default);

#[async_trait]
impl StartupHandler for Connection {
    async fn on_startup<C>(&self, client: &mut C, message: PgWireFrontendMessage) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let PgWireFrontendMessage::Startup(startup) = message else {
            return Err(fatal("08P01", "expected a startup message"));
        };
        protocol_negotiation(client, &startup).await?;
        save_startup_parameters_to_metadata(client, &startup);
        if self.place.is_none() {
            return Err(fatal("53300", "too many clients already"));
        }
        // The number is that of the session, by which others see and signal it.
        let (_, secret) = KEYS.generate(client);
        let pid = self.session.activity().pid();
        client.set_pid_and_secret_key(pid, secret.clone());
        // A second startup message on one connection never gets here: the state has moved on.
        let _ = self.cancellation.set(self.cancellations.register(pid, secret));
        self.start_session(client)?;
        finish_authentication(client, &ServerParameters(self.session.clone())).await
    }
}

/// What clients are told about the server when they connect.
struct ServerParameters(Session);

impl ServerParameterProvider for ServerParameters {
    fn server_parameters<C: ClientInfo>(&self, _: &C) -> Option<HashMap<String, String>> {
        let mut parameters: HashMap<String, String> =
            parameters(&self.0).into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        parameters.insert("in_hot_standby".to_string(), "off".to_string());
        Some(parameters)
    }
}
