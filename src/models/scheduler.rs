//! Continuous batching: one forward per step over everything in flight of one policy.
//!
//! New requests join between two steps. A step feeds each running sequence either the next piece of its prompt or its last
//! sampled token. A prompt takes over the keys and values that an earlier sequence or a running sibling shares with it, and
//! waits while a sibling is still computing them. Callers that went away are dropped before the next step.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;
use tokio::sync::oneshot;

use super::generation::{Completion, Finish, GenerateRequest};
use super::kv_cache::KvCache;
use super::packed::{PackedDecoder, Segment};
use super::prefix_tree::{PrefixTree, shared_prefix};
use super::tokenizer::{IncrementalText, Tokenizer};
use crate::error::Result;

/// Sequences that decode together; beyond some hundred rows a step only grows longer.
const ROWS_MAX: usize = 256;
/// Memory for the keys and values of the running sequences, per policy. One sequence may take more.
const RUNNING_BYTES: usize = 2 << 30;
/// Prompt tokens fed per step, so that a long prompt does not stall the sequences that are decoding.
const PROMPT_TOKENS_PER_STEP: usize = 2048;
/// Tokens worth waiting for while a sibling computes them; fewer are if they are all that is missing.
const SHARED_MIN: usize = 16;
/// Logits of all rows below which one thread samples.
const PARALLEL_LOGITS: usize = 1 << 15;

/// A request and where its result goes.
pub struct Job {
    pub request: GenerateRequest,
    pub reply: oneshot::Sender<Result<Completion>>,
    pub arrived: Instant,
}

/// The sequences in flight on one policy.
pub struct Scheduler {
    decoder: Arc<PackedDecoder>,
    tokenizer: Tokenizer,
    eos_token_ids: Vec<u32>,
    waiting: VecDeque<Job>,
    running: Vec<Row>,
    /// None: every sequence computes all of its own.
    prefixes: Option<PrefixTree>,
}

/// One sequence in flight.
struct Row {
    job: Job,
    /// The prompt and what was sampled.
    tokens: Vec<u32>,
    /// Keys and values of the first tokens; all but the last once the prompt is read.
    cache: KvCache,
    cached_tokens: usize,
    logprobs: Vec<f32>,
    text: IncrementalText,
}

impl Scheduler {
    /// A scheduler without work. Sequences end at any of the `eos_token_ids`; `prefix_bytes` of those that are finished are kept, and with 0 nothing is shared.
    pub fn new(decoder: Arc<PackedDecoder>, tokenizer: Tokenizer, eos_token_ids: Vec<u32>, prefix_bytes: usize) -> Self {
        let prefixes = (prefix_bytes > 0).then(|| PrefixTree::new(decoder.kv_shape(), prefix_bytes));
        Self { decoder, tokenizer, eos_token_ids, waiting: VecDeque::new(), running: Vec::new(), prefixes }
    }

    /// Queues a request; one that the model cannot run is answered at once.
    pub fn add(&mut self, job: Job) {
        match job.request.check(self.decoder.config()) {
            Ok(()) => self.waiting.push_back(job),
            // A caller that went away needs no answer.
            Err(error) => drop(job.reply.send(Err(error))),
        }
    }

    /// Whether nothing waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Runs one forward over everything in flight and answers what is finished.
    pub fn step(&mut self) {
        self.waiting.retain(|job| !job.reply.is_closed());
        self.running.retain(|row| !row.job.reply.is_closed());
        self.admit();
        let (is_read, logits) = self.feed();
        let ended = self.extend(&is_read, &logits);
        // From the back, so that the indices before stay valid.
        for (index, ended) in ended.into_iter().enumerate().rev() {
            if let Some(ended) = ended {
                let row = self.running.remove(index);
                self.answer(row, ended);
            }
        }
    }

    /// Moves waiting requests to the running ones, in order, except those that a running sibling will soon serve better.
    fn admit(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        while let Some(job) = waiting.pop_front() {
            if !self.has_room(&job.request) {
                // Those behind it wait too, however short: otherwise a long request could wait for ever.
                self.waiting.push_back(job);
                self.waiting.append(&mut waiting);
                return;
            }
            match self.start(job) {
                Ok(row) => self.running.push(row),
                Err(job) => self.waiting.push_back(job),
            }
        }
    }

    /// Whether the request fits beside the running ones, all at their longest.
    fn has_room(&self, request: &GenerateRequest) -> bool {
        let config = self.decoder.config();
        let longest =
            |request: &GenerateRequest| request.prompt.len().saturating_add(request.max_new_tokens).min(config.max_position_embeddings);
        let tokens: usize = self.running.iter().map(|row| longest(&row.job.request)).sum();
        let token_bytes = 2 * config.num_hidden_layers * config.key_value_width() * size_of::<f32>();
        let fits = (tokens + longest(request)) * token_bytes <= RUNNING_BYTES;
        self.running.is_empty() || (fits && self.running.len() < ROWS_MAX)
    }

    /// The row of a request, with the longest known prefix of its prompt; the request itself if it should wait for a sibling.
    #[allow(clippy::result_large_err, reason = "the request comes back to its queue, it is not an error on a hot path")]
    fn start(&mut self, job: Job) -> Result<Row, Job> {
        let Some(cache) = self.known_prefix(&job.request.prompt) else { return Err(job) };
        let tokens = job.request.prompt.clone();
        Ok(Row { tokens, cached_tokens: cache.len(), cache, logprobs: Vec::new(), text: IncrementalText::default(), job })
    }

