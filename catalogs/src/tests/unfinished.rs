//! Files of unfinished work: what takes them along, what removes them, and whom they wait for.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fixture::{Fixture, append, texts, texts_definition};
use crate::{Error, Table};

/// A file of work that nobody has any more.
async fn left(table: &Table) -> PathBuf {
    let work = table.unfinished_work().await.unwrap();
    let file = work.folder().join("half");
    fs::write(&file, "done").unwrap();
    file
}

fn folder(fixture: &Fixture, table: &str) -> PathBuf {
    fixture.path().join(format!("public/{table}.lance/_unfinished"))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn work_is_found_again_until_it_is_done() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    left(&table).await;
    drop(table);
    let fixture = fixture.restart().await;
    let table = fixture.catalog.table("public", "t").await.unwrap();
    let work = table.unfinished_work().await.unwrap();
    assert_eq!(names(work.folder()), ["half"]);
    append(&table, texts(&[("a", None)])).await.unwrap();
    work.finish().unwrap();
    work.finish().unwrap();
    assert!(!folder(&fixture, "t").exists());
}

#[tokio::test]
async fn work_goes_with_its_table_and_moves_with_its_name() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    left(&table).await;
    fixture.catalog.rename_table("public", "t", "u").await.unwrap();
    assert_eq!(names(&folder(&fixture, "u")), ["half"]);
    assert!(matches!(table.unfinished_work().await, Err(Error::UnknownTable { .. })));

    let table = fixture.catalog.table("public", "u").await.unwrap();
    let work = table.unfinished_work().await.unwrap();
    fixture.catalog.drop_table("public", "u").await.unwrap();
    fixture.create("u", texts_definition()).await;
    left(&fixture.catalog.table("public", "u").await.unwrap()).await;
    work.finish().unwrap();
    assert_eq!(names(&folder(&fixture, "u")), ["half"], "that of another table of the name");
}

#[tokio::test]
async fn work_that_nobody_has_is_removed_by_truncate_and_vacuum() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    for (truncates, keep) in [(true, Duration::ZERO), (false, Duration::ZERO), (false, Duration::from_secs(3600))] {
        let file = left(&table).await;
        let remove = async || {
            if truncates {
                table.begin_rewrite().await.unwrap().truncate(false).await.unwrap();
            } else {
                table.vacuum(keep, &std::collections::HashSet::new()).await.unwrap();
            }
        };
        let work = table.unfinished_work().await.unwrap();
        remove().await;
        assert!(file.exists(), "somebody has it");
        drop(work);
        remove().await;
        assert_eq!(file.exists(), !keep.is_zero());
    }
}
