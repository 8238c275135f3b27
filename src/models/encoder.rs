//! The BERT-family encoder for embeddings: padding-free batches, packed weights, no gradient.
//!
//! As in generation, every number of a text depends on that text alone (see `panels.rs`), so a vector does not change with
//! the other texts of its batch.

use std::path::Path;

use candle_core::{Device, Tensor};
use rayon::prelude::*;

use super::config::EncoderConfig;
use super::kernel::{HALF_PANEL, Left, Out, PANEL, Panel, multiply_panel, multiply_values};
use super::panels::PackedMatrix;
use super::simd::{add_layer_norm_row, bias_gelu, softmax};
use super::weights::{TensorShapes, Weights};
use crate::error::{Error, Result};

/// Query rows of one text that are scored together.
const QUERY_ROWS: usize = 48;

/// Weights of a BERT, RoBERTa or XLM-RoBERTa model, packed for the CPU.
#[derive(Debug)]
pub struct Encoder {
    config: EncoderConfig,
    words: Vec<f32>,
    /// For each segment the position embeddings, from the first position on, plus the embedding of the segment.
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    query_key_value: PackedMatrix,
    output: PackedMatrix,
    attention_norm: Norm,
    intermediate: PackedMatrix,
    /// Added together with the activation.
    intermediate_bias: Vec<f32>,
    down: PackedMatrix,
    norm: Norm,
}

#[derive(Debug)]
struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

/// The prefix that a checkpoint puts before its tensors' names: none, or the name of the model inside a larger one.
pub fn tensor_prefix(shapes: &TensorShapes) -> &'static str {
    let known = ["", "bert.", "roberta.", "0.auto_model."];
    let has = |prefix: &&str| shapes.contains_key(&format!("{prefix}embeddings.word_embeddings.weight"));
    known.into_iter().find(|prefix| has(prefix)).unwrap_or("")
}

impl Encoder {
    /// Loads `config.json` and the safetensors of a directory.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`], [`Error::NotSupported`] (not of the BERT family).
    pub fn load(directory: &Path) -> Result<Self> {
        Ok(Self::load_with_rest(directory)?.0)
    }

    /// As [`Self::load`], with the tensors that are not the encoder's.
    pub(super) fn load_with_rest(directory: &Path) -> Result<(Self, Source)> {
        let config = EncoderConfig::load(directory)?;
        let prefix = tensor_prefix(&super::weights::read_shapes(directory)?);
        let mut source = Source { weights: Weights::load(directory, &Device::Cpu)?, prefix };
        let (hidden, types) = (config.hidden_size, config.type_vocab_size);
        let words = source.values("embeddings.word_embeddings.weight", &[config.vocab_size, hidden])?;
        let all_positions = source.values("embeddings.position_embeddings.weight", &[config.max_position_embeddings, hidden])?;
        let in_no_segment = &all_positions[config.position_offset * hidden..];
        let mut positions = Vec::with_capacity(in_no_segment.len() * types.max(1));
        match types {
            0 => positions.extend_from_slice(in_no_segment),
            _ => {
                let segments = source.values("embeddings.token_type_embeddings.weight", &[types, hidden])?;
                for segment in segments.chunks_exact(hidden) {
                    let rows = in_no_segment.chunks_exact(hidden);
                    positions.extend(rows.flat_map(|row| row.iter().zip(segment).map(|(x, segment)| x + segment)));
                }
            }
        }
        let norm = source.norm("embeddings.LayerNorm", hidden)?;
        let layers = (0..config.num_hidden_layers).map(|index| Layer::load(&mut source, index, &config)).collect::<Result<_>>()?;
        Ok((Self { config, words, positions, norm, layers }, source))
    }

    /// The shape of the model.
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// The longest text, in tokens with the special ones.
    pub fn max_tokens(&self) -> usize {
        self.config.max_position_embeddings - self.config.position_offset
    }

