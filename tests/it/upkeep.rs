//! What a table does by itself: many small commits become one file, and old versions go.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rolloutdb::engine::Notice;
use rolloutdb::{Database, DatabaseOptions, Result};

use crate::database::{number, run, temporary};

#[tokio::test(flavor = "multi_thread")]
async fn many_small_commits_become_few_files() -> Result<()> {
    let data = temporary();
    let session = Database::open(data.path()).await?.session();
    let notices: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&notices);
    session.set_notice_sink(Arc::new(move |notice: Notice| kept.lock().expect("no panic").push(notice.message)));
    run(&session, "CREATE TABLE t (id bigint PRIMARY KEY, v vector(2))").await?;
    run(&session, "CREATE INDEX t_v ON t USING hnsw (v vector_l2_ops)").await?;
    // A hundred small files are one; the rows after that are in files of their own.
    for id in 0..120 {
        run(&session, &format!("INSERT INTO t VALUES ({id}, '[{id},0]')")).await?;
    }
    run(&session, "DELETE FROM t WHERE id = 7").await?;
    assert_eq!(number(&session, "SELECT count(*) FROM t WHERE id <> 7").await?, 119);
    assert_eq!(number(&session, "SELECT id FROM t ORDER BY v <-> '[7,0]', id LIMIT 1").await?, 6);
    run(&session, "OPTIMIZE t").await?;
    let told = notices.lock().expect("no panic").clone();
    let num_files = told.iter().find_map(|notice| notice.split(' ').nth(1)?.parse::<usize>().ok());
    assert!(num_files.is_some_and(|files| files <= 30), "{told:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn old_versions_go_by_themselves_but_for_those_that_are_named() -> Result<()> {
    for (version_retention, all_stay) in [(None, true), (Some(Duration::ZERO), false)] {
        let data = temporary();
        let session =
            Database::open_with(data.path(), DatabaseOptions { version_retention, ..DatabaseOptions::default() }).await?.session();
        run(&session, "CREATE TABLE t (id bigint PRIMARY KEY, n bigint); INSERT INTO t VALUES (1, 0); ALTER TABLE t CREATE TAG begun")
            .await?;
        for _ in 0..120 {
            run(&session, "UPDATE t SET n = n + 1").await?;
        }
        let versions = number(&session, "SELECT count(*) FROM rollout.table_versions WHERE table_name = 't'").await?;
        assert_eq!(versions > 110, all_stay, "{versions} versions");
        assert_eq!(number(&session, "SELECT n FROM t VERSION AS OF 'begun'").await?, 0);
        assert_eq!(number(&session, "SELECT n FROM t").await?, 120);
    }
    Ok(())
}
