//! What a search has done so far, for those who watch it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::agent::client::RetrievalCounters;
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
    tree_nanoseconds: AtomicU64,
    pub(crate) retrievals: Arc<RetrievalCounters>,
}

/// The tallies at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCounts {
    pub simulations: u64,
    pub prompt_tokens: u64,
    /// Those of the prompt tokens that came from a prefix cache.
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    /// Nodes that a judge or a reward model was asked about.
    pub verdicts: u64,
    /// Those without a value: a judge said nothing that could be read, twice, or a reward model could not read the whole step.
    pub unread_verdicts: u64,
    /// Queries to the corpus.
    pub retrievals: u64,
    /// Those of them that an equal one had been searched for.
    pub known_retrievals: u64,
    /// Spent in the trees themselves: choosing leaves, adding nodes, and what those above them are worth then.
    pub tree_nanoseconds: u64,
}

impl SearchCounters {
    pub(super) fn new(retrievals: Arc<RetrievalCounters>) -> Self {
        Self { retrievals, ..Self::default() }
    }

    pub fn counts(&self) -> SearchCounts {
        let count = |tally: &AtomicU64| tally.load(Ordering::Relaxed);
        let (retrievals, known_retrievals) = self.retrievals.counts();
        SearchCounts {
            simulations: count(&self.simulations),
            prompt_tokens: count(&self.prompt_tokens),
            cached_tokens: count(&self.cached_tokens),
            generated_tokens: count(&self.generated_tokens),
            verdicts: count(&self.verdicts),
            unread_verdicts: count(&self.unread_verdicts),
            retrievals,
            known_retrievals,
            tree_nanoseconds: count(&self.tree_nanoseconds),
        }
    }

    pub(super) fn add_simulation(&self, cost: Cost) {
        self.simulations.fetch_add(1, Ordering::Relaxed);
        self.add_cost(cost);
    }

    pub(super) fn add_cost(&self, cost: Cost) {
        self.prompt_tokens.fetch_add(cost.prompt_tokens as u64, Ordering::Relaxed);
        self.cached_tokens.fetch_add(cost.cached_tokens as u64, Ordering::Relaxed);
        self.generated_tokens.fetch_add(cost.generated_tokens as u64, Ordering::Relaxed);
    }

    /// Does work in a tree, which waits for nobody, and counts its time.
    pub(super) fn in_tree<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.tree_nanoseconds.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
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

    /// Share of the queries that an equal one had been searched for, in [0, 1]; None before the first.
    pub fn retrieval_hit_rate(&self) -> Option<f64> {
        (self.retrievals > 0).then(|| self.known_retrievals as f64 / self.retrievals as f64)
    }
}
