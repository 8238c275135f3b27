//! INSERT, CREATE TABLE AS, keys, nulls, and that a failed write leaves nothing.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StringViewArray};
use arrow::datatypes::{DataType, Field, Float32Type, Int64Type, Schema};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{col, lit};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use super::fixture::{Fixture, append, passages, passages_definition, stream_of, texts, texts_definition};
use crate::{Error, TableDefinition, system};

#[tokio::test]
async fn sql_inserts_and_selects() {
    let fixture = Fixture::new().await;
    fixture.create("t", texts_definition()).await;
    assert_eq!(fixture.query("INSERT INTO t VALUES ('b', 'two'), ('a', NULL)").await, ["2"]);
    assert_eq!(fixture.query("INSERT INTO t (id) SELECT id || '2' FROM t").await, ["2"]);
    assert_eq!(fixture.query("SELECT * FROM t ORDER BY id").await, ["a|", "a2|", "b|two", "b2|"]);
    assert_eq!(fixture.query("SELECT id FROM t WHERE contents = 'two'").await, ["b"]);
    assert_eq!(fixture.query("SELECT count(*) FROM t LIMIT 1").await, ["4"]);
    assert_eq!(fixture.query("SELECT 1 FROM t").await.len(), 4);
}

/// Texts that are stored as they are come as parts of whole pages.
#[tokio::test]
async fn scanned_rows_hold_no_more_memory_than_they_need() {
    let fixture = Fixture::new().await;
    fixture.create("t", texts_definition()).await;
    let insert = "INSERT INTO t SELECT cast(value AS varchar), repeat(md5(cast(value AS varchar)), 8) FROM generate_series(1, 30000)";
    assert_eq!(fixture.query(insert).await, ["30000"]);
    let batches = fixture.context().sql("SELECT id, contents FROM t").await.expect("it plans").collect().await.expect("it runs");
    assert!(batches.len() > 1, "one batch would be the page");
    for column in batches.iter().flat_map(RecordBatch::columns) {
        let needed = column.to_data().get_slice_memory_size().expect("texts");
        assert!(column.get_buffer_memory_size() < needed + needed / 2 + 1024, "{} for {needed} bytes", column.get_buffer_memory_size());
    }
}

#[tokio::test]
async fn lists_of_text_and_numbers_round_trip() {
    let fixture = Fixture::new().await;
    fixture.create("run1", system::node_definition()).await;
    let insert = "INSERT INTO run1 (run, question_id, node_id, depth, state, visit_count, value_sum, is_terminal, policy,
                  policy_version, corpus_version, seed, passage_ids, token_ids, token_logprobs)
                  VALUES ('run1', 'q', 0, 0, 'reasoning', 1, 0.5, false, 'tinyhop', 1, 3, 7, ['a', NULL, ''], [], [-0.5])";
    assert_eq!(fixture.query(insert).await, ["1"]);
    let fixture = fixture.restart().await;
    let select = "SELECT passage_ids, token_ids, token_logprobs, response FROM run1 WHERE NOT is_terminal";
    assert_eq!(fixture.query(select).await, ["[a, , ]|[]|[-0.5]|"]);
    assert_eq!(fixture.query("SELECT passage_ids[1] FROM run1 WHERE passage_ids[2] IS NULL").await, ["a"]);
}

#[tokio::test]
async fn update_and_delete_never_reach_rows() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("x")), ("b", None)])).await.unwrap();
    for statement in [
        "DELETE FROM t",
        "DELETE FROM t WHERE id IN (SELECT 'nobody')",
        "DELETE FROM t WHERE false",
        "UPDATE t SET contents = 'y' WHERE id = 'a'",
        "TRUNCATE TABLE t",
    ] {
        let result = match fixture.context().sql(statement).await {
            Ok(frame) => frame.collect().await.map(|_| ()),
            Err(error) => Err(error),
        };
        assert!(result.is_err(), "{statement}");
    }
    assert_eq!(fixture.query("SELECT * FROM t ORDER BY id").await, ["a|x", "b|"]);
}

