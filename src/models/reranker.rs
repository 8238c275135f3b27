//! A query and a passage to one number, larger if the passage answers the query better: a cross-encoder, which reads both together. The handle that
//! callers have is of such a model, or of a decoder with a score (`scorer.rs`).

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::calls;
use super::config::{CONFIG_FILE, EncoderConfig, read_json};
use super::device::Device;
use super::embedder::{batches, given};
use super::embedder_settings::max_tokens;
use super::encoder::{Batch, Encoder, Pooling, tensor_prefix};
use super::owner::Owner;
use super::panels::PackedMatrix;
use super::registry::ModelInfo;
use super::scorer::LoadedScorer;
use super::shared_forward::{SharedForward, Waiting, ask};
use super::shown::shown;
use super::tokenizer::{Tokenizer, check_limit};
use super::weights::{TensorShapes, read_shapes};
use crate::error::{Error, Result};

/// A sequence classifier with one label: the first hidden state through `tanh(dense)` and one product.
#[derive(Debug)]
pub struct LoadedReranker {
    encoder: Encoder,
    tokenizer: Tokenizer,
    /// Of a pair.
    max_tokens: usize,
    dense: PackedMatrix,
    output_weight: Vec<f32>,
    output_bias: f32,
    activation: Activation,
    waiting: Waiting<EncodedPair, f32>,
}

/// Token ids of a pair, and the segment of each token.
type EncodedPair = (Vec<u32>, Vec<u32>);

/// What becomes of the label's logit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// Scores between 0 and 1.
    Sigmoid,
    /// The logit is the score.
    Identity,
}

/// What a score says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// From 0 to 1.
    Probability,
    /// A probability before the logistic function.
    Logit,
    /// An estimate of something from 0 to 1, which may be beyond either.
    Value,
}

/// A model that reads two texts together, and says how well the second follows the first.
pub(super) trait PairScorer: SharedForward<Output = f32> {
    /// What it reads of a query and a passage; `None` if it cannot read them.
    fn read_pair(&self, query: &str, passage: &str) -> Result<Option<Self::Input>>;

    /// What it reads of a prompt, whose beginning is cut where both are too long, and the step that followed it; `None` if it cannot read the step.
    fn read_step(&self, prompt: &str, step: &str) -> Result<Option<Self::Input>>;

    fn num_tokens(input: &Self::Input) -> usize;
}

/// A handle to a model that scores; cheap to clone.
#[derive(Debug, Clone)]
pub struct Reranker {
    info: Arc<ModelInfo>,
    model: ScoringModel,
    owner: Owner,
}

#[derive(Debug, Clone)]
pub(super) enum ScoringModel {
    CrossEncoder(Arc<LoadedReranker>),
    Decoder(Arc<LoadedScorer>),
}

/// Names of the tensors behind the encoder, which differ between the families.
struct Head {
    dense: &'static str,
    output: &'static str,
}

const BERT_HEAD: Head = Head { dense: "pooler.dense", output: "classifier" };
const ROBERTA_HEAD: Head = Head { dense: "classifier.dense", output: "classifier.out_proj" };

/// Whether `architecture` names a sequence classifier.
pub fn is_classifier(architecture: &str) -> bool {
    architecture.ends_with("ForSequenceClassification")
}

/// Name and shape of the tensors behind the encoder.
///
/// # Errors
/// [`Error::NotSupported`] for a classifier of several labels: which of them would rank?
pub fn head_shapes(config: &EncoderConfig, found: &TensorShapes) -> Result<Vec<(String, Vec<usize>)>> {
    let (dense, output) = head_names(found);
    check_labels(found, &format!("{output}.weight"))?;
    let hidden = config.hidden_size;
    Ok(vec![
        (format!("{dense}.weight"), vec![hidden, hidden]),
        (format!("{dense}.bias"), vec![hidden]),
        (format!("{output}.weight"), vec![1, hidden]),
        (format!("{output}.bias"), vec![1]),
    ])
}

/// Fails for a classifier of several labels, by the shape of its last matrix.
///
/// # Errors
/// [`Error::NotSupported`].
pub(super) fn check_labels(found: &TensorShapes, output: &str) -> Result<()> {
    match found.get(output).and_then(|shape| shape.first().copied()) {
        None | Some(1) => Ok(()),
        Some(labels) => {
            Err(Error::NotSupported(format!("a classifier with {labels} labels is not supported; a model that reranks has one")))
        }
    }
}

/// Of the dense and the output layer. BERT's pooler is part of the encoder, with its prefix.
fn head_names(found: &TensorShapes) -> (String, String) {
    let is_roberta = found.contains_key(&format!("{}.weight", ROBERTA_HEAD.output));
    match is_roberta {
        true => (ROBERTA_HEAD.dense.to_owned(), ROBERTA_HEAD.output.to_owned()),
        false => (format!("{}{}", tensor_prefix(found), BERT_HEAD.dense), BERT_HEAD.output.to_owned()),
    }
}

