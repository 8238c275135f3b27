//! Who connects, over real sockets: passwords, rules, TLS, the Unix socket, limits, and clients that mean no good.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use rolloutdb::engine::{DatabaseOptions, operating_system_name, operating_system_user};
use rolloutdb::error::Result;
use rolloutdb::server::{HbaRules, Listeners, ServerOptions, ServerTls, UnixSocket, serve, serve_with, sqlstate};
use rolloutdb::{Database, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::{Client, Config, NoTls};

use crate::project;
use crate::tls_client::Tls;
use crate::wire::{self, VERSION_3_0, query};

const ANN: &str = "CREATE USER ann PASSWORD 'right'; CREATE USER bob; CREATE ROLE readers PASSWORD 'right'";

struct Server {
    database: Database,
    port: u16,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
    directory: tempfile::TempDir,
}

impl Server {
    /// With a superuser "owner", after `setup` was run.
    async fn start(setup: &str, options: ServerOptions) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("data");
        let superuser = DatabaseOptions { superuser: Some("owner".to_owned()), ..DatabaseOptions::default() };
        let database = Database::open_with(&data, superuser).await.expect("an empty database opens");
        run(&database, setup).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let unix = UnixSocket::bind(directory.path(), port).expect("a free socket");
        let (stop, stopped) = oneshot::channel();
        let listeners = Listeners { tcp: Some(listener), unix: Some(unix) };
        let task = tokio::spawn(serve_with(database.clone(), listeners, options, stopped));
        Self { database, port, stop, task, directory }
    }

    fn config(&self, user: &str) -> Config {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port).user(user).dbname("rolloutdb");
        config
    }

    async fn connect(&self, user: &str, password: Option<&str>) -> std::result::Result<Client, tokio_postgres::Error> {
        let mut config = self.config(user);
        if let Some(password) = password {
            config.password(password);
        }
        connect(&config).await
    }

    async fn by_socket(&self, user: &str, password: Option<&str>) -> std::result::Result<Client, tokio_postgres::Error> {
        let mut config = Config::new();
        config.host_path(self.directory.path()).port(self.port).user(user).dbname("rolloutdb");
        if let Some(password) = password {
            config.password(password);
        }
        connect(&config).await
    }

    async fn raw(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.expect("it listens")
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.expect("serve does not panic").expect("serve ends well");
    }
}

async fn connect(config: &Config) -> std::result::Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn run(database: &Database, text: &str) {
    let rows = database.session().sql(text).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    rows.try_collect::<Vec<_>>().await.unwrap_or_else(|error| panic!("{text}: {error}"));
}

fn state(outcome: std::result::Result<Client, tokio_postgres::Error>) -> String {
    match outcome {
        Ok(_) => "connected".to_owned(),
        Err(error) => error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()),
    }
}

async fn value(client: &Client, text: &str) -> String {
    client.query_one(text, &[]).await.unwrap_or_else(|error| panic!("{text}: {error:?}")).get(0)
}

/// A startup message, and what follows it without waiting for an answer.
fn startup(user: &str, then: &[u8]) -> Vec<u8> {
    let user = [b"user\0".as_slice(), user.as_bytes(), b"\0\0"].concat();
    [&wire::startup(VERSION_3_0, &user)[..], then].concat()
}

/// All that the server says until it closes the connection.
async fn answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset after the answer is an end too.
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await.expect("the connection ends");
    bytes
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn a_password_opens_the_door_and_nothing_else_does() {
    let server = Server::start(ANN, ServerOptions::default()).await;
    let client = server.connect("ann", Some("right")).await.expect("the password is right");
    assert_eq!(value(&client, "SELECT current_user || ' ' || session_user").await, "ann ann");
    assert_eq!(state(server.connect("ann", Some("wrong")).await), "28P01");
    assert_eq!(state(server.connect("bob", Some("right")).await), "28P01", "bob has no password");
    assert_eq!(state(server.connect("nobody", Some("right")).await), "28P01");
    assert_eq!(state(server.connect("readers", Some("right")).await), "28000", "it is no user");
    // One failure is told as any other.
    let message = |error: tokio_postgres::Error, user: &str| {
        let error = error.as_db_error().expect("the server says so");
        format!("{} {} {:?} {:?}", error.severity(), error.message().replace(user, "x"), error.detail(), error.hint())
    };
    let wrong = message(server.connect("ann", Some("wrong")).await.expect_err("wrong"), "ann");
    assert_eq!(message(server.connect("nobody", Some("wrong")).await.expect_err("unknown"), "nobody"), wrong);
    server.stop().await;
}

