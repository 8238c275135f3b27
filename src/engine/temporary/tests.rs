//! Names that stand for temporary tables, and what else knows of them: plans that are kept, other sessions, jobs, files.

use std::path::Path;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::TryStreamExt;

use crate::engine::{Database, Response, Session};
use crate::error::{Error, Result};

async fn run(session: &Session, sql: &str) -> Result<()> {
    session.sql(sql).await?.try_collect::<Vec<_>>().await.map(|_| ()).map_err(Into::into)
}

async fn ids(response: Response) -> Result<Vec<i64>> {
    let Response::Rows { stream, .. } = response else { panic!("a query has rows") };
    let batches: Vec<RecordBatch> = stream.try_collect().await?;
    Ok(batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect())
}

async fn found(session: &Session, sql: &str) -> Result<Vec<i64>> {
    ids(session.execute(&session.parse(sql)?.remove(0), vec![]).await?).await
}

async fn sqlstate(session: &Session, sql: &str) -> &'static str {
    run(session, sql).await.expect_err(sql).sqlstate()
}

fn schemas_left(data: &Path) -> usize {
    std::fs::read_dir(data.join("tables/.temporary")).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_plan_is_for_the_table_that_its_name_stands_for() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = Database::open(data.path()).await?.session();
    run(&session, "CREATE TABLE t (id bigint, v vector(2)); INSERT INTO t VALUES (1, '[1,0]'), (2, '[0,1]')").await?;
    let prepare = async |sql: &str| session.prepare(session.parse(sql)?.remove(0)).await;
    let nearest = prepare("SELECT id FROM t ORDER BY v <-> '[1,0]' LIMIT 1").await?;
    let searched = prepare("SELECT id FROM vector_search(t, '[1,0]', k => 1)").await?;
    let expect = async |id: i64, when: &str| -> Result<()> {
        for prepared in [&nearest, &searched] {
            for _ in 0..3 {
                assert_eq!(ids(session.execute_prepared(prepared, vec![]).await?).await?, [id], "{when}");
            }
        }
        Ok(())
    };
    expect(1, "the permanent table").await?;
    run(&session, "CREATE TEMP TABLE t (id bigint, v vector(2)); INSERT INTO t VALUES (3, '[1,0]')").await?;
    expect(3, "a temporary one of its name").await?;
    run(&session, "ALTER TABLE t RENAME TO u").await?;
    expect(1, "it has another name").await?;
    run(&session, "ALTER TABLE u RENAME TO t").await?;
    expect(3, "it has its name again").await?;
    run(&session, "DROP TABLE t").await?;
    expect(1, "it is gone").await?;
    run(&session, "CREATE TEMP VIEW t AS SELECT 4 AS id, v FROM t").await?;
    assert_eq!(ids(session.execute_prepared(&nearest, vec![]).await?).await?, [4]);
    run(&session, "DISCARD TEMP").await?;
    expect(1, "the view is gone").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_sees_it_and_it_ends_with_its_session() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(data.path()).await?;
    let (owner, other) = (database.session(), database.session());
    run(&owner, "CREATE TEMP TABLE t AS SELECT 1 AS id; CREATE TEMP VIEW v AS SELECT id FROM t").await?;
    let schema = owner.temporary().name().to_owned();
    assert_eq!(found(&owner, "SELECT id FROM v").await?, [1]);
    assert_eq!(found(&owner, &format!("SELECT t.id FROM {schema}.t WHERE {schema}.t.id = 1")).await?, [1]);
    assert_eq!(sqlstate(&other, "SELECT id FROM t").await, "42P01");
    assert_eq!(sqlstate(&other, "SELECT id FROM pg_temp.t").await, "42P01");
    for statement in [
        format!("SELECT id FROM {schema}.t"),
        format!("SELECT id FROM {schema}.v"),
        format!("SELECT 1 WHERE EXISTS (SELECT 1 FROM {schema}.t)"),
        format!("SELECT id FROM text_search('{schema}.t', 'x')"),
        format!("INSERT INTO {schema}.t VALUES (2)"),
        format!("UPDATE {schema}.t SET id = 2"),
        format!("DROP TABLE {schema}.t"),
        format!("CREATE TABLE {schema}.u (id bigint)"),
        format!("COPY {schema}.t TO STDOUT"),
        format!("DROP SCHEMA {schema} CASCADE"),
    ] {
        assert_eq!(sqlstate(&other, &statement).await, "0A000", "{statement}");
    }
    let count = "SELECT count(*) FROM pg_class WHERE relname = 't' AND relkind = 'r'";
    assert_eq!((found(&owner, count).await?, found(&other, count).await?), (vec![1], vec![0]));

    assert_eq!(schemas_left(data.path()), 1);
    drop(owner);
    assert_eq!(schemas_left(data.path()), 0);
    assert!(database.shared.catalog.rollout_schema(&schema).is_err());
    assert!(database.shared.privileges.list().iter().all(|(object, _)| !object.is_temporary()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_role_a_session_has_may_make_them_and_no_file_says_so() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(data.path()).await?;
    let session = database.session();
    run(&session, "CREATE ROLE alice; CREATE ROLE bob").await?;
    let before = std::fs::read(data.path().join("privileges.json")).ok();
    for role in ["alice", "bob"] {
        run(&session, &format!("SET ROLE {role}; CREATE TEMP TABLE of_{role} (id bigint); INSERT INTO of_{role} VALUES (1)")).await?;
        assert_eq!(found(&session, &format!("SELECT id FROM of_{role}")).await?, [1]);
        assert_eq!(sqlstate(&session, "CREATE TABLE t (id bigint)").await, "42501");
    }
    assert_eq!(sqlstate(&session, "SELECT id FROM of_alice").await, "42501");
    run(&session, "DISCARD ALL").await?;
    assert_eq!(sqlstate(&session, "SELECT id FROM of_bob").await, "42P01");
    assert_eq!(std::fs::read(data.path().join("privileges.json")).ok(), before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_and_agents_do_not_see_it() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = Database::open(data.path()).await?.session();
    run(&session, "CREATE TABLE t (id bigint); CREATE TEMP TABLE t (id bigint); CREATE INDEX t_id ON t USING btree (id)").await?;
    for statement in ["OPTIMIZE t ASYNC", "REINDEX INDEX t_id ASYNC", "COPY (SELECT * FROM pg_temp.t) TO '/dev/null' ASYNC"] {
        let refused = run(&session, statement).await.expect_err(statement);
        assert!(matches!(&refused, Error::NotSupported(message) if message.contains("temporary table")), "{statement}: {refused}");
    }
    run(&session, "OPTIMIZE t; REINDEX INDEX t_id; DROP INDEX t_id").await?;
    Ok(())
}
