//! ADD COLUMN ... GENERATED ALWAYS AS (a model call) STORED over rows that are there: a job that a cancel or a kill stops, and the same statement
//! takes up again.

use arrow::datatypes::Field;
use datafusion::common::Column;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Ident, SelectItem, SetExpr};
use rolloutdb_catalogs::{Backfill, ROW_ADDRESS, RemainingRows, Table, TableDefinition};
use rolloutdb_sql::ColumnDefinition;

use super::alter::with_column;
use super::change::assignment::{columns_of, expression};
use super::change::{column_of, quoted, select_from_target, selected};
use crate::engine::planning::plan_rewrite;
use crate::engine::progress::{Progress, Work};
use crate::engine::session::Session;
use crate::engine::typing::assign;
use crate::error::{Error, Result};

/// Computes the values while others write, then those of the rows that came meanwhile, and adds the column in one commit.
pub async fn add_column(session: &Session, table: &Table, column: &ColumnDefinition) -> Result<()> {
    let (definition, field) = with_column(session, table.definition(), column).await?;
    let text = generating_text(&definition, &field)?;
    let mut backfill = table.begin_backfill(&field, &text, columns_of(&expression(&text)?)).await?;
    let latest = table.latest().await?;
    // Another may have added it while this one waited.
    with_column(session, latest.definition(), column).await?;
    tell_what_was_found(session, &field, &backfill);
    Box::pin(fill(session, &mut backfill, &latest, &field, &text)).await?;
    let rewrite = table.begin_alter().await?;
    let (definition, now) = with_column(session, rewrite.table().definition(), column).await?;
    if now != field || generating_text(&definition, &now)? != text || !backfill.reads_the_same_columns(rewrite.table()) {
        return Err(Error::NotReady(format!(
            "table \"{}\" or a model was changed while column \"{}\" was filled",
            table.name(),
            field.name()
        )));
    }
    Box::pin(fill(session, &mut backfill, rewrite.table(), &field, &text)).await?;
    Ok(rewrite.add_filled_column(&definition, backfill).await?)
}

fn generating_text(definition: &TableDefinition, field: &Field) -> Result<String> {
    let text = definition.generated.get(field.name()).cloned();
    text.ok_or_else(|| Error::Internal(format!("column {} is not generated", field.name())))
}

fn tell_what_was_found(session: &Session, field: &Field, backfill: &Backfill) {
    let column = field.name();
    if let Some(other) = backfill.discarded() {
        session.notices().notice(format!("column \"{column}\" is computed from the beginning: what was done of it was {other}"));
    }
    if backfill.rows_found() > 0 {
        session.notices().notice(format!("column \"{column}\" goes on after {} rows that are computed", backfill.rows_found()));
    }
}

async fn fill(session: &Session, backfill: &mut Backfill, table: &Table, field: &Field, text: &str) -> Result<()> {
    let remaining = backfill.remaining(table).await?;
    if remaining.num_rows() == 0 {
        return Ok(());
    }
    let what = format!("ALTER TABLE {}: column {}", table.name(), field.name());
    let work = Work::Embed { table: (table.schema_name().to_owned(), table.name().to_owned()), column: field.name().clone() };
    let total = table.row_count().await?;
    let before = total.saturating_sub(remaining.num_rows());
    let progress = Progress::going_on(session.notices(), work, what, "rows", before, total);
    let rows = progress.watch(values(session, &remaining, field, text).await?);
    Ok(backfill.stage(&remaining, rows).await?)
}

/// Addresses, and values of the expression as the column's type.
async fn values(session: &Session, remaining: &RemainingRows, field: &Field, text: &str) -> Result<SendableRecordBatchStream> {
    let alias = Ident::new("t");
    let address = SelectItem::ExprWithAlias { expr: column_of(&alias, ROW_ADDRESS), alias: quoted(ROW_ADDRESS) };
    let mut query = select_from_target(&alias, vec![address, selected(expression(text)?, field)])?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.selection = not_staged(remaining)?;
    }
    let mut planned = plan_rewrite(session, query, &[], remaining.provider(), None).await?;
    // Rows come in their order, and a run that is kept is as long as it can be.
    planned.state.config_mut().options_mut().execution.target_partitions = 1;
    let schema = planned.plan.schema().clone();
    let column = |position| Expr::Column(Column::from(schema.qualified_field(position)));
    let value = assign(&planned.state, column(1), &schema, field)?.alias(field.name());
    planned.plan = LogicalPlanBuilder::new(planned.plan).project(vec![column(0).alias(ROW_ADDRESS), value])?.build()?;
    planned.stream().await
}

