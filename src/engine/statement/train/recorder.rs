//! Writes the rows of a training while it runs, and its event file, on a task of its own: the training waits for neither, and what it had
//! done is there when it diverges, is cancelled or killed.

use std::time::Duration;

use rolloutdb_sql::Train;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::checkpoints::Claim;
use super::event_files::EventFile;
use super::metric_rows::{MetricRows, RecordedStep, Run};
use crate::engine::progress::Notices;
use crate::engine::session::Session;
use crate::error::{Error, Result};
use crate::training::StepMetrics;

/// Between two commits: a share of the time that the training has taken, so that a table does not get a commit for every few steps of a
/// training of days.
const INTERVAL_SHARE: u32 = 20;
const INTERVAL_MIN: Duration = Duration::from_secs(2);
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Who is told the steps of a training. Dropped, it still writes what it was told.
#[derive(Debug)]
pub struct Recorder {
    steps: UnboundedSender<RecordedStep>,
    written: JoinHandle<Option<Run>>,
}

impl Recorder {
    /// `claim`: held until all is written, so that a training that goes on finds all rows of this one.
    pub fn start(session: &Session, train: &Train, claim: Claim) -> Self {
        let (notices, what) = (session.notices().clone(), format!("TRAIN {} {}", train.method, train.model));
        let events = EventFile::of(session, train).unwrap_or_else(|error| {
            notices.warning(format!("{what}: nothing is shown to TensorBoard: {error}"));
            None
        });
        let writer =
            Writer { rows: MetricRows::new(session, train), events, claim, run: None, waiting: Vec::new(), notices, what, has_told: false };
        let (steps, received) = unbounded_channel();
        // Tracked: a process that ends waits until the rows are there.
        let written = session.database().shared.tasks.spawn(Box::pin(writer.run(received)));
        Self { steps, written }
    }

    pub fn step(&self, metrics: &StepMetrics) {
        // The task ends when this is dropped.
        let _ = self.steps.send(RecordedStep::now(metrics.clone()));
    }

    /// Waits until all is written. The run, with the last step that has rows; `None` without any.
    pub async fn finish(self) -> Option<Run> {
        let Self { steps, written } = self;
        drop(steps);
        written.await.ok().flatten()
    }
}

/// What the task holds.
struct Writer {
    rows: MetricRows,
    events: Option<EventFile>,
    claim: Claim,
    run: Option<Run>,
    /// Without rows as yet.
    waiting: Vec<RecordedStep>,
    notices: Notices,
    what: String,
    /// That rows could not be written.
    has_told: bool,
}

impl Writer {
    async fn run(mut self, mut steps: UnboundedReceiver<RecordedStep>) -> Option<Run> {
        let started = Instant::now();
        let mut next = started + INTERVAL_MIN;
        loop {
            tokio::select! {
                step = steps.recv() => match step {
                    Some(step) => self.waiting.push(step),
                    None => break,
                },
                () = sleep_until(next), if !self.waiting.is_empty() => {
                    self.commit().await;
                    next = Instant::now() + interval(started.elapsed());
                }
            }
        }
        self.commit().await;
        self.run
    }

    /// Writes what waits. What cannot be written waits for the next commit.
    async fn commit(&mut self) {
        if let Err(error) = self.write().await
            && !std::mem::replace(&mut self.has_told, true)
        {
            self.notices.warning(format!(
                "{}: the metrics of its steps could not be stored, which is tried again with those of later steps: {error}",
                self.what
            ));
        }
    }

    async fn write(&mut self) -> Result<()> {
        let (Some(first), Some(last)) = (self.waiting.first(), self.waiting.last()) else { return Ok(()) };
        let last_step = last.metrics.step;
        if self.run.is_none() {
            self.run = Some(self.rows.run(self.claim.fingerprint(), first.metrics.is_replayed).await?);
        }
        let Some(run) = &mut self.run else { return Ok(()) };
        if let Some(events) = self.events.take() {
            self.events = shown(events, run, &self.waiting, &self.notices, &self.what).await;
        }
        let known = self.waiting.partition_point(|step| step.metrics.step <= run.last_step);
        self.rows.append(&run.name, None, &self.waiting[known..]).await?;
        run.last_step = run.last_step.max(last_step);
        self.waiting.clear();
        Ok(())
    }
}

