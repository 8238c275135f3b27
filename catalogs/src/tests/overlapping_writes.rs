//! Writes whose rows take long to come, and others meanwhile. What is slow waits for a word of the test, never for a time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fixture::{Fixture, append, stream_of, texts, texts_definition};
use crate::{Error, Hold, IndexDefinition, IndexKind, ROW_ADDRESS, Result, Table};

/// Rows of which the last come when they are let go.
struct Slow {
    rows: SendableRecordBatchStream,
    /// Comes when the first rows are taken and the last are waited for.
    is_waiting: oneshot::Receiver<()>,
    let_go: oneshot::Sender<()>,
}

fn slow(first: RecordBatch, last: RecordBatch) -> Slow {
    let (waits, is_waiting) = oneshot::channel();
    let (let_go, may_go) = oneshot::channel::<()>();
    let schema = first.schema();
    let end = stream::once(async move {
        // The test may have gone on without it.
        let _ = waits.send(());
        let _ = may_go.await;
        Ok(last)
    });
    let rows = stream::iter([Ok::<_, DataFusionError>(first)]).chain(end);
    Slow { rows: Box::pin(RecordBatchStreamAdapter::new(schema, rows)), is_waiting, let_go }
}

/// What must not wait for the slow rows; so long that a busy machine is no reason to fail.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it does not wait for the slow rows")
}

fn spawn_append(table: &Arc<Table>, rows: SendableRecordBatchStream) -> JoinHandle<Result<u64>> {
    let table = Arc::clone(table);
    tokio::spawn(async move { table.append(rows).await })
}

fn spawn_append_new(table: &Arc<Table>, rows: SendableRecordBatchStream) -> JoinHandle<Result<u64>> {
    let table = Arc::clone(table);
    tokio::spawn(async move { table.append_new(rows, vec!["id".to_owned()], None, Hold::AtTheEnd).await })
}

fn spawn_update(table: &Arc<Table>, rows: SendableRecordBatchStream) -> JoinHandle<Result<u64>> {
    let table = Arc::clone(table);
    tokio::spawn(async move {
        let mut rewrite = table.begin_rewrite().await?;
        rewrite.let_others_write();
        rewrite.update(rows, false).await
    })
}

