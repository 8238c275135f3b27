//! Random queries over subqueries with ORDER BY against a list that goes through the same steps: the rows come in the order that PostgreSQL gives them.
//!
//! `ORDERED_SUBQUERIES=n ORDERED_SUBQUERIES_SEED=s` runs n queries, the first with seed s.

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use futures::TryStreamExt;
use rolloutdb::{Database, Result, Session};

const QUERIES: u64 = 60;
/// Several batches, in several fragments.
const ROWS: i64 = 20_000;
const INSERTS: i64 = 4;
/// More than the rows, and a prime, so that no value is there twice.
const PRIME: i64 = 20_011;

type Rows = Vec<(i64, i64)>;

/// splitmix64: the same queries on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as i64
    }
}

/// A query of columns a and b, and its rows.
struct Ordered {
    sql: String,
    rows: Rows,
}

fn sorted(random: &mut Random, table: &[(i64, i64)]) -> Ordered {
    let mut rows = table.to_vec();
    let keys = match random.below(4) {
        0 => {
            rows.sort();
            "a"
        }
        1 => {
            rows.sort_by_key(|(a, _)| -a);
            "a DESC"
        }
        2 => {
            rows.sort_by_key(|(a, b)| (*b, -a));
            "b, a DESC"
        }
        _ => {
            rows.sort_by_key(|(a, _)| (a % 100, *a));
            "a % 100, a"
        }
    };
    Ordered { sql: format!("SELECT a, b FROM ordered ORDER BY {keys}"), rows }
}

fn step(random: &mut Random, table: &[(i64, i64)], Ordered { sql, rows }: Ordered) -> Ordered {
    match random.below(8) {
        0 => {
            let out = random.below(7);
            let rows = rows.into_iter().filter(|(_, b)| *b != out).collect();
            Ordered { sql: format!("SELECT * FROM ({sql}) s WHERE b <> {out}"), rows }
        }
        1 => {
            let rows = rows.into_iter().map(|(a, b)| (a * 2 + 1, b)).collect();
            Ordered { sql: format!("SELECT a * 2 + 1 AS a, b FROM ({sql}) s"), rows }
        }
        2 => {
            let (count, skipped) = (1 + random.below(ROWS), random.below(ROWS / 2));
            let rows = rows.into_iter().skip(skipped as usize).take(count as usize).collect();
            Ordered { sql: format!("SELECT * FROM ({sql}) s LIMIT {count} OFFSET {skipped}"), rows }
        }
        3 => {
            let rows = rows.into_iter().zip(1..).map(|((_, b), number)| (number, b)).collect();
            Ordered { sql: format!("SELECT CAST(row_number() OVER () AS bigint) AS a, b FROM ({sql}) s"), rows }
        }
        4 => Ordered { sql: format!("WITH w AS ({sql}) SELECT a, b FROM w"), rows },
        5 => {
            let rows = rows.into_iter().flat_map(|(a, b)| [(a, b), (-a, b)]).collect();
            Ordered { sql: format!("SELECT unnest(ARRAY[a, -a]) AS a, b FROM ({sql}) s"), rows }
        }
        6 => {
            let other = sorted(random, table);
            let rows = rows.into_iter().chain(other.rows).collect();
            Ordered { sql: format!("SELECT * FROM ({sql}) s UNION ALL SELECT * FROM ({}) s", other.sql), rows }
        }
        _ => {
            let rows = rows.into_iter().map(|(a, b)| (if a % 2 == 0 { b } else { a }, b)).collect();
            Ordered { sql: format!("SELECT CASE WHEN a % 2 = 0 THEN b ELSE a END AS a, b FROM ({sql}) s"), rows }
        }
    }
}

async fn numbers(session: &Session, sql: &str) -> Result<Vec<i64>> {
    let batches: Vec<_> = session.sql(sql).await?.try_collect().await?;
    Ok(batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect())
}

/// The first text, as numbers.
async fn joined(session: &Session, sql: &str) -> Result<Vec<i64>> {
    let batches: Vec<_> = session.sql(sql).await?.try_collect().await?;
    let text = batches.iter().find(|batch| batch.num_rows() > 0).map(|batch| batch.column(0).clone());
    let text = text.filter(|text| !text.is_null(0)).map(|text| text.as_string::<i32>().value(0).to_owned());
    Ok(text.iter().flat_map(|text| text.split(',')).map(|number| number.parse().expect("a number")).collect())
}

async fn run(session: &Session, sql: &str) -> Result<()> {
    session.sql(sql).await?.try_collect::<Vec<_>>().await?;
    Ok(())
}

async fn check(session: &Session, random: &mut Random, query: &Ordered) -> Result<()> {
    let Ordered { sql, rows } = query;
    let expected: Vec<i64> = rows.iter().map(|(a, _)| *a).collect();
    match random.below(5) {
        0 => assert!(numbers(session, &format!("SELECT a FROM ({sql}) s")).await? == expected, "{sql}"),
        1 => assert!(joined(session, &format!("SELECT string_agg(a::text, ',')::text FROM ({sql}) s")).await? == expected, "{sql}"),
        2 => {
            let array = format!("SELECT array_to_string(array_agg(a), ',')::text FROM ({sql}) s");
            assert!(joined(session, &array).await? == expected, "{sql}");
        }
        3 => {
            let group = random.below(7);
            let expected: Vec<i64> = rows.iter().filter(|(_, b)| *b == group).map(|(a, _)| *a).collect();
            let groups =
                format!("SELECT t FROM (SELECT b, string_agg(a::text, ',')::text AS t FROM ({sql}) s GROUP BY b) g WHERE b = {group}");
            assert!(joined(session, &groups).await? == expected, "{sql}");
        }
        _ => {
            run(session, "DROP TABLE IF EXISTS copied").await?;
            run(session, &format!("CREATE TABLE copied AS SELECT a, b FROM ({sql}) s")).await?;
            assert!(numbers(session, "SELECT a FROM copied").await? == expected, "{sql}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn subqueries_keep_their_order() -> Result<()> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (queries, first) = (number("ORDERED_SUBQUERIES").unwrap_or(QUERIES), number("ORDERED_SUBQUERIES_SEED").unwrap_or(1));
    let directory = tempfile::tempdir().expect("a directory");
    let session = Database::open(directory.path()).await?.session();
    run(&session, "CREATE TABLE ordered (a bigint, b bigint)").await?;
    for part in 0..INSERTS {
        let (from, to) = (part * ROWS / INSERTS + 1, (part + 1) * ROWS / INSERTS);
        let rows = format!("SELECT n * 7919 % {PRIME}, n % 7 FROM generate_series({from}, {to}) s(n)");
        run(&session, &format!("INSERT INTO ordered {rows}")).await?;
    }
    let table: Rows = (1..=ROWS).map(|n| (n * 7919 % PRIME, n % 7)).collect();
    for seed in first..first + queries {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut query = sorted(&mut random, &table);
        for _ in 0..1 + random.below(4) {
            query = step(&mut random, &table, query);
        }
        check(&session, &mut random, &query).await?;
    }
    Ok(())
}
