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

use super::config::DecoderConfig;
use super::generation::{Completion, Finish, GenerateRequest};
use super::kv_budget::{KvShare, Reservation};
use super::kv_cache::{BLOCK, BlockSource, KvCache};
use super::packed::{PackedDecoder, Segment};
use super::prefix_tree::{PrefixTree, shared_prefix};
use super::tokenizer::{IncrementalText, Tokenizer};
use crate::error::{Error, Result};

/// Sequences that decode together; beyond some hundred rows a step only grows longer.
const ROWS_MAX: usize = 256;
/// Prompt tokens fed per step, so that a long prompt does not stall the sequences that are decoding.
const PROMPT_TOKENS_PER_STEP: usize = 2048;
/// Tokens worth waiting for while a sibling computes them; fewer are if they are all that is missing.
const SHARED_MIN: usize = 16;
/// Logits of all rows below which one thread samples.
const PARALLEL_LOGITS: usize = 1 << 15;

/// What a scheduler runs: a decoder whose caches are in the memory that it computes in.
pub trait Decode: Send + Sync {
    /// Where the blocks of its caches come from.
    type Source: BlockSource;

    /// The shape of the model.
    fn config(&self) -> &DecoderConfig;

    /// What new caches are made of.
    fn block_source(&self) -> Self::Source;

