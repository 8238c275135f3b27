//! TRAIN SFT, TRAIN DPO: rows become token ids, the training runs on a thread of its own, its metrics become rows, and the result a model version.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arrow::array::{Array, AsArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use rolloutdb_sql::{Privilege, Train, TrainMethod};
use serde_json::json;
use tokio::sync::mpsc;

use super::{arrow, name, rows};
use crate::engine::options;
use crate::engine::planning::{plan_query, require_columns};
use crate::engine::privileges::Object;
use crate::engine::progress::{Progress, Work};
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};
use crate::models::{Decoder, ModelInfo, Tokenizer};
use crate::training::{DpoExample, DpoOptions, SftExample, SftOptions, StepMetrics, Stop, reference_logps, train_dpo, train_sft};

/// Rows of metrics are committed in groups of so many steps.
const METRIC_STEPS: usize = 50;

pub fn summary_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("model", DataType::Utf8, false),
        Field::new("version", DataType::Int32, false),
        Field::new("examples", DataType::Int64, false),
        Field::new("steps", DataType::Int64, false),
        Field::new("final_loss", DataType::Float64, false),
        Field::new("seconds", DataType::Float64, false),
    ]))
}

/// What to learn from, and how.
enum Task {
    Sft { examples: Vec<SftExample>, options: SftOptions },
    Dpo { examples: Vec<DpoExample>, options: DpoOptions },
}

impl Task {
    /// So that the run can be ended from another thread.
    fn set_stop(&mut self, stop: &Stop) {
        match self {
            Self::Sft { options, .. } => options.run.stop = stop.clone(),
            Self::Dpo { options, .. } => options.run.stop = stop.clone(),
        }
    }

    fn tokenize(&mut self, rows: &[Row], tokenizer: &Tokenizer, stop: &Stop) -> Result<()> {
        for Row { texts, weight } in rows {
            stop.check()?;
            let prompt = tokenizer.encode_prompt(&texts[0])?;
            let completion = |column: usize| completion(tokenizer, &texts[column]);
            match self {
                Self::Sft { examples, .. } => examples.push(SftExample { prompt, completion: completion(1)?, weight: *weight }),
                Self::Dpo { examples, .. } => examples.push(DpoExample { prompt, chosen: completion(1)?, rejected: completion(2)? }),
            }
        }
        Ok(())
    }
}

/// What the training thread tells while it runs.
enum Event {
    Step(StepMetrics),
    /// Reference log-probabilities: pairs done, pairs in all.
    Reference(usize, usize),
}

pub async fn execute(session: &Session, train: &Train, parameters: &[ScalarValue]) -> Result<Response> {
    let started = Instant::now();
    let shared = &session.database().shared;
    let _job = shared.model_jobs.claim("TRAIN")?;
    let base = shared.registry.get(&train.base)?;
    base.require_trainable("TRAIN")?;
    let task = task(train)?;
    if train.validate.is_some() {
        return Err(Error::NotSupported("VALIDATE USING is not supported yet; evaluate the new model with a SELECT".to_owned()));
    }
    shared.registry.check_name(&train.model)?;
    let examples = read_rows(session, train, parameters, &task).await?;
    let num_examples = examples.len();
    if let Some(task) = session.task() {
        task.say_rows(num_examples);
    }
    let run = Run { session, train, base: &base, options_json: options_json(train) };
    let (decoder, last) = run.training(task, examples).await?;
    let info = run.publish(decoder, num_examples, &last, started.elapsed().as_secs_f64()).await?;
    if let Err(error) = run.store_metrics(&info, last.all).await {
        // The model is there; an error would say that it is not.
        session.notices().warning(format!("model {} is trained, but its metrics could not be stored: {error}", info.reference()));
    }
    let summary = RecordBatch::try_new(
        summary_schema(),
        vec![
            Arc::new(StringArray::from(vec![info.name.as_str()])),
            Arc::new(Int32Array::from(vec![info.version as i32])),
            Arc::new(Int64Array::from(vec![num_examples as i64])),
            Arc::new(Int64Array::from(vec![last.steps as i64])),
            Arc::new(Float64Array::from(vec![last.loss])),
            Arc::new(Float64Array::from(vec![started.elapsed().as_secs_f64()])),
        ],
    );
    Ok(rows("TRAIN", summary.map_err(arrow)?))
}

/// The method with its options checked, before any row is read.
fn task(train: &Train) -> Result<Task> {
    match train.method {
        TrainMethod::Sft => {
            let mut sft = SftOptions::default();
            for (name, value) in train.options.iter() {
                sft.set(name, &options::value(name, value)?)?;
            }
            Ok(Task::Sft { examples: vec![], options: sft })
        }
        TrainMethod::Dpo => {
            let mut dpo = DpoOptions::default();
            for (name, value) in train.options.iter() {
                dpo.set(name, &options::value(name, value)?)?;
            }
            Ok(Task::Dpo { examples: vec![], options: dpo })
        }
        other => Err(Error::NotSupported(format!("TRAIN {other} is not supported yet; SFT and DPO are"))),
    }
}

