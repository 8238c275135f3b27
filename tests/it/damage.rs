//! Damage from outside, as a client meets it: what is lost is said once, shown in a view, and the rest goes on.

use std::fs;
use std::sync::{Arc, Mutex};

use rolloutdb::engine::{Notice, Severity};
use rolloutdb::{Database, Result};

use crate::database::{number, run, temporary};

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_version_is_told_once_and_shown() -> Result<()> {
    let data = temporary();
    {
        let session = Database::open(data.path()).await?.session();
        run(&session, "CREATE TABLE t (id bigint PRIMARY KEY, words text)").await?;
        run(&session, "INSERT INTO t VALUES (1, 'kept')").await?;
        run(&session, "CREATE INDEX t_words ON t USING bm25 (words)").await?;
        run(&session, "INSERT INTO t VALUES (2, 'lost')").await?;
    }
    // The version of the rows, and that of their index. Names count down.
    let mut manifests: Vec<_> = fs::read_dir(data.path().join("tables/public/t.lance/_versions"))
        .expect("a table has versions")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    manifests.retain(|path| path.extension().is_some_and(|extension| extension == "manifest"));
    manifests.sort();
    for manifest in &manifests[..2] {
        let bytes = fs::read(manifest).expect("it is readable");
        fs::write(manifest, &bytes[..bytes.len() / 2]).expect("it is writable");
    }

    let session = Database::open(data.path()).await?.session();
    let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&warnings);
    session.set_notice_sink(Arc::new(move |notice: Notice| {
        if notice.severity == Severity::Warning {
            kept.lock().expect("no panic").push(notice.message);
        }
    }));
    assert_eq!(number(&session, "SELECT count(*) FROM t").await?, 1);
    assert_eq!(number(&session, "SELECT count(*) FROM t").await?, 1);
    {
        let warnings = warnings.lock().expect("no panic");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings.iter().all(|warning| warning.contains("is lost") && warning.contains("is the newest again")), "{warnings:?}");
    }
    assert_eq!(number(&session, "SELECT count(*) FROM rollout.torn_versions WHERE table_name = 't' AND bytes > 0").await?, 2);
    assert_eq!(number(&session, "SELECT count(*) FROM text_search(t, 'lost kept')").await?, 1);
    run(&session, "INSERT INTO t VALUES (2, 'rewritten')").await?;
    assert_eq!(number(&session, "SELECT id FROM text_search(t, 'rewritten')").await?, 2);
    run(&session, "VACUUM FULL").await?;
    assert_eq!(number(&session, "SELECT count(*) FROM t").await?, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_opens_with_a_torn_system_table() -> Result<()> {
    let data = temporary();
    drop(Database::open(data.path()).await?);
    for table in ["prompts", "training_metrics"] {
        for entry in fs::read_dir(data.path().join(format!("tables/rollout/{table}.lance/_versions"))).expect("it has versions").flatten() {
            fs::write(entry.path(), "").expect("it is writable");
        }
    }
    let database = Database::open(data.path()).await?;
    assert_eq!(database.take_warnings().len(), 2, "one for each table");
    assert!(number(&database.session(), "SELECT count(*) FROM rollout.prompts").await? > 0, "the prompts are filled again");
    Ok(())
}
