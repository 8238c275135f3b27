//! What `rolloutdb serve` is told about who connects, as the binary takes it: certificates, rules, and what it does not start with.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;
use tokio_postgres::config::SslMode;

use crate::authentication::{fixture, private_copy};
use crate::database::temporary;
use crate::process::{ServerProcess, binary};
use crate::server::code;
use crate::tls_client::Tls;

fn text(path: &Path) -> &str {
    path.to_str().expect("names of the tests are text")
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_certificate_and_rules_clients_come_by_tls_alone() {
    let (data, files) = (temporary(), temporary());
    {
        let mut server = ServerProcess::start(data.path());
        let owner = server.connect().await;
        owner.batch_execute("CREATE USER ann PASSWORD 'right'").await.expect("a user");
    }
    let (certificate, key) = (fixture("server.crt"), private_copy(files.path(), "server.key", 0o600));
    let rules = files.path().join("hba.conf");
    std::fs::write(&rules, "hostssl all all all scram-sha-256\n").expect("a file");
    let arguments = ["--tls-cert", text(&certificate), "--tls-key", text(&key), "--hba", text(&rules)];
    let mut server = ServerProcess::start_with(Command::new(binary()), data.path(), &arguments, Stdio::null());
    server.listens().await;

    let mut config = server.config("ann");
    let (client, connection) = config
        .password("right")
        .ssl_mode(SslMode::Require)
        .connect(Tls::trusting(&certificate))
        .await
        .expect("the server has the certificate, and ann the password");
    tokio::spawn(connection);
    let user: String = client.query_one("SELECT session_user", &[]).await.expect("a query").get(0);
    assert_eq!(user, "ann");
    let wrong = config.password("wrong").connect(Tls::trusting(&certificate)).await.map(drop).expect_err("a wrong password");
    assert_eq!(code(&wrong), "28P01");
    let mut plain = server.config("ann");
    let refused = plain.password("right").ssl_mode(SslMode::Disable).connect(NoTls).await.map(drop).expect_err("no rule is for plaintext");
    assert_eq!(code(&refused), "28000");
}

/// What the binary says when it ends by itself, which it has to do.
fn refusal(data: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(binary());
    command.arg("serve").arg("--data").arg(data).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("the process can be asked").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("the process runs");
            panic!("it serves with {arguments:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("it has ended");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?}: {said}");
    said
}

#[test]
fn it_does_not_start_with_what_it_cannot_use() {
    let (data, files) = (temporary(), temporary());
    let (certificate, key) = (fixture("server.crt"), private_copy(files.path(), "server.key", 0o600));
    let (other_key, open_key) = (private_copy(files.path(), "other.key", 0o600), private_copy(files.path(), "server.key", 0o644));
    let [missing, broken, rules] = ["missing", "broken.conf", "hba.conf"].map(|name| files.path().join(name));
    std::fs::write(&broken, "# rules\nhost all all trust\n").expect("a file");
    std::fs::write(&rules, "host all all all trust\n").expect("a file");
    let tls = |certificate: &Path, key: &Path| ["--tls-cert", text(certificate), "--tls-key", text(key)].map(str::to_owned).to_vec();
    let hba = |file: &Path| ["--hba", text(file)].map(str::to_owned).to_vec();
    for (arguments, part) in [
        (tls(&missing, &key), "58P01"),
        (tls(&certificate, &missing), "58P01"),
        (tls(&key, &key), "no certificate"),
        (tls(&certificate, &other_key), "not the key"),
        (tls(&certificate, &open_key), "others can read"),
        (vec!["--tls-cert".to_owned(), text(&certificate).to_owned()], "--tls-key"),
        (hba(&missing), "missing"),
        (hba(&broken), "broken.conf, line 2"),
        // Other machines would need no password.
        (hba(&rules), "trust"),
        (vec!["--listen".to_owned(), "0.0.0.0:0".to_owned()], "before a role has a password"),
    ] {
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        if !arguments.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        let said = refusal(data.path(), &arguments);
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}
