//! TRAIN: rows become token ids, the training runs on a thread of its own, its metrics become rows while it does, and the result a model version.
//!
//! Where examples are sampled by the policy itself, see [`online`].
//!
//! A run leaves checkpoints in the data directory. The same statement, run again after a cancel or a kill, takes the last one up and comes to the same
//! weights, bit by bit.

mod chat;
mod checkpoints;
mod documents;
mod dry_run;
mod event_files;
mod examples;
mod input;
mod lineage;
mod metric_rows;
mod old_checkpoints;
mod online;
mod publish;
mod recorder;
mod reference;
mod report;
mod run;
mod task;
mod warnings;

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use rolloutdb_sql::{Train, TrainMethod};
use serde_json::json;
use tokio::sync::mpsc;

use super::{arrow, rows};
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};
use crate::models::{DecoderConfig, ModelInfo};
use crate::training::{Stop, Warnings};
use chat::Chat;
pub use checkpoints::Trainings;
use dry_run::DryRun;
use event_files::EventFile;
use input::Input;
use lineage::Origin;
pub use old_checkpoints::remove_old_checkpoints;
use report::{Outcome, Reporter};
use run::{Event, Made, Training};
use task::Task;
use warnings::Watch;

/// The columns of what the statement gives: what was made, or for a dry run what it would take.
pub fn schema(train: &Train) -> SchemaRef {
    if train.dry_run { dry_run::schema() } else { summary_schema() }
}

fn summary_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("model", DataType::Utf8, false),
        Field::new("version", DataType::Int32, false),
        Field::new("examples", DataType::Int64, false),
        Field::new("steps", DataType::Int64, false),
        Field::new("final_loss", DataType::Float64, false),
        Field::new("seconds", DataType::Float64, false),
    ]))
}

pub async fn execute(session: &Session, train: &Train, parameters: &[ScalarValue]) -> Result<Response> {
    let started = Instant::now();
    let shared = &session.database().shared;
    // A path that may not be written is told before anything else is done.
    EventFile::of(session, train)?;
    let is_online = matches!(train.method, TrainMethod::Grpo | TrainMethod::Ppo);
    // A dry run over rows holds no weights.
    let _job = if train.dry_run && !is_online { None } else { Some(shared.model_jobs.claim("TRAIN")?) };
    let base = shared.registry.get(&train.base)?;
    base.require_trainable("TRAIN")?;
    task::check_models(train, &base, &shared.registry)?;
    if is_online {
        return Box::pin(online::execute(session, train, parameters, &base, started)).await;
    }
    let mut task = Task::of(train)?;
    shared.registry.check_name(&train.model)?;
    let config = DecoderConfig::load(&base.directory)?;
    task.fit(&config)?;
    let chat = Chat::of(&base);
    let input = Box::pin(input::read(session, train, parameters, &task.method, config.vocab_size, &chat)).await?;
    task.method.settle(&input.rows)?;
    if let Some(task) = session.task() {
        task.say_rows(input.rows.len());
    }
    if input.num_left_out > 0 {
        let num_rows = input.rows.len() + input.num_left_out;
        session.notices().notice(format!(
            "TRAIN {} {}: {} of {num_rows} rows are good enough",
            train.method,
            train.model,
            input.rows.len()
        ));
    }
    if train.dry_run {
        let dry_run = DryRun { directory: base.directory, config, method: task.method, rows: input.rows, validation: input.validation };
        return Ok(rows("TRAIN", on_thread(move |stop| dry_run.run(&stop)).await?));
    }
    let mut made = Box::pin(trained(session, train, &base, task, input)).await?;
    made.origin = made.origin.bound(parameters);
    summary(&Box::pin(publish(session, train, &base, made, started)).await?, started)
}

/// Sets the flag when the statement is dropped: the training thread sees it at its next batch.
struct CancelOnDrop(Stop);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `work` where it may block; it is asked to stop when the statement is dropped.
async fn on_thread<T: Send + 'static>(work: impl FnOnce(Stop) -> Result<T> + Send + 'static) -> Result<T> {
    let stop = Stop::default();
    let _guard = CancelOnDrop(stop.clone());
    tokio::task::spawn_blocking(move || work(stop)).await.map_err(|error| Error::Internal(error.to_string()))?
}

/// What a training has given, before it is a model.
struct Trained {
    made: Made,
    outcome: Outcome,
    origin: Origin,
}

