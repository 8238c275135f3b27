//! The table that a GENERATE ROLLOUTS writes to; no other one does at the same time, which would search the same questions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::STATEMENT;
use crate::engine::session::Session;
use crate::error::{Error, Result};

/// The tables that are written to, by `schema.name`.
#[derive(Debug, Default)]
pub struct RolloutTargets(Mutex<HashMap<String, Arc<Writing>>>);

/// How far the one is that writes to a table.
#[derive(Debug, Default)]
struct Writing {
    /// The statement is over, and its last commit is on its way.
    is_ending: AtomicBool,
    done: CancellationToken,
}

/// The right to write to a table. It goes when this is dropped.
pub struct Target {
    name: String,
    session: Session,
    writing: Arc<Writing>,
}

impl RolloutTargets {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Writing>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that has the table, or else it is this one's from now on.
    fn claim(&self, name: &str, writing: &Arc<Writing>) -> Option<Arc<Writing>> {
        let mut targets = self.lock();
        let other = targets.get(name).cloned();
        if other.is_none() {
            targets.insert(name.to_owned(), Arc::clone(writing));
        }
        other
    }
}

impl Target {
    /// Waits for the last commit of a statement that is over: one that was cancelled goes on at once.
    ///
    /// # Errors
    /// [`Error::InUse`] while another statement has the table.
    pub async fn claim(session: &Session, name: String) -> Result<Self> {
        let writing = Arc::<Writing>::default();
        while let Some(other) = session.database().shared.rollout_targets.claim(&name, &writing) {
            if !other.is_ending.load(Ordering::Acquire) {
                return Err(Error::InUse(format!("another {STATEMENT} is writing to {name}; wait for it, or use another table")));
            }
            other.done.cancelled().await;
        }
        Ok(Self { name, session: session.clone(), writing })
    }

    /// The statement is over.
    pub fn end(&self) {
        self.writing.is_ending.store(true, Ordering::Release);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.session.database().shared.rollout_targets.lock().remove(&self.name);
        self.writing.done.cancel();
    }
}
