//! Reading a file eight times as large takes no more memory.
//!
//! `BOUNDED_MEMORY=1000 cargo test --test it bounded_memory -- --nocapture` does the same with 125 and 1,000 MB.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::process::sql_command;

/// The most that the larger file may take beyond the smaller one. Blocks, columns on their way and the writer's pages are some tens of MB.
const MORE_MB_MAX: u64 = 96;

/// Passages of about 600 bytes.
fn write_corpus(path: &Path, megabytes: usize) {
    let mut file = BufWriter::new(std::fs::File::create(path).expect("a file is made"));
    for number in 0..megabytes * 1_000_000 / 600 {
        // Words that differ from line to line, so that no encoding makes them small.
        let words: String = (0..70).map(|word| format!("{:06x} ", (number * 70 + word).wrapping_mul(0x9E37_79B9) & 0xFF_FFFF)).collect();
        writeln!(file, r#"{{"id": "p{number:09}", "title": "Passage {number}", "contents": "\"Passage {number}\"\n{words}"}}"#)
            .expect("the disk has room");
    }
    file.flush().expect("the disk has room");
}

/// Runs statements in a process of its own and gives the most memory that it held, in MB.
fn peak_mb(data: &Path, sql: &str) -> u64 {
    let mut child = sql_command(data, sql).stdout(Stdio::null()).spawn().expect("the binary starts");
    let mut peak_kb = 0;
    let status = loop {
        let text = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        peak_kb = peak.unwrap_or(0).max(peak_kb);
        if let Some(status) = child.try_wait().expect("the process can be asked") {
            break status;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{sql} failed");
    peak_kb / 1000
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "the peak is read from /proc")]
fn a_larger_file_takes_no_more_memory() {
    let large_mb = std::env::var("BOUNDED_MEMORY").ok().and_then(|text| text.parse().ok()).unwrap_or(64);
    let statements = [
        ("SELECT", "SELECT count(*), max(length(contents)), count(DISTINCT length(title)) FROM read_jsonl('FILE')"),
        ("COPY", "CREATE TABLE t (id text, title text, contents text); COPY t FROM 'FILE'"),
        ("COPY into a table with a key", "CREATE TABLE t (id text PRIMARY KEY, title text, contents text); COPY t FROM 'FILE'"),
    ];
    for (what, sql) in statements {
        let [small, large] = [large_mb / 8, large_mb].map(|megabytes| {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let file = directory.path().join("corpus.jsonl");
            write_corpus(&file, megabytes);
            peak_mb(&directory.path().join("data"), &sql.replace("FILE", &file.display().to_string()))
        });
        println!("{what}: {small} MB for {} MB, {large} MB for {large_mb} MB", large_mb / 8);
        // A key takes 16 bytes a row and its place in a set.
        let keys = if what.ends_with("key") { large_mb as u64 * 1_000_000 / 600 * 64 / 1_000_000 } else { 0 };
        assert!(large <= small + MORE_MB_MAX + keys, "{what}: {small} MB for the small file, {large} MB for the large one");
    }
}
