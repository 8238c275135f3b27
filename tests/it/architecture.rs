//! `ARCHITECTURE.md` stays true: its paths exist, it names every top-level folder, and nobody knows whom they must not.

use crate::{files_below, project, read};

#[test]
fn every_path_exists() {
    let page = read("ARCHITECTURE.md");
    let quoted = page.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| {
        ["src/", "sql/", "udfs/", "catalogs/", "tests/", "benches/", "docs/"].iter().any(|start| text.starts_with(start))
            && !text.contains([' ', '<', '*'])
    };
    let paths: Vec<&str> = quoted.filter(is_path).collect();
    assert!(paths.len() > 20, "the page names only {} paths", paths.len());
    for path in paths {
        assert!(project().join(path).exists(), "ARCHITECTURE.md names {path}, which does not exist");
    }
}

#[test]
fn every_top_level_folder_is_named() {
    let page = read("ARCHITECTURE.md");
    for entry in std::fs::read_dir(project()).expect("the root is readable") {
        let entry = entry.expect("the root is readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = entry.path().is_dir() && !name.starts_with('.') && name != "target";
        assert!(
            !is_ours || page.contains(&format!("`{name}/")) || page.contains(&format!("`{name}`")),
            "ARCHITECTURE.md does not name {name}/"
        );
    }
}

/// (folder, what no line of code in it may say).
const STRANGERS: &[(&str, &[&str])] = &[
    ("sql/src", &["rolloutdb_udfs", "rolloutdb_catalogs", "candle", "lance::", "tokio", "async fn"]),
    ("udfs/src", &["rolloutdb_sql", "rolloutdb_catalogs", "candle", "lance", "std::fs"]),
    ("catalogs/src", &["rolloutdb_sql", "rolloutdb_udfs", "candle", "pgwire"]),
    ("src/agent", &["rolloutdb_sql", "rolloutdb_catalogs", "candle", "pgwire", "crate::engine", "crate::models"]),
    ("src/models", &["rolloutdb_sql", "rolloutdb_catalogs", "pgwire", "crate::engine", "crate::agent"]),
    ("src/training", &["rolloutdb_sql", "rolloutdb_catalogs", "pgwire", "crate::engine", "crate::agent"]),
    ("src/engine", &["pgwire", "crate::server", "TcpListener"]),
    ("src/server", &["candle_core::", "crate::models", "crate::training"]),
];

#[test]
fn strangers_stay_strangers() {
    for (folder, strangers) in STRANGERS {
        let mut files = files_below(&project().join(folder));
        files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
        assert!(!files.is_empty(), "{folder} has no code");
        for file in files {
            let text = std::fs::read_to_string(&file).expect("sources are readable");
            for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
                let stranger = strangers.iter().find(|stranger| line.contains(**stranger));
                assert!(stranger.is_none(), "{}:{} knows {}: {line}", file.display(), number + 1, stranger.unwrap_or(&""));
            }
        }
    }
}
