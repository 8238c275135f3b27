//! The Rust clients under test: tokio-postgres and sqlx, each with pgvector's types. The server's address is in `PGHOST`, `PGPORT`, `PGUSER`, `PGDATABASE`.
//!
//! Prints a line for each check: `client | check | passed`, or `client | check | FAILED why`.

mod with_sqlx;
mod with_tokio_postgres;

use std::error::Error;
use std::fmt::Debug;
use std::time::{Duration, Instant};

pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

const TIME_MAX: Duration = Duration::from_secs(60);
pub const LARGE: &str = "SELECT value, 'name ' || value AS name FROM generate_series(1, 1000000) t(value)";
pub const LARGE_COUNT: i64 = 1_000_000;
pub const LARGE_SUM: i64 = LARGE_COUNT * (LARGE_COUNT + 1) / 2;
/// A minute of work and more.
pub const LONG: &str = "SELECT count(*) FROM generate_series(1, 10) a(value) CROSS JOIN generate_series(1, 100000000) b(value) WHERE (a.value + b.value) % 7 = 3";

#[tokio::main]
async fn main() {
    with_tokio_postgres::run().await;
    with_sqlx::run().await;
}

pub async fn report(client: &str, name: &str, check: impl Future<Output = Outcome>) {
    let outcome = match tokio::time::timeout(TIME_MAX, check).await {
        Ok(Ok(())) => "passed".to_owned(),
        Ok(Err(error)) => format!("FAILED {}", whole_message(&*error)),
        Err(_) => format!("FAILED no answer within {} s", TIME_MAX.as_secs()),
    };
    println!("{client} | {name} | {outcome}");
}

/// In one line, with what caused it.
fn whole_message(error: &(dyn Error + 'static)) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// # Errors
/// They differ.
pub fn equal<T: PartialEq + Debug>(found: &T, expected: &T) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}").into()) }
}

pub fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// Of the role that the runner makes.
pub fn password() -> String {
    std::env::var("CLIENTS_PASSWORD").unwrap_or_else(|_| "clients' password".to_owned())
}

/// The one that the lock file pins.
pub fn version(package: &str) -> &'static str {
    let name = format!("name = \"{package}\"\nversion = \"");
    let rest = include_str!("../Cargo.lock").split(name.as_str()).nth(1).unwrap_or_default();
    rest.split('"').next().unwrap_or_default()
}

/// `numeric(20, 4)` as a part of a table's name.
pub fn plain(type_name: &str) -> String {
    type_name.replace("[]", "_array").chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

/// # Errors
/// More time than a cancelled statement may take has passed.
pub fn soon(started: Instant) -> Outcome {
    let took = started.elapsed();
    if took < Duration::from_secs(5) { Ok(()) } else { Err(format!("took {took:?}").into()) }
}

/// The most memory that the process had, in bytes; 0 where the system does not say.
pub fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// # Errors
/// Reading a large result in pieces took memory for all of it.
pub fn bounded(before: u64) -> Outcome {
    let grown = peak_memory().saturating_sub(before) / 1_000_000;
    if grown < 64 { Ok(()) } else { Err(format!("the client took {grown} MB").into()) }
}
