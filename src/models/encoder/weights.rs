//! The tensors of an encoder's checkpoint, by what they do.

use std::path::Path;

use crate::error::{Error, Result};
use crate::models::config::EncoderConfig;
use crate::models::weights::{TensorShapes, Weights, read_shapes};

/// The tensors of a checkpoint as vectors; the encoder's by their names without the prefix.
pub struct Source {
    weights: Weights,
    prefix: &'static str,
}

/// The tables that a token's first hidden state is summed from, and the norm of the sum.
pub struct Embeddings {
    /// `[vocabulary, hidden]`.
    pub words: Vec<f32>,
    /// For each segment the position embeddings, from the first position on, plus the embedding of the segment.
    pub positions: Vec<f32>,
    pub norm: Norm,
}

/// One layer.
pub struct Layer {
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub output: Linear,
    pub attention_norm: Norm,
    pub intermediate: Linear,
    pub down: Linear,
    pub norm: Norm,
}

/// A weight `[output, input]` and a bias `[output]`.
pub struct Linear {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
}

/// Weight and bias of a LayerNorm, each `[hidden]`.
#[derive(Debug)]
pub struct Norm {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
}

/// The prefix that a checkpoint puts before its tensors' names: none, or the name of the model inside a larger one.
pub fn tensor_prefix(shapes: &TensorShapes) -> &'static str {
    let known = ["", "bert.", "roberta.", "0.auto_model."];
    let has = |prefix: &&str| shapes.contains_key(&format!("{prefix}embeddings.word_embeddings.weight"));
    known.into_iter().find(|prefix| has(prefix)).unwrap_or("")
}

impl Source {
    /// Reads the safetensors of a directory.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub fn load(directory: &Path) -> Result<Self> {
        let prefix = tensor_prefix(&read_shapes(directory)?);
        Ok(Self { weights: Weights::open(directory)?, prefix })
    }

    /// A tensor by its whole name, flat.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is missing or of another shape.
    pub fn values_of(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.weights.values(name, shape)
    }

    /// What comes before the layers.
    ///
    /// # Errors
    /// As [`Self::values_of`].
    pub fn embeddings(&self, config: &EncoderConfig) -> Result<Embeddings> {
        let (hidden, types) = (config.hidden_size, config.type_vocab_size);
        let words = self.values("embeddings.word_embeddings.weight", &[config.vocab_size, hidden])?;
        let all_positions = self.values("embeddings.position_embeddings.weight", &[config.max_position_embeddings, hidden])?;
        let in_no_segment = &all_positions[config.position_offset * hidden..];
        let mut positions = Vec::with_capacity(in_no_segment.len() * types.max(1));
        match types {
            0 => positions.extend_from_slice(in_no_segment),
            _ => {
                let segments = self.values("embeddings.token_type_embeddings.weight", &[types, hidden])?;
                for segment in segments.chunks_exact(hidden) {
                    let rows = in_no_segment.chunks_exact(hidden);
                    positions.extend(rows.flat_map(|row| row.iter().zip(segment).map(|(x, segment)| x + segment)));
                }
            }
        }
        Ok(Embeddings { words, positions, norm: self.norm("embeddings.LayerNorm", hidden)? })
    }

    /// The layer of this number, from 0.
    ///
    /// # Errors
    /// As [`Self::values_of`].
    pub fn layer(&self, index: usize, config: &EncoderConfig) -> Result<Layer> {
        let (hidden, inter) = (config.hidden_size, config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{index}.{part}");
        let linear = |part: &str, output: usize, input: usize| {
            let weight = self.values(&name(&format!("{part}.weight")), &[output, input])?;
            Ok::<_, Error>(Linear { weight, bias: self.values(&name(&format!("{part}.bias")), &[output])? })
        };
        Ok(Layer {
            query: linear("attention.self.query", hidden, hidden)?,
            key: linear("attention.self.key", hidden, hidden)?,
            value: linear("attention.self.value", hidden, hidden)?,
            output: linear("attention.output.dense", hidden, hidden)?,
            intermediate: linear("intermediate.dense", inter, hidden)?,
            down: linear("output.dense", hidden, inter)?,
            attention_norm: self.norm(&name("attention.output.LayerNorm"), hidden)?,
            norm: self.norm(&name("output.LayerNorm"), hidden)?,
        })
    }

    fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.values_of(&format!("{}{name}", self.prefix), shape)
    }

    fn norm(&self, name: &str, hidden: usize) -> Result<Norm> {
        let weight = self.values(&format!("{name}.weight"), &[hidden])?;
        Ok(Norm { weight, bias: self.values(&format!("{name}.bias"), &[hidden])? })
    }
}
