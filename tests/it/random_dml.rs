//! Random INSERT, UPDATE, DELETE and MERGE statements against a plain model of the table: after each, both hold the same rows.
//!
//! Between them the table is optimized, vacuumed, altered and opened anew, and searches by vector and by word are asked for the same rows.
//!
//! `RANDOM_DML_SEQUENCES=n RANDOM_DML=m RANDOM_DML_SEED=s` runs n sequences of m statements, the first with seed s.

use std::collections::BTreeMap;
use std::io::Write;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::{FutureExt, TryStreamExt};
use rolloutdb::engine::Response;
use rolloutdb::{Database, Result, Session};
use tempfile::TempDir;

/// `id` to (`a`, `b`).
type Model = BTreeMap<i64, (Option<i64>, Option<String>)>;

const STATEMENTS: usize = 150;
/// Sequences between two lines that say how far a long run is.
const REPORTED: u64 = 100;
const IDS: u64 = 40;
const WORDS: [&str; 3] = ["x", "y", "z"];

/// splitmix64: the same statements on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// What a condition is for the row of a key.
type Meaning = Box<dyn Fn(&Model, i64) -> Option<bool>>;

/// A condition as SQL and as what it means for a row, with SQL's three values.
struct Condition {
    sql: String,
    is_true: Meaning,
}

fn condition(random: &mut Random, depth: usize) -> Condition {
    let number = random.below(IDS) as i64;
    let word = WORDS[random.below(3) as usize];
    let simple = |sql: String, is_true: Meaning| Condition { sql, is_true };
    match random.below(if depth == 0 { 9 } else { 12 }) {
        0 => simple(format!("t.id % 3 = {}", number % 3), Box::new(move |_, id| Some(id % 3 == number % 3))),
        1 => simple(format!("t.a > {number}"), Box::new(move |model, id| model[&id].0.map(|a| a > number))),
        2 => simple("t.a IS NULL".to_owned(), Box::new(|model, id| Some(model[&id].0.is_none()))),
        3 => simple(format!("t.b = '{word}'"), Box::new(move |model, id| model[&id].1.as_ref().map(|b| b == word))),
        4 => simple("false".to_owned(), Box::new(|_, _| Some(false))),
        5 => simple(
            format!("t.id IN (SELECT s.a FROM t s WHERE s.id < {number})"),
            // IN is NULL where nothing matches and a NULL is among the values.
            Box::new(move |model, id| {
                let values: Vec<_> = model.range(..number).map(|(_, row)| row.0).collect();
                if values.contains(&Some(id)) {
                    Some(true)
                } else if values.contains(&None) {
                    None
                } else {
                    Some(false)
                }
            }),
        ),
        6 => simple(
            format!("EXISTS (SELECT 1 FROM t s WHERE s.a = t.id AND s.id > {number})"),
            Box::new(move |model, id| Some(model.range(number + 1..).any(|(_, row)| row.0 == Some(id)))),
        ),
        7 => simple(format!("t.b IS DISTINCT FROM '{word}'"), Box::new(move |model, id| Some(model[&id].1.as_deref() != Some(word)))),
        8 => simple(
            "t.a = (SELECT max(s.a) FROM t s)".to_owned(),
            Box::new(|model, id| {
                let max = model.values().filter_map(|row| row.0).max();
                model[&id].0.zip(max).map(|(a, max)| a == max)
            }),
        ),
        kind => {
            let (left, right) = (condition(random, depth - 1), condition(random, depth - 1));
            match kind {
                9 => Condition {
                    sql: format!("({} AND {})", left.sql, right.sql),
                    is_true: Box::new(move |model, id| match ((left.is_true)(model, id), (right.is_true)(model, id)) {
                        (Some(false), _) | (_, Some(false)) => Some(false),
                        (Some(true), Some(true)) => Some(true),
                        _ => None,
                    }),
                },
                10 => Condition {
                    sql: format!("({} OR {})", left.sql, right.sql),
                    is_true: Box::new(move |model, id| match ((left.is_true)(model, id), (right.is_true)(model, id)) {
                        (Some(true), _) | (_, Some(true)) => Some(true),
                        (Some(false), Some(false)) => Some(false),
                        _ => None,
                    }),
                },
                _ => Condition {
                    sql: format!("NOT ({})", left.sql),
                    is_true: Box::new(move |model, id| (left.is_true)(model, id).map(|value| !value)),
                },
            }
        }
    }
}

