//! The integration tests, one binary: SQL scripts, the server, durability, documents and real data.

use std::path::{Path, PathBuf};

mod added_tokens;
mod advisory_locks;
mod architecture;
mod authentication;
mod bounded_memory;
mod cancelled;
mod changed_shapes;
mod constant_calls;
mod copy;
mod cursors;
mod damage;
mod database;
mod disk;
mod disk_full;
mod encoders;
mod explain;
mod function_errors;
mod fuzz;
mod hostile_wire;
mod http_server;
mod hub;
mod hub_server;
mod judge;
mod kill;
mod kill_clients;
mod kill_many;
mod limits;
mod lineage;
mod manual;
mod memory;
mod model_calls;
mod model_memory;
mod named_statements;
mod openai_server;
mod ordered_subqueries;
mod output_names;
mod postgres_answers;
mod postgres_subqueries;
mod power_loss;
mod prepared;
mod process;
mod progress;
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
mod serve_options;
mod server;
mod sessions;
mod slow_clients;
mod task_history;
mod temporary;
mod threads;
mod tls_client;
mod train_records;
mod train_resume;
mod unfinished_trees;
mod unused_indexes;
mod upkeep;
mod vanished_clients;
mod wire;

/// The project's folder. Cargo tells it at run time; the path known at compile time is that of the checkout that built the tests first, which
/// a shared target folder outlives.
fn project() -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned()))
}

/// A file of the project, which is text.
fn read(path: &str) -> String {
    std::fs::read_to_string(project().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below a folder, in order; none where there is no folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("a folder is readable").path());
    let mut files: Vec<PathBuf> = paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// How often a test does what it does: as often as the variable says, where it is set.
fn times(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|times| times.parse().ok()).unwrap_or(otherwise)
}
