//! Random INSERT, UPDATE, DELETE and MERGE statements against a plain model of the table: after each, both hold the same rows.
//!
//! `RANDOM_DML=n RANDOM_DML_SEED=s` runs n other statements.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use futures::TryStreamExt;
use rolloutdb::engine::Response;
use rolloutdb::{Database, Result, Session};

/// `id` to (`a`, `b`).
type Model = BTreeMap<i64, (Option<i64>, Option<String>)>;

const STATEMENTS: usize = 150;
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

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_leave_what_a_model_says() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(directory.path()).await?;
    let session = database.session();
    session.sql("CREATE TABLE t (id bigint PRIMARY KEY, a bigint, b text)").await?.try_collect::<Vec<_>>().await?;
    session.sql("CREATE INDEX t_a ON t USING btree (a)").await?.try_collect::<Vec<_>>().await?;
    let seed = std::env::var("RANDOM_DML_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(31);
    let (mut random, mut model) = (Random(seed), Model::new());
    let statements = std::env::var("RANDOM_DML").ok().and_then(|count| count.parse().ok()).unwrap_or(STATEMENTS);
    let mut failures = 0;
    for number in 0..statements {
        let (sql, expected) = statement(&mut random, &model);
        let parsed = session.parse(&sql)?;
        match (session.execute(&parsed[0], vec![]).await, expected) {
            (Ok(Response::Done { tag }), Some((after, count))) => {
                assert!(
                    tag.ends_with(&format!(" {count}")),
                    "statement {number}: {sql}\n{tag}, expected {count} rows; the table was {model:?}"
                );
                model = after;
            }
            (Err(error), None) => {
                assert_eq!(rolloutdb::server::sqlstate(&error), "23505", "statement {number}: {sql}\n{error}");
                failures += 1;
            }
            (Ok(_), None) => panic!("statement {number} must fail: {sql}\nthe table was {model:?}"),
            (Err(error), Some(_)) => panic!("statement {number}: {sql}\n{error}"),
            (Ok(Response::Rows { .. }), Some(_)) => panic!("statement {number} gave rows: {sql}"),
        }
        assert_eq!(stored(&session).await?, model, "after statement {number}: {sql}");
    }
    assert!(failures > 0 && !model.is_empty(), "the statements were too tame");
    Ok(())
}