#[tokio::test]
async fn a_new_constraint_has_a_name_and_is_checked_against_the_rows() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("x")), ("b", Some("x")), ("c", None), ("d", None)])).await.unwrap();
    let unique = |columns: &[&str]| table.definition().clone().with_constraint("t", None, false, columns).unwrap();
    let (one, both) = (unique(&["contents"]), unique(&["contents", "id"]));
    assert_eq!(one.constraint_names("t"), ["t_pkey", "t_contents_key"]);
    let twice = one.clone().with_constraint("t", None, false, &["contents"]).unwrap();
    assert_eq!(twice.constraint_names("t"), ["t_pkey", "t_contents_key", "t_contents_key1"]);
    let taken = one.clone().with_constraint("t", Some("t_pkey"), false, &["id"]).unwrap_err();
    assert_eq!(taken.to_string(), "constraint \"t_pkey\" for table \"t\" already exists");
    let second = one.clone().with_constraint("t", None, true, &["id"]).unwrap_err();
    assert_eq!(second.to_string(), "multiple primary keys for table \"t\" are not allowed");

    let rewrite = table.begin_rewrite().await.unwrap();
    let duplicate = rewrite.check_constraint(&one, "t_contents_key").await.unwrap_err();
    let expected = "could not create unique constraint \"t_contents_key\": key (contents)=(x) is duplicated in table \"t\"";
    assert_eq!(duplicate.to_string(), expected);
    rewrite.check_constraint(&both, "t_contents_id_key").await.unwrap();
    rewrite.redefine(&both, &["id".to_owned(), "contents".to_owned()]).await.unwrap();
    drop(table);

    let fixture = fixture.restart().await;
    let table = fixture.catalog.table("public", "t").await.unwrap();
    assert_eq!(table.definition(), &both);
    let unknown = table.definition().without_constraint("t", "t_contents_key").unwrap_err();
    assert!(matches!(unknown, Error::UnknownConstraint { .. }));
    let without = table.definition().without_constraint("t", "t_pkey").unwrap();
    assert_eq!((without.constraint_names("t"), without.schema), (vec!["t_contents_id_key".to_owned()], both.schema));
}

#[tokio::test]
async fn null_and_key_violations_are_named_and_leave_the_table() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("x"))])).await.unwrap();
    let data = fixture.path().join("public/t.lance/data");
    let files = file_count(&data);
    let version = table.latest().await.unwrap().version();

    let null: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None]));
    let null = append(&table, RecordBatch::try_from_iter([("id", null)]).unwrap()).await.unwrap_err();
    assert_eq!(null.to_string(), "null value in column \"id\" of table \"t\", which is NOT NULL");
    let within = append(&table, texts(&[("c", None), ("c", None)])).await.unwrap_err();
    assert_eq!(within.to_string(), "duplicate key value violates unique constraint \"t_pkey\": key (id)=(c) already exists in table \"t\"");
    let stored = append(&table, texts(&[("d", None), ("a", None)])).await.unwrap_err();
    assert!(matches!(stored, Error::UniqueViolation { key, .. } if key == "(id)=(a)"));
    // The second batch repeats the first: the first is written already when it shows.
    let batches = vec![texts(&[("e", None)]), texts(&[("e", None)])];
    assert!(matches!(table.append(stream_of(batches)).await, Err(Error::UniqueViolation { .. })));
    let through_sql = fixture.context().sql("INSERT INTO t VALUES ('a', '')").await.unwrap().collect().await;
    let DataFusionError::External(inner) = through_sql.unwrap_err() else { panic!("our error, unwrapped") };
    assert!(matches!(inner.downcast_ref(), Some(Error::UniqueViolation { .. })));

    assert_eq!(fixture.query("SELECT * FROM t").await, ["a|x"]);
    assert_eq!(table.latest().await.unwrap().version(), version);
    assert_eq!(file_count(&data), files, "files of failed writes are gone");
    // The values of the failed writes are free.
    append(&table, texts(&[("b", None), ("c", None), ("d", None), ("e", None)])).await.unwrap();
    drop(table);
    let fixture = fixture.restart().await;
    let table = fixture.catalog.table("public", "t").await.unwrap();
    assert!(matches!(append(&table, texts(&[("e", None)])).await, Err(Error::UniqueViolation { .. })));
}

#[tokio::test]
async fn a_key_of_two_columns_is_one_key() {
    let fixture = Fixture::new().await;
    let schema = Schema::new(vec![Field::new("run", DataType::Utf8, true), Field::new("node", DataType::Int64, true)]);
    let definition = TableDefinition::new(&schema).unwrap().with_primary_key(&["node", "run"]).unwrap();
    let table = fixture.create("nodes", definition).await;
    let rows = |runs: &[&str], nodes: &[i64]| {
        let runs: ArrayRef = Arc::new(StringArray::from(runs.to_vec()));
        let nodes: ArrayRef = Arc::new(Int64Array::from(nodes.to_vec()));
        RecordBatch::try_from_iter([("run", runs), ("node", nodes)]).unwrap()
    };
    append(&table, rows(&["a", "a", "b"], &[1, 2, 1])).await.unwrap();
    let violation = append(&table, rows(&["b", "b"], &[2, 1])).await.unwrap_err();
    assert!(matches!(violation, Error::UniqueViolation { key, .. } if key == "(node, run)=(1, b)"));
}

