//! What results name lasts over a kill, and VACUUM says for whom it keeps old versions.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::SinkExt;
use rolloutdb::engine::{Notice, Severity};
use rolloutdb::{Database, Result, Session};

use crate::database::{number, rows, run, temporary};
use crate::process::ServerProcess;

/// SHA-256 of `1\tone\n2\ttwo\n`.
const SENT: &str = "2aea860edf2a80612508fe114c77f1c9ede1d14ef8167844a4aa78baad5f9d1f";

const SETUP: &str = "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
    CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
    CREATE INDEX wiki_text ON wiki USING bm25 (contents);
    CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 2);
    CREATE AGENT pinned WITH (policy = 'policy', corpus = 'wiki', corpus_version = 3, retriever = 'text', prompts = 'short', max_tokens = 48)";
const GENERATE: &str =
    "GENERATE ROLLOUTS INTO run1 USING AGENT pinned FROM (SELECT * FROM questions) WITH (simulations = 2, temperature = 1.0, seed = 5)";

fn told(session: &Session) -> Arc<Mutex<Vec<Notice>>> {
    let notices: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let kept = Arc::clone(&notices);
    session.set_notice_sink(Arc::new(move |notice: Notice| kept.lock().expect("no panic").push(notice)));
    notices
}

fn messages(notices: &Mutex<Vec<Notice>>, severity: Severity) -> Vec<String> {
    let mut notices = notices.lock().expect("no panic");
    let found = notices.iter().filter(|notice| notice.severity == severity).map(|notice| notice.message.clone()).collect();
    notices.clear();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_results_name_lasts_over_a_kill() -> Result<()> {
    let data = temporary();
    {
        let mut server = ServerProcess::start(data.path());
        let client = server.connect().await;
        for statement in SETUP.split(';').chain([GENERATE, "CREATE TABLE numbers (id bigint, word text)"]) {
            client.batch_execute(statement).await.expect(statement);
        }
        let sink = client.copy_in("COPY numbers FROM STDIN").await.expect("COPY");
        futures::pin_mut!(sink);
        sink.send(Bytes::from_static(b"1\tone\n2\ttwo\n")).await.expect("rows");
        sink.finish().await.expect("the rows are written");
        client.batch_execute("INSERT INTO wiki VALUES ('later', 'A later passage.')").await.expect("a row");
        // Dropped, the process is killed.
    }
    let database = Database::open(data.path()).await?;
    let session = database.session();
    run(&session, "VACUUM FULL").await?;
    assert_eq!(number(&session, "SELECT count(*) FROM wiki VERSION AS OF 3 WHERE id = 'later'").await?, 0);
    assert_eq!(number(&session, "SELECT count(*) FROM questions VERSION AS OF 1").await?, 2);
    let lineage = rows(&session, "SELECT kind, name, version FROM lineage('run', 'run1') WHERE kind <> 'run'").await?;
    assert_eq!(
        lineage,
        ["agent", "pinned", "", "table", "wiki", "3", "model", "policy", "1", "prompts", "short", "", "table", "questions", "1"]
    );
    // What a client sent is known by its bytes.
    let sent = rows(&session, "SELECT name, options, digest FROM lineage('table', 'numbers') WHERE kind = 'file'").await?;
    assert_eq!(sent, ["stdin", r#"{"size":12}"#, SENT]);
    run(&session, GENERATE).await?;
    assert_eq!(number(&session, "SELECT count(DISTINCT corpus_version) FROM run1").await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn vacuum_says_what_it_keeps_for_whom() -> Result<()> {
    let data = temporary();
    let session = Database::open(data.path()).await?.session();
    run(&session, SETUP).await?;
    run(&session, GENERATE).await?;
    run(&session, "INSERT INTO wiki VALUES ('later', 'A later passage.')").await?;
    let notices = told(&session);
    run(&session, "VACUUM FULL wiki").await?;
    let said = messages(&notices, Severity::Notice);
    let kept = said.iter().find(|message| message.contains("kept")).unwrap_or_else(|| panic!("{said:?}"));
    assert!(kept.starts_with("public.wiki: 1 old version is kept, ") && kept.contains("for agent pinned (3), run run1 (3);"), "{kept}");
    let bytes = kept.split(" bytes)").next().and_then(|before| before.rsplit('(').next()?.parse::<u64>().ok()).expect(kept);
    assert!(bytes > 1_000, "{kept}");
    // One of the two goes: the version stays for the other.
    run(&session, "DROP AGENT pinned; VACUUM FULL wiki").await?;
    let said = messages(&notices, Severity::Notice);
    assert!(said.iter().any(|message| message.contains("for run run1 (3);")), "{said:?}");
    run(&session, "VACUUM (FULL, FORCE) wiki").await?;
    assert_eq!(messages(&notices, Severity::Warning), ["public.wiki: version 3 is removed, which is named by run run1"]);
    // What is gone is told once.
    run(&session, "VACUUM (FULL, FORCE) wiki").await?;
    assert_eq!(messages(&notices, Severity::Warning), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_runs_name_stay_when_old_ones_go_by_themselves() -> Result<()> {
    let data = temporary();
    let options = rolloutdb::DatabaseOptions { version_retention: Some(std::time::Duration::ZERO), ..Default::default() };
    let session = Database::open_with(data.path(), options).await?.session();
    run(&session, "CREATE TABLE t (id bigint PRIMARY KEY, n text); INSERT INTO t VALUES (1, 'sharks'); CREATE INDEX ON t USING bm25 (n)")
        .await?;
    run(&session, "CREATE TABLE found AS SELECT id FROM text_search(t, 'sharks')").await?;
    for round in 0..130 {
        run(&session, &format!("UPDATE t SET n = 'whales {round}'")).await?;
    }
    assert_eq!(number(&session, "SELECT count(*) FROM rollout.table_versions WHERE table_name = 't' AND version < 4").await?, 0);
    assert_eq!(number(&session, "SELECT count(*) FROM t VERSION AS OF 4 WHERE n = 'sharks'").await?, 1);
    assert_eq!(number(&session, "SELECT count(*) FROM text_search(t, 'sharks', version => 4)").await?, 1);
    Ok(())
}
