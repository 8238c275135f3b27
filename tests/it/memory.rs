//! The memory budget, of all statements and of each: sorts and aggregations over more than it spill and give the same rows; what can not spill fails with
//! 53200, and no more.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use rolloutdb::server::sqlstate::{message, sqlstate};
use rolloutdb::{Database, DatabaseOptions, Result, Session};

/// Of which queries get two thirds.
const LIMIT: u64 = 128 << 20;
/// 300 000 rows of 320 bytes that do not compress: more than queries may hold, and sorts hold their rows twice.
const BIG: &str = "CREATE TABLE big AS SELECT value AS id, value * 7919 % 300007 AS k, \
    repeat(md5(CAST(value AS text)), 10) AS text FROM generate_series(1, 300000) s(value)";

/// What goes to the disk.
const SPILLING: [&str; 3] = [
    "SELECT id, text FROM big ORDER BY text, id",
    "SELECT k, count(*) AS n, max(text) AS text FROM big GROUP BY k ORDER BY k",
    "SELECT DISTINCT text FROM big ORDER BY text DESC",
];

async fn open(directory: &Path, memory_limit: Option<u64>) -> Result<Database> {
    Database::open_with(directory, DatabaseOptions { memory_limit, ..DatabaseOptions::default() }).await
}

/// Number of rows, and a digest of them in order.
async fn digest(session: &Session, sql: &str) -> Result<(usize, u64)> {
    let mut rows = session.sql(sql).await?;
    let (mut count, mut hasher) = (0, DefaultHasher::new());
    while let Some(batch) = rows.try_next().await? {
        count += batch.num_rows();
        for row in 0..batch.num_rows() {
            for column in batch.columns() {
                arrow::util::display::array_value_to_string(column, row).expect("a value").hash(&mut hasher);
            }
        }
    }
    Ok((count, hasher.finish()))
}

async fn spilled(session: &Session, sql: &str) -> Result<bool> {
    let batches: Vec<_> = session.sql(&format!("EXPLAIN ANALYZE {sql}")).await?.try_collect().await?;
    let text = pretty_format_batches(&batches).expect("rows can be shown").to_string();
    let spills = text.split("spill_count=").skip(1).filter_map(|rest| rest.split([',', ']', ' ']).next()?.parse::<u64>().ok());
    Ok(spills.sum::<u64>() > 0)
}

