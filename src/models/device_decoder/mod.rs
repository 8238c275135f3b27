//! A decoder for generation by candle's operations alone: on an NVIDIA GPU, and for tests on the CPU.
//!
//! As `packed.rs`, one forward takes any mix of pieces of prompts and single next tokens, flat and without padding in the products with weights; only
//! attention pads, sequences of like length together. Keys and values are in blocks of tensors on the device ([`BlockPool`]). Weights, keys and
//! values have one type, bf16 on a GPU; norms, rotations, softmax, the sums over layers and the output head are f32. A device may sum in another order for
//! another number of rows, so that the last digits of a logit can hang on what else is in the forward.

mod plan;
mod pool;
mod tensors;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Tensor};
use candle_nn::ops::{rms_norm, softmax_last_dim};
use candle_nn::rotary_emb::rope;

use self::plan::{Group, Heads, Limits, Plan, Span};
use self::tensors::{KvTensors, gather};
use super::config::DecoderConfig;
use super::decoder::{Decoder, EMBEDDING, HEAD};
use super::device::of_memory;
use super::kv_cache::{BLOCK, BlockSource, KvCache};
use super::ops::Rope;
use super::packed::Segment;
use super::scheduler::Decode;
use super::scratch::Scratch;
use super::weights::Weights;
use crate::error::{Error, Result};

pub use self::pool::{BlockPool, PooledBlock};

/// Added to the scores of keys that a row does not see: no number is left of them, and none becomes infinite.
const UNSEEN: f64 = 1e30;

/// Weights of a decoder on a device, and its keys and values.
#[derive(Debug)]
pub struct DeviceDecoder {
    config: DecoderConfig,
    device: Device,
    dtype: DType,
    heads: Heads,
    /// `[V, H]`; None: the head.
    embedding: Option<Tensor>,
    layers: Vec<Layer>,
    norm: Tensor,
    /// `[V, H]` in f32: log-probabilities are kept and compared, and a logit in bf16 can be wrong by a sixteenth.
    head: Tensor,
    rope: Rope,
    pool: Arc<BlockPool>,
    /// Locked for a whole forward.
    tensors: Mutex<KvTensors>,
}

/// The weights of one block. Matrices are `[output, input]`; norms and biases are f32.
#[derive(Debug)]
struct Layer {
    input_norm: Tensor,
    /// Query, key and value heads side by side.
    query_key_value: Tensor,
    query_key_value_bias: Option<Tensor>,
    /// Weights `[head_dim]` of the norms of every query head and of every key head.
    query_key_norm: Option<[Tensor; 2]>,
    output: Tensor,
    post_attention_norm: Tensor,
    /// Gate and up side by side.
    gate_up: Tensor,
    down: Tensor,
}

/// What all layers of one forward of `N` rows share, on the device.
struct Step {
    /// `[N, 1, head_dim / 2]`.
    cos: Tensor,
    sin: Tensor,
    /// [`Plan::written`] for every head and column: `[2 * key heads, N, head_dim]`.
    written: Tensor,
    groups: Vec<StepGroup>,
    restored: Tensor,
    last: Tensor,
}

/// A [`Group`] on the device.
struct StepGroup {
    of: Group,
    queries: Tensor,
    keys: Tensor,
    /// 0 where a row sees a key, -[`UNSEEN`] where not: `[size, 1, rows, blocks * BLOCK]`.
    mask: Tensor,
}

impl DeviceDecoder {
    /// Loads `config.json` and the safetensors of a directory.
    ///
    /// # Errors
    /// As [`Decoder::load`]; [`Error::OutOfMemory`] if the device has no room.
    pub fn load(directory: &Path, device: &Device, dtype: DType) -> Result<Self> {
        let config = DecoderConfig::load(directory)?;
        let mut weights = Weights::open(directory)?;
        let mut shapes: BTreeMap<_, _> = config.tensor_shapes().into_iter().collect();
        let take = |name: &str| weights.take(name, &shapes.remove(name).ok_or_else(|| unknown(name))?, &Device::Cpu);
        Self::new(config, device, dtype, take).map_err(of_device)
    }

