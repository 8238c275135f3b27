//! A round of every statement that writes, what each makes of the rows, and how a database answers for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, Int64Type};
use rolloutdb::{Result, Session};

use crate::database::{number, run};
use crate::project;

/// Statements of a round.
pub(crate) const ROUND: i64 = 28;
/// The one that writes the rows of `t` to the file `out.csv`.
pub(crate) const COPY_TO: i64 = 18;
/// Rows that a COPY FROM brings.
const COPIED: i64 = 20;

/// What the statements have made.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    /// `id` to `n` of table `t`.
    pub(crate) rows: BTreeMap<i64, i64>,
    /// Columns of `t` beyond those it was made with.
    pub(crate) columns: BTreeSet<String>,
    /// Table `c`, when there is one.
    pub(crate) copy: Option<BTreeMap<i64, i64>>,
}

/// What a round needs before its first statement.
pub(crate) fn setup() -> [String; 2] {
    let model = project().join("tests/fixtures/models/bert");
    [
        format!("CREATE MODEL encoder FROM '{}' WITH (task = 'embed')", model.display()),
        "CREATE TABLE t (id bigint PRIMARY KEY, n bigint, words text, v vector(3))".to_owned(),
    ]
}

/// Writes the files that statements of these numbers copy from.
pub(crate) fn write_files(numbers: Range<i64>, files: &Path) {
    for number in numbers.filter(|number| number % ROUND == 2) {
        let lines: String = copied_rows(number)
            .map(|(id, n)| format!("{id},{n},{},\"[{}]\"\n", words(id), vector(id).map(|value| value.to_string()).join(",")))
            .collect();
        std::fs::write(files.join(format!("{number}.csv")), format!("id,n,words,v\n{lines}")).expect("it is written");
    }
}

/// The other columns of a row follow from its key.
fn words(id: i64) -> String {
    format!("common word{}", id.rem_euclid(7))
}

fn vector(id: i64) -> [f32; 3] {
    [id.rem_euclid(11) as f32, id.rem_euclid(13) as f32, 1.0]
}

pub(crate) fn row(id: i64, n: i64) -> String {
    let [x, y, z] = vector(id);
    format!("({id}, {n}, '{}', '[{x},{y},{z}]')", words(id))
}

/// A statement by its number; its effect is that of [`State::apply`].
pub(crate) fn statement(number: i64, files: &Path) -> String {
    let (first, second) = (number * 100, number * 100 + 1);
    let path = |name: String| files.join(name).display().to_string();
    match number % ROUND {
        0 | 13 => format!("INSERT INTO t (id, n, words, v) VALUES {}, {}", row(first, 0), row(second, 1)),
        1 => "UPDATE t SET n = n + 1 WHERE id % 2 = 0".to_owned(),
        2 => format!("COPY t (id, n, words, v) FROM '{}'", path(format!("{number}.csv"))),
        3 => "CREATE INDEX IF NOT EXISTS t_btree ON t USING btree (n)".to_owned(),
        4 => "CREATE INDEX IF NOT EXISTS t_bm25 ON t USING bm25 (words)".to_owned(),
        5 => "CREATE INDEX IF NOT EXISTS t_hnsw ON t USING hnsw (v vector_l2_ops)".to_owned(),
        6 => "CREATE INDEX IF NOT EXISTS t_ivf ON t USING ivfflat (v vector_cosine_ops) WITH (lists = 1)".to_owned(),
        7 => "CREATE INDEX IF NOT EXISTS t_bitmap ON t USING bitmap (words)".to_owned(),
        8 => "CREATE TABLE c AS SELECT id, n FROM t".to_owned(),
        9 => "INSERT INTO c SELECT -id - 1, n FROM t WHERE id % 3 = 0".to_owned(),
        10 => "TRUNCATE c".to_owned(),
        11 => format!("INSERT INTO c VALUES ({first}, 0)"),
        12 => "DROP TABLE c".to_owned(),
        14 => "ALTER TABLE t ADD COLUMN extra bigint DEFAULT 7".to_owned(),
        15 => format!(
            "MERGE INTO t USING (VALUES ({}, 3), ({first}, 5)) s(id, n) ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.n + s.n \
             WHEN NOT MATCHED THEN INSERT (id, n, words, v) VALUES (s.id, s.n, '{}', '{:?}')",
            (number - 2) * 100,
            words(first),
            vector(first)
        ),
        16 => "REINDEX TABLE t".to_owned(),
        17 => "ALTER TABLE t DROP COLUMN extra".to_owned(),
        COPY_TO => format!("COPY (SELECT id, n FROM t ORDER BY id) TO '{}'", path("out.csv".to_owned())),
        19 => "ALTER TABLE t ADD COLUMN e vector(64) GENERATED ALWAYS AS (embed('encoder', words || id)) STORED".to_owned(),
        20 => format!("DELETE FROM t WHERE id >= {} AND id < {}", (number - 40) * 100, (number - 30) * 100),
        21 => "VACUUM".to_owned(),
        22 => "OPTIMIZE t".to_owned(),
        23 => "ALTER TABLE t DROP COLUMN e".to_owned(),
        24 => format!("INSERT INTO t (id, n, words, v) VALUES {} ON CONFLICT (id) DO UPDATE SET n = t.n + 10", row((number - 9) * 100, 1)),
        25 => "DROP INDEX IF EXISTS t_btree".to_owned(),
        26 => "DROP INDEX IF EXISTS t_hnsw".to_owned(),
        _ => "VACUUM FULL t".to_owned(),
    }
}

