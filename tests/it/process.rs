//! Processes of the binary under test: servers that tests reach over the wire, statements on a data directory, and their kills.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, Config, NoTls};

/// The binary. Cargo tells where it is at run time; the path known at compile time may be that of another checkout, as in [`crate::project`].
pub(crate) fn binary() -> String {
    std::env::var("CARGO_BIN_EXE_rolloutdb").unwrap_or_else(|_| env!("CARGO_BIN_EXE_rolloutdb").to_owned())
}

/// A server in a process of its own, killed when dropped.
pub(crate) struct ServerProcess {
    child: Child,
    port: u16,
}

impl ServerProcess {
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_by(Command::new(binary()), data)
    }

    /// `command` is the binary, or another program that runs it and takes its arguments last.
    pub(crate) fn start_by(command: Command, data: &Path) -> Self {
        Self::start_with(command, data, &[], Stdio::null())
    }

    /// With further arguments; `log` takes what it has to say.
    pub(crate) fn start_with(mut command: Command, data: &Path, arguments: &[&str], log: Stdio) -> Self {
        let port = free_port();
        command.arg("serve").arg("--data").arg(data).arg("--listen").arg(format!("127.0.0.1:{port}"));
        command.args(["--superuser", "someone"]).args(arguments);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("the server starts");
        Self { child, port }
    }

    /// A client, as soon as the server takes one.
    pub(crate) async fn connect(&mut self) -> Client {
        let config = self.config("someone");
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok((client, connection)) = config.connect(NoTls).await {
                tokio::spawn(connection);
                return client;
            }
            assert!(self.child.try_wait().expect("the process can be asked").is_none(), "the server ended before a client could reach it");
            assert!(Instant::now() < deadline, "the server took no client within a minute");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn config(&self, user: &str) -> Config {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port).user(user).dbname("rolloutdb");
        config
    }

    /// Waits until somebody takes connections. Whether it is the server, and in which way it takes them, is for the caller.
    pub(crate) async fn listens(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            assert!(self.child.try_wait().expect("the process can be asked").is_none(), "the server ended before it could be reached");
            assert!(Instant::now() < deadline, "the server did not listen within a minute");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A line of what the system says of the process, in MB: `VmRSS` is what it holds, `VmHWM` the most it has held.
    pub(crate) fn memory_mb(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process runs");
        let value = status.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':')).expect("it has such a line");
        value.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
    }

    /// SIGTERM. Whether the process ends within this time.
    pub(crate) fn ends_when_asked(&mut self, patience: Duration) -> bool {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill is there");
        assert!(asked.success(), "the process runs");
        let deadline = Instant::now() + patience;
        while self.child.try_wait().expect("the process can be asked").is_none() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// SIGKILL, and the end of the process.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the process runs");
        self.child.wait().expect("the process is gone");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Of one that was killed there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Free a moment ago: the server says nothing of a port that it chose itself.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// The binary, to run statements on a data directory.
pub(crate) fn sql_command(data: &Path, statements: &str) -> Command {
    let mut command = Command::new(binary());
    command.args(["sql", "--data"]).arg(data).args(["-c", statements]).stdin(Stdio::null());
    command
}

/// Starts a process that nobody listens to.
pub(crate) fn start_unheard(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts")
}

/// Kills the process once `is_at_work`; it must not have ended by itself before.
pub(crate) fn kill_when(mut child: Child, what: &str, mut is_at_work: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_at_work() {
        assert!(child.try_wait().expect("the process can be asked").is_none(), "{what} ended before it could be killed");
        assert!(Instant::now() < deadline, "{what} did not get to work within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("the process runs");
    child.wait().expect("the process is gone");
}

/// Runs statements until the kill, at this moment after the start. Returns how many were acknowledged; none may have failed.
pub(crate) fn run_and_kill(data: &Path, statements: &[String], moment: Duration) -> i64 {
    let mut command = sql_command(data, &statements.join("; "));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let output = BufReader::new(child.stdout.take().expect("its output is piped"));
    let mut errors = BufReader::new(child.stderr.take().expect("its errors are piped"));
    let killer = std::thread::spawn(move || {
        std::thread::sleep(moment);
        child.kill().expect("the process runs or has ended");
        child.wait().expect("the process is gone");
    });
    // A line for each statement that was acknowledged.
    let acknowledged = output.lines().map_while(Result::ok).filter(|line| !line.trim().is_empty()).count() as i64;
    killer.join().expect("the killer does not panic");
    let mut text = String::new();
    let _ = errors.read_to_string(&mut text);
    assert!(!text.contains("ERROR"), "a statement failed: {text}");
    acknowledged
}
