//! Old versions go by themselves, but for those that somebody needs. A retention of nothing stands for one that has passed.

use std::collections::HashSet;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::catalog::TableProvider;
use futures::TryStreamExt;

use super::fixture::{Fixture, append, texts, texts_definition};
use crate::{Removed, Table};

async fn append_rows(table: &Table, numbers: std::ops::Range<usize>) {
    for number in numbers {
        append(table, texts(&[(&format!("r{number}"), None)])).await.unwrap();
    }
}

async fn versions(table: &Table) -> Vec<u64> {
    table.latest().await.unwrap().versions().await.unwrap().iter().map(|version| version.version).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_nobody_needs_go_after_many_commits() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    let (first, none) = (table.version(), HashSet::new());
    append_rows(&table, 0..50).await;
    assert_eq!(table.remove_old_versions(Duration::ZERO, &none).await.unwrap(), Removed::default(), "there are few");
    append_rows(&table, 50..105).await;
    assert_eq!(table.remove_old_versions(Duration::MAX, &none).await.unwrap().versions, 0, "they are to stay");

    // That look was at all there were: the next one comes after a hundred more.
    append_rows(&table, 105..210).await;
    table.create_tag("kept", Some(first + 3), false, false).await.unwrap();
    let (agents, context) = (HashSet::from([first + 4]), fixture.context());
    let reader = table.at_version(first + 5).await.unwrap();
    let scan = reader.scan(&context.state(), None, &[], None).await.unwrap();
    let rows = scan.execute(0, context.task_ctx()).unwrap();
    drop((reader, scan));
    let newest = table.latest().await.unwrap().version();
    let removed = table.remove_old_versions(Duration::ZERO, &agents).await.unwrap();
    // The first is the one that the table of this test has open.
    let left = [first, first + 3, first + 4, first + 5, newest];
    assert_eq!(versions(&table).await, left);
    assert_eq!(removed.versions, newest - first + 1 - left.len() as u64);
    let read: Vec<RecordBatch> = rows.try_collect().await.unwrap();
    assert_eq!(read.iter().map(RecordBatch::num_rows).sum::<usize>(), 5);
    assert_eq!(table.at_tag("kept").await.unwrap().row_count().await.unwrap(), 3);
    assert_eq!(fixture.query("SELECT count(*) FROM t").await, ["210"]);
}