#[tokio::test]
async fn a_verifier_is_what_is_kept_and_what_may_be_given() {
    let server = Server::start(ANN, ServerOptions::default()).await;
    let text = std::fs::read_to_string(server.directory.path().join("data/roles.json")).expect("the roles");
    assert!(text.contains("SCRAM-SHA-256$4096:") && !text.contains("right"));
    // That of "pencil", as psql's \password would send it.
    let verifier = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                    wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    run(&server.database, &format!("ALTER USER ann PASSWORD '{verifier}'")).await;
    assert_eq!(state(server.connect("ann", Some("right")).await), "28P01");
    let client = server.connect("ann", Some("pencil")).await.expect("the password of the verifier");
    let shown = "SELECT rolpassword FROM pg_catalog.pg_authid WHERE rolname = 'ann'";
    assert_eq!(value(&client, shown).await, "********");
    assert_eq!(value(&server.by_socket("owner", None).await.expect("its server"), shown).await, verifier);
    run(&server.database, "ALTER USER ann VALID UNTIL '2020-01-01'").await;
    assert_eq!(state(server.connect("ann", Some("pencil")).await), "28P01", "it has expired");
    run(&server.database, "ALTER USER ann VALID UNTIL 'infinity' PASSWORD NULL").await;
    assert_eq!(state(server.connect("ann", Some("pencil")).await), "28P01");
    server.stop().await;
}

#[tokio::test]
async fn a_fresh_database_takes_the_user_who_started_it() {
    let server = Server::start("", ServerOptions::default()).await;
    let owner = server.connect("owner", None).await.expect("nobody has a password");
    assert_eq!(value(&owner, "SELECT current_role").await, "owner");
    let error = server.connect("nobody", None).await.expect_err("there is no such role");
    assert_eq!(error.code().map(|code| code.code()), Some("28000"));
    assert!(error.as_db_error().expect("the server says so").message().contains("role \"nobody\" does not exist"));
    owner.batch_execute("CREATE USER ann PASSWORD 'right'").await.expect("a superuser makes users");
    assert_ne!(state(server.connect("owner", None).await), "connected", "there is a password now");
    assert_eq!(state(server.connect("owner", Some("any")).await), "28P01");
    assert_eq!(state(server.connect("ann", Some("right")).await), "connected");
    server.stop().await;
}

/// A user of the system that nobody is, with rights to nothing.
const NOBODY: u32 = 65_534;

#[tokio::test]
async fn a_fresh_database_does_not_take_another_user_of_the_machine() {
    if operating_system_user() != 0 || !cfg!(target_os = "linux") {
        eprintln!("only root can be another user, and only Linux tells whose a connection is");
        return;
    }
    let server = Server::start("", ServerOptions::default()).await;
    let message: String = startup("owner", b"").iter().map(|byte| format!("\\{byte:03o}")).collect();
    // The shell connects by itself: what it runs as has its sockets.
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; printf '{message}' >&3; cat <&3", server.port);
    let said = tokio::task::spawn_blocking(move || Command::new("bash").args(["-c", &script]).uid(NOBODY).output());
    let said = said.await.expect("it does not panic").expect("bash is there").stdout;
    assert!(contains(&said, b"28000") && contains(&said, b"no passwords yet"), "{}", String::from_utf8_lossy(&said));
    server.stop().await;
}

