//! Texts to vectors: the encoder with the pooling, the prompts and the limit that its sentence-transformers files ask for.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde_json::Value;

use super::config::read_json;
use super::device::Device;
use super::encoder::{Batch, Encoder, Pooling};
use super::owner::Owner;
use super::registry::ModelInfo;
use super::shared_forward::{SharedForward, Waiting, ask};
use super::tokenizer::{TOKENIZER_CONFIG_FILE, Tokenizer};
use crate::error::{Error, Result};

/// Texts that a thread tokenizes at a time.
const TEXTS_PER_TASK: usize = 64;

/// What the files beside an encoder say about its use. Without them: mean, normalised, no prompts.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedderSettings {
    pub pooling: Pooling,
    /// Vectors have length 1.
    pub normalise: bool,
    /// Longest text in tokens; longer ones are cut. `None`: what the encoder can read.
    pub max_tokens: Option<usize>,
    /// Put before a query.
    pub query_prompt: String,
    /// Put before a passage.
    pub passage_prompt: String,
}

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

impl EmbedderSettings {
    /// Reads `modules.json`, the pooling's `config.json`, `sentence_bert_config.json` and `config_sentence_transformers.json`
    /// as far as they are there.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`], [`Error::NotSupported`] for a pooling or a module that we do not compute.
    pub fn load(directory: &Path) -> Result<Self> {
        let (pooling, normalise) = match read_optional(&directory.join("modules.json"))? {
            Some(modules) => read_modules(directory, &modules)?,
            None => (Pooling::Mean, true),
        };
        let prompts = read_optional(&directory.join("config_sentence_transformers.json"))?.unwrap_or_default();
        let prompt = |names: &[&str]| {
            let default = prompts.get("default_prompt_name").and_then(Value::as_str);
            let mut names = names.iter().copied().chain(default);
            names.find_map(|name| prompts.get("prompts")?.get(name)?.as_str()).unwrap_or_default().to_owned()
        };
        Ok(Self {
            pooling,
            normalise,
            max_tokens: max_tokens(directory)?,
            query_prompt: prompt(&["query"]),
            passage_prompt: prompt(&["passage", "document"]),
        })
    }
}

impl LoadedEmbedder {
    /// Loads a model directory.
    ///
    /// # Errors
    /// As [`Encoder::load`], [`Tokenizer::load`] and [`EmbedderSettings::load`].
    pub fn load(directory: &Path, device: Device) -> Result<Self> {
        let (encoder, settings) = (Encoder::load(directory, device)?.0, EmbedderSettings::load(directory)?);
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
    fn encode(&self, texts: &[String], prompt: &str) -> Result<Vec<Vec<u32>>> {
        texts
            .par_iter()
            .with_min_len(TEXTS_PER_TASK)
            .map(|text| self.tokenizer.encode_with_special_tokens(&format!("{prompt}{text}")))
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
        let dim = self.dim();
        let mut vectors = vec![0.0; encoded.len() * dim];
        for batch in batches(encoded.iter().map(Vec::len), self.model.forward_tokens()) {
            let tokens: Vec<Vec<u32>> = batch.iter().map(|index| encoded[*index].clone()).collect();
            let num_tokens = tokens.iter().map(Vec::len).sum();
            let rows = ask(&self.model, &self.owner, tokens, num_tokens).await?;
            for (index, row) in batch.into_iter().zip(rows) {
                vectors[index * dim..][..dim].copy_from_slice(&row);
            }
        }
        Ok(vectors)
    }
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

fn read_optional(path: &Path) -> Result<Option<Value>> {
    if path.exists() { read_json(path).map(Some) } else { Ok(None) }
}

/// Pooling and normalisation from the list of modules; module types are Python classes, of which the last part counts.
fn read_modules(directory: &Path, modules: &Value) -> Result<(Pooling, bool)> {
    let (mut pooling, mut normalise) = (Pooling::Mean, false);
    for module in modules.as_array().into_iter().flatten() {
        let class = module.get("type").and_then(Value::as_str).unwrap_or_default();
        let path = module.get("path").and_then(Value::as_str).unwrap_or_default();
        match class.rsplit('.').next().unwrap_or_default() {
            "Transformer" => {}
            "Pooling" => pooling = read_pooling(&directory.join(path).join("config.json"))?,
            "Normalize" => normalise = true,
            other => return Err(Error::NotSupported(format!("the sentence-transformers module \"{other}\" is not supported"))),
        }
    }
    Ok((pooling, normalise))
}

fn read_pooling(path: &Path) -> Result<Pooling> {
    let config = read_json(path)?;
    let flag = |name: &str| config.get(name).and_then(Value::as_bool).unwrap_or(false);
    let named = config.get("pooling_mode").and_then(Value::as_str);
    let others =
        ["pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_lasttoken", "pooling_mode_weightedmean_tokens"];
    match (named, flag("pooling_mode_mean_tokens"), flag("pooling_mode_cls_token")) {
        (Some("mean"), ..) => Ok(Pooling::Mean),
        (Some("cls"), ..) => Ok(Pooling::Cls),
        (None, true, false) if !others.iter().any(|name| flag(name)) => Ok(Pooling::Mean),
        (None, false, true) if !others.iter().any(|name| flag(name)) => Ok(Pooling::Cls),
        _ => Err(Error::NotSupported(format!("{}: only the poolings mean and cls are supported", path.display()))),
    }
}

/// The limit that the model was trained with, else the tokenizer's own.
pub(super) fn max_tokens(directory: &Path) -> Result<Option<usize>> {
    for (file, field) in [("sentence_bert_config.json", "max_seq_length"), (TOKENIZER_CONFIG_FILE, "model_max_length")] {
        let config = read_optional(&directory.join(file))?;
        // transformers writes 1e30 for "no limit", which is not a whole number of 64 bits.
        let limit = config.and_then(|config| config.get(field)?.as_u64());
        if let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) {
            return Ok(Some(limit));
        }
    }
    Ok(None)
}