fn matching(model: &Model, condition: &Condition) -> Vec<i64> {
    model.keys().copied().filter(|id| (condition.is_true)(model, *id) == Some(true)).collect()
}

/// A statement, and the table after it: `None` if it must fail and change nothing.
fn statement(random: &mut Random, model: &Model) -> (String, Option<(Model, usize)>) {
    let mut after = model.clone();
    let number = random.below(IDS) as i64;
    match random.below(10) {
        0 | 1 => {
            let word = WORDS[random.below(3) as usize];
            let rows: Vec<i64> = (0..=random.below(3) as i64).map(|offset| number + offset).collect();
            let values: Vec<String> = rows
                .iter()
                .map(|id| format!("({id}, {}, '{word}')", if id % 4 == 0 { "NULL".to_owned() } else { (id * 7 % 40).to_string() }))
                .collect();
            let is_new = rows.iter().all(|id| after.insert(*id, ((id % 4 != 0).then_some(id * 7 % 40), Some(word.to_owned()))).is_none());
            (format!("INSERT INTO t VALUES {}", values.join(", ")), is_new.then_some((after, rows.len())))
        }
        2 => {
            let condition = condition(random, 2);
            let gone = matching(model, &condition);
            after.retain(|id, _| !gone.contains(id));
            (format!("DELETE FROM t WHERE {}", condition.sql), Some((after, gone.len())))
        }
        3 => {
            let condition = condition(random, 2);
            let changed = matching(model, &condition);
            for id in &changed {
                let row = after.get_mut(id).expect("it matched");
                row.0 = row.0.map(|a| (a + number) % 50);
            }
            (format!("UPDATE t SET a = (a + {number}) % 50 WHERE {}", condition.sql), Some((after, changed.len())))
        }
        4 => {
            let condition = condition(random, 1);
            let changed = matching(model, &condition);
            let largest = model.keys().max().copied();
            for id in &changed {
                *after.get_mut(id).expect("it matched") = (largest, None);
            }
            (format!("UPDATE t SET b = NULL, a = (SELECT max(s.id) FROM t s) WHERE {}", condition.sql), Some((after, changed.len())))
        }
        5 => {
            let rows: Vec<i64> = (0..4).map(|offset| (number + offset * offset) % IDS as i64).collect();
            let values: Vec<String> = rows.iter().map(|id| format!("({id}, {number}, 'kept')")).collect();
            let before = after.len();
            for id in rows {
                after.entry(id).or_insert((Some(number), Some("kept".to_owned())));
            }
            let count = after.len() - before;
            (format!("INSERT INTO t VALUES {} ON CONFLICT DO NOTHING", values.join(", ")), Some((after, count)))
        }
        6 => {
            let mut count = 0;
            for id in number..number + 4 {
                match after.get_mut(&id) {
                    None => {
                        after.insert(id, (Some(id), None));
                        count += 1;
                    }
                    Some(row) if row.0.is_some_and(|a| a > 10) => {
                        *row = (row.0.map(|a| a + id), Some("changed".to_owned()));
                        count += 1;
                    }
                    Some(_) => {}
                }
            }
            let sql = format!(
                "INSERT INTO t (id, a) SELECT value, value AS a FROM generate_series({number}, {}) AS g(value)
                 ON CONFLICT (id) DO UPDATE SET a = t.a + excluded.id, b = 'changed' WHERE a > 10",
                number + 3
            );
            (sql, Some((after, count)))
        }
        7 | 8 => {
            // DataFusion plans no EXISTS and no IN (SELECT ...) there.
            let mut condition = condition(random, 1);
            while condition.sql.contains("EXISTS") || condition.sql.contains("IN (") {
                condition = self::condition(random, 1);
            }
            let matched: Vec<i64> = matching(model, &condition).into_iter().filter(|id| *id < number).collect();
            let other: Vec<i64> = model.keys().copied().filter(|id| *id < number && !matched.contains(id)).collect();
            after.retain(|id, _| !matched.contains(id));
            for id in &other {
                after.get_mut(id).expect("it is there").1 = Some("merged".to_owned());
            }
            let new: Vec<i64> = (0..number).filter(|id| !model.contains_key(id) && id % 5 == 0).collect();
            after.extend(new.iter().map(|id| (*id, (None, None))));
            let sql = format!(
                "MERGE INTO t USING (SELECT value AS id FROM generate_series(-1, {number}) AS g(value) WHERE value < {number}) AS s ON s.id = t.id
                 WHEN MATCHED AND {} THEN DELETE WHEN MATCHED THEN UPDATE SET b = 'merged'
                 WHEN NOT MATCHED AND s.id % 5 = 0 THEN INSERT (id) VALUES (s.id)",
                condition.sql
            );
            (sql, Some((after, matched.len() + other.len() + new.len())))
        }
        _ => {
            let condition = condition(random, 1);
            let changed = matching(model, &condition);
            let moved: Vec<_> = changed.iter().filter_map(|id| after.remove(id).map(|row| (id + number, row))).collect();
            let is_unique = moved.into_iter().all(|(id, row)| after.insert(id, row).is_none());
            (format!("UPDATE t SET id = id + {number} WHERE {}", condition.sql), is_unique.then_some((after, changed.len())))
        }
    }
}

