//! Every way round the gate that a path knows.

use std::os::unix::fs::symlink;

use super::*;
use crate::engine::{Database, DatabaseOptions};

/// Folders: `inside` is the root, `outside` is none, and `data` the data directory.
struct Home {
    home: tempfile::TempDir,
    database: Database,
}

impl Home {
    async fn with_root() -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        for folder in ["inside", "outside", "inside-not"] {
            std::fs::create_dir(home.path().join(folder)).expect("a folder");
            std::fs::write(home.path().join(folder).join("a.csv"), "a\n1\n").expect("a file");
        }
        let file_roots = Some(vec![home.path().join("inside")]);
        let options = DatabaseOptions { file_roots, ..DatabaseOptions::default() };
        let database = Database::open_with(home.path().join("data"), options).await.expect("a database");
        Self { home, database }
    }

    fn path(&self, name: &str) -> String {
        self.home.path().canonicalize().expect("it is there").join(name).display().to_string()
    }

    fn gate(&self) -> Gate {
        self.database.session().gate()
    }
}

fn is_denied<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::InsufficientPrivilege(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_is_where_it_leads() {
    let home = Home::with_root().await;
    let (gate, path) = (home.gate(), |name: &str| home.path(name));
    symlink(path("outside"), path("inside/folder")).expect("a link");
    symlink(path("outside/a.csv"), path("inside/link.csv")).expect("a link");
    symlink(path("inside/a.csv"), path("outside/back.csv")).expect("a link");
    symlink(path("outside/new.csv"), path("inside/nowhere.csv")).expect("a link");
    symlink(path("inside/circle.csv"), path("inside/circle.csv")).expect("a link");
    let allowed = ["inside/a.csv", "inside/../inside/a.csv", "outside/../inside/./a.csv", "outside/back.csv"];
    for name in allowed {
        assert_eq!(gate.read(&path(name)).expect(name), [Path::new(&path("inside/a.csv"))], "{name}");
    }
    assert_eq!(gate.read(&format!("file://{}", path("inside/a.csv"))).expect("a URL").len(), 1);
    for name in [
        "outside/a.csv",
        "inside/../outside/a.csv",
        "inside/folder/a.csv",
        "inside/link.csv",
        "inside-not/a.csv",
        "inside/folder/missing.csv",
    ] {
        assert!(is_denied(&gate.read(&path(name))) && is_denied(&gate.write(&path(name))), "{name}");
    }
    let escaped = format!("file://{}", path("inside/%2e%2e/outside/a.csv"));
    assert!(is_denied(&gate.read(&escaped)), "{escaped}");
    // Made through a link, a file would be where the link leads.
    assert!(gate.write(&path("inside/nowhere.csv")).is_err() && gate.read(&path("inside/circle.csv")).is_err());
    assert!(gate.write(&path("inside/new/../../outside/b.csv")).is_err());
    assert_eq!(gate.write(&path("inside/new.csv")).expect("a new file"), Path::new(&path("inside/new.csv")));
    assert!(is_denied(&gate.read_directory(&path("outside"))) && is_denied(&gate.read_directory(&path("inside/folder"))));
    assert!(is_denied(&gate.read_directory(&path("outside/a.csv"))) && is_denied(&gate.read_directory(&path("inside/link.csv"))));
    assert!(is_denied(&gate.read_directory(&path("outside/back.csv"))), "it leads inside, but lies outside");
    let found = gate.read_directory(&path("inside/a.csv")).expect("a file of the root");
    assert_eq!(found, (PathBuf::from(path("inside")), Some("a.csv".to_owned())));
    for name in ["outside", "outside/new", "inside/folder", "inside/folder/new", "inside-not", "inside/../outside/new"] {
        assert!(is_denied(&gate.write_directory(&path(name))), "{name}");
    }
    for name in ["inside", "inside/new", "inside/new/newer"] {
        assert_eq!(gate.write_directory(&path(name)).expect(name), Path::new(&path(name)));
    }
    assert!(matches!(gate.write_directory(&path("inside/a.csv")), Err(Error::InvalidParameter { .. })), "it is a file");
    assert!(is_denied(&gate.open(Path::new(&path("inside/link.csv")))));
    gate.open(Path::new(&path("inside/a.csv"))).expect("a file");
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_lead_nowhere_else() {
    let home = Home::with_root().await;
    let (gate, path) = (home.gate(), |name: &str| home.path(name));
    std::fs::write(path("inside/b.csv"), "a\n2\n").expect("a file");
    assert_eq!(gate.read(&path("inside/*.csv")).expect("two files").len(), 2);
    assert_eq!(gate.read(&path("inside/**/[ab].csv")).expect("two files").len(), 2);
    for name in ["outside/*.csv", "inside/../outside/*.csv", "missing/*.csv"] {
        assert!(is_denied(&gate.read(&path(name))), "{name}");
    }
    assert!(matches!(gate.read(&path("inside/*/../../outside/a.csv")), Err(Error::InvalidParameter { .. })));
    assert!(matches!(gate.read(&path("inside/*.parquet")), Err(Error::Io { .. })));
    // A link within the folder is a file or a folder like others.
    std::fs::create_dir(path("inside/more")).expect("a folder");
    std::fs::write(path("inside/more/d.csv"), "a\n3\n").expect("a file");
    symlink(path("inside/more"), path("inside/same")).expect("a link");
    assert_eq!(gate.read(&path("inside/sam*/*.csv")).expect("a file"), [Path::new(&path("inside/more/d.csv"))]);
    symlink(path("outside/a.csv"), path("inside/c.csv")).expect("a link");
    assert!(is_denied(&gate.read(&path("inside/*.csv"))), "one of them leads outside");
    // What is there is not told, by the code or by the message.
    symlink(path("outside"), path("inside/link")).expect("a link");
    symlink(path("outside/missing.csv"), path("inside/nothing.csv")).expect("a link");
    for (there, not_there) in [("inside/l*k/a*", "inside/l*k/b*"), ("inside/**/a*", "inside/**/x*"), ("inside/c*.csv", "inside/noth*.csv")]
    {
        let messages: Vec<String> = [there, not_there]
            .map(|pattern| {
                let refused = gate.read(&path(pattern));
                assert!(is_denied(&refused), "{pattern}: {refused:?}");
                refused.expect_err("it is refused").to_string().replace(&path(pattern), "x")
            })
            .into();
        assert_eq!(messages[0], messages[1]);
        assert!(!messages[0].contains("outside"), "{}", messages[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_file_is_refused() {
    let home = Home::with_root().await;
    // Anybody's places, but a superuser's rights: what is below holds for all.
    let everywhere = Database::open(home.home.path().join("other")).await.expect("a database");
    let gate = everywhere.session().gate();
    let pipe = home.path("inside/pipe.csv");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let socket = home.path("inside/socket.csv");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    for name in
        ["", "file://", "a\0b", "/dev/zero", "/dev/stdin", "/proc/self/environ", "/proc/self/fd/0", "/sys/kernel/version", &pipe, &socket]
    {
        assert!(gate.read(name).is_err() && gate.write(name).is_err(), "{name:?}");
        // `file://` is the root, which is a directory.
        assert!(name == "file://" || gate.write_directory(name).is_err(), "{name:?}");
    }
    for name in ["file://host/a.csv", "http://example.org/a.csv", "https://169.254.169.254/a.csv", "s3://bucket/a.csv"] {
        assert!(gate.read(name).is_err() && gate.write(name).is_err() && gate.read_directory(name).is_err(), "{name}");
    }
    for own in ["other/roles.json", "other/tables", "other/privileges.json", "other/new.csv"] {
        let path = home.path(own);
        assert!(is_denied(&gate.read(&path)) && is_denied(&gate.write(&path)), "{own}");
        assert!(is_denied(&gate.read_directory(&path)) && is_denied(&gate.write_directory(&path)), "{own}");
    }
    // Another data directory is a folder like any other, unless roots say otherwise.
    gate.read(&home.path("inside/a.csv")).expect("any file of the process");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_is_the_one_that_was_allowed() {
    let home = Home::with_root().await;
    let allowed = home.gate().read(&home.path("inside/a.csv")).expect("a file").remove(0);
    std::fs::remove_file(&allowed).expect("it was there");
    symlink(home.path("outside/a.csv"), &allowed).expect("a link");
    let error = open(&allowed).expect_err("it is another file");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_reach_files_and_others_do_not() {
    let home = Home::with_root().await;
    let session = home.database.session();
    for statement in
        ["CREATE ROLE reader", "CREATE ROLE writer", "GRANT pg_read_server_files TO reader", "GRANT pg_write_server_files TO writer"]
    {
        let parsed = session.parse(statement).expect(statement).remove(0);
        session.execute(&parsed, vec![]).await.expect(statement);
    }
    let gate_of = |role: &str| {
        let session = home.database.session();
        session.set_user(role);
        session.gate()
    };
    let inside = home.path("inside/a.csv");
    assert!(gate_of("reader").read(&inside).is_ok() && is_denied(&gate_of("reader").write(&inside)));
    assert!(gate_of("writer").write(&inside).is_ok() && is_denied(&gate_of("writer").read(&inside)));
    assert!(is_denied(&gate_of("nobody").read(&inside)) && is_denied(&gate_of("nobody").write(&inside)));
    let new = home.path("inside/new");
    assert!(gate_of("writer").write_directory(&new).is_ok() && is_denied(&gate_of("reader").write_directory(&new)));
    assert!(is_denied(&gate_of("reader").read(&home.path("outside/a.csv"))));
}