#[tokio::test]
async fn columns_are_cast_by_position_and_trailing_ones_are_null() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", passages_definition(2)).await;
    let ids: ArrayRef = Arc::new(StringViewArray::from_iter_values(["a", "b"]));
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None]));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>([Some([Some(1.0), Some(2.0)]), None]));
    let rows = RecordBatch::try_from_iter([("x", ids.clone()), ("y", numbers), ("z", lists)]).unwrap();
    append(&table, rows).await.unwrap();
    let short: ArrayRef = Arc::new(StringArray::from(vec!["c"]));
    append(&table, RecordBatch::try_from_iter([("id", short)]).unwrap()).await.unwrap();
    assert_eq!(fixture.query("SELECT * FROM t ORDER BY id").await, ["a|7|[1.0, 2.0]", "b||", "c||"]);

    let wide: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>([None, Some([Some(1.0), Some(2.0), Some(3.0)])]));
    let huge: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1)]), None]));
    for column in [wide, huge] {
        // A vector of another width has an error of its own.
        let rows = [("id", ids.clone()), ("n", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef), ("v", column)];
        let error = append(&table, RecordBatch::try_from_iter_with_nullable(rows.map(|(n, c)| (n, c, true))).unwrap()).await;
        assert!(matches!(error, Err(Error::WrongType { .. } | Error::Width { .. })), "{error:?}");
    }
    let words: ArrayRef = Arc::new(StringArray::from(vec!["1", "one"]));
    let error = append(&table, RecordBatch::try_from_iter([("id", ids.clone()), ("n", words)]).unwrap()).await;
    assert!(matches!(error, Err(Error::WrongType { .. })), "{error:?}");
    let four = RecordBatch::try_from_iter([("a", ids.clone()), ("b", ids.clone()), ("c", ids.clone()), ("d", ids)]);
    assert!(matches!(append(&table, four.unwrap()).await, Err(Error::WrongType { .. })));
    assert_eq!(table.latest().await.unwrap().row_count().await.unwrap(), 3);
}

#[tokio::test]
async fn create_table_as_is_all_or_nothing() {
    let fixture = Fixture::new().await;
    let public = fixture.path().join("public");
    let made = fixture.catalog.create_table_from("public", "t", texts_definition(), stream_of(vec![texts(&[("a", None)])]));
    assert_eq!(made.await.unwrap().row_count().await.unwrap(), 1);

    let failing =
        stream::iter([Ok(texts(&[("a", None)])), Err(DataFusionError::Execution("the query failed in its second batch".to_owned()))]);
    let failing = Box::pin(RecordBatchStreamAdapter::new(texts(&[]).schema(), failing));
    let failed = fixture.catalog.create_table_from("public", "failed", texts_definition(), failing).await;
    assert!(failed.unwrap_err().to_string().contains("second batch"));
    let twice = stream_of(vec![texts(&[("a", None), ("a", None)])]);
    let failed = fixture.catalog.create_table_from("public", "failed", texts_definition(), twice).await;
    assert!(matches!(failed, Err(Error::UniqueViolation { .. })));

    // Cancelled: the rows never end, the future is dropped.
    let endless = stream::iter([Ok(texts(&[("a", None)]))]).chain(stream::pending());
    let endless = Box::pin(RecordBatchStreamAdapter::new(texts(&[]).schema(), endless));
    let running = fixture.catalog.create_table_from("public", "failed", texts_definition(), endless);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(300), running).await.is_err());

    assert_eq!(fixture.catalog.tables("public").unwrap(), ["t"]);
    assert_eq!(file_count(&public), 1, "no folder is left beside t.lance");
}

#[tokio::test]
async fn a_table_made_from_another_does_not_inherit_its_key() {
    let fixture = Fixture::new().await;
    let source = fixture.create("a", texts_definition()).await;
    append(&source, texts(&[("x", None)])).await.unwrap();
    let frame = fixture.context().sql("SELECT * FROM a").await.unwrap();
    let definition = TableDefinition::new(frame.schema().as_arrow()).unwrap();
    let rows = frame.execute_stream().await.unwrap();
    let copy = fixture.catalog.create_table_from("public", "b", definition, rows).await.unwrap();
    assert_eq!(copy.definition().primary_key, Vec::<String>::new());
    append(&copy, texts(&[("x", None)])).await.unwrap();
    assert_eq!(fixture.query("SELECT count(*) FROM b").await, ["2"]);
}