/// Trains on a thread of its own and reports progress from it.
async fn trained(session: &Session, train: &Train, base: &ModelInfo, task: Task, input: Input) -> Result<Trained> {
    let shared = &session.database().shared;
    let Task { method, resume, on_divergence } = task;
    let watch = Watch::of(&method, input.rows.iter().any(|row| row.reference.is_some()));
    let origin = Box::pin(Origin::new(train, base, &method, input.tables).standing(shared, base, Vec::new())).await?;
    let (notices, what) = (session.notices().clone(), format!("TRAIN {} {}", train.method, train.model));
    let training = Training {
        directory: base.directory.clone(),
        identity: lineage::identity(train, base, &method),
        method,
        resume,
        on_divergence,
        rows: input.rows,
        validation: input.validation,
        trainings: Arc::clone(&shared.trainings),
        warnings: Warnings::new(move |warning| notices.warning(format!("{what}: {warning}"))),
    };
    let work = move |stop: &Stop, tell: &dyn Fn(Event)| training.run(stop, tell);
    let (made, outcome) = on_training_thread(session, train, watch, work, std::future::ready(())).await?;
    Ok(Trained { made, outcome, origin })
}

/// Does `work` on a thread of its own and reports progress from it. Meanwhile `beside` is done, which ends when the thread needs it no more.
async fn on_training_thread(
    session: &Session,
    train: &Train,
    watch: Watch,
    work: impl FnOnce(&Stop, &dyn Fn(Event)) -> Result<Made> + Send + 'static,
    beside: impl Future<Output = ()>,
) -> Result<(Made, Outcome)> {
    let stop = Stop::default();
    let _guard = CancelOnDrop(stop.clone());
    let (events, mut received) = mpsc::unbounded_channel();
    // Tracked, since the statement may be dropped: a process that ends waits until the last checkpoint is written.
    let worker = session.database().shared.tasks.spawn_blocking(move || {
        work(&stop, &|event| {
            // A closed channel means that the statement is gone; the flag says so too.
            let _ = events.send(event);
        })
    });
    let reporter = Reporter { session, train };
    let (outcome, ()) = tokio::join!(reporter.watch(&mut received, watch), beside);
    let made = worker.await.map_err(|error| Error::Internal(error.to_string()))??;
    Ok((made, outcome))
}

/// A version that is there.
struct Published {
    info: ModelInfo,
    num_examples: usize,
    outcome: Outcome,
}

/// Makes the model, keeps its metrics and says what speaks against it.
async fn publish(session: &Session, train: &Train, base: &ModelInfo, trained: Trained, started: Instant) -> Result<Published> {
    let Trained { made: Made { decoder, trained, divergence, counts, claim }, mut outcome, mut origin } = trained;
    let reporter = Reporter { session, train };
    if let Some(divergence) = &divergence {
        reporter.put_back(&mut outcome, divergence);
        origin = origin.and("diverged_at", json!(divergence.step));
    }
    reporter.end(&mut outcome);
    let lineage = origin.lineage(counts, &trained, &outcome, started.elapsed().as_secs_f64());
    let info = publish::publish(session, train, base, decoder, lineage, claim).await?;
    let notices = session.notices();
    if let Some(step) = trained.best_step.filter(|_| trained.stopped_early) {
        notices.notice(format!("TRAIN {} {}: stopped early, with the weights of step {step}", train.method, train.model));
    }
    if let Err(error) = reporter.store_metrics(&info, &outcome).await {
        // The model is there; an error would say that it is not.
        notices.warning(format!("model {} is trained, but its metrics could not be stored: {error}", info.reference()));
    }
    Ok(Published { info, num_examples: counts.examples, outcome })
}

fn summary(published: &Published, started: Instant) -> Result<Response> {
    let Published { info, num_examples, outcome } = published;
    let summary = RecordBatch::try_new(
        summary_schema(),
        vec![
            Arc::new(StringArray::from(vec![info.name.as_str()])),
            Arc::new(Int32Array::from(vec![info.version as i32])),
            Arc::new(Int64Array::from(vec![*num_examples as i64])),
            Arc::new(Int64Array::from(vec![outcome.steps as i64])),
            Arc::new(Float64Array::from(vec![outcome.loss])),
            Arc::new(Float64Array::from(vec![started.elapsed().as_secs_f64()])),
        ],
    );
    Ok(rows("TRAIN", summary.map_err(arrow)?))
}

#[cfg(test)]
mod tests;
