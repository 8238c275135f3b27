//! The parts of a decoder over its weights: embedding, blocks of grouped-query attention and SwiGLU, the last norm.

use std::collections::BTreeMap;

use candle_core::{DType, Tensor, Var};

use super::super::config::{DecoderArchitecture, DecoderConfig, EMBEDDING};
use super::super::lora::{self, Adapter, Weight};
use super::super::ops::Pass;
use super::Part;
use crate::error::{Error, Result};

pub const NORM: &str = "model.norm.weight";

/// The weights in their places.
#[derive(Debug)]
pub struct Network {
    pub embedding: Tensor,
    pub layers: Vec<Layer>,
    norm: Tensor,
    /// Of the output, `[V, H]`; the embedding where it is tied.
    pub head: Tensor,
}

/// The weights of one block.
#[derive(Debug)]
pub struct Layer {
    input_norm: Tensor,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Weight,
    post_attention_norm: Tensor,
    gate: Weight,
    up: Weight,
    down: Weight,
}

/// A projection of the hidden states to heads.
#[derive(Debug)]
struct Projection {
    weight: Weight,
    bias: Option<Tensor>,
    /// Weight `[head_dim]` of the RMSNorm of every head.
    norm: Option<Tensor>,
}

/// Where a network finds its weights by name.
pub struct Source<'a> {
    pub tensors: &'a BTreeMap<String, Tensor>,
    pub parameters: &'a BTreeMap<String, Var>,
    /// The factor of the adapters among the parameters.
    pub scale: f64,
}

impl Source<'_> {
    fn tensor(&self, name: &str) -> Result<Tensor> {
        let tensor = self.tensors.get(name).cloned();
        tensor.ok_or_else(|| Error::Internal(format!("the decoder was built without the tensor {name}")))
    }

    /// The matrix of a linear layer, with the adapter if the layer has one.
    fn weight(&self, module: &str) -> Result<Weight> {
        let [a, b] = lora::parameter_names(module).map(|name| self.parameters.get(&name).map(|matrix| matrix.as_tensor().clone()));
        let adapter = a.zip(b).map(|(a, b)| Adapter { a, b, scale: self.scale });
        Ok(Weight { base: self.tensor(&format!("{module}.weight"))?, adapter })
    }
}

impl Network {
    /// # Errors
    /// [`Error::Internal`] if a tensor is missing.
    pub fn new(config: &DecoderConfig, source: &Source<'_>) -> Result<Self> {
        let embedding = source.tensor(EMBEDDING)?;
        let head = if config.tie_word_embeddings { embedding.clone() } else { source.tensor(config.head_tensor())? };
        let layers = (0..config.num_hidden_layers).map(|index| Layer::new(config.architecture, source, index)).collect::<Result<_>>()?;
        Ok(Self { embedding, layers, norm: source.tensor(NORM)?, head })
    }

    /// The same numbers without a graph.
    pub fn detached(&self) -> Self {
        Self {
            embedding: self.embedding.detach(),
            layers: self.layers.iter().map(Layer::detached).collect(),
            norm: self.norm.detach(),
            head: self.head.detach(),
        }
    }

    /// The output `[N, H]` of a part.
    pub fn run(&self, part: &Part, pass: &Pass) -> candle_core::Result<Tensor> {
        match part {
            Part::Embedding => pass.embedding(&self.embedding),
            Part::Block(index, x) => self.layers[*index].forward(x, pass),
            Part::Norm(x) => pass.rms_norm(x, &self.norm),
        }
    }
}

impl Layer {
    /// The weights of block `index`.
    ///
    /// # Errors
    /// [`Error::Internal`] if a tensor is missing.
    pub fn new(architecture: DecoderArchitecture, source: &Source<'_>, index: usize) -> Result<Self> {
        let prefix = layer_prefix(index);
        let tensor = |name: &str| source.tensor(&format!("{prefix}{name}"));
        let weight = |name: &str| source.weight(&format!("{prefix}{name}"));
        let project = |name: &str, has_norm: bool| {
            let bias = architecture.has_attention_bias().then(|| tensor(&format!("self_attn.{name}_proj.bias"))).transpose()?;
            let norm = has_norm.then(|| tensor(&format!("self_attn.{name}_norm.weight"))).transpose()?;
            Ok::<_, Error>(Projection { weight: weight(&format!("self_attn.{name}_proj"))?, bias, norm })
        };
        let has_norm = architecture.has_query_key_norm();
        Ok(Self {
            input_norm: tensor("input_layernorm.weight")?,
            query: project("q", has_norm)?,
            key: project("k", has_norm)?,
            value: project("v", false)?,
            output: weight("self_attn.o_proj")?,
            post_attention_norm: tensor("post_attention_layernorm.weight")?,
            gate: weight("mlp.gate_proj")?,
            up: weight("mlp.up_proj")?,
            down: weight("mlp.down_proj")?,
        })
    }

    /// The same numbers without a graph.
    pub fn detached(&self) -> Self {
        Self {
            input_norm: self.input_norm.detach(),
            query: self.query.detached(),
            key: self.key.detached(),
            value: self.value.detached(),
            output: self.output.detached(),
            post_attention_norm: self.post_attention_norm.detach(),
            gate: self.gate.detached(),
            up: self.up.detached(),
            down: self.down.detached(),
        }
    }

    /// `[N, H]` to `[N, H]`, which is f32 whatever the type of the products.
    fn forward(&self, x: &Tensor, pass: &Pass) -> candle_core::Result<Tensor> {
        let normed = pass.rms_norm(x, &self.input_norm)?;
        let x = (x + self.attention(&normed, pass)?.to_dtype(DType::F32)?)?;
        let normed = pass.rms_norm(&x, &self.post_attention_norm)?;
        let gated = pass.silu_mul(&self.gate.forward(&normed, None, pass)?, &self.up.forward(&normed, None, pass)?)?;
        &x + self.down.forward(&gated, None, pass)?.to_dtype(DType::F32)?
    }

    fn attention(&self, x: &Tensor, pass: &Pass) -> candle_core::Result<Tensor> {
        let query = pass.rope(&self.query.heads(x, pass)?)?;
        let key = pass.rope(&self.key.heads(x, pass)?)?;
        let mixed = pass.attention(&query, &key, &self.value.heads(x, pass)?)?;
        self.output.forward(&mixed, None, pass)
    }
}

impl Projection {
    fn detached(&self) -> Self {
        let detach = |tensor: &Option<Tensor>| tensor.as_ref().map(Tensor::detach);
        Self { weight: self.weight.detached(), bias: detach(&self.bias), norm: detach(&self.norm) }
    }

    /// `[N, H]` to `[N, heads * head_dim]`.
    fn heads(&self, x: &Tensor, pass: &Pass) -> candle_core::Result<Tensor> {
        // The norm of the heads stands behind the whole projection, its adapter included.
        let heads = self.weight.forward(x, self.bias.as_ref(), pass)?;
        let Some(norm) = &self.norm else { return Ok(heads) };
        let (rows, width) = heads.dims2()?;
        let head_dim = norm.dim(0)?;
        pass.rms_norm(&heads.reshape((rows * (width / head_dim), head_dim))?, norm)?.reshape((rows, width))
    }
}

/// What the names of a block's weights begin with.
pub fn layer_prefix(index: usize) -> String {
    format!("model.layers.{index}.")
}
