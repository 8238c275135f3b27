//! What a caller asks of a policy and what it gets back.

use rolloutdb_udfs::model::GenerateOptions;

use crate::error::{Error, Result};

use super::calls::Calls;
use super::config::DecoderConfig;
use super::sampling::Sampler;

/// One prompt to continue.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// Token ids, at least one.
    pub prompt: Vec<u32>,
    /// At least 1.
    pub max_new_tokens: usize,
    pub sampler: Sampler,
    /// Names the stream of random numbers. The same request gives the same completion, whatever else runs.
    pub seed: u64,
    /// Texts that end a completion; an empty one is ignored.
    pub stop: Vec<String>,
}

/// Why a completion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// A stop text appeared.
    Stop,
    /// The model ended the text.
    EndOfText,
    /// `max_new_tokens` or the model's longest sequence was reached.
    Length,
}

/// A continuation of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The sampled ids, with the end-of-text token or the tokens of the stop text if one of them ended it.
    pub token_ids: Vec<u32>,
    /// Natural log of each id's probability under the model (temperature 1, whole vocabulary).
    pub token_logprobs: Vec<f32>,
    /// The decoded ids without special tokens, cut before the stop text.
    pub text: String,
    pub finish: Finish,
    pub prompt_tokens: usize,
    /// Prompt tokens whose keys and values were there already, from an earlier prompt or a sibling's.
    pub cached_tokens: usize,
    /// From the call to the result, waiting included.
    pub latency_ms: f64,
}

impl Completion {
    /// For those that count what a statement takes.
    pub(super) fn tokens(&self) -> Calls {
        Calls {
            prompt_tokens: self.prompt_tokens as u64,
            cached_tokens: self.cached_tokens as u64,
            generated_tokens: self.token_ids.len() as u64,
            ..Calls::default()
        }
    }
}

impl GenerateRequest {
    /// As SQL's `generate` asks; a sampler has single precision.
    pub fn new(prompt: Vec<u32>, options: &GenerateOptions) -> Self {
        Self {
            prompt,
            max_new_tokens: options.max_tokens,
            sampler: Sampler {
                temperature: options.temperature as f32,
                repetition_penalty: options.repetition_penalty as f32,
                top_k: options.top_k,
                top_p: options.top_p as f32,
                min_p: options.min_p as f32,
            },
            seed: options.seed,
            stop: options.stop.clone(),
        }
    }

    /// Refuses what the model cannot run.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub(super) fn check(&self, config: &DecoderConfig) -> Result<()> {
        let limit = config.max_position_embeddings;
        let refuse = |name: &str, found: String, expected: String| Err(Error::InvalidParameter { name: name.to_owned(), found, expected });
        if self.prompt.is_empty() {
            return refuse("prompt", "an empty text".to_owned(), "at least one token".to_owned());
        }
        if self.prompt.len() >= limit {
            return refuse(
                "prompt",
                format!("{} tokens", self.prompt.len()),
                format!("fewer than the {limit} tokens that the model can read"),
            );
        }
        if let Some(id) = self.prompt.iter().find(|id| **id as usize >= config.vocab_size) {
            return refuse("prompt", format!("token id {id}"), format!("ids below the vocabulary size {}", config.vocab_size));
        }
        if self.max_new_tokens == 0 {
            return refuse("max_tokens", "0".to_owned(), "at least 1".to_owned());
        }
        self.sampler.check()
    }
}