/// One row of the query: `prompt`, then `completion`, or `chosen` and `rejected`.
struct Row {
    texts: Vec<String>,
    weight: f32,
}

/// Reads `prompt, completion[, weight]` or `prompt, chosen, rejected`.
async fn read_rows(session: &Session, train: &Train, parameters: &[ScalarValue], task: &Task) -> Result<Vec<Row>> {
    let of = format!("TRAIN {}", train.method);
    let planned = plan_query(session, &train.query, parameters).await?;
    let columns: &[&str] = if matches!(task, Task::Sft { .. }) { &["prompt", "completion"] } else { &["prompt", "chosen", "rejected"] };
    require_columns(&of, &planned.plan, columns)?;
    let mut stream = planned.stream().await?;
    let mut rows = Vec::new();
    while let Some(batch) = stream.try_next().await? {
        let texts = columns.iter().map(|column| text_column(&of, &batch, column, rows.len())).collect::<Result<Vec<_>>>()?;
        let weights = weights(&of, &batch, rows.len())?;
        rows.extend((0..batch.num_rows()).map(|row| Row {
            texts: texts.iter().map(|column| column.value(row).to_owned()).collect(),
            weight: weights.as_ref().map_or(1.0, |weights| weights.value(row) as f32),
        }));
    }
    if rows.is_empty() {
        return Err(Error::NotReady(format!("{of} needs at least one example; its query gives none")));
    }
    if train.query.order_by.is_none() {
        // Such a query may give its rows in any order. They are sorted, so that the same seed gives the same model.
        rows.sort_by(|a, b| a.texts.cmp(&b.texts).then(a.weight.total_cmp(&b.weight)));
    }
    Ok(rows)
}

/// A completion ends with end-of-text: the policy learns to stop.
fn completion(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let mut ids = tokenizer.encode(text)?;
    ids.extend(tokenizer.eos_token_id());
    Ok(ids)
}

fn text_column(of: &str, batch: &RecordBatch, name: &str, rows_before: usize) -> Result<StringArray> {
    let column = batch.column_by_name(name).ok_or_else(|| Error::Internal(format!("no column {name}")))?;
    if !matches!(column.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
        return Err(Error::WrongType {
            what: format!("column {name} of {of}"),
            found: crate::engine::typing::sql_type_name(column.data_type()),
            expected: "text".to_owned(),
        });
    }
    let column = cast(column, &DataType::Utf8).map_err(arrow)?.as_string::<i32>().clone();
    match first_null(&column) {
        Some(row) => Err(null_value(of, name, rows_before + row, "a text; filter such rows out with WHERE")),
        None => Ok(column),
    }
}

fn weights(of: &str, batch: &RecordBatch, rows_before: usize) -> Result<Option<Float64Array>> {
    let Some(column) = batch.column_by_name("weight") else { return Ok(None) };
    let column = cast(column, &DataType::Float64).map_err(arrow)?.as_primitive::<Float64Type>().clone();
    match first_null(&column) {
        Some(row) => Err(null_value(of, "weight", rows_before + row, "a number; COALESCE(weight, 1) where there is none")),
        None => Ok(Some(column)),
    }
}

fn first_null(column: &dyn Array) -> Option<usize> {
    (0..column.len()).find(|row| column.is_null(*row))
}

fn null_value(of: &str, column: &str, row: usize, expected: &str) -> Error {
    Error::InvalidParameter { name: format!("{column} of {of}, row {}", row + 1), found: "NULL".to_owned(), expected: expected.to_owned() }
}

fn options_json(train: &Train) -> serde_json::Value {
    train.options.iter().map(|(name, value)| (name.to_owned(), json!(value.to_string()))).collect::<serde_json::Map<_, _>>().into()
}

/// One training: its statement, and where its results go.
struct Run<'a> {
    session: &'a Session,
    train: &'a Train,
    base: &'a ModelInfo,
    options_json: serde_json::Value,
}

/// What the steps gave.
#[derive(Default)]
struct Outcome {
    steps: usize,
    loss: f64,
    all: Vec<StepMetrics>,
}

