//! What remote models were asked and what it cost, since the database was opened.

use std::sync::atomic::{AtomicU64, Ordering};

use super::options::RemoteOptions;
use super::response::TokenCounts;

/// The tallies of one model version.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub requests: AtomicU64,
    pub retries: AtomicU64,
    pub failures: AtomicU64,
    pub empty_answers: AtomicU64,
    pub cache_hits: AtomicU64,
    pub shared: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    /// Answers whose server did not say what they took.
    untold: AtomicU64,
}

/// A row of `rollout.remote_models`.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageRow {
    pub name: String,
    pub version: u32,
    /// Sent, those of further attempts included.
    pub requests: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Requests that were given up; those with a prompt that is too long for the model are none.
    pub failures: u64,
    /// Empty texts that no retry made an answer of.
    pub empty_answers: u64,
    /// Answers that were on the disk.
    pub cache_hits: u64,
    /// Answers that another request in flight brought.
    pub shared: u64,
    /// Of answers that were paid for, as the two below.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    /// None without prices, and where a server did not say what an answer took.
    pub cost: Option<f64>,
    pub in_flight: u64,
}

/// One more.
pub(super) fn count(tally: &AtomicU64) {
    tally.fetch_add(1, Ordering::Relaxed);
}

impl Usage {
    pub fn add(&self, tokens: TokenCounts) {
        self.prompt_tokens.fetch_add(tokens.prompt, Ordering::Relaxed);
        self.cached_tokens.fetch_add(tokens.cached, Ordering::Relaxed);
        self.generated_tokens.fetch_add(tokens.generated, Ordering::Relaxed);
        self.untold.fetch_add(u64::from(!tokens.is_told), Ordering::Relaxed);
    }

    pub fn row(&self, name: &str, version: u32, options: &RemoteOptions, in_flight: usize) -> UsageRow {
        let read = |tally: &AtomicU64| tally.load(Ordering::Relaxed);
        let (prompt_tokens, cached_tokens) = (read(&self.prompt_tokens), read(&self.cached_tokens));
        let (generated_tokens, untold) = (read(&self.generated_tokens), read(&self.untold));
        UsageRow {
            name: name.to_owned(),
            version,
            requests: read(&self.requests),
            retries: read(&self.retries),
            failures: read(&self.failures),
            empty_answers: read(&self.empty_answers),
            cache_hits: read(&self.cache_hits),
            shared: read(&self.shared),
            prompt_tokens,
            cached_tokens,
            generated_tokens,
            cost: options.cost(prompt_tokens, cached_tokens, generated_tokens).filter(|_| untold == 0),
            in_flight: in_flight as u64,
        }
    }
}
