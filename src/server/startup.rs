//! The first exchange of a connection: protocol version, parameters of the server, key for cancelling.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::LazyLock;

use async_trait::async_trait;
use futures::Sink;
use pgwire::api::auth::{
    ServerParameterProvider, StartupHandler, finish_authentication, protocol_negotiation, save_startup_parameters_to_metadata,
};
use pgwire::api::{ClientInfo, METADATA_APPLICATION_NAME, METADATA_USER, PidSecretKeyGenerator, RandomPidSecretKeyGenerator};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};

use super::connection::Connection;
use super::response::fatal;
use crate::SERVER_VERSION;

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
        let (pid, secret) = KEYS.generate(client);
        client.set_pid_and_secret_key(pid, secret.clone());
        // A second startup message on one connection never gets here: the state has moved on.
        let _ = self.cancellation.set(self.cancellations.register(pid, secret));
        finish_authentication(client, &ServerParameters).await
    }
}

/// What clients are told about the server when they connect.
struct ServerParameters;

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
            ("is_superuser", "on"),
        ];
        let given = [("application_name", METADATA_APPLICATION_NAME), ("session_authorization", METADATA_USER)];
        let given = given.iter().filter_map(|(name, key)| Some((*name, client.metadata().get(*key)?.as_str())));
        Some(fixed.into_iter().chain(given).map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }
}