    /// The keys and values that a finished sequence or one in flight shares with a prompt; `None` if one in flight is about to have more of them.
    fn known_prefix(&mut self, prompt: &[u32]) -> Option<KvCache> {
        let Some(prefixes) = &mut self.prefixes else { return Some(self.decoder.new_cache()) };
        // The last prompt token is always computed: its logits are needed.
        let usable = prompt.len() - 1;
        let held = self.running.iter().map(|row| (shared_prefix(&row.tokens, prompt).min(row.cache.len()).min(usable), &row.cache));
        let (in_flight, finished) = (held.max_by_key(|(len, _)| *len), prefixes.longest(&prompt[..usable]));
        let cached = in_flight.map_or(0, |(len, _)| len).max(finished);
        let coming =
            self.running.iter().filter(|row| row.reads_prompt()).map(|row| shared_prefix(&row.job.request.prompt, prompt).min(usable));
        if coming.max().unwrap_or(0) >= cached + SHARED_MIN.min(usable - cached).max(1) {
            return None;
        }
        Some(match in_flight {
            Some((len, cache)) if len > finished => cache.prefix(len),
            _ => prefixes.take(&prompt[..usable]),
        })
    }

    /// One forward; says of every row whether its known tokens are all read, and gives the logits `[rows, V]` after what was read.
    fn feed(&mut self) -> (Vec<bool>, Vec<f32>) {
        let mut budget = PROMPT_TOKENS_PER_STEP;
        let mut is_read = Vec::with_capacity(self.running.len());
        let mut segments = Vec::with_capacity(self.running.len());
        for row in &mut self.running {
            let start = row.cache.len();
            let count = (row.tokens.len() - start).min(budget.max(1));
            budget = budget.saturating_sub(count - 1);
            is_read.push(start + count == row.tokens.len());
            segments.push(Segment { cache: &mut row.cache, tokens: &row.tokens[start..start + count] });
        }
        let logits = if segments.is_empty() { Vec::new() } else { self.decoder.forward(&mut segments) };
        (is_read, logits)
    }

    /// Samples the next token of every row that is read; says of each whether it ends with it, and how.
    fn extend(&mut self, is_read: &[bool], logits: &[f32]) -> Vec<Option<Result<Finish>>> {
        let Self { decoder, tokenizer, eos_token_ids, running, .. } = self;
        let (vocabulary, len_max) = (decoder.config().vocab_size, decoder.config().max_position_embeddings);
        let extend = |((row, is_read), logits): ((&mut Row, &bool), &[f32])| match is_read {
            true => row.extend(logits, tokenizer, eos_token_ids, len_max).transpose(),
            false => None,
        };
        if logits.len() < PARALLEL_LOGITS {
            running.iter_mut().zip(is_read).zip(logits.chunks_exact(vocabulary)).map(extend).collect()
        } else {
            running.par_iter_mut().zip(is_read).zip(logits.par_chunks_exact(vocabulary)).map(extend).collect()
        }
    }

    /// Sends a row's result and keeps its keys and values.
    fn answer(&mut self, mut row: Row, ended: Result<Finish>) {
        let result = ended.and_then(|finish| row.completion(finish, &self.tokenizer));
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.insert(&row.tokens, row.cache);
        }
        // A caller that went away needs no answer.
        drop(row.job.reply.send(result));
    }
}

impl Row {
    fn reads_prompt(&self) -> bool {
        self.cache.len() < self.job.request.prompt.len()
    }

    fn generated(&self) -> &[u32] {
        &self.tokens[self.job.request.prompt.len()..]
    }

    /// Samples the next token; says why the sequence ends with it, if it does.
    fn extend(&mut self, logits: &[f32], tokenizer: &Tokenizer, eos_token_ids: &[u32], len_max: usize) -> Result<Option<Finish>> {
        let request = &self.job.request;
        let sampled = request.sampler.sample(logits, &self.tokens, request.seed, self.logprobs.len());
        if !sampled.logprob.is_finite() {
            return Err(candle_core::Error::Msg("the policy's logits are not finite numbers; its weights are broken".to_owned()).into());
        }
        self.tokens.push(sampled.token);
        self.logprobs.push(sampled.logprob);
        if eos_token_ids.contains(&sampled.token) {
            return Ok(Some(Finish::EndOfText));
        }
        if !request.stop.is_empty() {
            self.text.push(tokenizer, sampled.token)?;
            if stop_position(self.text.as_str(), &request.stop).is_some() {
                return Ok(Some(Finish::Stop));
            }
        }
        let full = self.logprobs.len() >= request.max_new_tokens || self.tokens.len() >= len_max;
        Ok(full.then_some(Finish::Length))
    }

    fn completion(&mut self, finish: Finish, tokenizer: &Tokenizer) -> Result<Completion> {
        let mut text = tokenizer.decode(self.generated())?;
        if let Some(position) = stop_position(&text, &self.job.request.stop).filter(|_| finish == Finish::Stop) {
            text.truncate(position);
        }
        Ok(Completion {
            token_ids: self.generated().to_vec(),
            token_logprobs: std::mem::take(&mut self.logprobs),
            text,
            finish,
            prompt_tokens: self.job.request.prompt.len(),
            cached_tokens: self.cached_tokens,
            latency_ms: self.job.arrived.elapsed().as_secs_f64() * 1e3,
        })
    }
}

/// Where the first of the stop texts begins.
fn stop_position(text: &str, stop: &[String]) -> Option<usize> {
    stop.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| text.find(stop.as_str())).min()
}
