//! EXPLAIN of statements that write, and plans as JSON.

use arrow::array::{AsArray, RecordBatch};
use futures::TryStreamExt;
use rolloutdb::{Database, Session};
use serde_json::Value;

/// The values of the first column, which is of texts.
async fn texts(session: &Session, statement: &str) -> Vec<String> {
    let stream = session.sql(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    let batches: Vec<RecordBatch> = stream.try_collect().await.expect("its rows come");
    batches.iter().flat_map(|batch| batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>()).collect()
}

async fn two_rows(session: &Session) {
    for statement in ["CREATE TABLE t (id bigint PRIMARY KEY, a bigint)", "INSERT INTO t VALUES (1, 10), (2, 20)"] {
        drop(session.sql(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_explained_is_named_and_writes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let session = Database::open(directory.path()).await.expect("a fresh database opens").session();
    two_rows(&session).await;
    let writes = [
        ("INSERT INTO t VALUES (3, 30)", "Insert on t"),
        ("INSERT INTO t SELECT id + 10, a FROM t", "Insert on t"),
        ("INSERT INTO t VALUES (1, 30) ON CONFLICT (id) DO NOTHING", "Insert on t"),
        ("INSERT INTO t VALUES (1, 30) ON CONFLICT (id) DO UPDATE SET a = excluded.a", "Insert on t"),
        ("UPDATE t SET a = a + 1 WHERE id = 1", "Update on t"),
        ("DELETE FROM t AS x WHERE x.id = 1", "Delete on t"),
        ("MERGE INTO t USING (VALUES (1)) AS s (id) ON t.id = s.id WHEN MATCHED THEN DELETE", "Merge on t"),
    ];
    for (write, first) in writes {
        let plan = texts(&session, &format!("EXPLAIN {write}")).await;
        assert_eq!(plan.first().map(String::as_str), Some(first), "{write}: {plan:#?}");
        assert!(plan.len() > 1 && plan[1..].iter().all(|line| line.starts_with("  ")), "{write}: {plan:#?}");
    }
    assert_eq!(texts(&session, "SELECT count(*)::text || ' ' || sum(a)::text FROM t").await, ["2 30"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_analyzed_is_done_and_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let session = Database::open(directory.path()).await.expect("a fresh database opens").session();
    two_rows(&session).await;
    let writes = [
        ("INSERT INTO t VALUES (3, 30), (4, 40)", "Insert on t (actual rows=2)", "4 100"),
        ("INSERT INTO t VALUES (1, 0), (5, 50) ON CONFLICT (id) DO NOTHING", "Insert on t (actual rows=1)", "5 150"),
        ("INSERT INTO t VALUES (1, 11), (6, 60) ON CONFLICT (id) DO UPDATE SET a = excluded.a", "Insert on t (actual rows=2)", "6 211"),
        ("UPDATE t SET a = a + 1 WHERE id <= 2 RETURNING id", "Update on t (actual rows=2)", "6 213"),
        ("MERGE INTO t USING (VALUES (6)) AS s (id) ON t.id = s.id WHEN MATCHED THEN DELETE", "Merge on t (actual rows=1)", "5 153"),
        ("DELETE FROM t AS x WHERE x.id > 2", "Delete on t (actual rows=3)", "2 33"),
    ];
    for (write, first, left) in writes {
        let plan = texts(&session, &format!("EXPLAIN ANALYZE {write}")).await;
        assert_eq!(plan.first().map(String::as_str), Some(first), "{write}: {plan:#?}");
        assert!(plan[1..].iter().any(|line| line.contains("output_rows=")), "{write}: {plan:#?}");
        assert_eq!(texts(&session, "SELECT count(*)::text || ' ' || sum(a)::text FROM t").await, [left], "{write}");
    }
    let plan = texts(&session, "EXPLAIN (ANALYZE, FORMAT JSON) DELETE FROM t WHERE id = 1").await;
    let plan: Value = serde_json::from_str(&plan[0]).expect("it is JSON");
    assert_eq!(plan[0]["Plan"]["Actual Rows"].as_u64(), Some(1), "{plan:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_analyzed_can_not_be_rolled_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let session = Database::open(directory.path()).await.expect("a fresh database opens").session();
    two_rows(&session).await;
    for statement in ["BEGIN", "EXPLAIN ANALYZE DELETE FROM t"] {
        drop(session.sql(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}")));
    }
    assert!(session.sql("ROLLBACK").await.is_err(), "as after a DELETE");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_as_json_is_one_value() {
    let directory = tempfile::tempdir().expect("a directory");
    let session = Database::open(directory.path()).await.expect("a fresh database opens").session();
    two_rows(&session).await;
    for analyze in ["", "ANALYZE, "] {
        let plan = texts(&session, &format!("EXPLAIN ({analyze}FORMAT JSON) SELECT a FROM t WHERE a + id > 5 ORDER BY a")).await;
        assert_eq!(plan.len(), 1, "{plan:#?}");
        let plan: Value = serde_json::from_str(&plan[0]).expect("it is JSON");
        let mut node = &plan[0]["Plan"];
        let mut nodes = Vec::new();
        while let Some(name) = node["Node Type"].as_str() {
            nodes.push(name);
            node = &node["Plans"][0];
        }
        assert!(nodes.len() > 1 && nodes.contains(&"TableScanExec"), "{plan:#}");
    }
    let plan = texts(&session, "EXPLAIN (FORMAT JSON) UPDATE t SET a = 1").await;
    let plan: Value = serde_json::from_str(&plan[0]).expect("it is JSON");
    let node = &plan[0]["Plan"];
    assert_eq!((node["Operation"].as_str(), node["Relation Name"].as_str()), (Some("Update"), Some("t")), "{plan:#}");
    assert!(node["Plans"][0]["Node Type"].is_string(), "{plan:#}");
}