    /// Last hidden states `[N, H]` of texts laid end to end.
    ///
    /// `tokens`: `N` ids; `lengths`: tokens of each text, at most [`Self::max_tokens`], summing to `N`.
    ///
    /// # Errors
    /// [`Error::Internal`] if an id or a length is out of range, which the tokenizer and the truncation prevent.
    pub fn hidden(&self, tokens: &[u32], lengths: &[usize]) -> Result<Vec<f32>> {
        self.hidden_in_segments(tokens, &vec![0; tokens.len()], lengths)
    }

    /// As [`Self::hidden`], where each token is in a segment, 0 for those of a single text.
    ///
    /// # Errors
    /// As [`Self::hidden`].
    pub fn hidden_in_segments(&self, tokens: &[u32], segments: &[u32], lengths: &[usize]) -> Result<Vec<f32>> {
        let fits = lengths.iter().all(|length| *length <= self.max_tokens()) && lengths.iter().sum::<usize>() == tokens.len();
        let has_segments = segments.len() == tokens.len() && segments.iter().all(|id| (*id as usize) < self.config.type_vocab_size.max(1));
        if !fits || !has_segments || tokens.iter().any(|id| *id as usize >= self.config.vocab_size) {
            return Err(Error::Internal("the encoder got token ids, segments or lengths out of range".to_owned()));
        }
        let mut x = self.embed(tokens, segments, lengths);
        for layer in &self.layers {
            layer.forward(&mut x, lengths, &self.config);
        }
        Ok(x)
    }

    fn embed(&self, tokens: &[u32], segments: &[u32], lengths: &[usize]) -> Vec<f32> {
        let hidden = self.config.hidden_size;
        let mut x = vec![0.0; tokens.len() * hidden];
        let positions = lengths.iter().flat_map(|length| 0..*length);
        let positions = positions.zip(segments).map(|(position, segment)| *segment as usize * self.max_tokens() + position);
        for ((token, position), row) in tokens.iter().zip(positions).zip(x.chunks_exact_mut(hidden)) {
            row.copy_from_slice(&self.words[*token as usize * hidden..][..hidden]);
            let position = &self.positions[position * hidden..][..hidden];
            add_layer_norm_row(row, position, &self.norm.weight, &self.norm.bias, self.config.layer_norm_eps as f32);
        }
        x
    }
}

