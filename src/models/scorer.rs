//! A prompt and the step that followed it to one number: a decoder with a score in the place of its vocabulary head, such as TRAIN PRM makes.
//!
//! It computes on the CPU with the packed weights of generation (`packed.rs`), so that a score is the same whatever else is in its forward. What it reads is
//! said in `scored_text.rs`.

use std::path::Path;

use super::config::OutputHead;
use super::device::Device;
use super::embedder_settings::max_tokens;
use super::kv_cache::KvCache;
use super::packed::{PackedDecoder, Segment};
use super::reranker::{Activation, PairScorer, Scale};
use super::scored_text::ScoredText;
use super::shared_forward::{SharedForward, Waiting};
use super::tokenizer::{Tokenizer, check_limit};
use crate::error::{Error, Result};

/// A decoder with a score, in memory.
#[derive(Debug)]
pub struct LoadedScorer {
    decoder: PackedDecoder,
    tokenizer: Tokenizer,
    text: ScoredText,
    /// Of a prompt and its step together.
    max_tokens: usize,
    activation: Activation,
    scale: Scale,
    waiting: Waiting<Vec<u32>, f32>,
}

impl LoadedScorer {
    /// Loads a model directory. Its scores are logits, as transformers gives them, unless `config.json` names a sigmoid for sentence-transformers or says that
    /// they were learned as values.
    ///
    /// # Errors
    /// As [`PackedDecoder::load`] and [`Tokenizer::load`]; [`Error::NotSupported`] for an activation that we do not compute.
    pub fn load(directory: &Path) -> Result<Self> {
        let decoder = PackedDecoder::load(directory)?;
        let OutputHead::Score(score) = decoder.config().head else {
            return Err(Error::Internal(format!("the decoder in {} has no score", directory.display())));
        };
        let max_tokens = max_tokens(directory)?.unwrap_or(usize::MAX).min(decoder.config().max_position_embeddings);
        check_limit(directory, max_tokens)?;
        let tokenizer = Tokenizer::load(directory)?;
        let activation = Activation::named(directory)?.unwrap_or(Activation::Identity);
        let scale = match activation.scale() {
            Scale::Logit if score.is_value => Scale::Value,
            scale => scale,
        };
        let text = ScoredText::new(&tokenizer, score);
        Ok(Self { decoder, tokenizer, text, max_tokens, activation, scale, waiting: Waiting::default() })
    }

    /// Fails if this device cannot compute it.
    ///
    /// # Errors
    /// [`Error::NotSupported`].
    pub fn check(device: Device) -> Result<()> {
        match device {
            Device::Auto | Device::Cpu => Ok(()),
            Device::Cuda(_) => Err(Error::NotSupported(format!(
                "device = '{device}': a decoder with a score computes on the CPU; leave the option out, or say 'cpu'"
            ))),
        }
    }

    /// What its scores say.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// One score per text of at least one token, each the same whatever the others are.
    pub fn score_tokens(&self, texts: &[Vec<u32>]) -> Vec<f32> {
        let mut caches: Vec<KvCache> = texts.iter().map(|_| self.decoder.new_cache()).collect();
        let segments = caches.iter_mut().zip(texts).map(|(cache, text)| Segment { cache, tokens: text.as_slice() });
        let scores = self.decoder.forward(&mut segments.collect::<Vec<_>>());
        scores.into_iter().map(|score| self.activation.of(score)).collect()
    }
}

impl PairScorer for LoadedScorer {
    fn read_pair(&self, query: &str, passage: &str) -> Result<Option<Vec<u32>>> {
        self.read_step(query, passage)
    }

    fn read_step(&self, prompt: &str, step: &str) -> Result<Option<Vec<u32>>> {
        self.text.sequence(&self.tokenizer, prompt, step, self.max_tokens)
    }

    fn num_tokens(input: &Vec<u32>) -> usize {
        input.len()
    }
}

impl SharedForward for LoadedScorer {
    type Input = Vec<u32>;
    type Output = f32;

    fn waiting(&self) -> &Waiting<Vec<u32>, f32> {
        &self.waiting
    }

    fn forward(&self, texts: &[Vec<u32>]) -> Result<Vec<f32>> {
        Ok(self.score_tokens(texts))
    }
}