/// Leaves out rows of fragments that are done in part.
fn not_staged(remaining: &RemainingRows) -> Result<Option<SqlExpr>> {
    let ranges = remaining.staged().iter().map(|(first, last)| format!("\"{ROW_ADDRESS}\" NOT BETWEEN {first} AND {last}"));
    let condition = ranges.collect::<Vec<_>>().join(" AND ");
    if condition.is_empty() { Ok(None) } else { expression(&condition).map(Some) }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use futures::TryStreamExt;
    use tempfile::TempDir;

    use crate::engine::{Notice, Session};
    use crate::fixtures::fixture;
    use crate::{Database, Error, Result};

    /// Fragments of the table, and rows in each.
    const FRAGMENTS: i64 = 6;
    const ROWS: i64 = 300;
    const ADD: &str = "ALTER TABLE t ADD COLUMN e vector(64) GENERATED ALWAYS AS (embed('encoder', contents)) STORED";
    const RIGHT: &str = "SELECT count(*) FROM t WHERE e = embed('encoder', contents)";

    struct World {
        _directory: TempDir,
        session: Session,
        notices: Arc<Mutex<Vec<String>>>,
    }

    impl World {
        /// A table of some fragments whose texts are all different.
        async fn new() -> Result<Self> {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let session = Database::open(directory.path()).await?.session();
            let notices: Arc<Mutex<Vec<String>>> = Arc::default();
            let kept = Arc::clone(&notices);
            session.set_notice_sink(Arc::new(move |notice: Notice| kept.lock().expect("no panic").push(notice.message)));
            let world = Self { _directory: directory, session, notices };
            world.create_model().await?;
            world.run("CREATE TABLE t (id bigint PRIMARY KEY, contents text)").await?;
            for fragment in 0..FRAGMENTS {
                let (first, last) = (fragment * ROWS, (fragment + 1) * ROWS - 1);
                world
                    .run(&format!("INSERT INTO t SELECT value, 'text number ' || value FROM generate_series({first}, {last}) s(value)"))
                    .await?;
            }
            Ok(world)
        }

        async fn create_model(&self) -> Result<()> {
            self.run(&format!("CREATE MODEL encoder FROM '{}' WITH (task = 'embed')", fixture("models/bert").display())).await
        }

        async fn run(&self, sql: &str) -> Result<()> {
            self.session.sql(sql).await?.try_collect::<Vec<_>>().await.map(|_| ()).map_err(Into::into)
        }

        async fn count(&self, sql: &str) -> Result<i64> {
            let batches: Vec<_> = self.session.sql(sql).await?.try_collect().await?;
            Ok(batches.iter().find(|batch| batch.num_rows() > 0).map_or(0, |batch| batch.column(0).as_primitive::<Int64Type>().value(0)))
        }

        async fn rows_done(&self) -> Result<i64> {
            self.count("SELECT rows_done FROM rollout.backfills").await
        }

        fn num_texts_embedded(&self) -> i64 {
            self.session.database().shared.models.num_texts_embedded() as i64
        }

        fn told(&self, words: &str) -> bool {
            self.notices.lock().expect("no panic").iter().any(|notice| notice.contains(words))
        }

        /// Runs the statement until some of its rows are kept; returns how many are.
        async fn run_in_part(&self) -> Result<i64> {
            self.run_until_more_than(0).await
        }

        async fn run_until_more_than(&self, num_rows: i64) -> Result<i64> {
            let other = self.session.database().session();
            let mut running = Box::pin(other.sql(ADD));
            loop {
                tokio::select! {
                    ended = &mut running => panic!("the statement ended before it could be cancelled: {:?}", ended.err()),
                    () = tokio::time::sleep(Duration::from_millis(5)) => {}
                }
                if self.rows_done().await? > num_rows {
                    break;
                }
            }
            drop(running);
            let done = self.rows_done().await?;
            assert!((1..FRAGMENTS * ROWS).contains(&done), "{done} rows are kept");
            Ok(done)
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_cancelled_backfill_goes_on_and_computes_no_row_again() -> Result<()> {
        let world = World::new().await?;
        let done = world.run_in_part().await?;
        assert_eq!(world.count("SELECT count(*) FROM rollout.backfills WHERE NOT running AND rows_total = 1800").await?, 1);
        assert!(world.run("SELECT e FROM t").await.is_err(), "the column is not there yet");
        let before = world.num_texts_embedded();
        world.run(ADD).await?;
        // What was computed and not yet kept may still be in the runtime's memory.
        assert!(world.num_texts_embedded() - before <= FRAGMENTS * ROWS - done);
        assert!(world.told(&format!("goes on after {done} rows")));
        assert_eq!(world.count(RIGHT).await?, FRAGMENTS * ROWS);
        assert_eq!(world.count("SELECT count(*) FROM rollout.backfills").await?, 0);
        assert!(matches!(world.run(ADD).await, Err(Error::Catalog(rolloutdb_catalogs::Error::DuplicateColumn { .. }))));
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_that_change_between_the_parts_are_computed_and_no_others() -> Result<()> {
        let world = World::new().await?;
        let done = world.run_in_part().await?;
        world.run("DELETE FROM t WHERE id < 10").await?;
        world.run("UPDATE t SET contents = 'changed ' || id WHERE id BETWEEN 10 AND 19").await?;
        world.run("INSERT INTO t VALUES (-1, 'new'), (-2, NULL)").await?;
        let before = world.num_texts_embedded();
        world.run(ADD).await?;
        // The first rows were done: ten of them are gone, ten have another text; one new row has a text.
        assert!(world.num_texts_embedded() - before <= FRAGMENTS * ROWS - done + 10 + 1);
        assert_eq!(world.count(RIGHT).await?, FRAGMENTS * ROWS - 10 + 1);
        assert_eq!(world.count("SELECT count(*) FROM t WHERE e IS NULL AND id = -2").await?, 1);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn values_of_another_column_of_the_name_are_computed_anew() -> Result<()> {
        let world = World::new().await?;
        world.run("ALTER TABLE t ADD COLUMN title text DEFAULT 'a title'").await?;
        world.run_in_part().await?;
        world.run("ALTER TABLE t RENAME COLUMN contents TO old").await?;
        world.run("ALTER TABLE t RENAME COLUMN title TO contents").await?;
        world.run(ADD).await?;
        assert_eq!(world.count(RIGHT).await?, FRAGMENTS * ROWS);
        // The same again, with a column that was dropped.
        world.run("ALTER TABLE t DROP COLUMN e").await?;
        world.run("ALTER TABLE t RENAME COLUMN old TO texts").await?;
        world.run("ALTER TABLE t DROP COLUMN contents").await?;
        world.run("ALTER TABLE t RENAME COLUMN texts TO contents").await?;
        world.run_in_part().await?;
        world.run("ALTER TABLE t DROP COLUMN contents").await?;
        world.run("ALTER TABLE t ADD COLUMN contents text DEFAULT 'other contents'").await?;
        world.run(ADD).await?;
        assert_eq!(world.count(RIGHT).await?, FRAGMENTS * ROWS);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_of_the_last_part_may_all_be_gone() -> Result<()> {
        let world = World::new().await?;
        let done = world.run_until_more_than(ROWS).await?;
        let first_of_last_run = (done - 1) / ROWS * ROWS;
        world.run(&format!("DELETE FROM t WHERE id >= {}", first_of_last_run + 1)).await?;
        world.run(&format!("DELETE FROM t WHERE id = {first_of_last_run}")).await?;
        world.run(ADD).await?;
        assert_eq!(world.count(RIGHT).await?, first_of_last_run);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_table_stays_and_keeps_its_name_while_a_column_is_filled() -> Result<()> {
        let world = World::new().await?;
        let other = world.session.database().session();
        let mut running = Box::pin(other.sql(ADD));
        while world.rows_done().await? == 0 {
            tokio::select! {
                ended = &mut running => panic!("the statement ended before it could be disturbed: {:?}", ended.err()),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        let others = async {
            for statement in ["DROP TABLE t", "ALTER TABLE t RENAME TO u"] {
                let refused = world.run(statement).await;
                assert!(matches!(refused, Err(Error::Catalog(rolloutdb_catalogs::Error::InUse(_)))), "{refused:?}");
            }
        };
        tokio::select! {
            ended = &mut running => panic!("the statements waited: {:?}", ended.err()),
            () = others => {}
        }
        drop(running);
        world.run("DROP TABLE t").await?;
        world.run("CREATE TABLE t (id bigint)").await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn others_write_while_a_column_is_filled() -> Result<()> {
        let world = World::new().await?;
        let other = world.session.database().session();
        let mut running = Box::pin(other.sql(ADD));
        while world.rows_done().await? == 0 {
            tokio::select! {
                ended = &mut running => panic!("the statement ended before another could write: {:?}", ended.err()),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        let writes = async {
            world.run("INSERT INTO t VALUES (-1, 'new')").await?;
            world.run("UPDATE t SET contents = 'changed' WHERE id = 5").await?;
            world.run("OPTIMIZE t").await?;
            let second = world.run(ADD).await;
            assert!(matches!(second, Err(Error::Catalog(rolloutdb_catalogs::Error::InUse(_)))), "{second:?}");
            world.count("SELECT count(*) FROM rollout.backfills WHERE running AND rows_per_second > 0").await
        };
        tokio::select! {
            ended = &mut running => panic!("the writes waited for the statement: {:?}", ended.err()),
            shown = writes => assert_eq!(shown?, 1),
        }
        running.await?.try_collect::<Vec<_>>().await?;
        assert!(world.told("while a column is filled"));
        assert_eq!(world.count(RIGHT).await?, FRAGMENTS * ROWS + 1);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn another_model_version_begins_anew_and_says_so() -> Result<()> {
        let world = World::new().await?;
        world.run_in_part().await?;
        world.run("DROP MODEL encoder").await?;
        world.create_model().await?;
        let before = world.num_texts_embedded();
        world.run(ADD).await?;
        assert_eq!(world.num_texts_embedded() - before, FRAGMENTS * ROWS);
        assert!(world.told("computed from the beginning"));
        assert_eq!(world.count(RIGHT).await?, FRAGMENTS * ROWS);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_column_stays_with_its_version_and_says_when_there_is_a_newer_one() -> Result<()> {
        let world = World::new().await?;
        world.run(ADD).await?;
        let registry = &world.session.database().shared.registry;
        let first = registry.get("encoder")?;
        let staged = registry.stage()?;
        for entry in std::fs::read_dir(fixture("models/bert")).expect("the fixture is there").flatten() {
            std::fs::copy(entry.path(), staged.path().join(entry.file_name())).expect("it can be copied");
        }
        registry.publish("encoder", staged, &first, serde_json::Value::Null)?;
        world.run("INSERT INTO t VALUES (-1, 'new')").await?;
        let advice = "ALTER TABLE \"public\".\"t\" DROP COLUMN \"e\"; ALTER TABLE \"public\".\"t\" ADD COLUMN \"e\" vector(64) \
            GENERATED ALWAYS AS (embed('encoder', contents)) STORED";
        assert!(world.told("still computed by model encoder@1; there is encoder@2"));
        assert!(world.told(advice), "{:?}", world.notices.lock());
        assert_eq!(world.count("SELECT count(*) FROM t WHERE e = embed('encoder@1', contents)").await?, FRAGMENTS * ROWS + 1);
        // What it advises works.
        world.run(advice).await?;
        world.notices.lock().expect("no panic").clear();
        world.run("INSERT INTO t VALUES (-2, 'newer')").await?;
        assert!(!world.told("still computed"));
        Ok(())
    }
}