impl LoadedReranker {
    /// Loads a model directory.
    ///
    /// # Errors
    /// As [`Encoder::load`], [`Tokenizer::load`] and [`head_shapes`]; [`Error::NotSupported`] for an activation that we do not compute.
    pub fn load(directory: &Path, device: Device) -> Result<Self> {
        let (encoder, source) = Encoder::load(directory, device)?;
        let config = encoder.config();
        let found = read_shapes(directory)?;
        let shapes = head_shapes(config, &found)?;
        let mut values = shapes.iter().map(|(name, shape)| source.values_of(name, shape));
        let mut next = || values.next().expect("a head has four tensors");
        let (dense_weight, dense_bias) = (next()?, next()?);
        let (output_weight, output_bias) = (next()?, next()?);
        let max_tokens = max_tokens(directory)?.unwrap_or(usize::MAX).min(encoder.max_tokens());
        check_limit(directory, max_tokens)?;
        Ok(Self {
            dense: PackedMatrix::new(config.hidden_size, &[&dense_weight], &[&dense_bias]),
            tokenizer: Tokenizer::load(directory)?,
            max_tokens,
            output_weight,
            output_bias: output_bias[0],
            activation: Activation::load(directory)?,
            encoder,
            waiting: Waiting::default(),
        })
    }

    /// Token ids of each pair, and the segment of each token: 0 for the query, 1 for the passage, where the model tells them apart.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_pair`].
    pub fn encode(&self, query: &str, passage: &str) -> Result<(Vec<u32>, Vec<u32>)> {
        Ok(self.told_apart(self.tokenizer.encode_pair(query, passage, self.max_tokens)?))
    }

    /// As [`Self::encode`], of a prompt and the step that followed it: where both are too long the prompt loses its beginning, and the step nothing.
    /// `None` for a step that alone is too long.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_pair`].
    pub fn encode_step(&self, prompt: &str, step: &str) -> Result<Option<(Vec<u32>, Vec<u32>)>> {
        let encoded = self.tokenizer.encode_pair_with_whole_second(prompt, step, self.max_tokens)?;
        Ok(encoded.map(|pair| self.told_apart(pair)))
    }

    /// With segments that the model knows.
    fn told_apart(&self, (tokens, mut segments): EncodedPair) -> EncodedPair {
        if self.encoder.config().type_vocab_size < 2 {
            segments.fill(0);
        }
        (tokens, segments)
    }

    /// One score per encoded pair; on the CPU each is the same whatever the others are.
    ///
    /// # Errors
    /// As [`Encoder::vectors`].
    pub fn score_encoded(&self, pairs: &[&(Vec<u32>, Vec<u32>)]) -> Result<Vec<f32>> {
        let lengths: Vec<usize> = pairs.iter().map(|(tokens, _)| tokens.len()).collect();
        let tokens: Vec<u32> = pairs.iter().flat_map(|(tokens, _)| tokens.iter().copied()).collect();
        let segments: Vec<u32> = pairs.iter().flat_map(|(_, segments)| segments.iter().copied()).collect();
        let batch = Batch { tokens: &tokens, segments: &segments, lengths: &lengths };
        let first = self.encoder.vectors(batch, Pooling::Cls, false)?;
        let width = self.encoder.config().hidden_size;
        let pooled = self.dense.multiply(&first);
        Ok(pooled.chunks_exact(width).map(|row| self.activation.of(self.logit(row))).collect())
    }

    fn logit(&self, row: &[f32]) -> f32 {
        row.iter().zip(&self.output_weight).map(|(x, weight)| x.tanh() * weight).sum::<f32>() + self.output_bias
    }
}

impl Activation {
    /// As sentence-transformers' `CrossEncoder` takes it from `config.json`: sigmoid for one label unless the file names another.
    pub(super) fn load(directory: &Path) -> Result<Self> {
        Ok(Self::named(directory)?.unwrap_or(Self::Sigmoid))
    }

    /// The one that `config.json` names, if it names one.
    pub(super) fn named(directory: &Path) -> Result<Option<Self>> {
        let config = read_json(&directory.join(CONFIG_FILE))?;
        let nested = config.get("sentence_transformers").and_then(|settings| settings.get("activation_fn"));
        let named = nested.or_else(|| config.get("sbert_ce_default_activation_function")).and_then(Value::as_str);
        // A Python class, of which the last part counts.
        match named.map(|class| class.rsplit('.').next().unwrap_or_default()) {
            None => Ok(None),
            Some("Sigmoid") => Ok(Some(Self::Sigmoid)),
            Some("Identity") => Ok(Some(Self::Identity)),
            Some(other) => {
                let found = shown(other);
                Err(Error::NotSupported(format!("the activation \"{found}\" is not supported; supported: Sigmoid, Identity")))
            }
        }
    }

    pub(super) fn of(self, logit: f32) -> f32 {
        match self {
            Self::Sigmoid => 1.0 / (1.0 + (-logit).exp()),
            Self::Identity => logit,
        }
    }

