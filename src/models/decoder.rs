//! The decoder: differentiable forward over padding-free batches, random initialisation, load and save.
//!
//! This is the form that training changes and that scores sequences. Generation runs on a packed copy of the weights
//! (`packed.rs`), which decodes with a key-value cache.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use candle_core::{Device, Tensor, Var};

use super::config::{DecoderArchitecture, DecoderConfig};
use super::ops::{self, AttentionShape, Rope, RopeTable};
use super::random::CounterRng;
use super::weights::{self, Weights};
use crate::error::{Error, Result};

/// Standard deviation of random weights, as in the Qwen2 and GPT-2 families.
const INITIAL_STD: f64 = 0.02;
pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(super) const HEAD: &str = "lm_head.weight";

/// A decoder: embedding, pre-norm blocks of grouped-query attention and SwiGLU, final norm, output head.
#[derive(Debug)]
pub struct Decoder {
    config: DecoderConfig,
    embedding: Tensor,
    layers: Vec<Layer>,
    norm: Tensor,
    head: Tensor,
    rope: Rope,
    /// Every tensor of the checkpoint, in Hugging Face's names; a tied head is not in it.
    tensors: BTreeMap<String, Tensor>,
    parameters: BTreeMap<String, Var>,
    device: Device,
}

/// The weights of one block. Matrices are `[output, input]`.
#[derive(Debug)]
struct Layer {
    input_norm: Tensor,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Tensor,
    post_attention_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
}

/// A projection of the hidden states to heads.
#[derive(Debug)]
struct Projection {
    weight: Tensor,
    bias: Option<Tensor>,
    /// Weight `[head_dim]` of the RMSNorm of every head.
    norm: Option<Tensor>,
}

/// What all layers of one forward share.
struct Batch {
    attention: AttentionShape,
    positions: Arc<[u32]>,
    rope: Arc<RopeTable>,
}

impl Decoder {
    /// Loads `config.json` and the safetensors of a directory as f32. Only a `trainable` decoder has [`Self::parameters`] and
    /// records what a backward pass needs.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`] (broken files, missing tensors, wrong shapes), [`Error::NotSupported`] (another
    /// architecture).
    pub fn load(directory: &Path, device: &Device, trainable: bool) -> Result<Self> {
        let config = DecoderConfig::load(directory)?;
        let mut weights = Weights::load(directory, device)?;
        let mut tensors = BTreeMap::new();
        for (name, shape) in config.tensor_shapes() {
            let tensor = weights.take(&name, &shape)?;
            tensors.insert(name, tensor);
        }
        Self::new(config, tensors, trainable)
    }

    /// Loads a trainable decoder onto the CPU, see [`Self::load`].
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_trainable(directory: &Path) -> Result<Self> {
        Self::load(directory, &Device::Cpu, true)
    }

    /// A trainable decoder with weights from N(0, 0.02²), norms 1 and biases 0; the same seed gives the same weights.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the sizes of `config` do not fit each other.
    pub fn random(config: DecoderConfig, seed: u64) -> Result<Self> {
        config.check(Path::new("the configuration"))?;
        let rng = CounterRng::new(seed);
        let mut tensors = BTreeMap::new();
        for (index, (name, shape)) in config.tensor_shapes().into_iter().enumerate() {
            let tensor = initial(&name, &shape, rng.stream(index as u64))?;
            tensors.insert(name, tensor);
        }
        Self::new(config, tensors, true)
    }

    fn new(config: DecoderConfig, mut tensors: BTreeMap<String, Tensor>, trainable: bool) -> Result<Self> {
        let mut parameters = BTreeMap::new();
        if trainable {
            for (name, tensor) in &mut tensors {
                let parameter = Var::from_tensor(tensor)?;
                *tensor = parameter.as_tensor().clone();
                parameters.insert(name.clone(), parameter);
            }
        }
        let get = |name: &str| {
            tensors.get(name).cloned().ok_or_else(|| Error::Internal(format!("the decoder was built without the tensor {name}")))
        };
        let embedding = get(EMBEDDING)?;
        let head = if config.tie_word_embeddings { embedding.clone() } else { get(HEAD)? };
        let layers = (0..config.num_hidden_layers)
            .map(|index| Layer::new(config.architecture, |name| get(&format!("model.layers.{index}.{name}"))))
            .collect::<Result<_>>()?;
        let device = embedding.device().clone();
        let rope = Rope::new(config.rope.frequencies(config.head_dim));
        Ok(Self { embedding, layers, norm: get("model.norm.weight")?, head, rope, config, tensors, parameters, device })
    }

    /// The shape of the model.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// The output head `[V, H]`; the embedding when tied.
    pub fn head_weight(&self) -> &Tensor {
        &self.head
    }

    /// The trainable weights in Hugging Face's names; empty unless trainable. A tied head appears once, as the embedding.
    pub fn parameters(&self) -> &BTreeMap<String, Var> {
        &self.parameters
    }