#[tokio::test]
async fn by_the_unix_socket_users_of_the_system_are_themselves() {
    let name = operating_system_name(operating_system_user()).expect("the tests run as somebody");
    let setup = format!("{ANN}; CREATE USER \"{name}\"");
    let server = Server::start(&setup, ServerOptions::default()).await;
    assert_eq!(value(&server.by_socket(&name, None).await.expect("it is its name"), "SELECT session_user").await, name);
    assert_eq!(state(server.by_socket("owner", None).await), "connected", "who started the server is its superuser");
    assert_eq!(state(server.by_socket("ann", Some("right")).await), "connected");
    assert_eq!(state(server.by_socket("ann", Some("wrong")).await), "28P01");
    let socket = server.directory.path().join(format!(".s.PGSQL.{}", server.port));
    assert!(socket.exists());
    server.stop().await;
    assert!(!socket.exists());
}

fn rules(directory: &Path, text: &str) -> HbaRules {
    let file = directory.join("hba.conf");
    std::fs::write(&file, text).expect("a file");
    HbaRules::load(&file).expect("rules")
}

#[tokio::test]
async fn the_first_rule_that_fits_decides() {
    let files = tempfile::tempdir().expect("a directory");
    let text = "host secret all 127.0.0.1/32 reject\nhost all bob 127.0.0.1/32 trust\nhost all ann 127.0.0.1/32 scram-sha-256\nlocal all owner peer\n";
    let options = ServerOptions { rules: Some(rules(files.path(), text)), ..ServerOptions::default() };
    let server = Server::start(ANN, options).await;
    assert_eq!(state(server.connect("bob", None).await), "connected");
    assert_eq!(state(server.connect("ann", Some("right")).await), "connected");
    assert_eq!(state(connect(server.config("bob").dbname("secret")).await), "28000");
    assert_eq!(state(server.connect("owner", Some("right")).await), "28000", "no rule fits");
    assert_eq!(state(server.by_socket("owner", None).await), "connected");
    assert_eq!(state(server.by_socket("bob", None).await), "28000");
    server.stop().await;
    let broken = files.path().join("broken.conf");
    std::fs::write(&broken, "# rules\nhost all all trust\n").expect("a file");
    let error = HbaRules::load(&broken).expect_err("a field is missing");
    assert_eq!(sqlstate(&error), "F0000");
    assert!(error.to_string().contains("broken.conf, line 2"), "{error}");
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    project().join("tests/fixtures/tls").join(name)
}

/// A copy of a key that nobody else may read; a checkout does not keep that.
pub(crate) fn private_copy(directory: &Path, name: &str, mode: u32) -> PathBuf {
    let copy = directory.join(format!("{name}.{mode:o}"));
    std::fs::copy(fixture(name), &copy).expect("a key");
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    copy
}

#[tokio::test]
async fn tls_is_asked_for_and_binds_the_password_to_the_certificate() {
    let files = tempfile::tempdir().expect("a directory");
    let tls = ServerTls::load(&fixture("server.crt"), &private_copy(files.path(), "server.key", 0o600)).expect("they fit");
    let only_tls = rules(files.path(), "hostssl all all all scram-sha-256\n");
    let server = Server::start(ANN, ServerOptions { tls: Some(tls), rules: Some(only_tls), ..ServerOptions::default() }).await;
    assert_eq!(state(server.connect("ann", Some("right")).await), "28000", "not in the clear");
    for binding in [ChannelBinding::Require, ChannelBinding::Disable] {
        let mut config = server.config("ann");
        config.password("right").ssl_mode(SslMode::Require).channel_binding(binding);
        let (client, connection) = config.connect(Tls::trusting(&fixture("server.crt"))).await.expect("by TLS");
        tokio::spawn(connection);
        assert_eq!(value(&client, "SELECT session_user").await, "ann");
        config.password("wrong");
        let error = config.connect(Tls::trusting(&fixture("server.crt"))).await.map(drop).expect_err("wrong");
        assert_eq!(error.code().map(|code| code.code()), Some("28P01"));
    }
    server.stop().await;
}

