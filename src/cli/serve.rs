//! `rolloutdb serve --data DIR --listen 127.0.0.1:5433`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rolloutdb::engine::{parse_bytes, parse_retention};
use rolloutdb::{Database, DatabaseOptions, Error, Result, server};
use tokio::net::TcpListener;

#[derive(clap::Args)]
pub struct Arguments {
    /// Data directory, made if it does not exist
    #[arg(long)]
    data: PathBuf,
    /// Memory for queries, tables held for search and caches, as 4GB; without it 70 % of the machine's. Models come on top
    #[arg(long, value_parser = parse_bytes)]
    memory_limit: Option<u64>,
    /// How long a version of a table can be read after the next one was written, as "12 hours"; without it 7 days
    #[arg(long, value_parser = parse_retention)]
    version_retention: Option<Duration>,
    /// Jobs (statements with ASYNC) that run at once; others are queued
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    max_concurrent_jobs: usize,
    /// Address and port; loopback only, because there is no authentication yet
    #[arg(long, default_value = "127.0.0.1:5433")]
    listen: SocketAddr,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let address = PathBuf::from(arguments.listen.to_string());
    let listener = TcpListener::bind(arguments.listen).await.map_err(|source| Error::Io { path: address, source })?;
    server::require_loopback(&listener)?;
    let options = DatabaseOptions {
        memory_limit: arguments.memory_limit,
        version_retention: arguments.version_retention,
        max_concurrent_jobs: Some(arguments.max_concurrent_jobs),
    };
    let database = Database::open_with(&arguments.data, options).await?;
    for warning in database.take_warnings() {
        eprintln!("WARNING: {warning}");
    }
    eprintln!(
        "serving {} on {}; connect with: psql -h {} -p {} rolloutdb",
        arguments.data.display(),
        arguments.listen,
        arguments.listen.ip(),
        arguments.listen.port()
    );
    server::serve(database, listener, super::interrupted()).await
}
