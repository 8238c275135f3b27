//! What is told of a training while it runs: how far it is, what its metrics are, and what in them speaks against its model.

use rolloutdb_sql::Train;
use tokio::sync::mpsc::UnboundedReceiver;

use super::metric_rows::{MetricRows, RecordedStep, Run};
use super::recorder::Recorder;
use super::run::{Counts, Divergence, Event};
use super::warnings::{Watch, at_the_end};
use crate::engine::progress::{Progress, Work};
use crate::engine::session::Session;
use crate::error::Result;
use crate::models::ModelInfo;
use crate::training::StepMetrics;

/// What the steps gave.
#[derive(Debug, Default)]
pub struct Outcome {
    pub steps: usize,
    /// Of the last step.
    pub loss: f64,
    pub all: Vec<StepMetrics>,
    /// What was told of them, with the step at which it showed.
    pub warnings: Vec<String>,
    /// Their rows; `None` where none could be written.
    pub run: Option<Run>,
}

/// Who hears of a training.
pub struct Reporter<'a> {
    pub session: &'a Session,
    pub train: &'a Train,
}

impl Reporter<'_> {
    /// Reports until the training is done, or has failed. The rows of its steps are written meanwhile, and when this is dropped.
    pub async fn watch(&self, events: &mut UnboundedReceiver<Event>, mut watch: Watch) -> Outcome {
        let (mut outcome, mut num_replayed) = (Outcome::default(), 0);
        let (mut reference, mut steps, mut recorder) = (None, None, None);
        while let Some(event) = events.recv().await {
            match event {
                Event::Prepared(counts) => self.tell_counts(&counts),
                Event::Claimed(claim) => recorder = Some(Recorder::start(self.session, self.train, claim)),
                Event::Reference(done, total) => {
                    let progress = reference.get_or_insert_with(|| self.progress("reference", "pairs", 0, total));
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
                    recorder.iter().for_each(|recorder: &Recorder| recorder.step(&metrics));
                    let warnings = watch.step(&metrics).into_iter().map(|warning| format!("step {}: {warning}", metrics.step));
                    self.warn(&mut outcome, warnings);
                    (outcome.steps, outcome.loss) = (metrics.step, metrics.get("loss").unwrap_or(f64::NAN));
                    outcome.all.push(metrics);
                }
            }
        }
        if let Some(recorder) = recorder {
            outcome.run = recorder.finish().await;
        }
        if outcome.all.last().is_some_and(|last| last.is_replayed && last.step == last.num_steps) {
            self.session.notices().notice(format!("{}: all of its {num_replayed} steps were done before", self.what()));
        }
        outcome
    }

    /// Says of a training that diverged whose weights its model has, and takes what it came to from that step.
    pub fn put_back(&self, outcome: &mut Outcome, divergence: &Divergence) {
        let Divergence { step, what, checkpoint } = divergence;
        let told = format!("step {step}: the {what}; the model has the weights of the checkpoint of step {checkpoint}");
        self.warn(outcome, std::iter::once(told));
        let loss = outcome.all.iter().find(|metrics| metrics.step == *checkpoint).and_then(|metrics| metrics.get("loss"));
        (outcome.steps, outcome.loss) = (*checkpoint, loss.unwrap_or(f64::NAN));
    }

    /// Says what only the end of a training that has come to its end shows.
    pub fn end(&self, outcome: &mut Outcome) {
        let warnings = at_the_end(&outcome.all);
        self.warn(outcome, warnings.into_iter());
    }

    fn warn(&self, outcome: &mut Outcome, warnings: impl Iterator<Item = String>) {
        for warning in warnings {
            self.session.notices().warning(format!("{}: {warning}", self.what()));
            outcome.warnings.push(warning);
        }
    }

    fn what(&self) -> String {
        format!("TRAIN {} {}", self.train.method, self.train.model)
    }

    /// `before`: what an earlier run has done of the total.
    fn progress(&self, phase: &'static str, unit: &str, before: usize, total: usize) -> Progress {
        let work = Work::Train { model: self.train.model.clone(), method: self.train.method.to_string().to_lowercase(), phase };
        let what = if phase == "steps" { self.what() } else { format!("{}: {phase}", self.what()) };
        Progress::going_on(self.session.notices(), work, what, unit, before as u64, total as u64)
    }

    fn begin(&self, num_done: usize, num_steps: usize) -> Progress {
        if num_done > 0 {
            self.session.notices().notice(format!(
                "{} goes on at step {num_done} of {num_steps}, where an earlier run of it has left a checkpoint; resume = false begins anew",
                self.what()
            ));
        }
        self.progress("steps", "steps", num_done, num_steps)
    }

    /// Says what became of prompts that are too long, and whose word is taken for the reference.
    fn tell_counts(&self, counts: &Counts) {
        let examples = |count: usize| if count == 1 { "1 example".to_owned() } else { format!("{count} examples") };
        let (documents, truncated, dropped) = (counts.documents_truncated, counts.truncated, counts.dropped);
        let too_long = "longer than max_length or batch_tokens lets them be";
        let told = [
            (
                documents,
                format!(
                    "the prompts of {} are {too_long}, and lost the beginning of their documents; see long_prompts",
                    examples(documents)
                ),
            ),
            (truncated, format!("the prompts of {} are {too_long}, and lost their beginning; see long_prompts", examples(truncated))),
            (dropped, format!("{} left out, because of prompts {too_long}", examples(dropped))),
        ];
        for (_, notice) in told.into_iter().filter(|(count, _)| *count > 0) {
            self.session.notices().notice(format!("{}: {notice}", self.what()));
        }
        let num_pairs = counts.examples + counts.validation_examples;
        if let Some(taken) = counts.references_taken.filter(|taken| *taken < num_pairs) {
            self.session.notices().notice(format!(
                "{}: the log-probabilities of the reference are given for {taken} of {num_pairs} pairs, and computed for the others, whose tokens or prompts are \
                 not those that were sampled",
                self.what()
            ));
        }
    }

    /// Gives the rows of the steps the version that they have made, and adds those that could not be written before.
    ///
    /// # Errors
    /// Of a table that cannot be written.
    pub async fn store_metrics(&self, info: &ModelInfo, outcome: &Outcome) -> Result<()> {
        let rows = MetricRows::new(self.session, self.train);
        let run = outcome.run.clone().unwrap_or_else(|| Run { name: info.reference(), last_step: 0 });
        if run.last_step > 0 {
            rows.set_version(&run.name, info.version).await?;
        }
        let missing = &outcome.all[outcome.all.partition_point(|step| step.step <= run.last_step)..];
        let missing: Vec<RecordedStep> = missing.iter().cloned().map(RecordedStep::now).collect();
        rows.append(&run.name, Some(info.version), &missing).await
    }
}

/// The metrics that tell a person whether it goes well.
fn detail(metrics: &StepMetrics) -> String {
    ["loss", "reward", "well_formed", "reward_margin", "reward_accuracy", "accuracy", "validation_loss"]
        .iter()
        .filter_map(|name| Some(format!("{} {:.4}", name.replace('_', " "), metrics.get(name)?)))
        .collect::<Vec<_>>()
        .join(", ")
}
