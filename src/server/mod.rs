//! The Postgres wire: clients in, `RecordBatch` streams out.
//!
//! A client is known (`auth`) before it has a connection. A connection has one [`Session`](crate::engine::Session). Text goes to `Session::parse`, statements to `Session::execute`; what
//! comes back is encoded row by row while it is being computed, so a result is never held in memory, progress reaches the client
//! as notices, and a cancelled statement is a dropped stream.
//!
//! Deliberately absent: how anything is computed. This module knows the protocol (`pgwire`), Postgres' types and SQLSTATEs.

mod auth;
mod binary;
mod broken_rule;
mod columns;
mod connection;
mod conversation;
mod copy;
mod cursor_portals;
mod extended;
mod frames;
mod greeting;
mod idle;
mod interrupt;
mod keepalive;
mod listener;
mod messages;
mod options;
mod parameter_status;
mod parameters;
mod postgres_words;
mod response;
mod rows;
mod running;
mod session_start;
mod simple;
pub mod sqlstate;
mod statement_names;
mod type_words;
mod unix_socket;
mod wire_type;
mod workers;

pub use auth::{HbaRules, ServerTls};
#[doc(hidden)]
pub use frames::count_messages;
pub use keepalive::Keepalive;
pub use listener::{Listeners, check_exposure, serve, serve_with};
pub use options::ServerOptions;
#[doc(hidden)]
pub use parameters::reads_parameter;
pub use sqlstate::sqlstate;
pub use unix_socket::UnixSocket;