    /// Copies the weights of a decoder.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the device has no room.
    pub fn of(decoder: &Decoder, device: &Device, dtype: DType) -> Result<Self> {
        // Detached: otherwise candle would keep every step for a backward pass.
        let take = |name: &str| decoder.tensors().get(name).map(Tensor::detach).ok_or_else(|| unknown(name));
        Self::new(decoder.config().clone(), device, dtype, take).map_err(of_device)
    }

    /// `take` gives each f32 weight once, by Hugging Face's name.
    fn new(config: DecoderConfig, device: &Device, dtype: DType, mut take: impl FnMut(&str) -> Result<Tensor>) -> Result<Self> {
        let place = |tensor: Tensor, dtype| Ok::<_, Error>(tensor.to_dtype(dtype)?.to_device(device)?);
        let heads = Heads { queries: config.num_attention_heads, keys: config.num_key_value_heads, width: config.head_dim };
        let embedding = (!config.tie_word_embeddings).then(|| place(take(EMBEDDING)?, dtype)).transpose()?;
        let head = place(take(if config.tie_word_embeddings { EMBEDDING } else { HEAD })?, DType::F32)?;
        let layers =
            (0..config.num_hidden_layers).map(|index| Layer::new(&config, index, &mut take, place, dtype)).collect::<Result<_>>()?;
        let block_values = 2 * config.num_hidden_layers * heads.keys * BLOCK * heads.width;
        Ok(Self {
            device: device.clone(),
            dtype,
            heads,
            embedding,
            layers,
            norm: place(take("model.norm.weight")?, DType::F32)?,
            head,
            rope: Rope::new(config.rope.frequencies(config.head_dim), config.rope.magnitude()),
            pool: BlockPool::new(block_values * dtype.size_in_bytes()),
            tensors: Mutex::new(KvTensors::new(config.num_hidden_layers, heads, dtype, device.clone())),
            config,
        })
    }

    /// An empty cache for one sequence.
    pub fn new_cache(&self) -> KvCache<Arc<BlockPool>> {
        KvCache::new(Arc::clone(&self.pool))
    }

    /// The blocks of its caches.
    pub fn pool(&self) -> &Arc<BlockPool> {
        &self.pool
    }

    /// Blocks for which there is room on the device.
    pub fn capacity(&self) -> usize {
        self.tensors().capacity()
    }

    /// As if the device had room for so many blocks.
    #[cfg(test)]
    pub fn set_blocks_max(&self, blocks: usize) {
        self.tensors().set_blocks_max(blocks);
    }

