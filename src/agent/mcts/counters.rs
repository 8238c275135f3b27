//! What a search has done so far, for those who watch it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::agent::search_tree::Cost;

/// Tallies of all trees of a search, those in flight included. They decide nothing.
#[derive(Debug, Default)]
pub struct SearchCounters {
    pub(crate) simulations: AtomicU64,
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) cached_tokens: AtomicU64,
    pub(crate) generated_tokens: AtomicU64,
    pub(crate) verdicts: AtomicU64,
    pub(crate) unread_verdicts: AtomicU64,
}

/// The tallies at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCounts {
    pub simulations: u64,
    pub prompt_tokens: u64,
    /// Those of the prompt tokens that came from a prefix cache.
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    /// Nodes that a judge was asked about.
    pub verdicts: u64,
    /// Those of which it said nothing that could be read, twice.
    pub unread_verdicts: u64,
}

impl SearchCounters {
    pub fn counts(&self) -> SearchCounts {
        let count = |tally: &AtomicU64| tally.load(Ordering::Relaxed);
        SearchCounts {
            simulations: count(&self.simulations),
            prompt_tokens: count(&self.prompt_tokens),
            cached_tokens: count(&self.cached_tokens),
            generated_tokens: count(&self.generated_tokens),
            verdicts: count(&self.verdicts),
            unread_verdicts: count(&self.unread_verdicts),
        }
    }

    pub(super) fn add_simulation(&self, cost: Cost) {
        self.simulations.fetch_add(1, Ordering::Relaxed);
        self.prompt_tokens.fetch_add(cost.prompt_tokens as u64, Ordering::Relaxed);
        self.cached_tokens.fetch_add(cost.cached_tokens as u64, Ordering::Relaxed);
        self.generated_tokens.fetch_add(cost.generated_tokens as u64, Ordering::Relaxed);
    }

    pub(super) fn add_verdict(&self, is_read: bool) {
        self.verdicts.fetch_add(1, Ordering::Relaxed);
        self.unread_verdicts.fetch_add(u64::from(!is_read), Ordering::Relaxed);
    }
}

impl SearchCounts {
    /// Share of the prompt tokens that came from a prefix cache, in [0, 1]; None before the first prompt.
    pub fn cache_hit_rate(&self) -> Option<f64> {
        // Tallies of tokens stay far below 2^53.
        (self.prompt_tokens > 0).then(|| self.cached_tokens as f64 / self.prompt_tokens as f64)
    }
}
