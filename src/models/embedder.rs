//! Texts to vectors: the encoder with its pooling, its prompts and its limit (`embedder_settings.rs`).

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::calls::{self, Calls};
use super::device::Device;
use super::embedder_settings::EmbedderSettings;
use super::encoder::{Batch, Encoder};
use super::owner::Owner;
use super::registry::ModelInfo;
use super::shared_forward::{SharedForward, Waiting, ask};
use super::tokenizer::Tokenizer;
use crate::error::{Error, Result};

/// Texts that a thread tokenizes at a time.
const TEXTS_PER_TASK: usize = 64;

/// An encoder in memory with its tokenizer.
#[derive(Debug)]
pub struct LoadedEmbedder {
    encoder: Encoder,
    tokenizer: Tokenizer,
    settings: EmbedderSettings,
    waiting: Waiting<Vec<u32>, Vec<f32>>,
}

/// A handle to an embedding model; cheap to clone.
#[derive(Debug, Clone)]
pub struct Embedder {
    info: Arc<ModelInfo>,
    model: Arc<LoadedEmbedder>,
    owner: Owner,
}

impl LoadedEmbedder {
    /// Loads a model directory.
    ///
    /// # Errors
    /// As [`Encoder::load`] and [`Tokenizer::load`].
    pub fn load(directory: &Path, device: Device, settings: EmbedderSettings) -> Result<Self> {
        let encoder = Encoder::load(directory, device)?.0;
        let max_tokens = settings.max_tokens.unwrap_or(usize::MAX).min(encoder.max_tokens());
        let tokenizer = Tokenizer::load_truncating(directory, max_tokens)?;
        Ok(Self { encoder, tokenizer, settings, waiting: Waiting::default() })
    }

    /// Width of the vectors.
    pub fn dim(&self) -> usize {
        self.encoder.config().hidden_size
    }

    /// Vectors `[texts, dim]` of tokenized texts.
    ///
    /// # Errors
    /// As [`Encoder::vectors`].
    pub fn embed_tokens(&self, texts: &[Vec<u32>]) -> Result<Vec<f32>> {
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let tokens = texts.concat();
        let batch = Batch { tokens: &tokens, segments: &vec![0; tokens.len()], lengths: &lengths };
        self.encoder.vectors(batch, self.settings.pooling, self.settings.normalise)
    }

    /// Token ids of texts, with the prompt of the kind before each.
    pub(super) fn encode(&self, texts: &[String], prompt: &str) -> Result<Vec<Vec<u32>>> {
        texts
            .par_iter()
            .with_min_len(TEXTS_PER_TASK)
            .map(|text| self.tokenizer.encode_with_special_tokens(&self.settings.read_as(prompt, text)))
            .collect()
    }
}

impl SharedForward for LoadedEmbedder {
    type Input = Vec<u32>;
    type Output = Vec<f32>;

    fn waiting(&self) -> &Waiting<Vec<u32>, Vec<f32>> {
        &self.waiting
    }

    fn forward_tokens(&self) -> usize {
        self.encoder.forward_tokens()
    }

    fn forward(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        Ok(self.embed_tokens(texts)?.chunks_exact(self.dim()).map(<[f32]>::to_vec).collect())
    }
}

impl Embedder {
    pub(super) fn new(info: Arc<ModelInfo>, model: Arc<LoadedEmbedder>, owner: Owner) -> Self {
        Self { info, model, owner }
    }

    /// The model that embeds.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Width of the vectors.
    pub fn dim(&self) -> usize {
        self.model.dim()
    }

    /// Whether the vectors have length 1.
    pub fn is_normalised(&self) -> bool {
        self.model.settings.normalise
    }

    /// Vectors `[texts, dim]` of search queries, in the order of `texts`.
    ///
    /// # Errors
    /// [`Error::Internal`] if the model thread has ended.
    pub async fn embed_queries(&self, texts: Vec<String>) -> Result<Vec<f32>> {
        self.embed(texts, |settings| &settings.query_prompt).await
    }

    /// Vectors `[texts, dim]` of passages, in the order of `texts`. Errors as [`Self::embed_queries`].
    pub async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<f32>> {
        self.embed(texts, |settings| &settings.passage_prompt).await
    }

    async fn embed(&self, texts: Vec<String>, prompt: fn(&EmbedderSettings) -> &String) -> Result<Vec<f32>> {
        let model = Arc::clone(&self.model);
        let encode = move || model.encode(&texts, prompt(&model.settings));
        let encoded = tokio::task::spawn_blocking(encode).await.map_err(|error| Error::Internal(error.to_string()))??;
        calls::count(given(encoded.iter().map(Vec::len)));
        let dim = self.dim();
        let mut vectors = vec![0.0; encoded.len() * dim];
        for batch in batches(encoded.iter().map(Vec::len), self.model.forward_tokens()) {
            let tokens: Vec<Vec<u32>> = batch.iter().map(|index| encoded[*index].clone()).collect();
            let num_tokens = tokens.iter().map(Vec::len).sum();
            let rows = ask(&self.model, &self.owner, tokens, num_tokens).await?;
            calls::count_answers(rows.len());
            for (index, row) in batch.into_iter().zip(rows) {
                vectors[index * dim..][..dim].copy_from_slice(&row);
            }
        }
        Ok(vectors)
    }
}

/// Inputs of these numbers of tokens, for those that count what a statement takes.
pub(super) fn given(lengths: impl ExactSizeIterator<Item = usize>) -> Calls {
    Calls { inputs: lengths.len() as u64, prompt_tokens: lengths.map(|length| length as u64).sum(), ..Calls::default() }
}

/// Indices of texts of similar lengths, at most `forward_tokens` together (one text may be longer). `lengths`: tokens of each text.
pub(super) fn batches(lengths: impl Iterator<Item = usize>, forward_tokens: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<(usize, usize)> = lengths.enumerate().map(|(index, length)| (length, index)).collect();
    order.sort_unstable();
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut tokens = usize::MAX;
    for (length, index) in order {
        tokens = tokens.saturating_add(length);
        match batches.last_mut().filter(|_| tokens <= forward_tokens) {
            Some(batch) => batch.push(index),
            None => {
                tokens = length;
                batches.push(vec![index]);
            }
        }
    }
    batches
}