    /// Appends the segments' tokens to their sequences and returns the logits `[segments, V]` after each segment's last token.
    ///
    /// Tokens must be below the vocabulary size, segments not empty, and sequences at most `max_position_embeddings` long.
    ///
    /// # Errors
    /// [`Error::Tensor`] and [`Error::OutOfMemory`] from a device. What its caches hold is not known then.
    fn forward(&self, segments: &mut [Segment<'_, Self::Source>]) -> Result<Vec<f32>>;

    /// Says what its caches may come to, in bytes, before they take memory ahead of need. A single sequence may need more.
    fn note_budget(&self, _bytes: usize) {}

    /// Gives memory back that was taken for caches, if no cache is left that has any.
    fn release(&self) {}
}

/// The sequences in flight on one policy, whatever computes it.
pub trait Schedule {
    /// See [`Scheduler::keep_its_part`].
    fn keep_its_part(&mut self);

    /// See [`Scheduler::add`].
    fn add(&mut self, job: Job);

    /// See [`Scheduler::is_idle`].
    fn is_idle(&self) -> bool;

    /// See [`Scheduler::step`].
    fn step(&mut self);
}

/// A request and where its result goes.
pub struct Job {
    pub request: GenerateRequest,
    pub reply: oneshot::Sender<Result<Completion>>,
    pub arrived: Instant,
}

/// The sequences in flight on one policy.
pub struct Scheduler<D: Decode = PackedDecoder> {
    decoder: Arc<D>,
    tokenizer: Tokenizer,
    eos_token_ids: Vec<u32>,
    waiting: VecDeque<Job>,
    /// With so much free memory there was no room for the first of the waiting ones; None: not known.
    too_little: Option<usize>,
    running: Vec<Row<D::Source>>,
    /// None: every sequence computes all of its own.
    prefixes: Option<PrefixTree<D::Source>>,
    memory: KvShare,
}

/// One sequence in flight.
struct Row<S: BlockSource> {
    job: Job,
    /// The prompt and what was sampled.
    tokens: Vec<u32>,
    /// Keys and values of the first tokens; all but the last once the prompt is read.
    cache: KvCache<S>,
    cached_tokens: usize,
    logprobs: Vec<f32>,
    text: IncrementalText,
    _reserved: Reservation,
}

impl<D: Decode> Scheduler<D> {
    /// A scheduler without work. Sequences end at any of the `eos_token_ids`; if nothing of those that are finished may be kept, nothing is
    /// shared at all.
    pub fn new(decoder: Arc<D>, tokenizer: Tokenizer, eos_token_ids: Vec<u32>, memory: KvShare) -> Self {
        decoder.note_budget(memory.bytes_max());
        let kept_max = memory.kept_max();
        let prefixes = (kept_max > 0).then(|| PrefixTree::new(decoder.block_source(), kept_max));
        Self { decoder, tokenizer, eos_token_ids, waiting: VecDeque::new(), too_little: None, running: Vec::new(), prefixes, memory }
    }

    /// Lets go what is kept beyond the policy's part of the memory, which others may have made smaller.
    pub fn keep_its_part(&mut self) {
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.limit(self.memory.kept_max());
            self.memory.note_kept(prefixes.size_bytes());
        }
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
        self.drop_closed();
        self.admit();
        let (is_read, logits) = match self.feed() {
            Ok(fed) => fed,
            Err(error) => return self.fail(&error),
        };
        let ended = self.extend(&is_read, &logits);
        // From the back, so that the indices before stay valid.
        for (index, ended) in ended.into_iter().enumerate().rev() {
            if let Some(ended) = ended {
                let row = self.running.remove(index);
                self.answer(row, ended);
            }
        }
        if self.is_idle() {
            self.decoder.release();
        }
    }

    /// Lets go those whose callers went away. Siblings may have their keys and values: these are kept, and counted, as those of finished sequences are.
    fn drop_closed(&mut self) {
        let num_waiting = self.waiting.len();
        self.waiting.retain(|job| !job.reply.is_closed());
        if self.waiting.len() < num_waiting {
            self.too_little = None;
        }
        let closed: Vec<Row<D::Source>> = self.running.extract_if(.., |row| row.job.reply.is_closed()).collect();
        closed.into_iter().for_each(|row| self.keep(&row.tokens, row.cache));
    }

    /// Moves waiting requests to the running ones, in order, except those that a running sibling will soon serve better.
    fn admit(&mut self) {
        let is_blocked = self.too_little.is_some_and(|free| self.memory.free() <= free) && !self.running.is_empty();
        if is_blocked || self.running.len() >= ROWS_MAX {
            return;
        }
        self.too_little = None;
        let mut waiting = std::mem::take(&mut self.waiting);
        while self.running.len() < ROWS_MAX
            && let Some(job) = waiting.pop_front()
        {
            let Some(known) = self.known_prefix(&job.request.prompt) else {
                self.waiting.push_back(job);
                continue;
            };
            let Some(reserved) = self.room(&job.request, &known) else {
                // Those behind it wait too, however short: otherwise a long request could wait for ever. One before it may soon have its prefix.
                self.too_little = self.waiting.is_empty().then(|| self.memory.free());
                self.waiting.push_back(job);
                break;
            };
            self.running.push(Row::new(job, known, reserved));
        }
        self.waiting.append(&mut waiting);
    }

    /// Memory for what the request may add to the prefix that it takes over, if there is room beside the running ones, all at their longest.
    fn room(&self, request: &GenerateRequest, known: &KvCache<D::Source>) -> Option<Reservation> {
        let (source, len_max) = (self.decoder.block_source(), self.decoder.config().max_position_embeddings);
        let longest = request.prompt.len().saturating_add(request.max_new_tokens).min(len_max);
        // Whole blocks are shared, and counted where they come from.
        let blocks = longest.div_ceil(BLOCK).saturating_sub(known.len() / BLOCK);
        self.memory.reserve(blocks * source.block_bytes(), self.running.is_empty())
    }

    /// The keys and values that a finished sequence or one in flight shares with a prompt; `None` if one in flight is about to have more of them.
    fn known_prefix(&mut self, prompt: &[u32]) -> Option<KvCache<D::Source>> {
        let Some(prefixes) = &mut self.prefixes else { return Some(KvCache::new(self.decoder.block_source())) };
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
    fn feed(&mut self) -> Result<(Vec<bool>, Vec<f32>)> {
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
        let logits = if segments.is_empty() { Vec::new() } else { self.decoder.forward(&mut segments)? };
        Ok((is_read, logits))
    }

    /// Answers all that run with an error of the device. Nothing that it holds is used again.
    fn fail(&mut self, error: &Error) {
        for row in self.running.drain(..) {
            let error = match error {
                Error::OutOfMemory(message) => Error::OutOfMemory(message.clone()),
                other => candle_core::Error::Msg(other.to_string()).into(),
            };
            // A caller that went away needs no answer.
            drop(row.job.reply.send(Err(error)));
        }
        if let Some(prefixes) = &mut self.prefixes {
            *prefixes = PrefixTree::new(self.decoder.block_source(), self.memory.kept_max());
        }
        self.keep_its_part();
        self.decoder.release();
    }

    /// Samples the next token of every row that is read; says of each whether it ends with it, and how.
    fn extend(&mut self, is_read: &[bool], logits: &[f32]) -> Vec<Option<Result<Finish>>> {
        let Self { decoder, tokenizer, eos_token_ids, running, .. } = self;
        let (vocabulary, len_max) = (decoder.config().vocab_size, decoder.config().max_position_embeddings);
        let extend = |((row, is_read), logits): ((&mut Row<D::Source>, &bool), &[f32])| match is_read {
            true => row.extend(logits, tokenizer, eos_token_ids, len_max).transpose(),
            false => None,
        };
        if logits.len() < PARALLEL_LOGITS {
            running.iter_mut().zip(is_read).zip(logits.chunks_exact(vocabulary)).map(extend).collect()
        } else {
            running.par_iter_mut().zip(is_read).zip(logits.par_chunks_exact(vocabulary)).map(extend).collect()
        }
    }

    /// Sends a row's result, and keeps its keys and values unless it failed: a token whose logits are no numbers can have spoilt those before it on a GPU,
    /// where what is hidden is multiplied by zero.
    fn answer(&mut self, mut row: Row<D::Source>, ended: Result<Finish>) {
        let is_sound = ended.is_ok();
        let result = ended.and_then(|finish| row.completion(finish, &self.tokenizer));
        if is_sound {
            self.keep(&row.tokens, row.cache);
        }
        // A caller that went away needs no answer.
        drop(row.job.reply.send(result));
    }

    /// Keeps the keys and values of a sequence that is in flight no more.
    fn keep(&mut self, tokens: &[u32], cache: KvCache<D::Source>) {
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.insert(tokens, cache);
        }
        self.keep_its_part();
    }
}

impl<D: Decode> Schedule for Scheduler<D> {
    fn keep_its_part(&mut self) {
        Scheduler::keep_its_part(self);
    }

    fn add(&mut self, job: Job) {
        Scheduler::add(self, job);
    }

    fn is_idle(&self) -> bool {
        Scheduler::is_idle(self)
    }

    fn step(&mut self) {
        Scheduler::step(self);
    }
}

impl<S: BlockSource> Row<S> {
    /// A sequence of which the keys and values in `cache` are known.
    fn new(job: Job, cache: KvCache<S>, reserved: Reservation) -> Self {
        let (tokens, cached_tokens) = (job.request.prompt.clone(), cache.len());
        Self { job, tokens, cache, cached_tokens, logprobs: Vec::new(), text: IncrementalText::default(), _reserved: reserved }
    }

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