/// Sets the flag when the statement is dropped: the training thread sees it at its next batch.
struct CancelOnDrop(Stop);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Run<'_> {
    /// Trains on a thread of its own and reports progress from it.
    async fn training(&self, mut task: Task, rows: Vec<Row>) -> Result<(Decoder, Outcome)> {
        let stop = Stop::default();
        let _guard = CancelOnDrop(stop.clone());
        task.set_stop(&stop);
        let (events, mut received) = mpsc::unbounded_channel();
        let directory = self.base.directory.clone();
        let worker = tokio::task::spawn_blocking(move || {
            task.tokenize(&rows, &Tokenizer::load(&directory)?, &stop)?;
            drop(rows);
            let mut decoder = Decoder::load_trainable(&directory)?;
            let observe = |event: Event| {
                // A closed channel means the statement is gone; the flag says so too.
                let _ = events.send(event);
                stop.check()
            };
            train_decoder(&mut decoder, task, &observe)?;
            Ok::<_, Error>(decoder)
        });
        let outcome = self.report(&mut received).await;
        let decoder = worker.await.map_err(|error| Error::Internal(error.to_string()))??;
        Ok((decoder, outcome))
    }

    fn work(&self, phase: &'static str) -> Work {
        Work::Train { model: self.train.model.clone(), method: self.train.method.to_string().to_lowercase(), phase }
    }

    async fn report(&self, events: &mut mpsc::UnboundedReceiver<Event>) -> Outcome {
        let what = format!("TRAIN {} {}", self.train.method, self.train.model);
        let (mut outcome, mut progress) = (Outcome::default(), None);
        while let Some(event) = events.recv().await {
            match event {
                Event::Reference(done, total) => {
                    let progress = progress.get_or_insert_with(|| {
                        let work = self.work("reference");
                        Progress::of(self.session.notices(), work, format!("{what}: reference"), "pairs", Some(total as u64))
                    });
                    progress.update(done as u64, "");
                }
                Event::Step(metrics) => {
                    if outcome.all.is_empty() {
                        progress = None;
                    }
                    let progress = progress.get_or_insert_with(|| {
                        Progress::of(self.session.notices(), self.work("steps"), what.clone(), "steps", Some(metrics.num_steps as u64))
                    });
                    outcome.loss = metrics.get("loss").unwrap_or(f64::NAN);
                    outcome.steps = metrics.step;
                    progress.update(metrics.step as u64, &detail(&metrics));
                    outcome.all.push(metrics);
                }
            }
        }
        outcome
    }

    /// Writes the weights beside the base's tokenizer and publishes them as a new version. Whose the model is, is asked once more: much happens while
    /// a training runs.
    async fn publish(&self, decoder: Decoder, num_examples: usize, outcome: &Outcome, seconds: f64) -> Result<ModelInfo> {
        let lineage = json!({
            "statement": self.train.to_string(),
            "method": self.train.method.to_string(),
            "base": self.base.reference(),
            "options": self.options_json,
            "examples": num_examples,
            "steps": outcome.steps,
            "final_loss": outcome.loss,
            "seconds": seconds,
            "rolloutdb_version": env!("CARGO_PKG_VERSION"),
        });
        let registry = Arc::clone(&self.session.database().shared.registry);
        let (name, base) = (self.train.model.clone(), self.base.clone());
        let model = Object::model(&name);
        let lock = name::to_make(self.session, &model).await;
        let session = self.session.clone();
        let written = tokio::task::spawn_blocking(move || {
            // Here, since a statement that is cancelled now ends before this does.
            let _name = lock;
            let is_new = may_publish(&session, &model)?;
            let staged = registry.stage()?;
            decoder.save(staged.path())?;
            Tokenizer::copy_files(&base.directory, staged.path())?;
            let info = registry.publish(&name, staged, &base, lineage)?;
            if is_new {
                session.own(model)?;
            }
            Ok::<_, Error>(info)
        });
        written.await.map_err(|error| Error::Internal(error.to_string()))?
    }

    async fn store_metrics(&self, info: &ModelInfo, all: Vec<StepMetrics>) -> Result<()> {
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

/// Whether there is no such model yet.
///
/// # Errors
/// [`Error::InsufficientPrivilege`] (42501) if it is another's by now, or if it is gone and the role may make none.
fn may_publish(session: &Session, model: &Object) -> Result<bool> {
    let access = session.access();
    if !session.database().shared.knows(model) {
        access.require(&Object::Database, Privilege::Create)?;
        return Ok(true);
    }
    if access.owns(model) {
        return Ok(false);
    }
    Err(Error::InsufficientPrivilege(format!(
        "{model} was made by another role while this training ran, and only its owner adds versions; run TRAIN once more with a new name"
    )))
}

fn train_decoder(decoder: &mut Decoder, task: Task, observe: &dyn Fn(Event) -> Result<()>) -> Result<()> {
    match task {
        Task::Sft { examples, options } => train_sft(decoder, &examples, &options, &mut |step| observe(Event::Step(step.clone()))),
        Task::Dpo { examples, options } => {
            let reference = reference_logps(decoder, &examples, &options, &mut |done, total| observe(Event::Reference(done, total)))?;
            train_dpo(decoder, &reference, &examples, &options, &mut |step| observe(Event::Step(step.clone())))
        }
    }
}

/// The metrics that tell a person whether it goes well.
fn detail(metrics: &StepMetrics) -> String {
    ["loss", "reward_margin", "reward_accuracy"]
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

#[cfg(test)]
mod tests;
