//! The files of jobs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Job;
use crate::error::{Error, Result};

#[derive(Debug)]
pub struct JobFiles {
    directory: PathBuf,
}

impl JobFiles {
    /// The files, and the jobs in them by number.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Damaged`] for a file that is not a job.
    pub fn open(directory: &Path) -> Result<(Self, BTreeMap<i64, Job>)> {
        let io_error = |source| Error::Io { path: directory.to_owned(), source };
        std::fs::create_dir_all(directory).map_err(io_error)?;
        if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::File::open(parent).and_then(|folder| folder.sync_all()).map_err(io_error)?;
        }
        let mut jobs = BTreeMap::new();
        for entry in std::fs::read_dir(directory).map_err(io_error)? {
            let path = entry.map_err(io_error)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let job = read(&path)?;
                jobs.insert(job.job_id, job);
            } else if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp")) {
                // Of a process that was killed while it wrote one.
                std::fs::remove_file(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
            }
        }
        Ok((Self { directory: directory.to_owned() }, jobs))
    }

    /// The job is there as it is now, whatever happens after this returns.
    pub fn write(&self, job: &Job) -> Result<()> {
        let path = self.path(job.job_id);
        let io_error = |source| Error::Io { path: path.clone(), source };
        let mut file = tempfile::NamedTempFile::new_in(&self.directory).map_err(io_error)?;
        serde_json::to_writer_pretty(&mut file, job).map_err(|error| io_error(error.into()))?;
        file.as_file().sync_all().map_err(io_error)?;
        file.persist(&path).map_err(|error| io_error(error.error))?;
        std::fs::File::open(&self.directory).and_then(|folder| folder.sync_all()).map_err(io_error)
    }

    pub fn remove(&self, job_id: i64) -> Result<()> {
        let path = self.path(job_id);
        std::fs::remove_file(&path).map_err(|source| Error::Io { path, source })
    }

    fn path(&self, job_id: i64) -> PathBuf {
        self.directory.join(format!("{job_id}.json"))
    }
}

fn read(path: &Path) -> Result<Job> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    serde_json::from_str(&text).map_err(|error| Error::Damaged { path: path.to_owned(), reason: error.to_string() })
}