async fn code_of(session: &Session, sql: &str) -> String {
    match session.sql(sql).await {
        Err(error) => sqlstate(&error).to_owned(),
        Ok(rows) => match rows.try_collect::<Vec<_>>().await {
            Ok(_) => "no error".to_owned(),
            Err(error) => {
                let error = rolloutdb::Error::from(error);
                assert!(message(&error).contains("--memory-limit"), "{}", message(&error));
                sqlstate(&error).to_owned()
            }
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_the_memory_spills_or_is_refused() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut expected = Vec::new();
    {
        let database = open(directory.path(), None).await?;
        let session = database.session();
        session.sql(BIG).await?.try_collect::<Vec<_>>().await?;
        for query in SPILLING {
            expected.push(digest(&session, query).await?);
            assert!(!spilled(&session, query).await?, "without a limit nothing spills: {query}");
        }
    }
    assert_eq!(expected[0].0, 300_000);

    let database = open(directory.path(), Some(LIMIT)).await?;
    let session = database.session();
    for (query, expected) in SPILLING.iter().zip(&expected) {
        assert_eq!(digest(&session, query).await?, *expected, "{query}");
        assert!(spilled(&session, query).await?, "{query}");
    }

    let join = "SELECT count(*) FROM big a JOIN big b ON a.text = b.text";
    for query in ["SELECT array_length(array_agg(text)) FROM big", join] {
        assert_eq!(code_of(&session, query).await, "53200", "{query}");
        // The session is as good as before.
        assert_eq!(digest(&session, "SELECT count(*) FROM big").await?.0, 1);
    }
    // What the message advises.
    session.sql("SET datafusion.optimizer.prefer_hash_join = false").await?;
    let rows: Vec<_> = session.sql(join).await?.try_collect().await?;
    assert_eq!(rows[0].column(0).as_primitive::<Int64Type>().value(0), 300_000);

    let left = std::fs::read_dir(directory.path().join("spill")).expect("the folder of spilled rows").flatten();
    let left: usize = left.map(|folder| std::fs::read_dir(folder.path()).map_or(0, Iterator::count)).sum();
    assert_eq!(left, 0, "spilled rows go with their query");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_has_a_bound_of_its_own() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let database = open(directory.path(), Some(LIMIT)).await?;
    let (bounded, other) = (database.session(), database.session());
    other.sql(BIG).await?.try_collect::<Vec<_>>().await?;
    assert_eq!(shown(&other, "rollout.statement_memory").await?, "64MB", "half of the limit");
    let gathers = "SELECT array_length(array_agg(text)) FROM big WHERE id <= 30000";
    bounded.sql("SET rollout.statement_memory = '4MB'").await?;
    assert_eq!(code_of(&bounded, gathers).await, "53200");
    assert_eq!(digest(&other, gathers).await?.0, 1, "the others have what they had");
    // Sorts and groups find room in little, and give the same rows.
    bounded.sql("SET rollout.statement_memory = '16MB'").await?;
    for query in SPILLING {
        assert_eq!(digest(&bounded, query).await?, digest(&other, query).await?, "{query}");
        assert!(spilled(&bounded, query).await?, "{query}");
    }

    drop((bounded, other, database));
    let options = |statement_memory: u64| DatabaseOptions {
        memory_limit: Some(LIMIT),
        statement_memory: Some(statement_memory),
        ..DatabaseOptions::default()
    };
    let session = Database::open_with(directory.path(), options(8 << 20)).await?.session();
    assert_eq!(shown(&session, "rollout.statement_memory").await?, "8MB");
    assert_eq!(code_of(&session, "SELECT array_length(array_agg(text)) FROM big").await, "53200");
    drop(session);
    let refused = Database::open_with(directory.path(), options(1000)).await.err().expect("a thousand bytes are too little");
    assert_eq!(sqlstate(&refused), "22023", "{refused}");
    Ok(())
}

async fn shown(session: &Session, setting: &str) -> Result<String> {
    let rows: Vec<_> = session.sql(&format!("SHOW {setting}")).await?.try_collect().await?;
    Ok(rows[0].column(0).as_string::<i32>().value(0).to_owned())
}

/// The farthest rows are no search: all rows are sorted for each row before LATERAL, 32 of them at once.
#[tokio::test(flavor = "multi_thread")]
async fn sorted_rows_of_a_lateral_subquery_are_accounted_for() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let database = open(directory.path(), Some(LIMIT)).await?;
    let session = database.session();
    let wide = "CREATE TABLE wide AS SELECT value AS id, ('[' || value || ',1]')::vector(2) AS v, \
        repeat(md5(CAST(value AS text)), 100) AS text FROM generate_series(1, 2000) s(value)";
    session.sql(wide).await?.try_collect::<Vec<_>>().await?;
    let farthest = |rows: usize| {
        format!(
            "SELECT count(n.text) FROM generate_series(1, 64) g(x) CROSS JOIN LATERAL \
             (SELECT w.text FROM wide w ORDER BY w.v <-> ('[' || g.x || ',0]')::vector(2) DESC LIMIT {rows}) n"
        )
    };
    // 6.4 MB for each of 32 rows.
    assert_eq!(code_of(&session, &farthest(2000)).await, "53200");
    let rows: Vec<_> = session.sql(&farthest(10)).await?.try_collect().await?;
    assert_eq!(rows[0].column(0).as_primitive::<Int64Type>().value(0), 640);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn spilled_rows_of_a_killed_process_go_away() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let left = directory.path().join("spill/datafusion-killed");
    std::fs::create_dir_all(&left).expect("a folder");
    std::fs::write(left.join("rows"), "abc").expect("a file");
    let _database = open(directory.path(), None).await?;
    assert!(!left.exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn too_small_a_limit_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let refused = open(directory.path(), Some(1 << 20)).await.err().expect("one megabyte is too little");
    assert_eq!(sqlstate(&refused), "22023", "{refused}");
}
