//! A flag that ends a run from another thread, between two batches of one step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// Clones are the same flag. It is no part of what a run computes: all are equal.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl PartialEq for Stop {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Stop {
    /// Ends the runs that have the flag.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// [`Error::Cancelled`] once the flag is set.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Cancelled("TRAIN")) } else { Ok(()) }
    }
}