/// A row in place of that at an address.
fn in_place_of(address: u64, id: &str, contents: &str) -> RecordBatch {
    let row = texts(&[(id, Some(contents))]);
    let address: ArrayRef = Arc::new(UInt64Array::from(vec![address]));
    let columns = [(ROW_ADDRESS, address), ("id", Arc::clone(row.column(0))), ("contents", Arc::clone(row.column(1)))];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

fn file_count(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn others_write_while_the_rows_of_an_append_come() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    let Slow { rows, is_waiting, let_go } = slow(texts(&[("a", None)]), texts(&[("b", None)]));
    let appending = spawn_append(&table, rows);
    soon(is_waiting).await.unwrap();
    assert_eq!(soon(append(&table, texts(&[("c", None)]))).await.unwrap(), 1);
    // Not even what removes every file that no version names can reach the rows that are on their way.
    soon(table.vacuum(Duration::ZERO, &std::collections::HashSet::new())).await.unwrap();
    assert_eq!(fixture.query("SELECT id FROM t").await, ["c"]);
    let_go.send(()).unwrap();
    assert_eq!(appending.await.unwrap().unwrap(), 2);
    assert_eq!(fixture.query("SELECT id FROM t ORDER BY id").await, ["a", "b", "c"]);
    assert_eq!(file_count(&fixture.path().join("public")), 1, "no folder is left beside t.lance");
    assert!(matches!(append(&table, texts(&[("b", None)])).await, Err(Error::UniqueViolation { .. })), "the keys are known");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_taken_meanwhile_is_found() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    let Slow { rows, is_waiting, let_go } = slow(texts(&[("a", None)]), texts(&[("b", None)]));
    let appending = spawn_append(&table, rows);
    soon(is_waiting).await.unwrap();
    soon(append(&table, texts(&[("b", Some("quick"))]))).await.unwrap();
    let files = file_count(&fixture.path().join("public/t.lance/data"));
    let_go.send(()).unwrap();
    let error = appending.await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::UniqueViolation { key, .. } if key == "(id)=(b)"), "{error}");
    assert_eq!(fixture.query("SELECT * FROM t").await, ["b|quick"]);
    assert_eq!(file_count(&fixture.path().join("public/t.lance/data")), files);
    assert_eq!(file_count(&fixture.path().join("public")), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_taken_already_is_found_before_more_rows_are_asked_for() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", None)])).await.unwrap();
    let Slow { rows, let_go, .. } = slow(texts(&[("a", None)]), texts(&[("b", None)]));
    let refused = soon(table.append(rows)).await;
    assert!(matches!(refused, Err(Error::UniqueViolation { .. })), "{refused:?}");
    drop(let_go);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_leave_out_taken_keys_are_overtaken_by_a_key_of_theirs_alone() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    for (quick, is_overtaken) in [("b", true), ("c", false)] {
        let Slow { rows, is_waiting, let_go } = slow(texts(&[("a", None)]), texts(&[("b", None)]));
        let appending = spawn_append_new(&table, rows);
        soon(is_waiting).await.unwrap();
        soon(append(&table, texts(&[(quick, Some("quick"))]))).await.unwrap();
        let_go.send(()).unwrap();
        let ended = appending.await.unwrap();
        match is_overtaken {
            true => assert!(matches!(ended, Err(Error::Overtaken { .. })), "{ended:?}"),
            // It knew of b from the start.
            false => assert_eq!(ended.unwrap(), 1),
        }
    }
    assert_eq!(fixture.query("SELECT * FROM t ORDER BY id").await, ["a|", "b|quick", "c|quick"]);
    let again = table.append_new(stream_of(vec![texts(&[("b", None), ("d", None)])]), vec![], None, Hold::FromTheStart);
    assert_eq!(again.await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_let_others_write_is_overtaken_by_other_rows_and_not_by_an_index() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("1")), ("b", Some("2"))])).await.unwrap();

    let Slow { rows, is_waiting, let_go } = slow(in_place_of(0, "a", "x"), in_place_of(1, "b", "y"));
    let updating = spawn_update(&table, rows);
    soon(is_waiting).await.unwrap();
    soon(append(&table, texts(&[("c", Some("3"))]))).await.unwrap();
    let_go.send(()).unwrap();
    let overtaken = updating.await.unwrap();
    assert!(matches!(overtaken, Err(Error::Overtaken { .. })), "{overtaken:?}");
    assert_eq!(fixture.query("SELECT * FROM t ORDER BY id").await, ["a|1", "b|2", "c|3"]);

    let Slow { rows, is_waiting, let_go } = slow(in_place_of(0, "a", "x"), in_place_of(1, "b", "y"));
    let updating = spawn_update(&table, rows);
    soon(is_waiting).await.unwrap();
    let (name, column) = ("t_id".to_owned(), "id".to_owned());
    let index = IndexDefinition { name, column, kind: IndexKind::BTree, metric: None, options: BTreeMap::new(), unbuilt: None };
    soon(table.create_index(&index, false)).await.unwrap();
    let_go.send(()).unwrap();
    assert_eq!(updating.await.unwrap().unwrap(), 2);
    assert_eq!(fixture.query("SELECT * FROM t ORDER BY id").await, ["a|x", "b|y", "c|3"]);
    assert_eq!(fixture.query("SELECT contents FROM t WHERE id = 'b'").await, ["y"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_dropped_after_the_rows_that_are_on_their_way() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    let Slow { rows, is_waiting, let_go } = slow(texts(&[("a", None)]), texts(&[("b", None)]));
    let appending = spawn_append(&table, rows);
    soon(is_waiting).await.unwrap();
    let mut dropping = Box::pin(fixture.catalog.drop_table("public", "t"));
    assert!(futures::poll!(&mut dropping).is_pending());
    let_go.send(()).unwrap();
    assert_eq!(appending.await.unwrap().unwrap(), 2);
    dropping.await.unwrap();
    let gone = append(&table, texts(&[("c", None)])).await;
    assert!(matches!(gone, Err(Error::UnknownTable { .. })), "{gone:?}");
}
