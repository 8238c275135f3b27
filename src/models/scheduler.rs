//! Continuous batching: one forward per step over everything in flight of one policy.
//!
//! New requests join between two steps. A step feeds each running sequence either the next piece of its prompt or its last
//! sampled token. A prompt takes over the keys and values that an earlier sequence or a running sibling shares with it, and
//! waits while a sibling is still computing them. Callers that went away are dropped before the next step.
//!
//! A sequence has memory for what it has read and written, not for what it may come to. When the next block finds none, kept prefixes give way, then the
//! sequence that came last: it waits again, before all others, with what it has sampled, and reads that with its prompt when there is room. Each token
//! depends on its sequence and position alone, so that its text is the same. The one that came first never gives way, and so all come to their ends.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use rayon::prelude::*;
use tokio::sync::oneshot;

use super::config::DecoderConfig;
use super::generation::{Completion, Finish, GenerateRequest};
use super::growing_text::GrowingText;
use super::kv_budget::{KvShare, Reservation};
use super::kv_cache::{BLOCK, BlockSource, KvCache};
use super::packed::{PackedDecoder, Segment};
use super::prefix_tree::{PrefixTree, shared_prefix};
use super::scratch::Scratch;
use super::tokenizer::Tokenizer;
use crate::error::{Error, Result};

