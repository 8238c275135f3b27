//! RolloutDB: an embedded SQL database for process-supervised agentic retrieval-augmented generation.
//!
//! [`Database::open`] opens a data directory, [`Database::session`] gives a session, [`Session::sql`] runs SQL. The binary `rolloutdb` serves the
//! same over the Postgres protocol. `ARCHITECTURE.md` has the map of the modules.

// The futures of a statement nest through DataFusion, Lance and the agent.
#![recursion_limit = "512"]

pub mod agent;
pub mod engine;
pub mod error;
mod flights;
pub mod models;
mod other_names;
pub mod price;
pub mod server;
mod sha256;
pub mod training;
pub mod value;

pub use engine::{Database, DatabaseOptions, Session};
pub use error::{Error, Fault, Result};

/// What clients are told as `server_version`: the version of PostgreSQL whose protocol and dialect are followed, and ours.
pub const SERVER_VERSION: &str = concat!("16.0 (RolloutDB ", env!("CARGO_PKG_VERSION"), ")");

/// The committed fixtures of the tests.
#[cfg(test)]
pub(crate) mod fixtures {
    use std::path::PathBuf;

    /// Cargo tells a test at run time where its package is. The path known at compile time is that of the checkout that built it first, which
    /// a shared target folder outlives.
    pub fn fixture(path: &str) -> PathBuf {
        let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        PathBuf::from(root).join("tests/fixtures").join(path)
    }
}
