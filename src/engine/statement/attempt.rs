//! A statement that computes for long what it writes lets others write meanwhile. When they have changed what it read, nothing of it is written, and
//! it runs once more and lets nobody: no change is lost, and no statement runs for ever.

use datafusion::logical_expr::LogicalPlan;
use futures::future::BoxFuture;
use rolloutdb_catalogs::{Error as CatalogError, Hold};

use crate::engine::apply::calls_model;
use crate::engine::session::Response;
use crate::error::{Error, Result};

/// Which run of a statement it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    First,
    Last,
}

impl Attempt {
    /// When the statement takes the right to write. One that calls no model is quick, and others do not wait long for it.
    pub fn hold(self, rows: &LogicalPlan) -> Result<Hold> {
        Ok(if self == Self::First && calls_model(rows)? { Hold::AtTheEnd } else { Hold::FromTheStart })
    }
}

/// Runs a statement, and once more if nothing was written because the table is not what the first run took it for.
pub async fn attempted<'a>(run: impl Fn(Attempt) -> BoxFuture<'a, Result<Response>>) -> Result<Response> {
    match run(Attempt::First).await {
        Err(Error::Catalog(CatalogError::Altered { .. } | CatalogError::Overtaken { .. })) => run(Attempt::Last).await,
        ended => ended,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use arrow::util::display::array_value_to_string;
    use datafusion::catalog::streaming::StreamingTable;
    use datafusion::error::DataFusionError;
    use datafusion::execution::{SendableRecordBatchStream, TaskContext};
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use datafusion::physical_plan::streaming::PartitionStream;
    use futures::{TryStreamExt, stream};
    use tokio::sync::watch;

    use crate::engine::Session;
    use crate::fixtures::fixture;
    use crate::{Database, Error, Result};

    /// The table `slow` with the ids 1 and 2, whose rows come when they are let go.
    #[derive(Debug)]
    struct SlowRows {
        schema: SchemaRef,
        is_waiting: watch::Sender<bool>,
        may_go: watch::Receiver<bool>,
    }

    impl PartitionStream for SlowRows {
        fn schema(&self) -> &SchemaRef {
            &self.schema
        }

        fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
            let (schema, is_waiting, mut may_go) = (Arc::clone(&self.schema), self.is_waiting.clone(), self.may_go.clone());
            let rows =
                RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(vec![1, 2]))]).map_err(DataFusionError::from);
            let rows = stream::once(async move {
                is_waiting.send_replace(true);
                may_go.wait_for(|may_go| *may_go).await.expect("the test lets them go");
                rows
            });
            Box::pin(RecordBatchStreamAdapter::new(schema, rows))
        }
    }

    async fn run(session: &Session, sql: &str) -> Result<Vec<RecordBatch>> {
        Ok(session.sql(sql).await?.try_collect().await?)
    }

    /// Runs a statement that reads `slow` and calls a model over a table with the rows `(1, 'one')` and `(3, 'three')`, and before it is let go another
    /// one, which must not wait for it. Returns `id contents` of each row at the end whose vector is that of its text.
    async fn run_both(slow_statement: &str, quick_statement: &str) -> Result<Vec<String>> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(directory.path()).await?.session();
        run(&session, &format!("CREATE MODEL encoder FROM '{}' WITH (task = 'embed')", fixture("models/bert").display())).await?;
        run(
            &session,
            "CREATE TABLE t (id bigint PRIMARY KEY, contents text, v vector(64) GENERATED ALWAYS AS (embed('encoder', contents)) STORED);
             INSERT INTO t VALUES (1, 'one'), (3, 'three')",
        )
        .await?;
        let ((is_waiting, mut waits), (let_go, may_go)) = (watch::channel(false), watch::channel(false));
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        let rows = Arc::new(SlowRows { schema: Arc::clone(&schema), is_waiting, may_go });
        let table = StreamingTable::try_new(schema, vec![rows])?;
        session.database().shared.catalog.register_virtual("public", "slow", Arc::new(table))?;

        let (other, statement) = (session.database().session(), slow_statement.to_owned());
        let slow = tokio::spawn(async move { run(&other, &statement).await });
        let begun = tokio::time::timeout(Duration::from_secs(60), waits.wait_for(|is_waiting| *is_waiting)).await;
        assert!(begun.is_ok(), "{slow_statement} does not read the table slow");
        drop(begun);
        let quick = tokio::time::timeout(Duration::from_secs(60), run(&session, quick_statement)).await;
        quick.unwrap_or_else(|_| panic!("{quick_statement} waited for {slow_statement}"))?;
        let_go.send_replace(true);
        slow.await.expect("no panic")?;

        let rows = run(&session, "SELECT id || ' ' || contents FROM t WHERE v = embed('encoder', contents) ORDER BY id").await?;
        let text = |batch: &RecordBatch, row| array_value_to_string(batch.column(0), row).expect("a text");
        Ok(rows.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| text(batch, row))).collect())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_with_vectors_are_inserted_while_others_are() -> Result<()> {
        let slow = "INSERT INTO t (id, contents) SELECT id + 10, 'slow ' || id FROM slow";
        assert_eq!(run_both(slow, "INSERT INTO t VALUES (2, 'quick')").await?, ["1 one", "2 quick", "3 three", "11 slow 1", "12 slow 2"]);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_key_that_was_taken_while_vectors_were_computed_is_refused() {
        let refused = run_both("INSERT INTO t (id, contents) SELECT id * 2, 'slow' FROM slow", "INSERT INTO t VALUES (2, 'quick')").await;
        let is_it = matches!(&refused, Err(Error::Catalog(rolloutdb_catalogs::Error::UniqueViolation { .. })));
        assert!(is_it, "{refused:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn do_nothing_leaves_out_a_key_that_was_taken_meanwhile() -> Result<()> {
        let slow = "INSERT INTO t (id, contents) SELECT id, 'slow' FROM slow ON CONFLICT (id) DO NOTHING";
        assert_eq!(run_both(slow, "INSERT INTO t VALUES (2, 'quick')").await?, ["1 one", "2 quick", "3 three"]);
        assert_eq!(run_both(slow, "INSERT INTO t VALUES (4, 'quick')").await?, ["1 one", "2 slow", "3 three", "4 quick"]);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_update_loses_no_change_that_was_made_while_it_computed() -> Result<()> {
        let slow = "UPDATE t SET contents = t.contents || ' more' FROM slow WHERE t.id = slow.id";
        let quick = "UPDATE t SET contents = 'quick ' || contents WHERE id = 1";
        assert_eq!(run_both(slow, quick).await?, ["1 quick one more", "3 three"]);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_delete_that_asks_a_model_spares_no_row_that_came_meanwhile() -> Result<()> {
        let slow = "DELETE FROM t USING slow WHERE t.id = slow.id AND t.v = embed('encoder', t.contents)";
        assert_eq!(run_both(slow, "INSERT INTO t VALUES (2, 'quick')").await?, ["3 three"]);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn do_update_and_merge_see_what_was_written_while_they_computed() -> Result<()> {
        let update = "INSERT INTO t (id, contents) SELECT id, 'slow' FROM slow
            ON CONFLICT (id) DO UPDATE SET contents = t.contents || ' ' || excluded.contents";
        let merge = "MERGE INTO t USING slow s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET contents = t.contents || ' slow'
            WHEN NOT MATCHED THEN INSERT (id, contents) VALUES (s.id, 'slow')";
        for slow in [update, merge] {
            let rows = run_both(slow, "INSERT INTO t VALUES (2, 'quick')").await?;
            assert_eq!(rows, ["1 one slow", "2 quick slow", "3 three"], "{slow}");
        }
        Ok(())
    }
}
