//! A secret is planted, and everything that the server writes and says is searched for it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::binary;

const PLANTED: &str = "planted-7f3a-0c91-secret-value";

/// Statements about the secret, right ones and wrong ones, and what tells of statements.
const STATEMENTS: [&str; 16] = [
    "CREATE SECRET by_env FROM ENV 'PLANTED_SECRET'",
    "CREATE SECRET by_file FROM FILE 'KEY'",
    "CREATE SECRET by_env FROM ENV 'PLANTED_SECRET'",
    "CREATE SECRET other FROM ENV 'PLANTED_SECRET_THAT_IS_NOT_SET'",
    "EXPLAIN CREATE SECRET again FROM ENV 'PLANTED_SECRET'",
    "SELECT * FROM rollout.secrets",
    "SELECT * FROM rollout.privileges",
    "SELECT * FROM rollout.models",
    "SHOW ALL",
    "SHOW PLANTED_SECRET",
    "SELECT * FROM read_csv('/proc/self/environ')",
    "SELECT * FROM read_csv('DATA/secrets.json')",
    "CREATE MODEL m FROM 'openai://gpt-4o' WITH (secret = 'by_env')",
    "DROP SECRET by_env",
    "CREATE SECRET by_env FROM ENV 'PLANTED_SECRET'",
    "SELECT * FROM information_schema.tables",
];

/// The first of them make the secrets.
const NUM_RIGHT: usize = 2;

#[test]
fn a_planted_secret_is_nowhere() {
    let (data, files) = (tempfile::tempdir().expect("a temporary directory"), tempfile::tempdir().expect("a temporary directory"));
    let key = files.path().join("key");
    std::fs::write(&key, format!("{PLANTED}\n")).expect("a temporary file is writable");
    let mut said = String::new();
    for (number, statement) in STATEMENTS.iter().enumerate() {
        let statement = statement.replace("KEY", &key.display().to_string()).replace("DATA", &data.path().display().to_string());
        let output = Command::new(binary())
            .args(["sql", "--data"])
            .arg(data.path())
            .args(["-c", &statement])
            .env("PLANTED_SECRET", PLANTED)
            .env("RUST_LOG", "trace")
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .output()
            .expect("the binary runs");
        assert!(number >= NUM_RIGHT || output.status.success(), "{statement}: {output:?}");
        said += &format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    assert!(said.contains("by_env") && said.contains("by_file"), "the secrets are there by name:\n{said}");
    assert!(!said.contains(PLANTED), "it was said:\n{said}");
    let found = files_with(data.path());
    assert!(found.is_empty(), "it was written: {found:?}");
}

fn files_with(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("it is readable").path();
        if path.is_dir() {
            found.extend(files_with(&path));
        } else if std::fs::read(&path).expect("a file").windows(PLANTED.len()).any(|bytes| bytes == PLANTED.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    found
}
