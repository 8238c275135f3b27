//! What a table does by itself: many small commits become one file.

use std::sync::{Arc, Mutex};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use futures::TryStreamExt;
use rolloutdb::engine::Notice;
use rolloutdb::{Database, Result, Session};

async fn run(session: &Session, sql: &str) -> Result<Vec<arrow::array::RecordBatch>> {
    Ok(session.sql(sql).await?.try_collect().await?)
}

async fn number(session: &Session, sql: &str) -> Result<i64> {
    Ok(run(session, sql).await?[0].column(0).as_primitive::<Int64Type>().value(0))
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_commits_become_few_files() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
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