impl Layer {
    fn load(source: &mut Source, index: usize, config: &EncoderConfig) -> Result<Self> {
        let (hidden, inter) = (config.hidden_size, config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{index}.{part}");
        let mut linear = |part: &str, output: usize, input: usize| {
            let weight = source.values(&name(&format!("{part}.weight")), &[output, input])?;
            Ok::<_, Error>((weight, source.values(&name(&format!("{part}.bias")), &[output])?))
        };
        let query = linear("attention.self.query", hidden, hidden)?;
        let key = linear("attention.self.key", hidden, hidden)?;
        let value = linear("attention.self.value", hidden, hidden)?;
        let output = linear("attention.output.dense", hidden, hidden)?;
        let intermediate = linear("intermediate.dense", inter, hidden)?;
        let down = linear("output.dense", hidden, inter)?;
        Ok(Self {
            query_key_value: PackedMatrix::new(hidden, &[&query.0, &key.0, &value.0], &[&query.1, &key.1, &value.1]),
            output: PackedMatrix::new(hidden, &[&output.0], &[&output.1]),
            attention_norm: source.norm(&name("attention.output.LayerNorm"), hidden)?,
            intermediate: PackedMatrix::new(hidden, &[&intermediate.0], &[]),
            intermediate_bias: intermediate.1,
            down: PackedMatrix::new(inter, &[&down.0], &[&down.1]),
            norm: source.norm(&name("output.LayerNorm"), hidden)?,
        })
    }

    /// `[N, H]`, in place.
    fn forward(&self, x: &mut [f32], lengths: &[usize], config: &EncoderConfig) {
        let mixed = attend(&self.query_key_value.multiply(x), lengths, config);
        self.attention_norm.add_and_normalise(x, &self.output.multiply(&mixed), config);
        let mut wide = self.intermediate.multiply(x);
        wide.par_chunks_mut(config.intermediate_size).with_min_len(64).for_each(|row| bias_gelu(row, &self.intermediate_bias));
        self.norm.add_and_normalise(x, &self.down.multiply(&wide), config);
    }
}

impl Norm {
    /// `x = LayerNorm(x + other)`, row by row.
    fn add_and_normalise(&self, x: &mut [f32], other: &[f32], config: &EncoderConfig) {
        let rows = x.chunks_exact_mut(config.hidden_size).zip(other.chunks_exact(config.hidden_size));
        rows.for_each(|(x, other)| add_layer_norm_row(x, other, &self.weight, &self.bias, config.layer_norm_eps as f32));
    }
}

/// Attention of every row over its whole text: `query_key_value` `[N, 3H]`, gives `[N, H]`.
fn attend(query_key_value: &[f32], lengths: &[usize], config: &EncoderConfig) -> Vec<f32> {
    let hidden = config.hidden_size;
    let mut out = vec![0.0; query_key_value.len() / 3];
    let (mut rest, mut inputs) = (out.as_mut_slice(), query_key_value);
    let mut tasks = Vec::with_capacity(lengths.len());
    for length in lengths {
        let out = rest.split_off_mut(..length * hidden).expect("the lengths sum to the rows");
        let input = inputs.split_off(..length * 3 * hidden).expect("the lengths sum to the rows");
        tasks.push((input, out));
    }
    tasks.into_par_iter().for_each(|(input, out)| attend_text(input, out, config));
    out
}

/// Attention inside one text of `L` tokens: `query_key_value` `[L, 3H]`, `out` `[L, H]`.
fn attend_text(query_key_value: &[f32], out: &mut [f32], config: &EncoderConfig) {
    let (hidden, width) = (config.hidden_size, config.head_dim());
    let (len, row_width) = (out.len() / hidden, 3 * hidden);
    let stride = len.next_multiple_of(PANEL);
    let value_width = width.next_multiple_of(HALF_PANEL);
    let scale = 1.0 / (width as f32).sqrt();
    let (mut keys, mut values) = (vec![0.0; stride * width], vec![0.0; len * value_width]);
    let mut weights = vec![0.0; QUERY_ROWS * stride];
    for head in 0..config.num_attention_heads {
        let first = head * width;
        for (position, row) in query_key_value.chunks_exact(row_width).enumerate() {
            let panel = &mut keys[position / PANEL * PANEL * width..];
            let key = &row[hidden + first..][..width];
            key.iter().enumerate().for_each(|(column, key)| panel[column * PANEL + position % PANEL] = *key);
            values[position * value_width..][..width].copy_from_slice(&row[2 * hidden + first..][..width]);
        }
        for start in (0..len).step_by(QUERY_ROWS) {
            let rows = QUERY_ROWS.min(len - start);
            let queries = Left::rows(&query_key_value[start * row_width + first..], row_width, width);
            for (index, panel) in keys.chunks_exact(PANEL * width).enumerate() {
                let panel = Panel { values: panel, stride: PANEL, columns: PANEL };
                multiply_panel(
                    queries,
                    rows,
                    panel,
                    scale,
                    Out { values: &mut weights[index * PANEL..], stride, width: PANEL, add: false },
                );
            }
            weights.chunks_exact_mut(stride).take(rows).for_each(|row| softmax(&mut row[..len]));
            let out = &mut out[start * hidden + first..];
            multiply_values(Left::rows(&weights, stride, len), rows, &values, value_width, width, out, hidden);
        }
    }
}

/// The tensors of a checkpoint as vectors; the encoder's by their names without the prefix.
pub(super) struct Source {
    weights: Weights,
    prefix: &'static str,
}

impl Source {
    fn values(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.values_of(&format!("{}{name}", self.prefix), shape)
    }

    /// By the whole name.
    pub(super) fn values_of(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let tensor: Tensor = self.weights.take(name, shape)?;
        Ok(tensor.flatten_all()?.to_vec1::<f32>()?)
    }

    fn norm(&mut self, name: &str, hidden: usize) -> Result<Norm> {
        let weight = self.values(&format!("{name}.weight"), &[hidden])?;
        Ok(Norm { weight, bias: self.values(&format!("{name}.bias"), &[hidden])? })
    }
}