#[tokio::test]
async fn a_statement_reads_one_version() {
    let fixture = Fixture::new().await;
    let before = fixture.create("t", texts_definition()).await;
    append(&before, texts(&[("a", None)])).await.unwrap();
    assert_eq!(before.row_count().await.unwrap(), 0);
    let after = before.latest().await.unwrap();
    assert!(after.version() > before.version());
    assert_eq!(after.row_count().await.unwrap(), 1);
}

#[tokio::test]
async fn concurrent_appends_queue_and_lose_nothing() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    let appends = (0..8).map(|number| {
        let table = table.clone();
        tokio::spawn(async move { append(&table, texts(&[(&format!("r{number}"), None)])).await })
    });
    for result in futures::future::join_all(appends).await {
        assert_eq!(result.unwrap().unwrap(), 1);
    }
    assert_eq!(fixture.query("SELECT count(DISTINCT id) FROM t").await, ["8"]);
}

#[tokio::test]
async fn upsert_replaces_by_key_and_delete_where_removes() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("1")), ("b", Some("2")), ("c", None)])).await.unwrap();
    table.upsert(&texts(&[("b", Some("two")), ("d", Some("4"))])).await.unwrap();
    assert_eq!(fixture.query("SELECT * FROM t ORDER BY id").await, ["a|1", "b|two", "c|", "d|4"]);
    assert!(matches!(table.upsert(&texts(&[("e", None), ("e", None)])).await, Err(Error::UniqueViolation { .. })));
    assert_eq!(table.delete_where(col("id").eq(lit("b"))).await.unwrap(), 1);
    let unclear = datafusion::functions::expr_fn::upper(col("id")).eq(lit("A"));
    assert!(matches!(table.delete_where(unclear).await, Err(Error::NotSupported(_))));
    assert_eq!(fixture.query("SELECT id FROM t ORDER BY id").await, ["a", "c", "d"]);
    // A removed key is free again, a kept one is not.
    append(&table, texts(&[("b", None)])).await.unwrap();
    assert!(matches!(append(&table, texts(&[("d", None)])).await, Err(Error::UniqueViolation { .. })));
}

#[tokio::test]
async fn every_commit_is_synced_before_it_is_acknowledged() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", passages_definition(2)).await;
    let durability = fixture.catalog.storage().durability();
    let (commits, files) = (durability.num_commits(), durability.num_files_synced());
    assert!(commits >= 1, "the wrapper sees the manifest of a new table");
    append(&table, passages(&[1], &[vec![1.0, 2.0]])).await.unwrap();
    assert_eq!(durability.num_commits(), commits + 1);
    assert!(durability.num_files_synced() > files, "the data file is synced ahead of the manifest");
    drop(table);
    let fixture = fixture.restart().await;
    assert_eq!(fixture.query("SELECT * FROM t").await, ["p1|1|[1.0, 2.0]"]);
}

fn file_count(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// A statement that is cancelled while its version is being put may have committed or not; whoever writes next knows which.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_after_a_cancelled_one_sees_whether_it_is_there() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    let mut num_cancelled = 0;
    for round in 0..60_u64 {
        let key = format!("k{round}");
        let rows = || texts(&[(key.as_str(), None)]);
        let pause = std::time::Duration::from_micros(round % 20 * 400);
        num_cancelled += usize::from(tokio::time::timeout(pause, append(&table, rows())).await.is_err());
        match append(&table, rows()).await {
            Ok(_) | Err(Error::UniqueViolation { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        if round % 10 == 9 {
            table.vacuum(std::time::Duration::ZERO, &std::collections::HashSet::new()).await.unwrap();
        }
    }
    assert!(num_cancelled > 0);
    assert_eq!(fixture.query("SELECT count(*), count(DISTINCT id) FROM t").await, ["60|60"]);
}

#[tokio::test]
async fn rows_planned_for_other_columns_are_refused() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    let altered = table.definition().with_default_changed("contents", Some("'x'")).unwrap();
    let order = ["id".to_owned(), "contents".to_owned()];
    table.begin_rewrite().await.unwrap().redefine(&altered, &order).await.unwrap();
    let refused = append(&table, texts(&[("a", None)])).await;
    assert!(matches!(refused, Err(Error::Altered { .. })), "{refused:?}");
    append(&table.latest().await.unwrap(), texts(&[("a", None)])).await.unwrap();
}