    /// What is left of a logit.
    pub(super) fn scale(self) -> Scale {
        match self {
            Self::Sigmoid => Scale::Probability,
            Self::Identity => Scale::Logit,
        }
    }
}

impl Scale {
    /// A score as a value from 0 to 1; a score that is not a number stays one.
    pub fn value(self, score: f32) -> f64 {
        let score = f64::from(score);
        match self {
            Self::Probability => score,
            Self::Logit => 1.0 / (1.0 + (-score).exp()),
            Self::Value => score.clamp(0.0, 1.0),
        }
    }
}

impl PairScorer for LoadedReranker {
    fn read_pair(&self, query: &str, passage: &str) -> Result<Option<EncodedPair>> {
        self.encode(query, passage).map(Some)
    }

    fn read_step(&self, prompt: &str, step: &str) -> Result<Option<EncodedPair>> {
        self.encode_step(prompt, step)
    }

    fn num_tokens((tokens, _): &EncodedPair) -> usize {
        tokens.len()
    }
}

impl SharedForward for LoadedReranker {
    type Input = EncodedPair;
    type Output = f32;

    fn waiting(&self) -> &Waiting<EncodedPair, f32> {
        &self.waiting
    }

    fn forward_tokens(&self) -> usize {
        self.encoder.forward_tokens()
    }

    fn forward(&self, pairs: &[EncodedPair]) -> Result<Vec<f32>> {
        self.score_encoded(&pairs.iter().collect::<Vec<_>>())
    }
}

impl Reranker {
    pub(super) fn new(info: Arc<ModelInfo>, model: ScoringModel, owner: Owner) -> Self {
        Self { info, model, owner }
    }

    /// The model that scores.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// What its scores say.
    pub fn scale(&self) -> Scale {
        match &self.model {
            ScoringModel::CrossEncoder(model) => model.activation.scale(),
            ScoringModel::Decoder(model) => model.scale(),
        }
    }

    /// One score per pair of a query and a passage, in their order; `None` for a passage that alone is too long for a decoder.
    ///
    /// # Errors
    /// [`Error::Internal`] if the model thread has ended.
    pub async fn score(&self, pairs: Vec<(String, String)>) -> Result<Vec<Option<f32>>> {
        match &self.model {
            ScoringModel::CrossEncoder(model) => score_pairs(model, &self.owner, pairs).await,
            ScoringModel::Decoder(model) => score_pairs(model, &self.owner, pairs).await,
        }
    }

    /// The score of a step and the prompt that it followed, whose beginning is cut where both are too long; `None` for a step that alone is too long.
    ///
    /// # Errors
    /// As [`Self::score`].
    pub async fn score_step(&self, prompt: String, step: String) -> Result<Option<f32>> {
        match &self.model {
            ScoringModel::CrossEncoder(model) => score_step(model, &self.owner, prompt, step).await,
            ScoringModel::Decoder(model) => score_step(model, &self.owner, prompt, step).await,
        }
    }
}

/// The pairs that the model can read, by forwards of pairs of similar lengths.
async fn score_pairs<M: PairScorer>(model: &Arc<M>, owner: &Owner, pairs: Vec<(String, String)>) -> Result<Vec<Option<f32>>> {
    let reader = Arc::clone(model);
    let read = move || pairs.iter().map(|(query, passage)| reader.read_pair(query, passage)).collect::<Result<Vec<_>>>();
    let mut read = tokio::task::spawn_blocking(read).await.map_err(|error| Error::Internal(error.to_string()))??;
    let readable: Vec<usize> = (0..read.len()).filter(|index| read[*index].is_some()).collect();
    let lengths: Vec<usize> = read.iter().flatten().map(M::num_tokens).collect();
    calls::count(given(lengths.iter().copied()));
    let mut scores = vec![None; read.len()];
    for batch in batches(lengths.iter().copied(), model.forward_tokens()) {
        let num_tokens = batch.iter().map(|index| lengths[*index]).sum();
        let indices: Vec<usize> = batch.into_iter().map(|index| readable[index]).collect();
        let inputs = indices.iter().filter_map(|index| read[*index].take()).collect();
        let found = ask(model, owner, inputs, num_tokens).await?;
        calls::count_answers(found.len());
        for (index, score) in indices.into_iter().zip(found) {
            scores[index] = Some(score);
        }
    }
    Ok(scores)
}

async fn score_step<M: PairScorer>(model: &Arc<M>, owner: &Owner, prompt: String, step: String) -> Result<Option<f32>> {
    let reader = Arc::clone(model);
    let read = move || reader.read_step(&prompt, &step);
    let read = tokio::task::spawn_blocking(read).await.map_err(|error| Error::Internal(error.to_string()))??;
    let Some(input) = read else { return Ok(None) };
    let num_tokens = M::num_tokens(&input);
    calls::count(given(std::iter::once(num_tokens)));
    let scores = ask(model, owner, vec![input], num_tokens).await?;
    calls::count_answers(scores.len());
    Ok(scores.first().copied())
}
