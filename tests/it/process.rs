//! Processes of the binary under test: servers that tests reach over the wire and kill.

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
    pub(crate) fn start_by(mut command: Command, data: &Path) -> Self {
        let port = free_port();
        command.arg("serve").arg("--data").arg(data).arg("--listen").arg(format!("127.0.0.1:{port}"));
        command.args(["--superuser", "someone"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the server starts");
        Self { child, port }
    }

    /// A client, as soon as the server takes one.
    pub(crate) async fn connect(&mut self) -> Client {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port).user("someone").dbname("rolloutdb");
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
