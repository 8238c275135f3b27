//! The encoder on the CPU: packed weights, no gradient.
//!
//! As in generation, every number of a text depends on that text alone (see `panels.rs`), so a vector does not change with
//! the other texts of its batch.

use rayon::prelude::*;

use super::weights::{self, Embeddings, Linear, Norm, Source};
use super::{Batch, Pooling};
use crate::error::Result;
use crate::models::config::EncoderConfig;
use crate::models::kernel::{HALF_PANEL, Left, Out, PANEL, Panel, multiply_panel, multiply_values};
use crate::models::panels::PackedMatrix;
use crate::models::simd::{add_layer_norm_row, bias_gelu, softmax};

/// Below this norm a vector is left as it is, as sentence-transformers does.
const NORM_MIN: f32 = 1e-12;
/// Query rows of one text that are scored together.
const QUERY_ROWS: usize = 48;
/// Rows for which it is worth waking a core between two products.
const ROWS_PER_TASK_MIN: usize = 64;

/// Weights of a BERT, RoBERTa or XLM-RoBERTa model, packed for the CPU.
#[derive(Debug)]
pub struct CpuEncoder {
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

impl CpuEncoder {
    /// Packs the weights of a checkpoint.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] for missing tensors.
    pub fn new(config: EncoderConfig, source: &Source) -> Result<Self> {
        let Embeddings { words, positions, norm } = source.embeddings(&config)?;
        let layers =
            (0..config.num_hidden_layers).map(|index| Ok(Layer::new(source.layer(index, &config)?, &config))).collect::<Result<_>>()?;
        Ok(Self { config, words, positions, norm, layers })
    }

    /// The shape of the model.
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// See [`super::Encoder::vectors`].
    ///
    /// # Errors
    /// As there.
    pub fn vectors(&self, batch: Batch<'_>, pooling: Pooling, normalise: bool) -> Result<Vec<f32>> {
        let (hidden, width) = (self.hidden(batch)?, self.config.hidden_size);
        let mut vectors = Vec::with_capacity(batch.lengths.len() * width);
        let mut rows = hidden.chunks_exact(width);
        for length in batch.lengths {
            let rows: Vec<&[f32]> = rows.by_ref().take(*length).collect();
            vectors.extend(pool(&rows, width, pooling, normalise));
        }
        Ok(vectors)
    }

    /// Last hidden states `[N, H]` of texts laid end to end.
    ///
    /// # Errors
    /// [`crate::Error::Internal`] if an id, a segment or a length is out of range.
    pub fn hidden(&self, batch: Batch<'_>) -> Result<Vec<f32>> {
        batch.check(&self.config)?;
        let mut x = self.embed(&batch);
        for layer in &self.layers {
            layer.forward(&mut x, batch.lengths, &self.config);
        }
        Ok(x)
    }

    fn embed(&self, batch: &Batch<'_>) -> Vec<f32> {
        let hidden = self.config.hidden_size;
        let mut x = vec![0.0; batch.tokens.len() * hidden];
        for ((token, position), row) in batch.tokens.iter().zip(batch.places(&self.config)).zip(x.chunks_exact_mut(hidden)) {
            row.copy_from_slice(&self.words[*token as usize * hidden..][..hidden]);
            let position = &self.positions[position * hidden..][..hidden];
            add_layer_norm_row(row, position, &self.norm.weight, &self.norm.bias, self.config.layer_norm_eps as f32);
        }
        x
    }
}

impl Layer {
    fn new(layer: weights::Layer, config: &EncoderConfig) -> Self {
        let weights::Layer { query, key, value, output, attention_norm, intermediate, down, norm } = layer;
        let (hidden, inter) = (config.hidden_size, config.intermediate_size);
        let stacked = [&query, &key, &value];
        let pack = |input, linear: &Linear| PackedMatrix::new(input, &[&linear.weight], &[&linear.bias]);
        Self {
            query_key_value: PackedMatrix::new(
                hidden,
                &stacked.map(|linear| linear.weight.as_slice()),
                &stacked.map(|linear| linear.bias.as_slice()),
            ),
            output: pack(hidden, &output),
            attention_norm,
            intermediate: PackedMatrix::new(hidden, &[&intermediate.weight], &[]),
            intermediate_bias: intermediate.bias,
            down: pack(inter, &down),
            norm,
        }
    }

    /// `[N, H]`, in place.
    fn forward(&self, x: &mut [f32], lengths: &[usize], config: &EncoderConfig) {
        let mixed = attend(&self.query_key_value.multiply(x), lengths, config);
        self.attention_norm.add_and_normalise(x, &self.output.multiply(&mixed), config);
        let mut wide = self.intermediate.multiply(x);
        wide.par_chunks_mut(config.intermediate_size)
            .with_min_len(ROWS_PER_TASK_MIN)
            .for_each(|row| bias_gelu(row, &self.intermediate_bias));
        self.norm.add_and_normalise(x, &self.down.multiply(&wide), config);
    }
}

impl Norm {
    /// `x = LayerNorm(x + other)`, row by row.
    fn add_and_normalise(&self, x: &mut [f32], other: &[f32], config: &EncoderConfig) {
        let rows = x.par_chunks_mut(config.hidden_size).zip(other.par_chunks(config.hidden_size)).with_min_len(ROWS_PER_TASK_MIN);
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
                let panel = Panel::new(panel, PANEL, PANEL);
                multiply_panel(queries, rows, panel, scale, Out::new(&mut weights[index * PANEL..], stride, PANEL));
            }
            weights.chunks_exact_mut(stride).take(rows).for_each(|row| softmax(&mut row[..len]));
            let out = &mut out[start * hidden + first..];
            let out = Out::new(out, hidden, width);
            multiply_values(Left::rows(&weights, stride, len), rows, &values, value_width, out);
        }
    }
}

/// The vector of a text from its rows `[width]`.
fn pool(rows: &[&[f32]], width: usize, pooling: Pooling, normalise: bool) -> Vec<f32> {
    let mut vector = match pooling {
        Pooling::Mean => mean(rows, width),
        Pooling::Cls => rows.first().map_or_else(|| vec![0.0; width], |row| row.to_vec()),
        Pooling::Last => rows.last().map_or_else(|| vec![0.0; width], |row| row.to_vec()),
        Pooling::Max => max(rows, width),
    };
    if normalise {
        let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(NORM_MIN);
        vector.iter_mut().for_each(|x| *x /= norm);
    }
    vector
}

fn mean(rows: &[&[f32]], width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; width];
    rows.iter().for_each(|row| sum.iter_mut().zip(*row).for_each(|(sum, x)| *sum += x));
    let scale = 1.0 / rows.len().max(1) as f32;
    sum.iter_mut().for_each(|x| *x *= scale);
    sum
}

fn max(rows: &[&[f32]], width: usize) -> Vec<f32> {
    let Some((first, rest)) = rows.split_first() else { return vec![0.0; width] };
    let mut largest = first.to_vec();
    rest.iter().for_each(|row| largest.iter_mut().zip(*row).for_each(|(largest, x)| *largest = largest.max(*x)));
    largest
}
