//! `rolloutdb serve --data DIR --listen 127.0.0.1:5433`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rolloutdb::engine::{parse_bytes, parse_retention};
use rolloutdb::server::{HbaRules, Keepalive, Listeners, ServerOptions, ServerTls, UnixSocket};
use rolloutdb::{Database, DatabaseOptions, Error, Result, server};
use tokio::net::{TcpListener, TcpSocket};

use super::config::Reach;

/// The rules of a data directory, where it has its own.
const RULES_FILE: &str = "hba.conf";

/// Connections that the system holds until they are accepted.
const BACKLOG: u32 = 1024;

#[derive(clap::Args)]
pub struct Arguments {
    /// Data directory, made if it does not exist
    #[arg(long)]
    data: PathBuf,
    /// Memory for queries, tables held for search and caches, as 4GB; without it 70 % of the machine's. Models come on top
    #[arg(long, value_parser = parse_bytes)]
    memory_limit: Option<u64>,
    /// Of this, memory for what a statement and the open cursors of its session hold, as 1GB; without it half of the limit
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    statement_memory: Option<u64>,
    /// Memory for models, as 8GB: a quarter for texts in flight, --prefix-cache, the rest for weights, beyond which the models unused longest are
    /// unloaded. Without it 30 % of the machine's
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    model_memory: Option<u64>,
    /// Part of it, at most half, for what policies have read and written before, which prompts that begin alike share; 0 for none, without it an eighth
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    prefix_cache: Option<u64>,
    /// Memory for weights on each GPU; without it 80 % of the GPU's
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    gpu_memory: Option<u64>,
    /// How long a version of a table can be read after the next one was written, as "12 hours"; without it 7 days
    #[arg(long, value_parser = parse_retention)]
    version_retention: Option<Duration>,
    /// Jobs (statements with ASYNC) that run at once; others are queued
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    max_concurrent_jobs: usize,
    /// Name of the superuser of a new data directory; without it the operating system's user
    #[arg(long, value_name = "NAME")]
    superuser: Option<String>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    security: Security,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    reach: Reach,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Where clients connect")]
struct Place {
    /// Address and port. One that other machines reach needs a role with a password, and TLS or --allow-plaintext
    #[arg(long, default_value = "127.0.0.1:5433")]
    listen: SocketAddr,
    /// Directory for a Unix socket, .s.PGSQL.PORT with the port of --listen; psql -h DIR finds it
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    /// Take connections by the Unix socket alone
    #[arg(long, requires = "socket_dir")]
    socket_only: bool,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Who may connect")]
struct Security {
    /// Rules as in PostgreSQL's pg_hba.conf; without it hba.conf in the data directory, or the rules of docs/security.md
    #[arg(long, value_name = "FILE")]
    hba: Option<PathBuf>,
    /// The server's certificate in PEM form, with those that signed it after it
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key in PEM form, which nobody else may read
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let other machines connect without TLS: whoever is in between reads along
    #[arg(long)]
    allow_plaintext: bool,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Limits")]
struct Limits {
    /// Connections at once
    #[arg(long, value_name = "N", default_value_t = ServerOptions::default().connections_max)]
    max_connections: usize,
    /// Of these, how many are kept for superusers
    #[arg(long, value_name = "N", default_value_t = ServerOptions::default().superuser_connections)]
    superuser_reserved_connections: usize,
    /// Seconds that a client has to say and prove who it is
    #[arg(long, value_name = "SECONDS", default_value_t = ServerOptions::default().authentication_max.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    authentication_timeout: u64,
    /// Seconds after which a client that does nothing is disconnected; without it never
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    idle_session_timeout: Option<u64>,
    /// Seconds of silence after which a TCP client is asked for a sign of life
    #[arg(long, value_name = "SECONDS", default_value_t = Keepalive::default().idle.as_secs(), value_parser = clap::value_parser!(u64).range(1..=32_767))]
    tcp_keepalives_idle: u64,
    /// Seconds between one such question and the next
    #[arg(long, value_name = "SECONDS", default_value_t = Keepalive::default().interval.as_secs(), value_parser = clap::value_parser!(u64).range(1..=32_767))]
    tcp_keepalives_interval: u64,
    /// How many of them may stay unanswered before the client is given up
    #[arg(long, value_name = "N", default_value_t = Keepalive::default().count, value_parser = clap::value_parser!(u32).range(1..=127))]
    tcp_keepalives_count: u32,
    /// The longest statement or set of parameters, as 64MB; without it 256MB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_statement_size: Option<u64>,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let Arguments {
        data,
        memory_limit,
        statement_memory,
        model_memory,
        prefix_cache,
        gpu_memory,
        version_retention,
        max_concurrent_jobs,
        superuser,
        place,
        security,
        limits,
        reach,
    } = arguments;
    // What is wrong with files and ports shows before the database is opened.
    let options = options(&data, &security, &limits)?;
    let listeners = listeners(&place)?;
    let max_concurrent_jobs = Some(max_concurrent_jobs);
    let engine = DatabaseOptions {
        memory_limit,
        statement_memory,
        model_memory,
        prefix_cache,
        gpu_memory,
        version_retention,
        superuser,
        max_concurrent_jobs,
        ..DatabaseOptions::default()
    };
    let database = Database::open_with(&data, reach.database_options(engine)).await?;
    server::check_exposure(&listeners, &database, &options)?;
    for warning in database.take_warnings() {
        eprintln!("WARNING: {warning}");
    }
    eprintln!("serving {}; connect with: {}", data.display(), connect_with(&listeners, &place, &database));
    server::serve_with(database, listeners, options, super::interrupted()).await
}

fn options(data: &Path, security: &Security, limits: &Limits) -> Result<ServerOptions> {
    let own_rules = data.join(RULES_FILE);
    let rules_file = security.hba.clone().or_else(|| own_rules.exists().then_some(own_rules));
    let tls = match (&security.tls_cert, &security.tls_key) {
        (Some(certificate), Some(key)) => Some(ServerTls::load(certificate, key)?),
        _ => None,
    };
    let default = ServerOptions::default();
    let message_bytes_max = limits.max_statement_size.map_or(Ok(default.message_bytes_max), usize::try_from);
    if limits.superuser_reserved_connections >= limits.max_connections {
        return Err(Error::InvalidParameter {
            name: "--superuser-reserved-connections".to_owned(),
            found: limits.superuser_reserved_connections.to_string(),
            expected: format!("less than --max-connections, which is {}", limits.max_connections),
        });
    }
    Ok(ServerOptions {
        rules: rules_file.map(|file| HbaRules::load(&file)).transpose()?,
        tls,
        allow_plaintext: security.allow_plaintext,
        connections_max: limits.max_connections,
        superuser_connections: limits.superuser_reserved_connections,
        authentication_max: Duration::from_secs(limits.authentication_timeout),
        idle_max: limits.idle_session_timeout.map(Duration::from_secs),
        keepalive: Keepalive {
            idle: Duration::from_secs(limits.tcp_keepalives_idle),
            interval: Duration::from_secs(limits.tcp_keepalives_interval),
            count: limits.tcp_keepalives_count,
        },
        message_bytes_max: message_bytes_max.unwrap_or(usize::MAX),
    })
}

fn listeners(place: &Place) -> Result<Listeners> {
    let tcp = if place.socket_only { None } else { Some(listen(place.listen)?) };
    let unix = place.socket_dir.as_ref().map(|directory| UnixSocket::bind(directory, place.listen.port())).transpose()?;
    Ok(Listeners { tcp, unix })
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A server that was stopped a moment ago is in nobody's way.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bind().map_err(|source| Error::Io { path: PathBuf::from(address.to_string()), source })
}

fn connect_with(listeners: &Listeners, place: &Place, database: &Database) -> String {
    let (port, superuser) = (place.listen.port(), database.roles().superuser());
    match (&listeners.tcp, &place.socket_dir) {
        (None, Some(directory)) => format!("psql -h {} -p {port} -U {superuser} rolloutdb", directory.display()),
        _ => format!("psql -h {} -p {port} -U {superuser} rolloutdb", place.listen.ip()),
    }
}