/// Sequences that decode together; beyond some hundred rows a step only grows longer.
const ROWS_MAX: usize = 256;
/// Prompt tokens fed per step, so that a long prompt does not stall the sequences that are decoding.
const PROMPT_TOKENS_PER_STEP: usize = 2048;
/// Tokens worth waiting for while a sibling computes them; fewer are if they are all that is missing.
const SHARED_MIN: usize = 16;
/// Logits of all rows below which one thread samples.
const PARALLEL_LOGITS: usize = 1 << 13;

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
    fn forward(&self, segments: &mut [Segment<'_, Self::Source>]) -> Result<Scratch>;

    /// Whether a forward gives the threads of the pool work many times.
    fn uses_threads(&self) -> bool {
        false
    }

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

    /// See [`Decode::uses_threads`].
    fn uses_threads(&self) -> bool;
}

/// A request and where its result goes.
pub struct Job {
    pub request: GenerateRequest,
    pub reply: oneshot::Sender<Result<Completion>>,
    pub arrived: Instant,
    /// As long as it is there, what the request reads and writes is kept before what has none.
    pub holder: Weak<()>,
}

/// The sequences in flight on one policy.
pub struct Scheduler<D: Decode = PackedDecoder> {
    decoder: Arc<D>,
    tokenizer: Tokenizer,
    eos_token_ids: Vec<u32>,
    /// Those that gave way to others stand before those that have not begun.
    waiting: VecDeque<Sequence>,
    /// With so much free memory there was no room for the first of the waiting ones; None: not known.
    too_little: Option<usize>,
    /// In the order in which they came.
    running: Vec<Row<D::Source>>,
    /// None: every sequence computes all of its own.
    prefixes: Option<PrefixTree<D::Source>>,
    memory: KvShare,
    /// Requests that came so far.
    num_added: u64,
}

/// What is known of a request, whether it runs or waits.
struct Sequence {
    job: Job,
    /// Its place among all that came.
    number: u64,
    /// The prompt and what was sampled.
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    text: GrowingText,
    /// Of the prompt, when it began; None before.
    cached_tokens: Option<usize>,
}

/// One sequence in flight.
struct Row<S: BlockSource> {
    sequence: Sequence,
    /// Keys and values of the first tokens; all but the last once what was known is read.
    cache: KvCache<S>,
    /// Tokens that were known when it began to run.
    num_known: usize,
    /// Blocks for which there is memory: its own, and those that it shares with others, which are counted there.
    num_blocks: usize,
    reserved: Reservation,
}

impl<D: Decode> Scheduler<D> {
    /// A scheduler without work. Sequences end at any of the `eos_token_ids`; if nothing of those that are finished may be kept, nothing is
    /// shared at all.
    pub fn new(decoder: Arc<D>, tokenizer: Tokenizer, eos_token_ids: Vec<u32>, memory: KvShare) -> Self {
        decoder.note_budget(memory.bytes_max());
        let prefixes = memory.keeps().then(|| PrefixTree::new(decoder.block_source(), memory.kept_max()));
        let (waiting, running) = (VecDeque::new(), Vec::new());
        Self { decoder, tokenizer, eos_token_ids, waiting, too_little: None, running, prefixes, memory, num_added: 0 }
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
            Ok(()) => {
                self.waiting.push_back(Sequence::new(job, self.num_added));
                self.num_added += 1;
            }
            // A caller that went away needs no answer.
            Err(error) => drop(job.reply.send(Err(error))),
        }
    }

    /// Whether nothing waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Sequences that run.
    #[cfg(test)]
    pub fn num_running(&self) -> usize {
        self.running.len()
    }

    /// Runs one forward over everything in flight and answers what is finished.
    pub fn step(&mut self) {
        self.drop_closed();
        self.grow();
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
        self.waiting.retain(|sequence| !sequence.job.reply.is_closed());
        if self.waiting.len() < num_waiting {
            self.too_little = None;
        }
        let closed: Vec<Row<D::Source>> = self.running.extract_if(.., |row| row.sequence.job.reply.is_closed()).collect();
        closed.into_iter().for_each(|row| drop(self.stop(row)));
    }

    /// Memory for the blocks that sequences begin with this step; those that came first have it first.
    fn grow(&mut self) {
        let mut index = 0;
        while index < self.running.len() {
            match self.grow_row(index) {
                true => index += 1,
                // It may be this one itself.
                false => self.preempt_last(),
            }
        }
    }

    /// Memory for all known tokens of a row, from kept prefixes if need be; false if there is none.
    fn grow_row(&mut self, index: usize) -> bool {
        let is_only = self.running.len() == 1;
        let row = &mut self.running[index];
        let num_missing = row.sequence.tokens.len().div_ceil(BLOCK).saturating_sub(row.num_blocks);
        if num_missing == 0 {
            return true;
        }
        let block_bytes = self.decoder.block_source().block_bytes();
        let (bytes, left) = (num_missing * block_bytes, self.memory.left());
        if let Some(prefixes) = self.prefixes.as_mut().filter(|_| left < bytes) {
            prefixes.give_up((bytes - left).div_ceil(block_bytes));
            self.memory.note_kept(prefixes.size_bytes());
        }
        let has_room = self.memory.grow(&mut row.reserved, bytes, is_only);
        row.num_blocks += if has_room { num_missing } else { 0 };
        has_room
    }

    /// The sequence that came last waits again, before the others, with what it has sampled.
    fn preempt_last(&mut self) {
        let Some(row) = self.running.pop() else { return };
        let sequence = self.stop(row);
        self.waiting.push_front(sequence);
        self.memory.note_preemption();
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
            && let Some(sequence) = waiting.pop_front()
        {
            let Some(known) = self.known_prefix(&sequence.tokens) else {
                self.waiting.push_back(sequence);
                continue;
            };
            let num_blocks = sequence.tokens.len().div_ceil(BLOCK);
            let Some(reserved) = self.room(num_blocks, &known) else {
                // Those behind it wait too, however short: otherwise a long request could wait for ever. One before it may soon have its prefix.
                self.too_little = self.waiting.is_empty().then(|| self.memory.free());
                self.waiting.push_back(sequence);
                break;
            };
            let place = self.running.partition_point(|row| row.sequence.number < sequence.number);
            self.running.insert(place, Row::new(sequence, known, num_blocks, reserved));
        }
        self.waiting.append(&mut waiting);
    }

    /// Memory for a sequence that has `num_blocks` blocks, if it is there and another block for each that runs: otherwise it would soon have to give way.
    fn room(&self, num_blocks: usize, known: &KvCache<D::Source>) -> Option<Reservation> {
        let block_bytes = self.decoder.block_source().block_bytes();
        // Whole blocks are shared, and counted where they come from.
        let own_blocks = num_blocks.saturating_sub(known.len() / BLOCK);
        self.memory.reserve(own_blocks * block_bytes, self.running.len() * block_bytes, self.running.is_empty())
    }

    /// The keys and values that a finished sequence or one in flight shares with the tokens of one that begins; `None` if one in flight is about to have
    /// more of them.
    fn known_prefix(&mut self, tokens: &[u32]) -> Option<KvCache<D::Source>> {
        let Some(prefixes) = &mut self.prefixes else { return Some(KvCache::new(self.decoder.block_source())) };
        // The last token is always computed: its logits are needed.
        let usable = tokens.len() - 1;
        let held =
            self.running.iter().map(|row| (shared_prefix(&row.sequence.tokens, tokens).min(row.cache.len()).min(usable), &row.cache));
        let (in_flight, finished) = (held.max_by_key(|(len, _)| *len), prefixes.longest(&tokens[..usable]));
        let cached = in_flight.map_or(0, |(len, _)| len).max(finished);
        let coming = self.running.iter().filter(|row| row.is_reading()).map(|row| shared_prefix(row.known(), tokens).min(usable));
        if coming.max().unwrap_or(0) >= cached + SHARED_MIN.min(usable - cached).max(1) {
            return None;
        }
        Some(match in_flight {
            Some((len, cache)) if len > finished => cache.prefix(len),
            _ => prefixes.take(&tokens[..usable]),
        })
    }

    /// One forward; says of every row whether its known tokens are all read, and gives the logits `[rows, V]` after what was read.
    fn feed(&mut self) -> Result<(Vec<bool>, Scratch)> {
        let mut budget = PROMPT_TOKENS_PER_STEP;
        let mut is_read = Vec::with_capacity(self.running.len());
        let mut segments = Vec::with_capacity(self.running.len());
        for row in &mut self.running {
            let start = row.cache.len();
            let tokens = &row.sequence.tokens;
            let count = (tokens.len() - start).min(budget.max(1));
            budget = budget.saturating_sub(count - 1);
            is_read.push(start + count == tokens.len());
            segments.push(Segment { cache: &mut row.cache, tokens: &tokens[start..start + count] });
        }
        let logits = if segments.is_empty() { Scratch::new(0) } else { self.decoder.forward(&mut segments)? };
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
            drop(row.sequence.job.reply.send(Err(error)));
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
            true => row.sequence.extend(logits, tokenizer, eos_token_ids, len_max).transpose(),
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
    fn answer(&mut self, row: Row<D::Source>, ended: Result<Finish>) {
        let mut sequence = match ended {
            Ok(_) => self.stop(row),
            Err(_) => row.sequence,
        };
        let result = ended.and_then(|finish| sequence.completion(finish, &self.tokenizer));
        // A caller that went away needs no answer.
        drop(sequence.job.reply.send(result));
    }

    /// Takes a sequence's memory back and keeps its keys and values, as far as there is room.
    fn stop(&mut self, row: Row<D::Source>) -> Sequence {
        let Row { sequence, cache, reserved, .. } = row;
        // Otherwise its blocks would count twice.
        drop(reserved);
        // Less has to be spare too.
        self.too_little = None;
        self.keep_its_part();
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.insert(&sequence.tokens, cache, &sequence.job.holder);
        }
        self.keep_its_part();
        sequence
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

    fn uses_threads(&self) -> bool {
        self.decoder.uses_threads()
    }
}

impl<S: BlockSource> Row<S> {
    /// A sequence of which the keys and values in `cache` are known.
    fn new(mut sequence: Sequence, cache: KvCache<S>, num_blocks: usize, reserved: Reservation) -> Self {
        sequence.cached_tokens.get_or_insert(cache.len());
        Self { num_known: sequence.tokens.len(), sequence, cache, num_blocks, reserved }
    }

    /// The prompt, and what was sampled before it gave way.
    fn known(&self) -> &[u32] {
        &self.sequence.tokens[..self.num_known]
    }

    fn is_reading(&self) -> bool {
        self.cache.len() < self.num_known
    }
}

impl Sequence {
    /// One that has not begun.
    fn new(job: Job, number: u64) -> Self {
        let tokens = job.request.prompt.clone();
        let text = GrowingText::after(&tokens);
        Self { job, number, tokens, logprobs: Vec::new(), text, cached_tokens: None }
    }

    fn generated(&self) -> &[u32] {
        &self.tokens[self.job.request.prompt.len()..]
    }

    /// Samples the next token; says why the sequence ends with it, if it does.
    fn extend(&mut self, logits: &[f32], tokenizer: &Tokenizer, eos_token_ids: &[u32], len_max: usize) -> Result<Option<Finish>> {
        let request = &self.job.request;
        let sampled = request.sampler.sample(logits, &self.tokens, request.seed, self.logprobs.len());
        if !sampled.logprob.is_finite() {
            return Err(Error::BrokenWeights);
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
        let mut text = tokenizer.decode_after(&self.job.request.prompt, self.generated())?;
        if let Some(position) = stop_position(&text, &self.job.request.stop).filter(|_| finish == Finish::Stop) {
            text.truncate(position);
        }
        Ok(Completion {
            token_ids: self.generated().to_vec(),
            token_logprobs: std::mem::take(&mut self.logprobs),
            text,
            finish,
            prompt_tokens: self.job.request.prompt.len(),
            cached_tokens: self.cached_tokens.unwrap_or_default(),
            latency_ms: self.job.arrived.elapsed().as_secs_f64() * 1e3,
        })
    }
}

/// Where the first of the stop texts begins.
fn stop_position(text: &str, stop: &[String]) -> Option<usize> {
    stop.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| text.find(stop.as_str())).min()
}
