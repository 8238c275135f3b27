//! `tensorboard = 'directory'`: what a training shows to TensorBoard while it runs.
//!
//! The directory goes through the gate for files of the server. Each run has a folder of its own in it, called after its model and its name
//! in `rollout.training_metrics`; a run that goes on writes another file into the same folder, with all of its steps.

use std::fs::{DirBuilder, File};
use std::io::{BufWriter, Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};

use rolloutdb_sql::Train;

use super::metric_rows::RecordedStep;
use crate::engine::session::Session;
use crate::engine::{gate, options};
use crate::error::{Error, Result};
use crate::training::EventWriter;

/// The option's name.
const OPTION: &str = "tensorboard";

/// Where a training writes its event file.
#[derive(Debug)]
pub struct EventFile {
    /// Without links.
    directory: PathBuf,
    model: String,
    writer: Option<EventWriter<BufWriter<File>>>,
    /// That is in the file; 0 without one.
    last_step: usize,
}

impl EventFile {
    /// What the statement asks for; `None` if it does not. Nothing is made yet.
    ///
    /// # Errors
    /// [`Error::WrongType`] for what is no text; those of [`crate::engine::gate::Gate::write_directory`].
    pub fn of(session: &Session, train: &Train) -> Result<Option<Self>> {
        let Some(name) = options::text(&train.options, OPTION)? else { return Ok(None) };
        let directory = session.gate().write_directory(name)?;
        Ok(Some(Self { directory, model: train.model.clone(), writer: None, last_step: 0 }))
    }

    /// Adds the steps that are not in the file yet, and flushes it to the system. The first call makes the file. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&mut self, run: &str, steps: &[RecordedStep]) -> Result<()> {
        let new = &steps[steps.partition_point(|step| step.metrics.step <= self.last_step)..];
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return Ok(()) };
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.begin(run, first)?,
        };
        let path = &self.directory;
        let mut add = || -> std::io::Result<()> {
            new.iter().try_for_each(|step| writer.step(seconds(step.at_ms), step.metrics.step, &step.metrics.metrics))?;
            writer.flush()
        };
        add().map_err(|source| Error::Io { path: path.clone(), source })?;
        (self.writer, self.last_step) = (Some(writer), last.metrics.step);
        Ok(())
    }

    fn begin(&self, run: &str, first: &RecordedStep) -> Result<EventWriter<BufWriter<File>>> {
        let folder = self.directory.join(format!("{}-{run}", self.model));
        let io = |source| Error::Io { path: folder.clone(), source };
        DirBuilder::new().recursive(true).create(&folder).map_err(io)?;
        let file = new_file(&folder, first.at_ms).map_err(io)?;
        let wall_time = seconds(first.at_ms);
        let begin = || -> std::io::Result<_> {
            let mut writer = EventWriter::new(BufWriter::new(file), wall_time)?;
            // What an earlier part of the run has shown of these steps is shown once.
            writer.restart(wall_time, first.metrics.step)?;
            Ok(writer)
        };
        begin().map_err(io)
    }
}

/// A file that TensorBoard takes for one of events, after those that are there: it reads them in the order of their names.
fn new_file(folder: &Path, at_ms: i64) -> std::io::Result<File> {
    // Something else may have taken the folder's name before it could be made.
    if folder.canonicalize()? != folder {
        return Err(IoError::new(ErrorKind::PermissionDenied, "it is a link"));
    }
    for number in 0..u32::MAX {
        let path = folder.join(format!("events.out.tfevents.{:010}.{:03}.{number:06}.rolloutdb", at_ms / 1000, at_ms % 1000));
        match File::options().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => {
                let file = made?;
                gate::is_still(&file, &path)?;
                return Ok(file);
            }
        }
    }
    Err(IoError::new(ErrorKind::AlreadyExists, "it has too many files of this moment"))
}

/// Since 1970.
fn seconds(at_ms: i64) -> f64 {
    at_ms as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::training::StepMetrics;

    fn file(directory: &Path) -> EventFile {
        let directory = directory.canonicalize().expect("it is there");
        EventFile { directory, model: "m".to_owned(), writer: None, last_step: 0 }
    }

    fn steps(steps: std::ops::RangeInclusive<usize>) -> Vec<RecordedStep> {
        let step = |step| StepMetrics { step, num_steps: 9, metrics: vec![("loss", 0.5)], is_replayed: false };
        steps.map(|number| RecordedStep { metrics: step(number), at_ms: 1_700_000_000_000 + number as i64 }).collect()
    }

    /// Sizes of the files of a run, in the order of their names.
    fn sizes(folder: &Path) -> Vec<u64> {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("readable").path()).collect();
        paths.sort();
        assert!(paths.iter().all(|path| path.to_string_lossy().contains("events.out.tfevents.1700000000.")), "{paths:?}");
        paths.iter().map(|path| path.metadata().expect("it is there").len()).collect()
    }

    #[test]
    fn a_run_has_a_folder_and_each_part_of_it_a_file() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let directory = home.path().join("runs");
        std::fs::create_dir(&directory).expect("a folder");
        let mut first = file(&directory);
        first.write("a-1", &[]).expect("there is nothing to write");
        assert_eq!(std::fs::read_dir(&directory).expect("it is there").count(), 0);
        first.write("a-1", &steps(1..=2)).expect("it is written");
        let of_two = sizes(&directory.join("m-a-1"));
        // The second one again: it is there.
        first.write("a-1", &steps(2..=3)).expect("it is written");
        let of_three = sizes(&directory.join("m-a-1"));
        first.write("a-1", &steps(1..=3)).expect("nothing is new");
        assert_eq!(sizes(&directory.join("m-a-1")), of_three);
        let per_step = of_three[0] - of_two[0];
        assert!(of_three.len() == 1 && per_step > 0);

        // It goes on, with all of its steps, some of which ended in the same millisecond as those before.
        let mut second = file(&directory);
        second.write("a-1", &steps(1..=4)).expect("it is written");
        assert_eq!(sizes(&directory.join("m-a-1")), [of_three[0], of_three[0] + per_step]);
        file(&directory).write("a-2", &steps(1..=1)).expect("it is written");
        assert_eq!(sizes(&directory.join("m-a-2")).len(), 1);
    }

    #[test]
    fn a_link_in_the_place_of_a_runs_folder_leads_nowhere() {
        let home = tempfile::tempdir().expect("a temporary directory");
        for folder in ["runs", "elsewhere"] {
            std::fs::create_dir(home.path().join(folder)).expect("a folder");
        }
        symlink(home.path().join("elsewhere"), home.path().join("runs/m-a-1")).expect("a link");
        let refused = file(&home.path().join("runs")).write("a-1", &steps(1..=1));
        assert!(matches!(&refused, Err(Error::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied), "{refused:?}");
        assert_eq!(std::fs::read_dir(home.path().join("elsewhere")).expect("it is there").count(), 0);
    }
}
