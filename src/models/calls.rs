//! What a statement asked of models and corpora and what that took, counted where they are asked.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::price::Price;

tokio::task_local! {
    static COUNTS: Arc<CallCounts>;
}

/// Calls of models, and what they took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Calls {
    /// Inputs that a model was given.
    pub inputs: u64,
    /// Inputs whose answers were kept.
    pub cache_hits: u64,
    /// Inputs that stood beside an equal one, in a batch or in flight, and had its answer.
    pub repeats: u64,
    /// That models read, the cached ones included.
    pub prompt_tokens: u64,
    /// Of the prompt tokens, those that came from a prefix cache.
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    /// Sent to servers, those of further attempts included.
    pub requests: u64,
    /// What servers take for them.
    pub cost: Price,
    /// Queries of agents to their corpora.
    pub retrievals: u64,
    /// Those of them that an equal one had been searched for.
    pub retrieval_hits: u64,
}

/// Counts the calls that are made within [`CallCounts::scope`].
#[derive(Debug, Default)]
pub struct CallCounts {
    calls: Mutex<Calls>,
    /// Inputs that models were given and have answered.
    answered_inputs: AtomicU64,
    /// Others that count all of these too.
    also: Vec<Arc<CallCounts>>,
}

impl Calls {
    /// Calls, whether a model was run for them or not.
    pub fn asked(&self) -> u64 {
        self.inputs + self.cache_hits + self.repeats
    }

    /// Generated tokens in a second; of calls that generate none, as those of an embedder, prompt tokens. None without tokens.
    pub fn tokens_per_second(&self, seconds: f64) -> Option<f64> {
        let tokens = if self.generated_tokens > 0 { self.generated_tokens } else { self.prompt_tokens };
        // Tallies of tokens stay far below 2^53.
        (tokens > 0).then(|| tokens as f64 / seconds.max(1e-9))
    }
}

impl AddAssign for Calls {
    fn add_assign(&mut self, other: Self) {
        self.inputs += other.inputs;
        self.cache_hits += other.cache_hits;
        self.repeats += other.repeats;
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.generated_tokens += other.generated_tokens;
        self.requests += other.requests;
        self.retrievals += other.retrievals;
        self.retrieval_hits += other.retrieval_hits;
        self.cost += other.cost;
    }
}

impl CallCounts {
    /// From nothing; the others count what this one does.
    pub fn counted_by(also: impl IntoIterator<Item = Arc<Self>>) -> Self {
        Self { also: also.into_iter().collect(), ..Self::default() }
    }

    /// Runs a future; what it asks of models through [`super::Runtime`], and of corpora, is counted here, and not by a scope around this one.
    pub async fn scope<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        COUNTS.scope(Arc::clone(self), work).await
    }

    /// So far.
    pub fn calls(&self) -> Calls {
        *self.lock()
    }

    /// Calls that have their answers by now, however they got them.
    pub fn answered(&self) -> u64 {
        let calls = self.calls();
        self.answered_inputs.load(Ordering::Relaxed) + calls.cache_hits + calls.repeats
    }

    fn add_answers(&self, num_inputs: u64) {
        self.answered_inputs.fetch_add(num_inputs, Ordering::Relaxed);
        self.also.iter().for_each(|other| other.add_answers(num_inputs));
    }

    fn add(&self, calls: Calls) {
        *self.lock() += calls;
        self.also.iter().for_each(|other| other.add(calls));
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts for the scope that runs this; outside of every scope nothing is counted.
pub(super) fn count(calls: Calls) {
    // Without a scope there is nobody who wants to know.
    let _ = COUNTS.try_with(|counts| counts.add(calls));
}

/// Counts inputs that a model has answered; [`count`] has counted them when the model was given them.
pub(super) fn count_answers(num_inputs: usize) {
    // As above.
    let _ = COUNTS.try_with(|counts| counts.add_answers(num_inputs as u64));
}

/// Counts inputs whose answers somebody else than [`super::Runtime`] has kept.
pub(crate) fn count_kept_answers(num_inputs: u64) {
    count(Calls { cache_hits: num_inputs, ..Calls::default() });
}

/// Counts a query to a corpus; `is_known`: an equal one had been searched for.
pub(crate) fn count_retrieval(is_known: bool) {
    count(Calls { retrievals: 1, retrieval_hits: u64::from(is_known), ..Calls::default() });
}

/// A future that others may wait for too: what it asks is counted by the scope that made it, whoever polls it.
pub(crate) fn counted_here<F: Future>(work: F) -> impl Future<Output = F::Output> {
    // Without a scope here it is not for that of another who polls it either.
    let counts = COUNTS.try_with(Arc::clone).unwrap_or_default();
    COUNTS.scope(counts, work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_call() -> Calls {
        Calls { inputs: 1, prompt_tokens: 10, cached_tokens: 4, generated_tokens: 5, ..Calls::default() }
    }

    #[tokio::test]
    async fn a_scope_counts_its_own_calls_and_others_with_it() {
        count(one_call());
        let (node, statement) = (Arc::<CallCounts>::default(), Arc::<CallCounts>::default());
        let slice = Arc::new(CallCounts::counted_by([Arc::clone(&node), Arc::clone(&statement)]));
        let request = async {
            count(Calls { requests: 2, cost: Price::Known(0.5), ..Calls::default() });
            count_answers(1);
        };
        let shared = COUNTS.sync_scope(Arc::clone(&slice), || counted_here(request));
        statement.scope(async { count(Calls { cache_hits: 3, repeats: 2, ..Calls::default() }) }).await;
        slice.scope(async { count(one_call()) }).await;
        slice.scope(async { [false, true, true].into_iter().for_each(count_retrieval) }).await;
        // Polled by another one.
        Arc::<CallCounts>::default().scope(shared).await;
        let expected = Calls { requests: 2, cost: Price::Known(0.5), retrievals: 3, retrieval_hits: 2, ..one_call() };
        assert_eq!((slice.calls(), node.calls()), (expected, expected));
        assert_eq!(statement.calls(), Calls { cache_hits: 3, repeats: 2, ..expected });
        assert_eq!(statement.calls().asked(), 6);
        // What was kept, or stood beside an equal one, has its answer.
        assert_eq!((slice.answered(), statement.answered()), (1, 6));
    }

    #[test]
    fn tokens_in_a_second_are_generated_ones_where_there_are_any() {
        assert_eq!(one_call().tokens_per_second(2.0), Some(2.5));
        assert_eq!(Calls { generated_tokens: 0, ..one_call() }.tokens_per_second(2.0), Some(5.0));
        assert_eq!(Calls::default().tokens_per_second(2.0), None);
    }
}
