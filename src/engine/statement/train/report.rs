//! What is told of a training while it runs, and the rows of `rollout.training_metrics` that stay of it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use rolloutdb_sql::{Train, TrainMethod};
use tokio::sync::mpsc::UnboundedReceiver;

use super::super::arrow;
use super::run::Event;
use crate::engine::progress::{Progress, Work};
use crate::engine::session::Session;
use crate::error::Result;
use crate::models::ModelInfo;
use crate::training::{Kept, StepMetrics};

/// Steps in one batch of rows. All batches are committed at once, when the version is there: rows have its number.
const METRIC_STEPS: usize = 50;

/// What the steps gave.
#[derive(Debug, Default)]
pub struct Outcome {
    pub steps: usize,
    /// Of the last step.
    pub loss: f64,
    pub all: Vec<StepMetrics>,
}

/// Who hears of a training.
pub struct Reporter<'a> {
    pub session: &'a Session,
    pub train: &'a Train,
}

impl Reporter<'_> {
    /// Reports until the training is done, or has failed.
    pub async fn follow(&self, events: &mut UnboundedReceiver<Event>) -> Outcome {
        let (mut outcome, mut num_replayed) = (Outcome::default(), 0);
        let (mut reference, mut steps) = (None, None);
        while let Some(event) = events.recv().await {
            match event {
                Event::Kept(kept) => self.tell_kept(kept),
                Event::Reference(done, total) => {
                    let progress = reference.get_or_insert_with(|| self.progress("reference", "pairs", total));
                    progress.update(done as u64, "");
                }
                Event::Step(metrics) => {
                    reference = None;
                    if metrics.is_replayed {
                        num_replayed = metrics.step;
                    } else {
                        let progress = steps.get_or_insert_with(|| self.begin(num_replayed, metrics.num_steps));
                        // Of this run: the time that is left is counted from its own pace.
                        progress.update((metrics.step - num_replayed) as u64, &detail(&metrics));
                    }
                    (outcome.steps, outcome.loss) = (metrics.step, metrics.get("loss").unwrap_or(f64::NAN));
                    outcome.all.push(metrics);
                }
            }
        }
        if outcome.all.last().is_some_and(|last| last.is_replayed && last.step == last.num_steps) {
            self.session.notices().notice(format!("{}: all of its {num_replayed} steps were done before", self.what()));
        }
        outcome
    }

    fn what(&self) -> String {
        format!("TRAIN {} {}", self.train.method, self.train.model)
    }

    fn progress(&self, phase: &'static str, unit: &str, total: usize) -> Progress {
        let work = Work::Train { model: self.train.model.clone(), method: self.train.method.to_string().to_lowercase(), phase };
        let what = if phase == "steps" { self.what() } else { format!("{}: {phase}", self.what()) };
        Progress::of(self.session.notices(), work, what, unit, Some(total as u64))
    }

    fn begin(&self, num_done: usize, num_steps: usize) -> Progress {
        if num_done > 0 {
            self.session.notices().notice(format!(
                "{} goes on at step {num_done} of {num_steps}, where an earlier run of it has left a checkpoint; resume = false begins anew",
                self.what()
            ));
        }
        self.progress("steps", "steps", num_steps - num_done)
    }

    fn tell_kept(&self, Kept { num_truncated, num_dropped }: Kept) {
        let examples = |count: usize| if count == 1 { "1 example".to_owned() } else { format!("{count} examples") };
        if num_truncated > 0 {
            self.session.notices().notice(format!(
                "{}: the prompts of {} are longer than max_length or batch_tokens lets them be, and lost their beginning; see long_prompts",
                self.what(),
                examples(num_truncated)
            ));
        }
        if num_dropped > 0 {
            self.session.notices().notice(format!(
                "{}: {} left out, because of prompts longer than max_length or batch_tokens lets them be",
                self.what(),
                examples(num_dropped)
            ));
        }
    }

    /// Adds the rows of all steps.
    ///
    /// # Errors
    /// Of a table that cannot be written.
    pub async fn store_metrics(&self, info: &ModelInfo, all: &[StepMetrics]) -> Result<()> {
        let table = self.session.database().shared.catalog.table("rollout", "training_metrics").await?;
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let schema = Arc::clone(&table.definition().schema);
        let batches = all
            .chunks(METRIC_STEPS)
            .map(|steps| metrics_batch(&schema, info, self.train.method, steps, at_ms))
            .collect::<Result<Vec<_>>>()?;
        let stream = RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches.into_iter().map(Ok)));
        table.append(Box::pin(stream)).await?;
        Ok(())
    }
}

/// The metrics that tell a person whether it goes well.
fn detail(metrics: &StepMetrics) -> String {
    ["loss", "reward_margin", "reward_accuracy", "validation_loss"]
        .iter()
        .filter_map(|name| Some(format!("{} {:.4}", name.replace('_', " "), metrics.get(name)?)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Columns of `rollout.training_metrics`: model, version, method, step, metric, value, at_ms.
fn metrics_batch(schema: &SchemaRef, info: &ModelInfo, method: TrainMethod, steps: &[StepMetrics], at_ms: i64) -> Result<RecordBatch> {
    let values: Vec<(i32, &str, f64)> =
        steps.iter().flat_map(|step| step.metrics.iter().map(move |(name, value)| (step.step as i32, *name, *value))).collect();
    let count = values.len();
    let batch = RecordBatch::try_new(
        Arc::clone(schema),
        vec![
            Arc::new(StringArray::from(vec![info.name.as_str(); count])),
            Arc::new(Int32Array::from(vec![info.version as i32; count])),
            Arc::new(StringArray::from(vec![method.to_string().to_lowercase(); count])),
            Arc::new(Int32Array::from_iter_values(values.iter().map(|(step, _, _)| *step))),
            Arc::new(StringArray::from_iter_values(values.iter().map(|(_, name, _)| *name))),
            Arc::new(Float64Array::from_iter_values(values.iter().map(|(_, _, value)| *value))),
            Arc::new(Int64Array::from(vec![at_ms; count])),
        ],
    );
    batch.map_err(arrow)
}
