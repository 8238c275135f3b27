//! How many trainings and generations of rollouts run at once: each holds a model's weights, or fills the queue of the one thread that runs models.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Error, Result};

/// Unless the database was opened with another number.
pub const JOBS_MAX: usize = 4;

/// The places of a database for jobs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ModelJobs {
    places: Arc<Semaphore>,
    num_places: usize,
}

/// A place; free again when it is dropped.
#[derive(Debug)]
pub struct ModelJob {
    _place: OwnedSemaphorePermit,
}

impl ModelJobs {
    pub fn new(num_places: usize) -> Self {
        // A semaphore counts no further.
        let num_places = num_places.min(Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(num_places)), num_places }
    }

    /// # Errors
    /// [`Error::TooManyJobs`] (53400) if all places are taken.
    pub fn claim(&self, statement: &str) -> Result<ModelJob> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map(|place| ModelJob { _place: place }).map_err(|_| {
            Error::TooManyJobs(format!(
                "{statement} has to wait: {} trainings or generations of rollouts are running, as many as may at once; run it again when one has ended, \
                 or start with --model-jobs",
                self.num_places
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_when_its_job_ends() {
        let jobs = ModelJobs::new(2);
        let (first, _second) = (jobs.claim("TRAIN").expect("a place"), jobs.claim("TRAIN").expect("a place"));
        assert!(matches!(jobs.claim("TRAIN"), Err(Error::TooManyJobs(_))));
        drop(first);
        jobs.claim("TRAIN").expect("a place");
    }
}
