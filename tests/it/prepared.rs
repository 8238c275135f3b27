//! A statement that runs again with the plan of its first run gives what a new plan gives.

use std::sync::Arc;

use arrow::array::{AsArray, FixedSizeListArray, RecordBatch};
use arrow::datatypes::{Float32Type, Int64Type};
use datafusion::common::ScalarValue;
use futures::TryStreamExt;
use rolloutdb::engine::{PreparedStatement, Response};
use rolloutdb::{Database, Result, Session};

use crate::database::{run, temporary};

async fn ids(response: Response) -> Result<Vec<i64>> {
    let Response::Rows { stream, .. } = response else { panic!("a query has rows") };
    let batches: Vec<RecordBatch> = stream.try_collect().await?;
    Ok(batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect())
}

/// The ids that the prepared statement gives; the same as the statement planned for these values.
async fn found(session: &Session, prepared: &PreparedStatement, parameters: &[ScalarValue]) -> Result<Vec<i64>> {
    let kept = ids(session.execute_prepared(prepared, parameters.to_vec()).await?).await?;
    let planned = ids(session.execute(prepared.statement(), parameters.to_vec()).await?).await?;
    assert_eq!(kept, planned, "{parameters:?}");
    Ok(kept)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_plan_gives_all_rows_again_when_there_are_fewer_than_asked_for() -> Result<()> {
    let data = temporary();
    let session = Database::open(data.path()).await?.session();
    run(&session, "CREATE TABLE points (id bigint PRIMARY KEY, kind text, v vector(2))").await?;
    run(&session, "INSERT INTO points VALUES (1, 'a', '[1,1]'), (2, 'B', '[2,1]'), (3, 'a', NULL)").await?;
    let prepare = async |sql: &str| session.prepare(session.parse(sql)?.remove(0)).await;
    let all = prepare("SELECT id FROM points ORDER BY v <-> $1 LIMIT 10").await?;
    let of_kind = prepare("SELECT id FROM points WHERE kind = 'a' ORDER BY v <-> $1 LIMIT 10").await?;
    let by_function = prepare("SELECT id FROM points WHERE upper(kind) = $2 ORDER BY v <-> $1 LIMIT 10").await?;
    for _ in 0..12 {
        assert_eq!(found(&session, &all, &[vector([0.0, 1.0])]).await?, [1, 2, 3]);
        assert_eq!(found(&session, &of_kind, &[vector([0.0, 1.0])]).await?, [1, 3]);
        assert_eq!(found(&session, &by_function, &[vector([0.0, 1.0]), ScalarValue::from("B")]).await?, [2]);
        // A run that ends early leaves nothing behind.
        drop(session.execute_prepared(&all, vec![vector([0.0, 1.0])]).await?);
    }
    Ok(())
}

fn vector(numbers: [f32; 2]) -> ScalarValue {
    let row = Some(numbers.map(Some));
    ScalarValue::FixedSizeList(Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>([row], 2)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_plan_sees_new_values_writes_and_settings() -> Result<()> {
    let data = temporary();
    let session = Database::open(data.path()).await?.session();
    run(&session, "CREATE TABLE points (id bigint PRIMARY KEY, kind bigint, words text, v vector(2))").await?;
    let rows = "SELECT id, id % 3, 'word' || (id % 7), '[' || id || ',1]' FROM generate_series(1, 60) AS g (id)";
    run(&session, &format!("INSERT INTO points {rows}")).await?;
    run(&session, "CREATE INDEX points_words ON points USING bm25 (words)").await?;
    let prepare = async |sql: &str| session.prepare(session.parse(sql)?.remove(0)).await;
    let nearest = prepare("SELECT id FROM points ORDER BY v <-> $1 LIMIT 3").await?;
    let filtered = prepare("SELECT id FROM points WHERE kind = $1 ORDER BY v <-> $2 LIMIT 2").await?;
    let words = prepare("SELECT id FROM text_search(points, $1, k => 2)").await?;
    // Often enough for the table to be in memory, too.
    for round in 0..12_i64 {
        let place = round as f32 * 5.0;
        let best = found(&session, &nearest, &[vector([place, 1.0])]).await?;
        assert_eq!(best.len(), 3);
        let kind = ScalarValue::Int64(Some(round % 3));
        let of_kind = found(&session, &filtered, &[kind, vector([place, 1.0])]).await?;
        assert!(of_kind.len() == 2 && of_kind.iter().all(|id| id % 3 == round % 3 || *id >= 1000), "{of_kind:?}");
        assert_eq!(found(&session, &words, &[ScalarValue::from(format!("word{}", round % 7))]).await?.len(), 2);
        match round {
            3 => run(&session, "INSERT INTO points VALUES (1000, 1, 'word3', '[15,1]')").await?,
            5 => run(&session, "DELETE FROM points WHERE id = 25").await?,
            7 => run(&session, "CREATE INDEX points_v ON points USING hnsw (v vector_l2_ops)").await?,
            9 => run(&session, "SET hnsw.ef_search = 100").await?,
            _ => vec![],
        };
    }
    let mut best = found(&session, &nearest, &[vector([15.0, 1.0])]).await?;
    best.truncate(2);
    best.sort_unstable();
    assert_eq!(best, [15, 1000], "the row that came later is at the same place");
    assert!(!found(&session, &nearest, &[vector([25.0, 1.0])]).await?.contains(&25));
    assert!(found(&session, &filtered, &[ScalarValue::Int64(None), vector([1.0, 1.0])]).await?.is_empty(), "no kind equals NULL");
    assert!(found(&session, &nearest, &[ScalarValue::from("[30,1]")]).await?.contains(&30), "a vector as its text");
    run(&session, "DROP TABLE points").await?;
    assert!(session.execute_prepared(&nearest, vec![vector([1.0, 1.0])]).await.is_err(), "the table is gone");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_found_by_key_and_by_condition_whatever_was_written_meanwhile() -> Result<()> {
    let data = temporary();
    let session = Database::open(data.path()).await?.session();
    run(&session, "CREATE TABLE items (id bigint PRIMARY KEY, name text UNIQUE, kind bigint)").await?;
    run(&session, "CREATE TABLE named (name text PRIMARY KEY, id bigint)").await?;
    run(&session, "INSERT INTO items SELECT id, 'item ' || id, id % 10 FROM generate_series(1, 100000) AS g (id)").await?;
    run(&session, "INSERT INTO named SELECT name, id FROM items WHERE id <= 1000").await?;
    let prepare = async |sql: &str| session.prepare(session.parse(sql)?.remove(0)).await;
    let by_key = prepare("SELECT id, name FROM items WHERE id = $1").await?;
    let by_text = prepare("SELECT id FROM named WHERE name = $1").await?;
    let between = prepare("SELECT id FROM items WHERE id >= $1 AND id < $2 ORDER BY id").await?;
    let limited = prepare("SELECT id FROM items WHERE kind = $1 ORDER BY id LIMIT 3").await?;
    let by_function = prepare("SELECT id FROM items WHERE upper(name) = $1 AND id < 100").await?;
    let every = prepare("SELECT id FROM items ORDER BY id").await?;
    run(&session, "CREATE TABLE empty (id bigint PRIMARY KEY, status text)").await?;
    let waiting = prepare("SELECT id FROM empty WHERE status = $1").await?;
    let long = |value: i64| ScalarValue::Int64(Some(value));
    // Often enough for the tables to be in memory, too.
    for round in 0..14_i64 {
        let expected: &[i64] = if round > 5 { &[] } else { &[70_000] };
        assert_eq!(found(&session, &by_key, &[long(70_000)]).await?, expected, "round {round}");
        assert_eq!(found(&session, &by_key, &[long(5)]).await?, [5], "round {round}");
        assert_eq!(found(&session, &by_key, &[long(-1)]).await?, [0_i64; 0]);
        let of_name: i64 = if round > 3 { -7 } else { 7 };
        assert_eq!(found(&session, &by_text, &[ScalarValue::from("item 7")]).await?, [of_name], "round {round}");
        assert_eq!(found(&session, &between, &[long(99_990), long(200_000)]).await?.len(), if round > 8 { 12 } else { 11 });
        // Too many for one batch from memory.
        assert!(found(&session, &between, &[long(1), long(80_000)]).await?.len() > 79_000);
        assert_eq!(found(&session, &limited, &[long(3)]).await?, [3, 13, 23]);
        assert_eq!(found(&session, &by_function, &[ScalarValue::from("ITEM 42")]).await?, [42]);
        let late: &[i64] = if round > 11 { &[1] } else { &[] };
        assert_eq!(found(&session, &waiting, &[ScalarValue::from("new")]).await?, late, "round {round}");
        if round % 6 == 0 {
            assert!(found(&session, &every, &[]).await?.len() > 99_000);
        }
        match round {
            3 => run(&session, "UPDATE named SET id = -id WHERE name = 'item 7'").await?,
            5 => run(&session, "DELETE FROM items WHERE id = 70000").await?,
            // The same key again, in a row of its own.
            7 => run(&session, "UPDATE items SET name = 'five' WHERE id = 5").await?,
            8 => run(&session, "INSERT INTO items VALUES (150000, 'late', 0)").await?,
            10 => run(&session, "OPTIMIZE items").await?,
            11 => run(&session, "INSERT INTO empty VALUES (1, 'new')").await?,
            12 => run(&session, "TRUNCATE empty; INSERT INTO empty VALUES (1, 'new')").await?,
            6 => run(&session, "ALTER TABLE items ADD COLUMN note text").await?,
            _ => vec![],
        };
    }
    assert!(found(&session, &by_key, &[ScalarValue::Int64(None)]).await?.is_empty(), "no key is NULL");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_plan_ends_when_a_name_stands_for_something_else() -> Result<()> {
    let data = temporary();
    let database = Database::open(data.path()).await?;
    let (session, other) = (database.session(), database.session());
    run(&session, "CREATE SCHEMA app; CREATE TABLE t (id bigint); INSERT INTO t VALUES (1), (7)").await?;
    run(&session, "CREATE VIEW app.v AS SELECT id FROM public.t WHERE id < 10; SET search_path = app, public").await?;
    let prepare = async |sql: &str| session.prepare(session.parse(sql)?.remove(0)).await;
    let (of_view, of_table) = (prepare("SELECT id FROM v ORDER BY id").await?, prepare("SELECT id FROM t ORDER BY id").await?);
    for _ in 0..3 {
        assert_eq!(found(&session, &of_view, &[]).await?, [1, 7]);
        assert_eq!(found(&session, &of_table, &[]).await?, [1, 7]);
    }
    run(&other, "CREATE OR REPLACE VIEW app.v AS SELECT id FROM public.t WHERE id < 5").await?;
    assert_eq!(found(&session, &of_view, &[]).await?, [1]);
    run(&other, "CREATE TABLE app.t (id bigint); INSERT INTO app.t VALUES (3)").await?;
    assert_eq!(found(&session, &of_table, &[]).await?, [3], "app is before public");
    run(&other, "DROP TABLE app.t").await?;
    assert_eq!(found(&session, &of_table, &[]).await?, [1, 7]);
    Ok(())
}
