//! The encoder on a GPU, in half precision.
//!
//! cuBLAS may sum in another order for another number of rows, so that here, other than on the CPU, the last digits of a text's vector
//! can hang on the texts beside it.

use std::sync::{Arc, Mutex, PoisonError};

use rolloutdb_kernels::cuda::{Floats, Gpu, GpuNorm, HEAD_WIDTH_MAX, HIDDEN_MAX, Halves, Pool, PooledRows};

use super::weights::{self, Linear, Norm, Source};
use super::{Batch, Pooling};
use crate::error::{Error, Result};
use crate::models::config::EncoderConfig;

/// Tokens of one forward: as many as keep a large GPU busy, few enough that its buffers stay small.
pub const FORWARD_TOKENS: usize = 32_768;

/// Weights on a GPU, and the buffers of a forward.
#[derive(Debug)]
pub struct GpuEncoder {
    gpu: Arc<Gpu>,
    config: EncoderConfig,
    words: Halves,
    positions: Halves,
    norm: GpuNorm,
    layers: Vec<Layer>,
    buffers: Mutex<Option<Buffers>>,
}

#[derive(Debug)]
struct Layer {
    query_key_value: Halves,
    query_key_value_bias: Floats,
    output: Halves,
    output_bias: Floats,
    attention_norm: GpuNorm,
    intermediate: Halves,
    intermediate_bias: Floats,
    down: Halves,
    down_bias: Floats,
    norm: GpuNorm,
}

/// What a forward writes, for `rows` tokens.
#[derive(Debug)]
struct Buffers {
    rows: usize,
    x: Halves,
    /// Query, key and value, then the intermediate values.
    wide: Halves,
    mixed: Halves,
    added: Halves,
}

impl GpuEncoder {
    /// Fails for a shape that the kernels do not compute.
    ///
    /// # Errors
    /// [`Error::NotSupported`].
    pub fn check(config: &EncoderConfig) -> Result<()> {
        let width = config.hidden_size / config.num_attention_heads;
        if width > HEAD_WIDTH_MAX
            || !width.is_multiple_of(2)
            || config.hidden_size > HIDDEN_MAX
            || !config.intermediate_size.is_multiple_of(8)
        {
            return Err(Error::NotSupported(format!(
                "a GPU computes heads of an even width up to {HEAD_WIDTH_MAX}, up to {HIDDEN_MAX} hidden values and a multiple of 8 intermediate ones; the model has \
                 heads of {width}, {} and {}: device = 'cpu' computes it",
                config.hidden_size, config.intermediate_size
            )));
        }
        Ok(())
    }

    /// Copies the weights of a checkpoint to the GPU.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] for missing tensors, [`crate::Error::Tensor`] if they do not fit.
    pub fn new(gpu: Arc<Gpu>, config: EncoderConfig, source: &Source) -> Result<Self> {
        let weights::Embeddings { words, positions, norm } = source.embeddings(&config)?;
        let layers =
            (0..config.num_hidden_layers).map(|index| Layer::new(&gpu, source.layer(index, &config)?, &config)).collect::<Result<_>>()?;
        Ok(Self {
            words: gpu.halves(&words)?,
            positions: gpu.halves(&positions)?,
            norm: copy_norm(&gpu, &norm, &config)?,
            layers,
            buffers: Mutex::default(),
            gpu,
            config,
        })
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
        batch.check(&self.config)?;
        let (rows, hidden) = (batch.tokens.len(), self.config.hidden_size);
        if rows == 0 {
            return Ok(vec![0.0; batch.lengths.len() * hidden]);
        }
        let mut kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_none_or(|buffers| buffers.rows < rows) {
            *kept = None;
            *kept = Some(Buffers::new(&self.gpu, rows.next_power_of_two(), &self.config)?);
        }
        let buffers = kept.as_mut().expect("they were made above");
        let texts = self.gpu.texts(batch.lengths)?;
        let places: Vec<u32> = batch.places(&self.config).map(|place| place as u32).collect();
        self.gpu.embed(&mut buffers.x, [&self.words, &self.positions], [batch.tokens, &places], &self.norm)?;
        for layer in &self.layers {
            let Buffers { x, wide, mixed, added, .. } = buffers;
            let inter = self.config.intermediate_size;
            self.gpu.multiply(x, &layer.query_key_value, rows, [hidden, 3 * hidden], wide)?;
            self.gpu.attend(wide, &layer.query_key_value_bias, &texts, self.config.num_attention_heads, mixed)?;
            self.gpu.multiply(mixed, &layer.output, rows, [hidden, hidden], added)?;
            self.gpu.add_norm(x, added, &layer.output_bias, &layer.attention_norm, rows)?;
            self.gpu.multiply(x, &layer.intermediate, rows, [hidden, inter], wide)?;
            self.gpu.bias_gelu(wide, &layer.intermediate_bias, rows)?;
            self.gpu.multiply(wide, &layer.down, rows, [inter, hidden], added)?;
            self.gpu.add_norm(x, added, &layer.down_bias, &layer.norm, rows)?;
        }
        Ok(self.gpu.pool(&buffers.x, &texts, hidden, Pool { rows: pooled_rows(pooling), normalise })?)
    }
}

impl Layer {
    fn new(gpu: &Gpu, layer: weights::Layer, config: &EncoderConfig) -> Result<Self> {
        let stacked = |part: fn(&Linear) -> &Vec<f32>| [&layer.query, &layer.key, &layer.value].map(part).into_iter().flatten().copied();
        Ok(Self {
            query_key_value: gpu.halves(&stacked(|linear| &linear.weight).collect::<Vec<_>>())?,
            query_key_value_bias: gpu.floats(&stacked(|linear| &linear.bias).collect::<Vec<_>>())?,
            output: gpu.halves(&layer.output.weight)?,
            output_bias: gpu.floats(&layer.output.bias)?,
            attention_norm: copy_norm(gpu, &layer.attention_norm, config)?,
            intermediate: gpu.halves(&layer.intermediate.weight)?,
            intermediate_bias: gpu.floats(&layer.intermediate.bias)?,
            down: gpu.halves(&layer.down.weight)?,
            down_bias: gpu.floats(&layer.down.bias)?,
            norm: copy_norm(gpu, &layer.norm, config)?,
        })
    }
}

impl Buffers {
    fn new(gpu: &Gpu, rows: usize, config: &EncoderConfig) -> Result<Self> {
        let hidden = config.hidden_size;
        Ok(Self {
            rows,
            x: gpu.zeros(rows * hidden)?,
            wide: gpu.zeros(rows * config.intermediate_size.max(3 * hidden))?,
            mixed: gpu.zeros(rows * hidden)?,
            added: gpu.zeros(rows * hidden)?,
        })
    }
}

fn pooled_rows(pooling: Pooling) -> PooledRows {
    match pooling {
        Pooling::Mean => PooledRows::Mean,
        Pooling::Cls => PooledRows::First,
        Pooling::Last => PooledRows::Last,
        Pooling::Max => PooledRows::Max,
    }
}

fn copy_norm(gpu: &Gpu, norm: &Norm, config: &EncoderConfig) -> Result<GpuNorm> {
    Ok(GpuNorm { weight: gpu.floats(&norm.weight)?, bias: gpu.floats(&norm.bias)?, eps: config.layer_norm_eps as f32 })
}