    /// Every weight in Hugging Face's names; a tied head appears once, as the embedding.
    pub fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors
    }

    /// Final-norm hidden states `[N, H]` of sequences laid end to end, without padding.
    ///
    /// `tokens`: `N` ids below the vocabulary size. `lengths`: tokens of each sequence, summing to `N`; each at most
    /// `max_position_embeddings`. Differentiable in every weight when the decoder is trainable. For logits multiply by
    /// [`Self::head_weight`].
    ///
    /// # Errors
    /// [`Error::Tensor`] if a token id or the lengths do not fit.
    pub fn hidden(&self, tokens: &[u32], lengths: &[usize]) -> Result<Tensor> {
        let batch = self.batch(tokens.len(), lengths)?;
        let mut x = ops::embedding(&self.embedding, tokens)?;
        for layer in &self.layers {
            x = layer.forward(&x, &batch, self.config.rms_norm_eps)?;
        }
        Ok(ops::rms_norm(&x, &self.norm, self.config.rms_norm_eps)?)
    }

    /// Writes `config.json` and `model.safetensors`, which transformers loads with the same numbers.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, directory: &Path) -> Result<()> {
        self.config.save(directory)?;
        weights::save(directory, self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)))
    }

    fn batch(&self, num_tokens: usize, lengths: &[usize]) -> Result<Batch> {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if lengths.iter().sum::<usize>() != num_tokens || longest > self.config.max_position_embeddings {
            let limit = self.config.max_position_embeddings;
            let message = format!("{num_tokens} tokens in sequences of {lengths:?}: expected this sum, each at most {limit}");
            return Err(candle_core::Error::Msg(message).into());
        }
        Ok(Batch {
            attention: AttentionShape {
                lengths: lengths.into(),
                num_heads: self.config.num_attention_heads,
                num_key_value_heads: self.config.num_key_value_heads,
                head_dim: self.config.head_dim,
            },
            positions: lengths.iter().flat_map(|length| 0..*length as u32).collect(),
            rope: self.rope.table(longest),
        })
    }

    /// The device of the weights.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Layer {
    fn new(architecture: DecoderArchitecture, get: impl Fn(&str) -> Result<Tensor>) -> Result<Self> {
        let project = |name: &str, has_norm: bool| {
            let bias = architecture.has_attention_bias().then(|| get(&format!("self_attn.{name}_proj.bias"))).transpose()?;
            let norm = has_norm.then(|| get(&format!("self_attn.{name}_norm.weight"))).transpose()?;
            Ok::<_, Error>(Projection { weight: get(&format!("self_attn.{name}_proj.weight"))?, bias, norm })
        };
        let has_norm = architecture.has_query_key_norm();
        Ok(Self {
            input_norm: get("input_layernorm.weight")?,
            query: project("q", has_norm)?,
            key: project("k", has_norm)?,
            value: project("v", false)?,
            output: get("self_attn.o_proj.weight")?,
            post_attention_norm: get("post_attention_layernorm.weight")?,
            gate: get("mlp.gate_proj.weight")?,
            up: get("mlp.up_proj.weight")?,
            down: get("mlp.down_proj.weight")?,
        })
    }

    /// `[N, H]` to `[N, H]`.
    fn forward(&self, x: &Tensor, batch: &Batch, eps: f64) -> candle_core::Result<Tensor> {
        let normed = ops::rms_norm(x, &self.input_norm, eps)?;
        let x = (x + self.attention(&normed, batch, eps)?)?;
        let normed = ops::rms_norm(&x, &self.post_attention_norm, eps)?;
        let gated = ops::silu_mul(&ops::linear(&normed, &self.gate, None)?, &ops::linear(&normed, &self.up, None)?)?;
        &x + ops::linear(&gated, &self.down, None)?
    }

    fn attention(&self, x: &Tensor, batch: &Batch, eps: f64) -> candle_core::Result<Tensor> {
        let query = ops::rope(&self.query.heads(x, eps)?, &batch.positions, &batch.rope)?;
        let key = ops::rope(&self.key.heads(x, eps)?, &batch.positions, &batch.rope)?;
        let mixed = ops::causal_attention(&query, &key, &self.value.heads(x, eps)?, &batch.attention)?;
        ops::linear(&mixed, &self.output, None)
    }
}

impl Projection {
    /// `[N, H]` to `[N, heads * head_dim]`.
    fn heads(&self, x: &Tensor, eps: f64) -> candle_core::Result<Tensor> {
        let heads = ops::linear(x, &self.weight, self.bias.as_ref())?;
        let Some(norm) = &self.norm else { return Ok(heads) };
        let (rows, width) = heads.dims2()?;
        let head_dim = norm.dim(0)?;
        ops::rms_norm(&heads.reshape((rows * (width / head_dim), head_dim))?, norm, eps)?.reshape((rows, width))
    }
}

/// The initial value of the weight called `name`.
fn initial(name: &str, shape: &[usize], rng: CounterRng) -> Result<Tensor> {
    let device = Device::Cpu;
    let count: usize = shape.iter().product();
    let values = if name.ends_with(".bias") {
        vec![0.0; count]
    } else if name.ends_with("norm.weight") {
        vec![1.0; count]
    } else {
        (0..count as u64).map(|index| (rng.normal(index) * INITIAL_STD) as f32).collect()
    };
    Ok(Tensor::from_vec(values, shape, &device)?)
}