#[tokio::test]
async fn what_is_sent_before_tls_is_not_taken_for_what_is_sent_in_it() {
    let files = tempfile::tempdir().expect("a directory");
    let tls = ServerTls::load(&fixture("server.crt"), &private_copy(files.path(), "server.key", 0o600)).expect("they fit");
    let server = Server::start("", ServerOptions { tls: Some(tls), ..ServerOptions::default() }).await;
    let mut stream = server.raw().await;
    let ssl_request = [8_i32.to_be_bytes(), 80_877_103_i32.to_be_bytes()].concat();
    let injected = startup("owner", &query("CREATE TABLE injected (a bigint)"));
    stream.write_all(&[ssl_request, injected].concat()).await.expect("it is connected");
    let mut accepted = [0];
    stream.read_exact(&mut accepted).await.expect("an answer");
    assert_eq!(&accepted, b"S");
    let mut stream = Tls::trusting(&fixture("server.crt")).connect(stream).await.expect("TLS");
    let mut said = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut said)).await.expect("the connection ends");
    assert!(contains(&said, b"08P01"), "{}", String::from_utf8_lossy(&said));
    assert!(server.database.table("injected").await.is_err());
    server.stop().await;
}

#[test]
fn a_server_does_not_start_with_a_certificate_that_cannot_serve() {
    let files = tempfile::tempdir().expect("a directory");
    let key = private_copy(files.path(), "server.key", 0o600);
    let missing = files.path().join("missing.crt");
    for (certificate, key, code, part) in [
        (missing.clone(), key.clone(), "58P01", "missing.crt"),
        (fixture("server.crt"), missing, "58P01", "missing.crt"),
        (key.clone(), key.clone(), "F0000", "no certificate"),
        (fixture("server.crt"), private_copy(files.path(), "other.key", 0o600), "F0000", "not the key"),
        (fixture("server.crt"), private_copy(files.path(), "server.key", 0o644), "F0000", "others can read"),
        (fixture("server.crt"), private_copy(files.path(), "server.crt", 0o600), "F0000", "no private key"),
    ] {
        let error: Error = ServerTls::load(&certificate, &key).expect_err(part);
        assert_eq!(sqlstate(&error), code, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_refused_client_is_not_heard() {
    let server = Server::start(ANN, ServerOptions::default()).await;
    for user in ["nobody", "ann"] {
        let mut stream = server.raw().await;
        // It does not wait for the question, and sends statements after a password message that is none.
        let password = [b"p".as_slice(), &9_i32.to_be_bytes(), b"none\0"].concat();
        let then = [password, query("CREATE TABLE sneaked (a bigint)")].concat();
        stream.write_all(&startup(user, &then)).await.expect("it is connected");
        let said = answer(&mut stream).await;
        assert!(contains(&said, b"FATAL") && !contains(&said, b"Z\0\0\0\x05"), "{}", String::from_utf8_lossy(&said));
    }
    let mut stream = server.raw().await;
    stream.write_all(&startup("ann", &query("CREATE TABLE sneaked (a bigint)"))).await.expect("it is connected");
    assert!(contains(&answer(&mut stream).await, b"08P01"));
    assert!(server.database.table("sneaked").await.is_err());
    server.stop().await;
}

#[tokio::test]
async fn places_are_limited_for_all_and_for_each() {
    let setup = "CREATE USER ann CONNECTION LIMIT 1; CREATE USER bob";
    let options = ServerOptions { connections_max: 4, superuser_connections: 1, ..ServerOptions::default() };
    let server = Server::start(setup, options).await;
    let ann = server.connect("ann", None).await.expect("her only place");
    assert_eq!(state(server.connect("ann", None).await), "53300");
    let _bobs = [server.connect("bob", None).await.expect("a place"), server.connect("bob", None).await.expect("a place")];
    assert_eq!(state(server.connect("bob", None).await), "53300", "the last place is reserved");
    let _owner = server.connect("owner", None).await.expect("the last place");
    assert_eq!(state(server.connect("owner", None).await), "53300");
    drop(ann);
    let deadline = Instant::now() + Duration::from_secs(5);
    while state(server.connect("owner", None).await) != "connected" {
        assert!(Instant::now() < deadline, "the place of a client that left is free again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn clients_that_say_nothing_keep_nobody_out_and_are_closed() {
    let options = ServerOptions { connections_max: 10, authentication_max: Duration::from_secs(2), ..ServerOptions::default() };
    let server = Server::start("", options).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(server.raw().await);
    }
    // Half of a startup message is no more.
    silent[199].write_all(&startup("owner", b"")[..6]).await.expect("it is connected");
    for _ in 0..10 {
        assert_eq!(state(server.connect("owner", None).await), "connected");
    }
    let started = Instant::now();
    assert!(answer(&mut silent[199]).await.is_empty());
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(answer(&mut silent[0]).await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn long_messages_and_idle_clients_are_turned_away() {
    let options = ServerOptions { message_bytes_max: 20_000, idle_max: Some(Duration::from_millis(500)), ..ServerOptions::default() };
    let server = Server::start("", options).await;
    let client = server.connect("owner", None).await.expect("a fresh database");
    assert_eq!(value(&client, &format!("SELECT '{}'", "x".repeat(10_000))).await.len(), 10_000);
    let error = client.simple_query(&format!("SELECT '{}'", "x".repeat(5_000_000))).await.expect_err("too long");
    // The driver may see the closed socket before the reason.
    assert!(error.code().is_none_or(|code| code.code() == "54000"), "{error:?}");
    let mut stream = server.raw().await;
    // A statement of a gigabyte is refused by its length.
    stream.write_all(&startup("owner", b"Q\x3f\xff\xff\x00")).await.expect("it is connected");
    assert!(contains(&answer(&mut stream).await, b"54000"));
    let mut idle = server.raw().await;
    idle.write_all(&startup("owner", b"")).await.expect("it is connected");
    assert!(contains(&answer(&mut idle).await, b"57P05"));
    // Of a startup message too.
    let mut stream = server.raw().await;
    stream.write_all(&[0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0]).await.expect("it is connected");
    assert!(contains(&answer(&mut stream).await, b"54000"));
    server.stop().await;
}

#[tokio::test]
async fn other_machines_need_a_password_and_tls() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = Database::open(directory.path()).await.expect("an empty database opens");
    let outcome = async |options: ServerOptions| {
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a free port");
        let listeners = Listeners { tcp: Some(listener), unix: None };
        serve_with(database.clone(), listeners, options, std::future::ready(())).await
    };
    let plain = ServerOptions { allow_plaintext: true, ..ServerOptions::default() };
    assert!(matches!(outcome(plain.clone()).await, Err(Error::NotReady(_))), "nobody has a password");
    run(&database, "CREATE ROLE ann PASSWORD 'right'").await;
    assert!(matches!(outcome(plain.clone()).await, Err(Error::NotReady(_))), "ann cannot log in");
    run(&database, "ALTER ROLE ann LOGIN").await;
    assert!(matches!(outcome(ServerOptions::default()).await, Err(Error::NotReady(_))), "without TLS");
    outcome(plain).await.expect("it was asked for");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    serve(database.clone(), listener, std::future::ready(())).await.expect("loopback needs neither");
}

#[tokio::test]
async fn rights_of_a_session_follow_its_role() {
    let server = Server::start("CREATE ROLE readers; CREATE USER ann IN ROLE readers; CREATE USER bob", ServerOptions::default()).await;
    let ann = server.connect("ann", None).await.expect("a fresh database");
    let code = async |text: &str| ann.batch_execute(text).await.err().and_then(|error| error.code().map(|code| code.code().to_owned()));
    assert_eq!(code("CREATE ROLE eve").await.as_deref(), Some("42501"));
    assert_eq!(code("ALTER ROLE owner PASSWORD 'mine'").await.as_deref(), Some("42501"));
    assert_eq!(code("ALTER ROLE ann SUPERUSER").await.as_deref(), Some("42501"));
    assert_eq!(code("SET ROLE bob").await.as_deref(), Some("42501"));
    assert_eq!(code("SET ROLE owner").await.as_deref(), Some("42501"));
    assert_eq!(code("SET ROLE readers").await, None);
    assert_eq!(value(&ann, "SELECT current_user || ' ' || session_user").await, "readers ann");
    assert_eq!(code("RESET ROLE; ALTER ROLE ann PASSWORD 'own'").await, None, "one's own password");
    assert_eq!(state(server.connect("ann", Some("own")).await), "connected");
    server.stop().await;
}
