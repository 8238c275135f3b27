//! SIGKILL at moments that no statement chose, over a round of every statement that writes; after each the next process finds every acknowledged
//! statement done once, the one in flight done whole or not at all, indexes that answer as the rows do, and nothing left for ever.
//!
//! `KILLS=300` makes other numbers of them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rolloutdb::{Database, Result};

use crate::database::{number, run, temporary};
use crate::process::run_and_kill;
use crate::round::{ROUND, State, check_answers, setup, statement, stored, write_files};
use crate::times;

const KILLS: u64 = 12;

/// Names of files and folders that only a write in flight may have.
fn temporaries(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if name.starts_with(".tmp-") || name.starts_with("datafusion-") || name.ends_with(".unfinished") || name.contains('#') {
            found.push(path.clone());
        }
        found.extend(temporaries(&path));
    }
    found
}

async fn make(data: &Path) -> Result<()> {
    let session = Database::open(data).await?.session();
    for sql in setup() {
        run(&session, &sql).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_survives_kills() -> Result<()> {
    let data = temporary();
    let files = temporary();
    make(data.path()).await?;
    let kills = times("KILLS", KILLS);
    let (mut next, mut state, mut in_flight) = (ROUND, State::default(), 0);
    for kill in 0..kills {
        let numbers = next..next + 3 * ROUND;
        write_files(numbers.clone(), files.path());
        let statements: Vec<String> = numbers.map(|number| statement(number, files.path())).collect();
        // Other moments after the start for each kill, the same ones in every run of the test.
        let moment = Duration::from_millis(150 + kill * 7919 % 1700);
        let acknowledged = run_and_kill(data.path(), &statements, moment);
        for number in next..next + acknowledged {
            state.apply(number);
        }
        next += acknowledged;

        let database = Database::open(data.path()).await?;
        let session = database.session();
        let found = stored(&session).await?;
        if found != state {
            state.apply(next);
            next += 1;
            in_flight += 1;
        }
        assert_eq!(found, state, "kill {kill}, after {acknowledged} statements, at {}", statement(next, files.path()));
        check_answers(&session, &state, &format!("kill {kill}")).await?;
        assert_eq!(number(&session, "SELECT count(*) FROM rollout.torn_versions").await?, 0, "a kill tears no manifest");
        if let Ok(text) = std::fs::read_to_string(files.path().join("out.csv")) {
            assert!(text.ends_with('\n') && text.starts_with("id,n\n"), "a file appears when it is complete");
        }
    }
    let session = Database::open(data.path()).await?.session();
    run(&session, &format!("COPY t (id) TO '{}'", files.path().join("out.csv").display())).await?;
    run(&session, "VACUUM FULL").await?;
    check_answers(&session, &state, "after VACUUM FULL").await?;
    let left: Vec<_> = [data.path(), files.path()].into_iter().flat_map(temporaries).filter(|path| !path.ends_with("spill")).collect();
    let left: Vec<_> = left.into_iter().filter(|path| !path.starts_with(data.path().join("spill"))).collect();
    assert!(left.is_empty(), "left by killed writers: {left:?}");
    assert_no_orphans(data.path());
    let _ = writeln!(
        std::io::stderr(),
        "{kills} kills, {} statements acknowledged, {in_flight} more were committed when the kill came",
        next - ROUND - in_flight
    );
    assert!(next > ROUND + kills as i64, "the processes were killed before they got to work");
    Ok(())
}

/// After VACUUM FULL there is one version; its manifest names every data file (as text) and every index (by the bytes of its uuid) that is left.
fn assert_no_orphans(data: &Path) {
    let table = data.join("tables/public/t.lance");
    let names = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(table.join(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let manifests: Vec<String> = names("_versions").into_iter().filter(|name| name.ends_with(".manifest")).collect();
    assert_eq!(manifests.len(), 1, "{manifests:?}");
    let manifest = std::fs::read(table.join("_versions").join(&manifests[0])).expect("it is readable");
    let says = |bytes: &[u8]| manifest.windows(bytes.len()).any(|window| window == bytes);
    let data_files: Vec<String> = names("data").into_iter().filter(|name| !says(name.as_bytes())).collect();
    assert!(data_files.is_empty(), "no version names {data_files:?}");
    let indexes: Vec<String> = names("_indices").into_iter().filter(|name| !says(&uuid_bytes(name))).collect();
    assert!(indexes.is_empty(), "no version names {indexes:?}");
    assert_eq!(names("_backfill"), [""; 0]);
}

fn uuid_bytes(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    (0..digits.len() / 2).map(|place| u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).expect("they are digits")).collect()
}