fn copied_rows(number: i64) -> impl Iterator<Item = (i64, i64)> {
    (0..COPIED).map(move |place| (number * 100 + place, place % 3))
}

impl State {
    pub(crate) fn apply(&mut self, number: i64) {
        let (first, second) = (number * 100, number * 100 + 1);
        match number % ROUND {
            0 | 13 => self.rows.extend([(first, 0), (second, 1)]),
            1 => self.rows.iter_mut().filter(|(id, _)| *id % 2 == 0).for_each(|(_, n)| *n += 1),
            2 => self.rows.extend(copied_rows(number)),
            8 => self.copy = Some(self.rows.clone()),
            9 => {
                let more: Vec<_> = self.rows.iter().filter(|(id, _)| *id % 3 == 0).map(|(id, n)| (-id - 1, *n)).collect();
                self.copy.as_mut().expect("made before").extend(more);
            }
            10 => self.copy.as_mut().expect("made before").clear(),
            11 => drop(self.copy.as_mut().expect("made before").insert(first, 0)),
            12 => self.copy = None,
            14 => drop(self.columns.insert("extra".to_owned())),
            15 => {
                *self.rows.entry((number - 2) * 100).or_insert(0) += 3;
                *self.rows.entry(first).or_insert(0) += 5;
            }
            17 => drop(self.columns.remove("extra")),
            19 => drop(self.columns.insert("e".to_owned())),
            20 => self.rows.retain(|id, _| !((number - 40) * 100..(number - 30) * 100).contains(id)),
            23 => drop(self.columns.remove("e")),
            24 => {
                self.rows.entry((number - 9) * 100).and_modify(|n| *n += 10).or_insert(1);
            }
            _ => {}
        }
    }
}

/// `id` to `n`; a key that is there twice is a failure.
pub(crate) async fn rows_of(session: &Session, table: &str) -> Result<BTreeMap<i64, i64>> {
    let mut rows = BTreeMap::new();
    for batch in run(session, &format!("SELECT id, n FROM {table}")).await? {
        let (ids, n) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<Int64Type>());
        for row in 0..batch.num_rows() {
            assert!(rows.insert(ids.value(row), n.value(row)).is_none(), "two rows with the key {} in {table}", ids.value(row));
        }
    }
    Ok(rows)
}

pub(crate) async fn stored(session: &Session) -> Result<State> {
    let names = "SELECT column_name FROM information_schema.columns WHERE table_name = 't'";
    let mut columns = BTreeSet::new();
    for batch in run(session, names).await? {
        columns.extend(batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned));
    }
    ["id", "n", "words", "v"].iter().for_each(|name| assert!(columns.remove(*name), "column {name} is there"));
    let has_copy = number(session, "SELECT count(*) FROM information_schema.tables WHERE table_name = 'c'").await? > 0;
    let copy = if has_copy { Some(rows_of(session, "c").await?) } else { None };
    Ok(State { rows: rows_of(session, "t").await?, columns, copy })
}

/// Every index against what the rows say; `when` is for the message.
pub(crate) async fn check_answers(session: &Session, state: &State, when: &str) -> Result<()> {
    let rows = &state.rows;
    let matching = rows.values().filter(|n| **n == 1).count() as i64;
    assert_eq!(number(session, "SELECT count(*) FROM t WHERE n = 1").await?, matching, "btree, {when}");
    let same_words = rows.keys().filter(|id| words(**id) == words(3)).count() as i64;
    assert_eq!(number(session, &format!("SELECT count(*) FROM t WHERE words = '{}'", words(3))).await?, same_words, "bitmap, {when}");
    if number(session, "SELECT count(*) FROM rollout.indexes WHERE name = 't_bm25'").await? > 0 {
        let found = number(session, "SELECT count(*) FROM text_search(t, 'word3', k => 10000)").await?;
        assert_eq!(found, same_words, "bm25, {when}");
    }
    let target = [4.0_f32, 5.0, 1.0];
    let squared = |id: &i64| vector(*id).iter().zip(target).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
    let mut nearest: Vec<f64> = rows.keys().map(|id| f64::from(squared(id)).sqrt()).collect();
    nearest.sort_by(f64::total_cmp);
    let sql = "SELECT CAST(v <-> '[4,5,1]' AS double precision) FROM t ORDER BY v <-> '[4,5,1]' LIMIT 5";
    let found: Vec<f64> =
        run(session, sql).await?.iter().flat_map(|batch| batch.column(0).as_primitive::<Float64Type>().values().to_vec()).collect();
    assert_eq!(found.len(), nearest.len().min(5), "as many as there are, {when}");
    for (found, expected) in found.iter().zip(&nearest) {
        assert!((found - expected).abs() < 1e-4, "hnsw: {found} and {expected}, {when}");
    }
    if state.columns.contains("e") {
        assert_eq!(
            number(session, "SELECT count(*) FROM t WHERE e = embed('encoder', words || id)").await?,
            rows.len() as i64,
            "a generated column, {when}"
        );
    }
    if state.columns.contains("extra") {
        assert_eq!(number(session, "SELECT count(extra) FROM t").await?, rows.len() as i64, "an added column, {when}");
    }
    Ok(())
}