/// The event file with these steps; `None` once it cannot be written.
async fn shown(mut events: EventFile, run: &Run, steps: &[RecordedStep], notices: &Notices, what: &str) -> Option<EventFile> {
    let (name, steps) = (run.name.clone(), steps.to_vec());
    let work = move || events.write(&name, &steps).map(|()| events);
    match tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.to_string())).flatten() {
        Ok(events) => Some(events),
        Err(error) => {
            notices.warning(format!("{what}: nothing more is shown to TensorBoard: {error}"));
            None
        }
    }
}

fn interval(elapsed: Duration) -> Duration {
    (elapsed / INTERVAL_SHARE).clamp(INTERVAL_MIN, INTERVAL_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rolloutdb_sql::Statement;

    use super::super::checkpoints::Trainings;
    use super::*;
    use crate::Database;
    use crate::training::Stop;

    #[test]
    fn commits_become_rarer() {
        assert_eq!(interval(Duration::ZERO), INTERVAL_MIN);
        assert_eq!(interval(Duration::from_secs(200)), Duration::from_secs(10));
        assert_eq!(interval(Duration::from_secs(100_000)), INTERVAL_MAX);
        let (mut elapsed, mut num_commits) = (Duration::ZERO, 0);
        while elapsed < Duration::from_secs(10 * 3600) {
            elapsed += interval(elapsed);
            num_commits += 1;
        }
        assert!((500..800).contains(&num_commits), "{num_commits} commits in ten hours");
    }

    fn train(session: &Session, options: &str) -> Train {
        let text = format!("TRAIN SFT MODEL m FROM base USING (SELECT 1) WITH (max_steps = 1{options})");
        match session.parse(&text).expect("it is TRAIN").pop() {
            Some(Statement::Train(train)) => train,
            other => panic!("{other:?}"),
        }
    }

    fn step(step: usize, is_replayed: bool) -> StepMetrics {
        StepMetrics { step, num_steps: 9, metrics: vec![("loss", step as f64)], is_replayed }
    }

    async fn num_rows(session: &Session) -> Result<u64> {
        Ok(session.database().shared.catalog.table("rollout", "training_metrics").await?.row_count().await?)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_run_repeats_is_written_once() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path().join("data")).await?.session();
        let trainings = Arc::new(Trainings::new(&data.path().join("training")));
        let claim = || trainings.claim("0123456789abcdef0123".to_owned(), &Stop::default()).expect("nobody else has it");
        let runs = data.path().join("runs");
        let train = train(&session, &format!(", tensorboard = '{}'", runs.display()));
        let recorder = Recorder::start(&session, &train, claim());
        [1, 2, 3].iter().for_each(|number| recorder.step(&step(*number, false)));
        let first = recorder.finish().await.expect("it has rows");
        assert_eq!(first, Run { name: "0123456789abcdef-1".to_owned(), last_step: 3 });
        assert_eq!(num_rows(&session).await?, 3);

        // It goes on at the checkpoint of step 2, and is cancelled with its statement.
        let recorder = Recorder::start(&session, &train, claim());
        [(1, true), (2, true), (3, false), (4, false)].iter().for_each(|(number, replayed)| recorder.step(&step(*number, *replayed)));
        drop(recorder);
        session.database().settle().await;
        assert_eq!(num_rows(&session).await?, 4);
        drop(claim());
        assert_eq!(std::fs::read_dir(runs.join("m-0123456789abcdef-1")).expect("it is there").count(), 2);

        // Without a checkpoint it begins anew.
        let recorder = Recorder::start(&session, &train, claim());
        recorder.step(&step(1, false));
        assert_eq!(recorder.finish().await.map(|run| run.name).as_deref(), Some("0123456789abcdef-2"));
        assert_eq!(num_rows(&session).await?, 5);
        let recorder = Recorder::start(&session, &train, claim());
        assert_eq!(recorder.finish().await, None, "a training without a step has no rows");
        Ok(())
    }
}
