//! The integration tests, one binary: SQL scripts, the server, durability, documents and real data.

use std::path::PathBuf;

mod architecture;
mod authentication;
mod bounded_memory;
mod cancelled;
mod constant_calls;
mod copy;
mod cursors;
mod damage;
mod disk;
mod disk_full;
mod encoders;
mod explain;
mod fuzz;
mod hostile_wire;
mod hub;
mod hub_server;
mod judge;
mod kill;
mod kill_clients;
mod kill_many;
mod limits;
mod manual;
mod memory;
mod model_calls;
mod named_statements;
mod openai_server;
mod output_names;
mod power_loss;
mod prepared;
mod process;
mod random_dml;
mod reach;
mod real_data;
mod remote_policy;
mod resume;
mod retrieval_cache;
mod round;
mod savepoints;
mod script;
mod secrets;
mod server;
mod sessions;
mod task_history;
mod temporary;
mod tls_client;
mod unused_indexes;
mod upkeep;
mod wire;

/// The project's folder. Cargo tells it at run time; the path known at compile time is that of the checkout that built the tests first, which
/// a shared target folder outlives.
fn project() -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned()))
}

/// How often a test does what it does: as often as the variable says, where it is set.
fn times(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|times| times.parse().ok()).unwrap_or(otherwise)
}
