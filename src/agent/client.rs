//! The two doors of the agent to the world: a policy that writes and a retriever that finds.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::future::try_join_all;

use super::sampling::Sampling;
use crate::error::Result;
use crate::price::Price;

/// The model that acts (π_θ): text in, sampled text out.
///
/// Calls of many trajectories arrive at the same time, so that an implementation can batch them.
#[async_trait]
pub trait PolicyClient: Send + Sync {
    /// Samples one completion of `prompt`.
    ///
    /// The completion depends on the policy, `prompt` and `sampling` only: the same three give the same tokens, alone or in
    /// a batch. It ends at end-of-text, after `max_tokens` tokens, or at the first of `sampling.stop` that it writes.
    ///
    /// # Errors
    /// [`crate::Error::ContextFull`] if only the asking tells that the policy cannot read the prompt: the trajectory ends there.
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated>;

    /// How many completions of a prompt are best asked for by one call of [`PolicyClient::generate_together`], at least 1.
    fn samples_per_call(&self) -> usize {
        1
    }

    /// Samples one completion of `prompt` for each seed, in order; that of `sampling` is none of them.
    ///
    /// They depend on all the seeds together: a server draws several samples from the first one. Equal seeds, at once, give equal completions.
    ///
    /// # Errors
    /// As [`PolicyClient::generate`].
    async fn generate_together(&self, prompt: &str, sampling: &Sampling, seeds: &[u64]) -> Result<Vec<Generated>> {
        let samplings: Vec<Sampling> = seeds.iter().map(|seed| Sampling { seed: *seed, ..sampling.clone() }).collect();
        try_join_all(samplings.iter().map(|sampling| self.generate(prompt, sampling))).await
    }

    /// As [`PolicyClient::generate`] for one seed and [`PolicyClient::generate_together`] for several, of a prompt whose turns are known: for a policy
    /// that is spoken to in messages. `sampling` has the first of the seeds.
    ///
    /// # Errors
    /// As [`PolicyClient::generate`].
    async fn generate_in_turns(&self, prompt: Prompt<'_>, sampling: &Sampling, seeds: &[u64]) -> Result<Vec<Generated>> {
        match seeds {
            [_] => Ok(vec![self.generate(prompt.text, sampling).await?]),
            _ => self.generate_together(prompt.text, sampling, seeds).await,
        }
    }

    /// Whether the same call is answered from what was kept, after a kill too: nobody else need keep its answers.
    fn keeps_answers(&self) -> bool {
        false
    }

    /// The prompt in the form that the policy reads: a model that was trained on conversations reads it as what a user says.
    ///
    /// # Errors
    /// If the form cannot hold it.
    fn written(&self, prompt: String) -> Result<String> {
        Ok(prompt)
    }

    /// A text from outside as it may stand in a prompt: the policy's tokenizer finds none of its added tokens in it, such as one that ends a turn. Who knows
    /// no such tokens gives the text as it is.
    fn plain<'a>(&self, text: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(text)
    }

    /// The tokens of a prompt as the policy reads it; None if it tells them with a completion, or not at all.
    fn prompt_ids(&self, prompt: &str) -> Option<Arc<[u32]>> {
        let _ = prompt;
        None
    }

    /// How many of the sampled tokens, from the first, write so many bytes of the text, a stop string that ended it included; None if the policy does not
    /// know.
    fn num_tokens_of(&self, generated: &Generated, num_bytes: usize) -> Option<usize> {
        let _ = (generated, num_bytes);
        None
    }

    /// Whether the policy can read this prompt and write something after it.
    ///
    /// A prompt that grows with every step may outgrow the policy: its trajectory ends before it is asked.
    fn fits(&self, prompt: &str) -> bool {
        let _ = prompt;
        true
    }

    /// Name and version of the model, as stored with every node.
    fn reference(&self) -> (String, u32);
}

/// What a policy reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt<'a> {
    pub text: &'a str,
    /// Bytes of the text at which somebody else goes on: first the policy, whose response stands there, then who put something in, and so on in turn.
    /// Empty if the policy has said nothing of it.
    pub turns: &'a [usize],
}

/// One completion of a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// What was generated, a leading space included; without the prompt, end-of-text and the stop string that ended it.
    pub text: String,
    /// Whether a stop string ended it. Servers do not say which one; the protocol knows, since only one can close its open tag.
    pub stopped: bool,
    /// Token ids of the prompt that was read; empty if the policy does not tell.
    pub prompt_ids: Arc<[u32]>,
    /// Sampled token ids, those of end-of-text or the stop string included; empty if the policy does not tell.
    pub token_ids: Vec<u32>,
    /// Natural-log probabilities of `token_ids`, of the same length; empty if the policy does not tell.
    pub token_logprobs: Vec<f32>,
    pub prompt_tokens: usize,
    /// How many of `prompt_tokens` came from a prefix cache.
    pub cached_tokens: usize,
    pub generated_tokens: usize,
    /// What a server takes for it, whether it was asked now or its answer was kept.
    pub cost: Price,
    /// Whether the server gave no answer, and the text is empty for that: nobody keeps it.
    pub is_unanswered: bool,
}

/// Finds passages of the corpus.
#[async_trait]
pub trait Retriever: Send + Sync {
    /// The best passages for `query`, best first, at most `k`; ties break by id so that a run repeats.
    async fn search(&self, query: &str, k: usize) -> Result<Arc<[Passage]>>;

    /// Version of the corpus table that is searched.
    fn corpus_version(&self) -> u64;

    /// What it was asked so far, kept up while it is asked; one that does not count stays at zero.
    fn counters(&self) -> Arc<RetrievalCounters> {
        Arc::default()
    }
}

/// Tallies of a retriever. They decide nothing.
#[derive(Debug, Default)]
pub struct RetrievalCounters {
    queries: AtomicU64,
    known: AtomicU64,
}

impl RetrievalCounters {
    /// Counts a query; `is_known`: what it finds was there from an equal one.
    pub fn add(&self, is_known: bool) {
        self.queries.fetch_add(1, Ordering::Relaxed);
        self.known.fetch_add(u64::from(is_known), Ordering::Relaxed);
    }

    /// Queries, and those of them that an equal one had been searched for.
    pub fn counts(&self) -> (u64, u64) {
        (self.queries.load(Ordering::Relaxed), self.known.load(Ordering::Relaxed))
    }
}

/// A row of the corpus as the policy reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    pub id: String,
    /// Shown as `title: contents`; None where `contents` starts with its title.
    pub title: Option<String>,
    pub contents: String,
}
