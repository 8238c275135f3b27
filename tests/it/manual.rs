//! `docs/sql.md` and the README: their examples run, and nothing that exists is missing from the manual.
//!
//! `UPDATE_DOCS=1 cargo test --test it manual` writes the list of functions, and the trajectories of the page about protocols.

use std::fmt::Write;
use std::path::Path;

use futures::TryStreamExt;
use rolloutdb::agent::{AgentOptions, SearchOptions};
use rolloutdb::engine::Response;
use rolloutdb::training::{DpoOptions, RftOptions, SftOptions};
use rolloutdb::{Database, Result, Session};

use crate::{project, read};

const MANUAL: &str = "docs/sql.md";
const BEGIN: &str = "<!-- functions: begin. Written from the code by `UPDATE_DOCS=1 cargo test --test it manual`. -->\n";
const END: &str = "<!-- functions: end -->";
const PROTOCOLS: &str = "docs/protocols.md";
const TRAJECTORIES_BEGIN: &str =
    "<!-- trajectories: begin. Written from the tests of the protocols by `UPDATE_DOCS=1 cargo test --test it manual`. -->\n";
const TRAJECTORIES_END: &str = "<!-- trajectories: end -->";

/// The blocks of SQL in a page; those that say `skip` after the language are left out.
fn examples(page: &str) -> Vec<String> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix("sql\n")).map(ToOwned::to_owned).collect()
}

/// File names of the examples are relative; here they are below `directory`.
fn in_directory(sql: &str, directory: &Path) -> String {
    let is_file = |text: &str| [".jsonl", ".json", ".csv", ".parquet", ".arrow"].iter().any(|ending| text.ends_with(ending));
    let parts = sql.split('\'').map(|part| if is_file(part) { directory.join(part).display().to_string() } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("'")
}

async fn run(session: &Session, sql: &str) -> Result<usize> {
    let statements = session.parse(sql)?;
    for statement in &statements {
        if let Response::Rows { stream, .. } = session.execute(statement, vec![]).await? {
            stream.try_collect::<Vec<_>>().await?;
        }
    }
    Ok(statements.len())
}

/// Runs a page in one fresh database, and gives the number of statements.
async fn run_page(page: &str) -> usize {
    let (data, files) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    // Small files in the form of the published ones.
    for entry in std::fs::read_dir(project().join("tests/fixtures/files")).expect("the fixtures are there") {
        let entry = entry.expect("the fixtures are readable");
        std::fs::copy(entry.path(), files.path().join(entry.file_name())).expect("a fixture is copied");
    }
    let database = Database::open(data.path()).await.expect("a fresh database opens");
    let session = database.session();
    let mut count = 0;
    for example in examples(&read(page)) {
        count += run(&session, &in_directory(&example, files.path())).await.unwrap_or_else(|error| panic!("{page}:\n{example}\n{error}"));
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_of_the_manual_runs() {
    let count = run_page(MANUAL).await;
    assert!(count >= 50, "only {count} statements in {MANUAL}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_about_files_runs() {
    let count = run_page("docs/files.md").await;
    assert!(count >= 15, "only {count} statements in docs/files.md");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_about_security_runs() {
    let count = run_page("docs/security.md").await;
    assert!(count >= 9, "only {count} statements in docs/security.md");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_the_readme_runs() {
    let count = run_page("README.md").await;
    assert!(count >= 12, "only {count} statements in README.md");
}

#[test]
fn the_manual_lists_the_functions_as_the_code_describes_them() {
    check_written_part(MANUAL, [BEGIN, END], &functions());
}

#[test]
fn the_page_of_protocols_shows_their_trajectories() {
    check_written_part(PROTOCOLS, [TRAJECTORIES_BEGIN, TRAJECTORIES_END], &trajectories());
}

/// Compares what stands between two marks of a page with what the code says, or puts it there.
fn check_written_part(name: &str, [begin, end]: [&str; 2], expected: &str) {
    let page = read(name);
    let (before, rest) = page.split_once(begin).expect("the begin is marked");
    let (found, after) = rest.split_once(end).expect("the end is marked");
    if std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1") {
        std::fs::write(project().join(name), format!("{before}{begin}{expected}{end}{after}")).expect("the page is written");
    } else {
        assert!(found == expected, "{name} is not what the code says: UPDATE_DOCS=1 cargo test --test it manual");
    }
}

/// What each protocol's golden trajectory shows: prompts and, in guillemets, responses.
fn trajectories() -> String {
    let folder = project().join("src/agent/protocol");
    let entries = std::fs::read_dir(&folder).expect("the protocols are there");
    let mut names: Vec<String> = entries.filter_map(|entry| entry.expect("a file").file_name().into_string().ok()).collect();
    names.retain(|name| folder.join(name).join("tests.rs").exists());
    names.sort();
    assert_eq!(names.len(), 10);
    let trajectory = |name: &String| {
        let tests = std::fs::read_to_string(folder.join(name).join("tests.rs")).expect("the tests of a protocol");
        let (_, golden) = tests.split_once("fn golden_trajectory").expect("every protocol has one");
        let (_, golden) = golden.split_once("expect![[r#\"\n").expect("its transcript is written out");
        let (golden, _) = golden.split_once("    \"#]]").expect("the transcript ends");
        let lines: Vec<&str> = golden.lines().map(|line| line.strip_prefix("        ").unwrap_or_default()).collect();
        format!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n"))
    };
    names.iter().map(trajectory).collect::<String>() + "\n"
}

/// One entry per function: its call, what it does, its arguments, an example with its result.
fn functions() -> String {
    let mut list = String::new();
    for (_, entry) in rolloutdb_udfs::documentation() {
        let example = entry.sql_example.unwrap_or_default();
        let example = example.trim().trim_start_matches("```sql\n").trim_end_matches("```").trim();
        write!(list, "\n**`{}`** {}\n\n", entry.syntax_example, entry.description).expect("a String takes all");
        for (argument, description) in entry.arguments.unwrap_or_default() {
            writeln!(list, "- `{argument}`: {description}").expect("a String takes all");
        }
        // Their results are checked where the functions are defined, and the models that two of them name are not here.
        write!(list, "\n```sql checked with the function\n{example}\n```\n").expect("a String takes all");
    }
    list + "\n"
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manual_names_every_option_and_table_function() {
    let page = read(MANUAL);
    let options = [AgentOptions::NAMES, SearchOptions::NAMES, SftOptions::NAMES, RftOptions::NAMES, DpoOptions::NAMES].concat();
    for name in options {
        assert!(page.contains(&format!("`{name}`")), "{MANUAL} does not name the option {name}");
    }
    let data = tempfile::tempdir().expect("a directory");
    let database = Database::open(data.path()).await.expect("a fresh database opens");
    for (function, arguments) in database.table_functions() {
        assert!(page.contains(&format!("`{function}")), "{MANUAL} does not name {function}()");
        for argument in arguments {
            assert!(page.contains(argument), "{MANUAL} does not name the argument {argument} of {function}()");
        }
    }
}
