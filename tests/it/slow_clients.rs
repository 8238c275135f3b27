//! A client that reads a large result slowly holds up its own statement, and neither the memory of the server nor other clients.

use std::time::{Duration, Instant};

use crate::database::temporary;
use crate::process::ServerProcess;
use crate::wire::{Wire, query};

/// A gigabyte of rows.
const LARGE: &str = "SELECT value, repeat('x', 1000) AS text FROM generate_series(1, 1000000) s(value)";
/// What the server may hold beyond what it held before: some batches of rows, as columns and as messages.
const MORE_MB_MAX: u64 = 256;
const READING: Duration = Duration::from_secs(4);
/// How soon others have their answer.
const ANSWER_TIME: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(target_os = "linux"), ignore = "the peak is read from /proc")]
async fn a_large_result_that_is_read_slowly_takes_no_memory() {
    let data = temporary();
    let mut server = ServerProcess::start(data.path());
    let other = server.connect().await;
    other
        .simple_query("SELECT count(*), max(text) FROM (SELECT value, repeat('x', 1000) AS text FROM generate_series(1, 50000) s(value)) t")
        .await
        .expect("rows");
    let before = server.memory_mb("VmHWM");
    for statement in [LARGE.to_owned(), format!("COPY ({LARGE}) TO STDOUT"), format!("COPY ({LARGE}) TO STDOUT (FORMAT binary)")] {
        let mut client = Wire::connect_to(server.port()).await;
        client.send(&[query(&statement)]).await;
        let (started, mut num_read, mut piece) = (Instant::now(), 0, vec![0; 64 << 10]);
        while started.elapsed() < READING {
            num_read += client.read_some(&mut piece).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(num_read > 1 << 20, "{statement}: {num_read} bytes came");
        let answered = tokio::time::timeout(ANSWER_TIME, other.simple_query("SELECT 1")).await;
        answered.expect("others are served meanwhile").expect("they have an answer");
        let peak = server.memory_mb("VmHWM");
        assert!(peak <= before + MORE_MB_MAX, "{statement}: the server held {peak} MB, {before} MB before");
    }
}
