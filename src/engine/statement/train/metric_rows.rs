//! The rows of a run in `rollout.training_metrics`.
//!
//! A run is the steps of one training, from its first to its last: one that goes on at a checkpoint is the run that left it. Its rows are
//! added while it goes, without a version, and get the number of the version when that is there.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int32Type, SchemaRef};
use datafusion::functions_aggregate::expr_fn::max;
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionContext;
use rolloutdb_catalogs::{Catalog, ROW_ADDRESS, Table};
use rolloutdb_sql::Train;

use super::super::arrow;
use crate::engine::session::Session;
use crate::error::Result;
use crate::training::StepMetrics;

const SCHEMA: &str = "rollout";
const TABLE: &str = "training_metrics";
const RUN: &str = "run";
const VERSION: &str = "version";

/// Digits of the fingerprint in the name of a run: enough to know one training from another.
const RUN_DIGITS: usize = 16;
/// Steps in one batch of rows; all batches are one commit.
const STEPS_PER_BATCH: usize = 50;

/// A run as its rows know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub name: String,
    /// The last step that has rows; 0 without any. Those before it have some too.
    pub last_step: usize,
}

/// A step, and when it ended.
#[derive(Debug, Clone)]
pub struct RecordedStep {
    pub metrics: StepMetrics,
    pub at_ms: i64,
}

impl RecordedStep {
    /// A step that has just ended.
    pub fn now(metrics: StepMetrics) -> Self {
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        Self { metrics, at_ms }
    }
}

/// Writes the rows of one training.
#[derive(Debug, Clone)]
pub struct MetricRows {
    catalog: Arc<Catalog>,
    model: String,
    method: String,
}

impl MetricRows {
    pub fn new(session: &Session, train: &Train) -> Self {
        let catalog = Arc::clone(&session.database().shared.catalog);
        Self { catalog, model: train.model.clone(), method: train.method.to_string().to_lowercase() }
    }

    async fn table(&self) -> Result<Arc<Table>> {
        Ok(self.catalog.table(SCHEMA, TABLE).await?)
    }

    /// The run of the training with this fingerprint. `goes_on`: it took up a checkpoint, and is the last run that has no version yet, if
    /// its rows are still there; otherwise it is a new one. The caller is the only one who writes rows of this fingerprint.
    ///
    /// # Errors
    /// Of a table that cannot be read.
    pub async fn run(&self, fingerprint: &str, goes_on: bool) -> Result<Run> {
        let prefix = format!("{}-", fingerprint.get(..RUN_DIGITS).unwrap_or(fingerprint));
        let known = self.runs(&prefix).await?;
        let last = known.into_iter().max_by_key(|known| known.number);
        Ok(match last {
            Some(Known { number, last_step, version: None }) if goes_on => Run { name: format!("{prefix}{number}"), last_step },
            last => Run { name: format!("{prefix}{}", last.map_or(0, |last| last.number) + 1), last_step: 0 },
        })
    }

    /// The runs whose names are `prefix` and a number.
    async fn runs(&self, prefix: &str) -> Result<Vec<Known>> {
        let table = self.table().await?;
        if table.row_count().await? == 0 {
            return Ok(vec![]);
        }
        // The texts that begin with the prefix, as comparisons, which the storage evaluates: '.' comes after '-'.
        let end = prefix.replace('-', ".");
        let rows = SessionContext::new().read_table(table as _)?;
        let rows = rows.filter(col(RUN).gt_eq(lit(prefix)).and(col(RUN).lt(lit(end))))?;
        let rows = rows.aggregate(vec![col(RUN)], vec![max(col("step")), max(col(VERSION))])?;
        let mut known = Vec::new();
        for batch in rows.collect().await? {
            let (names, steps) = (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<Int32Type>());
            let versions = batch.column(2).as_primitive::<Int32Type>();
            for ((name, step), version) in names.iter().zip(steps).zip(versions) {
                let number = name.and_then(|name| name.strip_prefix(prefix)?.parse().ok());
                let last_step = step.and_then(|step| usize::try_from(step).ok());
                known.extend(number.zip(last_step).map(|(number, last_step)| Known { number, last_step, version }));
            }
        }
        Ok(known)
    }