async fn stored(session: &Session) -> Result<Model> {
    let batches: Vec<_> = session.sql("SELECT id, a, b FROM t").await?.try_collect().await?;
    let mut model = Model::new();
    for batch in &batches {
        let (ids, a) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<Int64Type>());
        let b = batch.column(2).as_string::<i32>();
        for row in 0..batch.num_rows() {
            let values = (a.is_valid(row).then(|| a.value(row)), b.is_valid(row).then(|| b.value(row).to_owned()));
            assert!(model.insert(ids.value(row), values).is_none(), "two rows with the key {}", ids.value(row));
        }
    }
    Ok(model)
}

/// A table under test: the statements are drawn, the model says what they leave.
struct Trial {
    database: Option<Database>,
    session: Session,
    directory: TempDir,
    random: Random,
    model: Model,
    has_extra_column: bool,
    failures: usize,
}

impl Trial {
    async fn new(seed: u64) -> Result<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let database = Database::open(directory.path()).await?;
        let session = database.session();
        let trial = Self {
            database: Some(database),
            session,
            directory,
            random: Random(seed),
            model: Model::new(),
            has_extra_column: false,
            failures: 0,
        };
        let vector = "v vector(2) GENERATED ALWAYS AS (vector_in('[' || id || ',1]', 2)) STORED";
        trial.run(&format!("CREATE TABLE t (id bigint PRIMARY KEY, a bigint, b text, {vector})")).await?;
        trial.run("CREATE INDEX t_a ON t USING btree (a)").await?;
        trial.run("CREATE INDEX t_b ON t USING bm25 (b)").await?;
        trial.run("CREATE INDEX t_v ON t USING hnsw (v vector_l2_ops)").await?;
        Ok(trial)
    }

    async fn run(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        self.session.sql(sql).await?.try_collect().await.map_err(Into::into)
    }

    async fn step(&mut self) -> Result<()> {
        let (sql, expected) = statement(&mut self.random, &self.model);
        let parsed = self.session.parse(&sql)?;
        match (self.session.execute(&parsed[0], vec![]).await, expected) {
            (Ok(Response::Done { tag }), Some((after, count))) => {
                assert!(tag.ends_with(&format!(" {count}")), "{sql}\n{tag}, expected {count} rows; the table was {:?}", self.model);
                self.model = after;
            }
            (Err(error), None) => {
                assert_eq!(rolloutdb::server::sqlstate(&error), "23505", "{sql}\n{error}");
                self.failures += 1;
            }
            (Ok(_), None) => panic!("it must fail: {sql}\nthe table was {:?}", self.model),
            (Err(error), Some(_)) => panic!("{sql}\n{error}"),
            (Ok(_), Some(_)) => panic!("it gave rows: {sql}"),
        }
        assert_eq!(stored(&self.session).await?, self.model, "after {sql}");
        self.searches_agree(&sql).await?;
        self.maintain().await
    }

    /// Searches by vector and by word, in memory and through indexes, see the same rows.
    async fn searches_agree(&mut self, after: &str) -> Result<()> {
        let place = self.random.below(IDS) as i64;
        let found = ids(&self.run(&format!("SELECT id FROM t ORDER BY v <-> '[{place},1]', id LIMIT 5")).await?);
        let mut nearest: Vec<i64> = self.model.keys().copied().collect();
        nearest.sort_by_key(|id| ((id - place).abs(), *id));
        nearest.truncate(5);
        assert_eq!(found, nearest, "the nearest to {place} after {after}");
        let word = ["x", "kept", "changed", "merged"][self.random.below(4) as usize];
        let mut found = ids(&self.run(&format!("SELECT id FROM text_search(t, '{word}', k => 1000, column => 'b')")).await?);
        found.sort_unstable();
        let holders: Vec<i64> = self.model.iter().filter(|(_, row)| row.1.as_deref() == Some(word)).map(|(id, _)| *id).collect();
        assert_eq!(found, holders, "rows with {word} after {after}");
        Ok(())
    }

    /// What changes no row.
    async fn maintain(&mut self) -> Result<()> {
        match self.random.below(40) {
            0 => drop(self.run("OPTIMIZE t").await?),
            1 => drop(self.run("VACUUM FULL t").await?),
            2 => drop(self.run("REINDEX INDEX t_v").await?),
            3 | 4 if self.has_extra_column => {
                self.run("ALTER TABLE t DROP COLUMN extra").await?;
                self.has_extra_column = false;
            }
            3 | 4 => {
                self.run("ALTER TABLE t ADD COLUMN extra text DEFAULT 'more'").await?;
                self.has_extra_column = true;
            }
            5 => {
                // One process has the directory: the old one goes first.
                self.session = Database::open(tempfile::tempdir().expect("a temporary directory").path()).await?.session();
                self.database = None;
                let database = Database::open(self.directory.path()).await?;
                self.session = database.session();
                self.database = Some(database);
            }
            _ => {}
        }
        Ok(())
    }
}

