//! `rolloutdb serve --data DIR --listen 127.0.0.1:5433`.

use std::net::SocketAddr;
use std::path::PathBuf;

use rolloutdb::{Database, Error, Result, server};
use tokio::net::TcpListener;

#[derive(clap::Args)]
pub struct Arguments {
    /// Data directory, made if it does not exist
    #[arg(long)]
    data: PathBuf,
    /// Address and port; loopback only, because there is no authentication yet
    #[arg(long, default_value = "127.0.0.1:5433")]
    listen: SocketAddr,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let address = PathBuf::from(arguments.listen.to_string());
    let listener = TcpListener::bind(arguments.listen).await.map_err(|source| Error::Io { path: address, source })?;
    server::require_loopback(&listener)?;
    let database = Database::open(&arguments.data).await?;
    eprintln!(
        "serving {} on {}; connect with: psql -h {} -p {} rolloutdb",
        arguments.data.display(),
        arguments.listen,
        arguments.listen.ip(),
        arguments.listen.port()
    );
    server::serve(database, listener, super::interrupted()).await
}
