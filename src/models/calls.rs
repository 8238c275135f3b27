//! How much a statement asked of models, counted where the asking begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

tokio::task_local! {
    static COUNTS: Arc<CallCounts>;
}

/// What was asked of models within [`CallCounts::scope`].
#[derive(Debug, Default)]
pub struct CallCounts {
    inputs: AtomicUsize,
    cache_hits: AtomicUsize,
}

impl CallCounts {
    /// Runs a future; what it asks of models through [`super::Runtime`] is counted here. The counts of scopes inside are their own.
    pub async fn scope<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        COUNTS.scope(Arc::clone(self), work).await
    }

    /// Inputs that a model was given.
    pub fn inputs(&self) -> usize {
        self.inputs.load(Ordering::Relaxed)
    }

    /// Inputs whose answers were there.
    pub fn cache_hits(&self) -> usize {
        self.cache_hits.load(Ordering::Relaxed)
    }
}

/// Counts inputs of the scope that runs this; outside of every scope nothing is counted.
pub(super) fn count(inputs: usize, cache_hits: usize) {
    // Without a scope there is nobody who wants to know.
    let _ = COUNTS.try_with(|counts| {
        counts.inputs.fetch_add(inputs, Ordering::Relaxed);
        counts.cache_hits.fetch_add(cache_hits, Ordering::Relaxed);
    });
}