fn ids(batches: &[RecordBatch]) -> Vec<i64> {
    batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

fn number_of(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_leave_what_a_model_says() -> Result<()> {
    let first_seed = number_of("RANDOM_DML_SEED", 31) as u64;
    let (sequences, statements) = (number_of("RANDOM_DML_SEQUENCES", 1), number_of("RANDOM_DML", STATEMENTS));
    let (mut failures, mut rows) = (0, 0);
    for seed in first_seed..first_seed + sequences as u64 {
        let mut trial = Trial::new(seed).await?;
        for number in 0..statements {
            let step = std::panic::AssertUnwindSafe(trial.step()).catch_unwind().await;
            match step {
                Ok(done) => done.unwrap_or_else(|error| panic!("seed {seed}, statement {number}: {error}")),
                Err(_) => panic!("seed {seed}, statement {number}: see above"),
            }
        }
        failures += trial.failures;
        rows += trial.model.len();
        let done = seed + 1 - first_seed;
        if done.is_multiple_of(REPORTED) {
            // Past the test harness, which keeps what a passing test prints: thousands of sequences take hours.
            let _ = writeln!(std::io::stderr(), "{done} of {sequences} sequences of {statements} statements agree");
        }
    }
    println!("{sequences} sequences of {statements} statements");
    assert!(failures > 0 && rows > 0, "the statements were too tame");
    Ok(())
}