    fn tensors(&self) -> MutexGuard<'_, KvTensors> {
        self.tensors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the segments' tokens to their sequences and returns the logits `[segments, V]` after each segment's last token.
    ///
    /// Tokens must be below the vocabulary size, segments not empty, and sequences at most `max_position_embeddings` long.
    ///
    /// # Errors
    /// [`Error::Tensor`] and [`Error::OutOfMemory`] from the device. What its caches hold is not known then.
    pub fn forward(&self, segments: &mut [Segment<'_, Arc<BlockPool>>]) -> Result<Vec<f32>> {
        self.append(segments).map_err(of_device)
    }

    fn append(&self, segments: &mut [Segment<'_, Arc<BlockPool>>]) -> Result<Vec<f32>> {
        let mut tensors = self.tensors();
        segments.iter_mut().for_each(|segment| segment.cache.make_room(segment.cache.len() + segment.tokens.len()));
        let (blocks, copies) = self.pool.begin_forward();
        tensors.grow(blocks)?;
        tensors.copy(&copies)?;
        tensors.zero(&unwritten(segments))?;
        let tokens: Vec<u32> = segments.iter().flat_map(|segment| segment.tokens.iter().copied()).collect();
        let logits = self.logits(&tokens, &spans(segments), &tensors)?;
        segments.iter_mut().for_each(|segment| segment.cache.advance(segment.tokens.len()));
        Ok(logits)
    }

    /// `[segments, V]`.
    fn logits(&self, tokens: &[u32], spans: &[Span], tensors: &KvTensors) -> Result<Vec<f32>> {
        let step = self.step(spans, tensors.capacity())?;
        let tokens = Tensor::new(tokens, &self.device)?;
        let mut x = self.embedding.as_ref().unwrap_or(&self.head).index_select(&tokens, 0)?.to_dtype(DType::F32)?;
        for (layer, held) in self.layers.iter().zip(tensors.layers()) {
            x = self.layer(&x, layer, &step, held)?;
        }
        let last = x.index_select(&step.last, 0)?;
        let logits = rms_norm(&last, &self.norm, self.eps())?.matmul(&self.head.t()?)?;
        Ok(logits.flatten_all()?.to_vec1()?)
    }

    fn step(&self, spans: &[Span], capacity: usize) -> Result<Step> {
        let Heads { keys, width, .. } = self.heads;
        let Plan { written, groups, restored, last } = Plan::new(spans, self.heads, capacity, Limits::DEFAULT);
        let longest = spans.iter().map(|span| span.first_position + span.len).max().unwrap_or(0);
        let table = self.rope.table(longest);
        let positions: Vec<usize> = spans.iter().flat_map(|span| span.first_position..span.first_position + span.len).collect();
        let (rows, half) = (positions.len(), width / 2);
        let of_rows = |values: Vec<f32>| Tensor::from_vec(values, (rows, 1, half), &self.device);
        Ok(Step {
            cos: of_rows(positions.iter().flat_map(|position| table.at(*position).0.iter().copied()).collect())?,
            sin: of_rows(positions.iter().flat_map(|position| table.at(*position).1.iter().copied()).collect())?,
            written: Tensor::from_vec(written, (1, rows, 1), &self.device)?.broadcast_as((2 * keys, rows, width))?.contiguous()?,
            groups: groups.into_iter().map(|group| StepGroup::new(group, &self.device)).collect::<Result<_>>()?,
            restored: Tensor::new(restored, &self.device)?,
            last: Tensor::new(last, &self.device)?,
        })
    }

    /// `[N, H]` to `[N, H]`, both f32. `held`: the layer's tensor of keys and values.
    fn layer(&self, x: &Tensor, layer: &Layer, step: &Step, held: &Tensor) -> candle_core::Result<Tensor> {
        let normed = rms_norm(x, &layer.input_norm, self.eps())?;
        let x = (x + self.attention(&normed, layer, step, held)?)?;
        let normed = rms_norm(&x, &layer.post_attention_norm, self.eps())?;
        let gate_up = self.linear(&normed, &layer.gate_up)?;
        let width = self.config.intermediate_size;
        let gated = (gate_up.narrow(1, 0, width)?.silu()? * gate_up.narrow(1, width, width)?)?;
        &x + self.linear(&gated, &layer.down)?.to_dtype(DType::F32)?
    }

    /// `[N, H]` to `[N, H]`, both f32; writes the keys and values of the rows.
    fn attention(&self, x: &Tensor, layer: &Layer, step: &Step, held: &Tensor) -> candle_core::Result<Tensor> {
        let Heads { queries: num_queries, keys: num_keys, width } = self.heads;
        let rows = x.dim(0)?;
        let heads = self.linear(x, &layer.query_key_value)?.to_dtype(DType::F32)?;
        let heads = match &layer.query_key_value_bias {
            Some(bias) => heads.broadcast_add(bias)?,
            None => heads,
        };
        let some = |first: usize, count: usize| heads.narrow(1, first * width, count * width)?.reshape((rows * count, width));
        let [query_norm, key_norm] = layer.query_key_norm.as_ref().map_or([None, None], |[query, key]| [Some(query), Some(key)]);
        let query = (self.rotated(&some(0, num_queries)?, query_norm, step)? * (1.0 / (width as f64).sqrt()))?.to_dtype(self.dtype)?;
        let key = self.rotated(&some(num_queries, num_keys)?, key_norm, step)?.to_dtype(self.dtype)?;
        let value = some(num_queries + num_keys, num_keys)?.to_dtype(self.dtype)?;
        let of_rows = |heads: Tensor| heads.reshape((rows, num_keys, width));
        let new = Tensor::cat(&[of_rows(key)?, of_rows(value)?], 1)?.transpose(0, 1)?.contiguous()?;
        held.scatter_set(&step.written, &new, 1)?;
        let mixed = step.groups.iter().map(|group| self.attend(&query, held, group)).collect::<candle_core::Result<Vec<_>>>()?;
        let mixed = Tensor::cat(&mixed, 0)?.index_select(&step.restored, 0)?.reshape((rows, num_queries * width))?;
        self.linear(&mixed, &layer.output)?.to_dtype(DType::F32)
    }

    /// Attention of a group: `[size * query heads * rows, head_dim]`. `query`: `[N * query heads, head_dim]`.
    ///
    /// The query heads that share a key head are rows of one product.
    fn attend(&self, query: &Tensor, held: &Tensor, group: &StepGroup) -> candle_core::Result<Tensor> {
        let StepGroup { of: Group { size, rows, blocks, .. }, queries, keys: ids, mask } = group;
        let Heads { queries: num_queries, keys: num_keys, width } = self.heads;
        let (products, len) = (size * num_keys, blocks * BLOCK);
        let shared = num_queries / num_keys * rows;
        let query = query.index_select(queries, 0)?.reshape((products, shared, width))?;
        let (keys, values) = gather(held, &group.of, ids, self.heads)?;
        let scores = query.matmul(&keys.transpose(1, 2)?)?.to_dtype(DType::F32)?;
        let scores = scores.reshape((*size, num_queries, *rows, len))?.broadcast_add(mask)?;
        let weights = softmax_last_dim(&scores)?.to_dtype(self.dtype)?.reshape((products, shared, len))?;
        weights.matmul(&values)?.reshape((size * num_queries * rows, width))
    }

    /// Heads `[N * heads, head_dim]`, normalised if there is a norm, and rotated by the position of their row.
    fn rotated(&self, heads: &Tensor, norm: Option<&Tensor>, step: &Step) -> candle_core::Result<Tensor> {
        let (all, width) = heads.dims2()?;
        let normed = norm.map(|norm| rms_norm(heads, norm, self.eps())).transpose()?;
        let rows = step.cos.dim(0)?;
        let heads = normed.as_ref().unwrap_or(heads).reshape((rows, all / rows, 1, width))?;
        rope(&heads, &step.cos, &step.sin)?.reshape((all, width))
    }

    /// `x Wᵀ` in the type of the weights.
    fn linear(&self, x: &Tensor, weight: &Tensor) -> candle_core::Result<Tensor> {
        x.to_dtype(self.dtype)?.matmul(&weight.t()?)
    }

    fn eps(&self) -> f32 {
        self.config.rms_norm_eps as f32
    }
}

impl Decode for DeviceDecoder {
    type Source = Arc<BlockPool>;

    fn config(&self) -> &DecoderConfig {
        &self.config
    }

    fn block_source(&self) -> Arc<BlockPool> {
        Arc::clone(&self.pool)
    }

    fn forward(&self, segments: &mut [Segment<'_, Arc<BlockPool>>]) -> Result<Scratch> {
        DeviceDecoder::forward(self, segments).map(Scratch::from)
    }

    fn note_budget(&self, bytes: usize) {
        self.tensors().set_budget(bytes / self.pool.block_bytes().max(1));
    }

    fn release(&self) {
        let mut tensors = self.tensors();
        if self.pool.num_taken() == 0 {
            tensors.clear();
        }
    }
}

impl Layer {
    /// `place` puts a weight of this type onto the device.
    fn new(
        config: &DecoderConfig,
        index: usize,
        mut take: impl FnMut(&str) -> Result<Tensor>,
        place: impl Fn(Tensor, DType) -> Result<Tensor>,
        dtype: DType,
    ) -> Result<Self> {
        let mut stacked = |names: &[&str], suffix: &str, dtype| {
            let parts = names.iter().map(|name| take(&format!("model.layers.{index}.{name}.{suffix}"))).collect::<Result<Vec<_>>>()?;
            place(Tensor::cat(&parts, 0)?, dtype)
        };
        let projections = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
        let (has_bias, has_norm) = (config.architecture.has_attention_bias(), config.architecture.has_query_key_norm());
        Ok(Self {
            input_norm: stacked(&["input_layernorm"], "weight", DType::F32)?,
            query_key_value: stacked(&projections, "weight", dtype)?,
            query_key_value_bias: has_bias.then(|| stacked(&projections, "bias", DType::F32)).transpose()?,
            query_key_norm: match has_norm {
                true => {
                    Some([stacked(&["self_attn.q_norm"], "weight", DType::F32)?, stacked(&["self_attn.k_norm"], "weight", DType::F32)?])
                }
                false => None,
            },
            output: stacked(&["self_attn.o_proj"], "weight", dtype)?,
            post_attention_norm: stacked(&["post_attention_layernorm"], "weight", DType::F32)?,
            gate_up: stacked(&["mlp.gate_proj", "mlp.up_proj"], "weight", dtype)?,
            down: stacked(&["mlp.down_proj"], "weight", dtype)?,
        })
    }
}

impl StepGroup {
    fn new(of: Group, device: &Device) -> Result<Self> {
        let keys = of.blocks * BLOCK;
        let last_seen = Tensor::from_slice(&of.last_seen, (of.size, 1, of.rows, 1), device)?;
        let positions = Tensor::arange(0, keys as u32, device)?.reshape((1, 1, 1, keys))?;
        let is_seen = positions.broadcast_le(&last_seen)?.to_dtype(DType::F32)?;
        Ok(Self {
            queries: Tensor::new(of.queries.as_slice(), device)?,
            keys: Tensor::new(of.keys.as_slice(), device)?,
            mask: is_seen.affine(UNSEEN, -UNSEEN)?,
            of,
        })
    }
}

/// Where the rows of each segment are.
fn spans(segments: &[Segment<'_, Arc<BlockPool>>]) -> Vec<Span> {
    let mut first_row = 0;
    let span = |segment: &Segment<'_, Arc<BlockPool>>| {
        let (cache, len) = (&*segment.cache, segment.tokens.len());
        let span = Span { first_row, first_position: cache.len(), len, blocks: cache.blocks().map(PooledBlock::index).collect() };
        first_row += len;
        span
    };
    segments.iter().map(span).collect()
}

/// The rows of new blocks behind the last tokens of the sequences. Attention hides them, but multiplies them by zero: they must be numbers.
fn unwritten(segments: &[Segment<'_, Arc<BlockPool>>]) -> Vec<u32> {
    let mut rows = Vec::new();
    for segment in segments {
        let written = (segment.cache.len() + segment.tokens.len() - 1) % BLOCK + 1;
        if let Some(block) = segment.cache.blocks().last().filter(|block| block.take_new()) {
            rows.extend((written..BLOCK).map(|row| block.index() * BLOCK as u32 + row as u32));
        }
    }
    rows
}

/// An error of the device as its user sees it.
fn of_device(error: Error) -> Error {
    of_memory(error, "let other models go with UNLOAD MODEL, or run fewer or shorter sequences at once")
}

fn unknown(name: &str) -> Error {
    Error::Internal(format!("the decoder has no tensor {name}, or it was taken twice"))
}