    /// Adds the rows of these steps, in one commit.
    ///
    /// # Errors
    /// Of a table that cannot be written, which is as it was.
    pub async fn append(&self, run: &str, version: Option<u32>, steps: &[RecordedStep]) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let table = self.table().await?;
        let schema = Arc::clone(&table.definition().schema);
        let batches = steps.chunks(STEPS_PER_BATCH).map(|steps| self.batch(&schema, run, version, steps)).collect::<Result<Vec<_>>>()?;
        let stream = RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches.into_iter().map(Ok)));
        table.append(Box::pin(stream)).await?;
        Ok(())
    }

    /// Columns: model, version, method, step, metric, value, at_ms, run.
    fn batch(&self, schema: &SchemaRef, run: &str, version: Option<u32>, steps: &[RecordedStep]) -> Result<RecordBatch> {
        let rows: Vec<(&RecordedStep, &str, f64)> =
            steps.iter().flat_map(|step| step.metrics.metrics.iter().map(move |(name, value)| (step, *name, *value))).collect();
        let count = rows.len();
        let text = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text; count])) };
        let columns: Vec<ArrayRef> = vec![
            text(&self.model),
            Arc::new(Int32Array::from(vec![version.map(|version| version as i32); count])),
            text(&self.method),
            Arc::new(Int32Array::from_iter_values(rows.iter().map(|(step, _, _)| step.metrics.step as i32))),
            Arc::new(StringArray::from_iter_values(rows.iter().map(|(_, name, _)| *name))),
            Arc::new(Float64Array::from_iter_values(rows.iter().map(|(_, _, value)| *value))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|(step, _, _)| step.at_ms))),
            text(run),
        ];
        RecordBatch::try_new(Arc::clone(schema), columns).map_err(arrow)
    }

    /// Gives the rows of a run the version that it has made, in one commit.
    ///
    /// # Errors
    /// Of a table that cannot be written, which is as it was.
    pub async fn set_version(&self, run: &str, version: u32) -> Result<()> {
        let table = self.table().await?;
        let rewrite = table.begin_rewrite().await?;
        let columns = rewrite.table().definition().schema.fields().iter().map(|field| match field.name().as_str() {
            VERSION => lit(version as i32).alias(VERSION),
            other => col(other),
        });
        let columns: Vec<Expr> = std::iter::once(col(ROW_ADDRESS)).chain(columns).collect();
        let rows = SessionContext::new().read_table(rewrite.table().with_addresses())?;
        let rows = rows.filter(col(RUN).eq(lit(run)))?.select(columns)?.execute_stream().await?;
        rewrite.update(rows, false).await?;
        Ok(())
    }
}

/// What rows tell of a run.
#[derive(Debug, Clone, Copy)]
struct Known {
    number: u64,
    last_step: usize,
    version: Option<i32>,
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use rolloutdb_sql::Statement;

    use super::*;
    use crate::Database;

    const FINGERPRINT: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    /// The same first digits.
    const ALIKE: &str = "0011223344556677ffff";

    fn rows(session: &Session) -> MetricRows {
        let text = "TRAIN SFT MODEL m FROM base USING (SELECT 1)";
        match session.parse(text).expect(text).pop() {
            Some(Statement::Train(train)) => MetricRows::new(session, &train),
            other => panic!("{other:?}"),
        }
    }

    fn steps(steps: std::ops::RangeInclusive<usize>) -> Vec<RecordedStep> {
        let step = |step| StepMetrics { step, num_steps: 9, metrics: vec![("loss", 0.5), ("tokens", 8.0)], is_replayed: false };
        steps.map(|number| RecordedStep { metrics: step(number), at_ms: number as i64 }).collect()
    }

    async fn found(session: &Session, query: &str) -> Result<Vec<String>> {
        let batches: Vec<RecordBatch> = session.sql(query).await?.try_collect().await?;
        let texts = batches.iter().flat_map(|batch| batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned));
        Ok(texts.collect())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_goes_on_until_it_has_a_version() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        let metrics = rows(&session);
        let first = Run { name: "0011223344556677-1".to_owned(), last_step: 0 };
        for goes_on in [false, true] {
            assert_eq!(metrics.run(FINGERPRINT, goes_on).await?, first, "there is none yet");
        }
        metrics.append(&first.name, None, &steps(1..=3)).await?;
        metrics.append(&first.name, None, &[]).await?;
        metrics.append(&first.name, None, &steps(4..=5)).await?;
        assert_eq!(metrics.run(FINGERPRINT, true).await?, Run { last_step: 5, ..first.clone() });
        let second = Run { name: "0011223344556677-2".to_owned(), last_step: 0 };
        assert_eq!(metrics.run(FINGERPRINT, false).await?, second, "one that begins anew is another");
        metrics.append(&second.name, None, &steps(1..=2)).await?;
        assert_eq!(metrics.run(FINGERPRINT, true).await?.name, second.name);
        metrics.set_version(&second.name, 7).await?;
        let third = Run { name: "0011223344556677-3".to_owned(), last_step: 0 };
        assert_eq!(metrics.run(FINGERPRINT, true).await?, third, "what has a version is done");
        assert_eq!(metrics.run("ffee", true).await?.name, "ffee-1");
        assert_eq!(metrics.run(ALIKE, true).await?.name, third.name, "the name has the first digits alone");

        let all = "SELECT run || ' ' || coalesce(version, 0) || ' ' || model || ' ' || method || ' ' || step || ' ' || metric || ' ' || at_ms AS row \
                   FROM rollout.training_metrics ORDER BY 1";
        let all = found(&session, all).await?;
        assert_eq!(all.len(), 2 * (5 + 2), "no row twice, and none lost: {all:?}");
        assert_eq!(all[0], "0011223344556677-1 0 m sft 1 loss 1");
        assert_eq!(all[13], "0011223344556677-2 7 m sft 2 tokens 2");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_rows_of_many_steps_are_one_commit() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        let metrics = rows(&session);
        let before = metrics.table().await?.version();
        metrics.append("a", Some(1), &steps(1..=3 * STEPS_PER_BATCH)).await?;
        let table = metrics.table().await?;
        assert_eq!((table.version(), table.row_count().await?), (before + 1, 2 * 3 * STEPS_PER_BATCH as u64));
        metrics.set_version("no such run", 1).await?;
        assert_eq!(metrics.table().await?.version(), before + 1);
        Ok(())
    }
}
