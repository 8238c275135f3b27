//! What a server is told when it starts.

use std::time::Duration;

use super::auth::{HbaRules, ServerTls};
use super::keepalive::Keepalive;
use super::messages::DATA_BYTES_MAX;

/// How a server lets clients in, and what they may take.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Who may connect from where. `None`: by the Unix socket, users of the operating system as themselves; over TCP with a password, which the user
    /// who started the server needs only when there is one.
    pub rules: Option<HbaRules>,
    /// `None`: connections are not encrypted.
    pub tls: Option<ServerTls>,
    /// Whether other machines may connect without TLS.
    pub allow_plaintext: bool,
    /// Connections at once; the next one is told "too many clients" (53300).
    pub connections_max: usize,
    /// Of these, how many are kept for superusers.
    pub superuser_connections: usize,
    /// How long a client may take to say and prove who it is.
    pub authentication_max: Duration,
    /// How long a client may do nothing outside of a transaction (57P05); `None`: for ever.
    pub idle_max: Option<Duration>,
    /// When a client that is silent on a TCP connection is asked for a sign of life, and given up.
    pub keepalive: Keepalive,
    /// Of one message, which is a statement's text, the values of its parameters or a piece of COPY data (54000).
    pub message_bytes_max: usize,
}

impl Default for ServerOptions {
    /// As PostgreSQL has them, but for the length of messages, which is a gigabyte there, and for signs of life, which the system decides there: two
    /// hours.
    fn default() -> Self {
        Self {
            rules: None,
            tls: None,
            allow_plaintext: false,
            connections_max: 100,
            superuser_connections: 3,
            authentication_max: Duration::from_secs(60),
            idle_max: None,
            keepalive: Keepalive::default(),
            message_bytes_max: DATA_BYTES_MAX,
        }
    }
}
