//! The names of output columns, as PostgreSQL gives them.

use futures::TryStreamExt;
use rolloutdb::engine::Response;
use rolloutdb::server::sqlstate::sqlstate;
use rolloutdb::{Database, Result, Session};

async fn run(session: &Session, sql: &str) -> Result<Vec<String>> {
    let rows = session.sql(sql).await?;
    let names: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
    let batches: Vec<_> = rows.try_collect().await?;
    for batch in batches {
        assert_eq!(batch.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>(), names, "{sql}");
    }
    Ok(names)
}

async fn table() -> Result<(tempfile::TempDir, Session)> {
    let directory = tempfile::tempdir().expect("a directory");
    let session = Database::open(directory.path()).await?.session();
    run(&session, "CREATE TABLE t (id bigint PRIMARY KEY, word text, v vector(2))").await?;
    run(&session, "INSERT INTO t VALUES (1, 'one', '[1,0]'), (2, 'two', '[0,1]')").await?;
    Ok((directory, session))
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_those_of_postgres_and_may_repeat() -> Result<()> {
    let (_directory, session) = table().await?;
    for (sql, names) in [
        ("SELECT id, id, t.id FROM t ORDER BY id", vec!["id", "id", "id"]),
        ("SELECT count(*), count(*), max(id) FROM t", vec!["count", "count", "max"]),
        ("SELECT (SELECT 1), (SELECT 1), 1, 1", vec!["?column?", "?column?", "?column?", "?column?"]),
        ("SELECT a.id, b.id, a.id + b.id FROM t a JOIN t b ON a.id = b.id ORDER BY b.id", vec!["id", "id", "?column?"]),
        ("SELECT id, id::text, word AS id FROM t", vec!["id", "id", "id"]),
        ("SELECT *, id, lower(word) FROM t ORDER BY id", vec!["id", "word", "v", "id", "lower"]),
        ("SELECT DISTINCT lower(word) FROM t ORDER BY lower(word)", vec!["lower"]),
        ("SELECT lower(word), count(*) FROM t GROUP BY lower(word) ORDER BY count(*), 1 LIMIT 1", vec!["lower", "count"]),
        ("SELECT id, v <-> '[1,0]' FROM t ORDER BY v <-> '[1,0]' LIMIT 1", vec!["id", "?column?"]),
        ("SELECT max(id) FROM t UNION ALL SELECT 1", vec!["max"]),
        ("WITH x AS (SELECT id FROM t) SELECT id, id FROM x", vec!["id", "id"]),
        ("INSERT INTO t VALUES (3, 'three', NULL) RETURNING id, id, upper(word)", vec!["id", "id", "upper"]),
        ("SELECT now()", vec!["now"]),
        ("SELECT * FROM (SELECT max(id), lower('A') FROM t) s", vec!["max", "lower"]),
        ("SELECT s.max + 1 AS next, s.* FROM (SELECT max(id) FROM t) s", vec!["next", "max"]),
        ("SELECT * FROM (SELECT count(*), count(id), 1, 2 FROM t) s", vec!["count", "count", "?column?", "?column?"]),
        ("SELECT * FROM (SELECT id, t.id, word AS id FROM t) s", vec!["id", "id", "id"]),
        ("SELECT * FROM (SELECT unnest(make_array(1, 2))) s", vec!["unnest"]),
        ("SELECT * FROM (SELECT CASE WHEN id > 1 THEN 1 END, coalesce(id, 0), id::text FROM t) s", vec!["case", "coalesce", "id"]),
        ("SELECT * FROM (SELECT max(id) FROM t UNION ALL SELECT 1) s ORDER BY max", vec!["max"]),
        ("WITH w AS (SELECT count(*) FROM t) SELECT w.count, * FROM w", vec!["count", "count"]),
        ("SELECT id::text FROM t ORDER BY id", vec!["id"]),
        ("SELECT DISTINCT id::text FROM t ORDER BY id", vec!["id"]),
        ("SELECT * FROM t a JOIN t b USING (word) ORDER BY word", vec!["word", "id", "v", "id", "v"]),
    ] {
        assert_eq!(run(&session, sql).await?, names, "{sql}");
        let statement = session.parse(sql)?.remove(0);
        let described = session.describe(&statement).await?.columns;
        assert_eq!(described.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), names, "{sql}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_keep_their_names() -> Result<()> {
    let (_directory, session) = table().await?;
    let text = "SELECT id, id, v <-> '[1,0]' FROM t ORDER BY v <-> '[1,0]' LIMIT 1";
    let prepared = session.prepare(session.parse(text)?.remove(0)).await?;
    for _ in 0..3 {
        let Response::Rows { stream, .. } = session.execute_prepared(&prepared, vec![]).await? else { panic!("a query has rows") };
        let names: Vec<String> = stream.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["id", "id", "?column?"]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_and_views_have_the_names_once() -> Result<()> {
    let (_directory, session) = table().await?;
    run(&session, "CREATE TABLE made AS SELECT count(*), max(id) FROM t").await?;
    assert_eq!(run(&session, "SELECT count, max FROM made").await?, ["count", "max"]);
    run(&session, "CREATE VIEW seen AS SELECT word, length(word) FROM t").await?;
    assert_eq!(run(&session, "SELECT word, length FROM seen ORDER BY length").await?, ["word", "length"]);
    run(&session, "CREATE TABLE twice (a bigint, b bigint)").await?;
    run(&session, "INSERT INTO twice SELECT id, id FROM t").await?;
    for refused in ["CREATE TABLE same AS SELECT id, id FROM t", "CREATE VIEW same AS SELECT 1, 2"] {
        let error = run(&session, refused).await.expect_err(refused);
        assert_eq!(sqlstate(&error), "42701", "{refused}: {error}");
    }
    Ok(())
}
