//! The decoder for generation: packed or encoded weights and a key-value cache per sequence.
//!
//! One forward takes any mix of prompts and single next tokens, flat and without padding. Every number of a token depends on
//! its own sequence alone, bit for bit (see `panels.rs` and `encoded.rs`), so results do not change with the batch.

mod attention;

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;

use super::config::DecoderConfig;
use super::decoder::{Decoder, EMBEDDING};
use super::gguf::{self, GgufWeights};
use super::kv_cache::{BlockSource, KvCache, KvShape};
use super::linear::{Linear, Matrix};
use super::ops::{Rope, RopeTable, Threads};
use super::panels;
use super::scheduler::Decode;
use super::scratch::Scratch;
use super::simd::{rms_norm_row, rotate, silu_mul_forward};
use super::weights::Weights;
use crate::error::{Error, Result};

/// Weights up to so many numbers stay in the cache of every core: each of them then computes sequences of its own, through all layers. Of larger ones each
/// core reads its own part.
const WEIGHTS_PER_CORE_MAX: usize = 4 << 20;
/// Tokens for which a core is worth waking.
const TOKENS_PER_CORE: usize = 4;
/// Numbers below which what is done to each of them stays on the calling thread.
const PARALLEL_NUMBERS: usize = 1 << 14;

/// Where the weights of a decoder are, by Hugging Face's names.
pub(super) trait WeightSource {
    /// The shape of the model.
    fn config(&self) -> &DecoderConfig;

    /// Radians per position of each pair of a head, fastest first.
    fn frequencies(&self) -> Vec<f64> {
        self.config().rope.frequencies(self.config().head_dim)
    }

    /// A bias or the weight of a norm.
    fn vector(&self, name: &str) -> Result<Vec<f32>>;

    /// A matrix as it is kept in memory.
    fn matrix(&self, name: &str) -> Result<Matrix>;
}

/// Weights of a decoder for inference on the CPU: packed, or encoded as a GGUF file has them.
#[derive(Debug)]
pub struct PackedDecoder {
    config: DecoderConfig,
    /// The embedding when it is not the head.
    embedding: Option<Linear>,
    layers: Vec<PackedLayer>,
    norm: Vec<f32>,
    head: Linear,
    rope: Rope,
    /// Numbers in all matrices; a tied head counts once.
    num_weights: usize,
}

#[derive(Debug)]
struct PackedLayer {
    input_norm: Vec<f32>,
    /// Query, key and value heads side by side.
    query_key_value: Linear,
    /// Weights `[head_dim]` of the norms of every query head and of every key head.
    query_key_norm: Option<[Vec<f32>; 2]>,
    output: Linear,
    post_attention_norm: Vec<f32>,
    /// Gate and up side by side.
    gate_up: Linear,
    down: Linear,
}

/// The next tokens of one sequence, and the cache of those before them.
pub struct Segment<'a, S: BlockSource = KvShape> {
    pub cache: &'a mut KvCache<S>,
    pub tokens: &'a [u32],
}

/// Where a segment's rows are in the flat batch, and the position of the first.
#[derive(Clone, Copy)]
struct Span {
    first_row: usize,
    first_position: usize,
    len: usize,
}

impl Span {
    /// Tokens that its last row sees.
    fn num_keys(self) -> usize {
        self.first_position + self.len
    }

    /// The last row alone, as row number `row` of a batch that has no others.
    fn last(self, row: usize) -> Self {
        Self { first_row: row, first_position: self.first_position + self.len - 1, len: 1 }
    }
}

impl PackedDecoder {
    /// Loads a model directory: a GGUF file or safetensors. Errors as [`Decoder::load`].
    pub fn load(directory: &Path) -> Result<Self> {
        match gguf::file(directory) {
            Some(path) => Self::of(&GgufWeights::open(&path)?),
            None => Self::of(&Checkpoint::open(directory)?),
        }
    }

    /// Packs the weights of a decoder, adapters added to the matrices that they stand beside.
    ///
    /// # Errors
    /// [`Error::Tensor`] if a weight cannot be read from its device.
    pub fn new(decoder: &Decoder) -> Result<Self> {
        Self::of(decoder)
    }

    fn of(source: &impl WeightSource) -> Result<Self> {
        let config = source.config().clone();
        let linear = |name: &str| Ok::<_, Error>(Linear::new(config.hidden_size, vec![source.matrix(name)?], &[]));
        let embedding = (!config.tie_word_embeddings).then(|| linear(EMBEDDING)).transpose()?;
        let head = linear(config.head_tensor())?;
        let layers = (0..config.num_hidden_layers).map(|index| PackedLayer::new(source, index, &config)).collect::<Result<_>>()?;
        let num_weights = config.tensor_shapes().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        Ok(Self {
            num_weights,
            embedding,
            layers,
            norm: source.vector("model.norm.weight")?,
            head,
            rope: Rope::new(source.frequencies(), source.config().rope.magnitude()),
            config,
        })
    }

    /// The shape of the model.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// An empty cache for one sequence.
    pub fn new_cache(&self) -> KvCache {
        KvCache::new(self.kv_shape())
    }

    /// Appends the segments' tokens to their sequences and returns the logits `[segments, V]` after each segment's last token, or of a
    /// decoder with a score that of the sequence up to there `[segments, 1]`.
    ///
    /// Tokens must be below the vocabulary size, segments not empty, and sequences at most `max_position_embeddings` long.
    pub fn forward(&self, segments: &mut [Segment<'_>]) -> Vec<f32> {
        let mut logits = vec![0.0; segments.len() * self.config.num_outputs()];
        self.forward_into(segments, &mut logits);
        logits
    }

    /// As [`Self::forward`], to `logits`, all of which is written.
    fn forward_into(&self, segments: &mut [Segment<'_>], logits: &mut [f32]) {
        let parts = self.parts(segments);
        if parts.len() < 2 {
            return self.forward_together(segments, logits);
        }
        let width = self.config.num_outputs();
        let (mut segments, mut rest) = (segments, logits);
        let mut tasks = Vec::with_capacity(parts.len());
        for len in parts {
            let (part, others) = segments.split_at_mut(len);
            let (logits, others_too) = rest.split_at_mut(len * width);
            (segments, rest) = (others, others_too);
            tasks.push((part, logits));
        }
        tasks.into_par_iter().for_each(|(part, logits)| self.forward_together(part, logits));
    }

    /// How many consecutive segments each core computes, with about as many tokens on each; one part if the weights are too large for it.
    fn parts(&self, segments: &[Segment<'_>]) -> Vec<usize> {
        let num_tokens: usize = segments.iter().map(|segment| segment.tokens.len()).sum();
        let num_cores = rayon::current_num_threads().min(num_tokens / TOKENS_PER_CORE).max(1);
        if num_cores == 1 || self.num_weights > WEIGHTS_PER_CORE_MAX {
            return vec![segments.len()];
        }
        let (mut parts, mut len, mut num_before) = (Vec::with_capacity(num_cores), 0, 0);
        for segment in segments {
            len += 1;
            num_before += segment.tokens.len();
            if num_before * num_cores >= (parts.len() + 1) * num_tokens {
                parts.push(std::mem::take(&mut len));
            }
        }
        parts
    }

    fn forward_together(&self, segments: &mut [Segment<'_>], logits: &mut [f32]) {
        let (mut spans, mut x) = self.embed(segments);
        let longest = spans.iter().map(|span| span.num_keys()).max().unwrap_or(0);
        let rope = self.rope.table(longest);
        for (index, layer) in self.layers.iter().enumerate() {
            let mut query_key_value = self.project(layer, &x, &spans, &rope);
            self.store(index, &query_key_value, &spans, segments);
            if index + 1 == self.layers.len() {
                // Of the tokens before a segment's last one, only the keys and values are read from here on.
                query_key_value = last_rows(&query_key_value, &spans);
                x = last_rows(&x, &spans);
                spans = spans.iter().enumerate().map(|(row, span)| span.last(row)).collect();
            }
            let mixed = self.attend(index, &query_key_value, &spans, segments);
            self.add_layer(layer, &mixed, &mut x);
        }
        segments.iter_mut().for_each(|segment| segment.cache.advance(segment.tokens.len()));
        // The rows are the last ones of the segments.
        self.head.multiply_into(&self.normed(&x, &self.norm, Threads::All), logits, Threads::All);
    }

    /// Queries, keys and values `[N, query + key + value widths]` of the rows `x` `[N, H]`, ready for attention.
    fn project(&self, layer: &PackedLayer, x: &[f32], spans: &[Span], rope: &RopeTable) -> Scratch {
        let (hidden, width) = (self.config.hidden_size, self.widths().1);
        let positions: Vec<usize> = spans.iter().flat_map(|span| span.first_position..span.first_position + span.len).collect();
        let mut out = Scratch::new(positions.len() * width);
        let project_rows = |x: &[f32], positions: &[usize], out: &mut [f32], threads| {
            layer.query_key_value.multiply_into(&self.normed(x, &layer.input_norm, threads), out, threads);
            in_rows(out, width, positions, 1, threads, |out, positions| {
                if let Some(norms) = &layer.query_key_norm {
                    self.normalise_heads(out, norms);
                }
                self.rotate(out, positions, rope);
            });
        };
        match layer.rows_per_task(positions.len()) {
            None => project_rows(x, &positions, &mut out, Threads::All),
            Some(rows) => {
                let tasks = out.par_chunks_mut(rows * width).zip(x.par_chunks(rows * hidden)).zip(positions.par_chunks(rows));
                tasks.for_each(|((out, x), positions)| project_rows(x, positions, out, Threads::One));
            }
        }
        out
    }

    /// Adds to `x` `[N, H]` what a layer makes of its attention `mixed` `[N, query width]`, and then its feed-forward network.
    fn add_layer(&self, layer: &PackedLayer, mixed: &[f32], x: &mut [f32]) {
        let (hidden, width) = (self.config.hidden_size, self.widths().0);
        let add_to_rows = |mixed: &[f32], x: &mut [f32], threads| {
            add(x, &layer.output.multiply(mixed, threads), threads);
            let normed = self.normed(x, &layer.post_attention_norm, threads);
            let gated = self.gated(&layer.gate_up.multiply(&normed, threads), threads);
            add(x, &layer.down.multiply(&gated, threads), threads);
        };
        match layer.rows_per_task(x.len() / hidden) {
            None => add_to_rows(mixed, x, Threads::All),
            Some(rows) => {
                let tasks = x.par_chunks_mut(rows * hidden).zip(mixed.par_chunks(rows * width));
                tasks.for_each(|(x, mixed)| add_to_rows(mixed, x, Threads::One));
            }
        }
    }

    /// Heads of the caches.
    pub(super) fn kv_shape(&self) -> KvShape {
        KvShape { num_layers: self.config.num_hidden_layers, num_heads: self.config.num_key_value_heads, head_dim: self.config.head_dim }
    }

    /// The spans of the segments and the embedded tokens `[N, H]`.
    fn embed(&self, segments: &[Segment<'_>]) -> (Vec<Span>, Scratch) {
        let (hidden, embedding) = (self.config.hidden_size, self.embedding.as_ref().unwrap_or(&self.head));
        let (mut spans, mut tokens) = (Vec::with_capacity(segments.len()), Vec::new());
        for segment in segments {
            spans.push(Span { first_row: tokens.len(), first_position: segment.cache.len(), len: segment.tokens.len() });
            tokens.extend_from_slice(segment.tokens);
        }
        let mut x = Scratch::new(tokens.len() * hidden);
        in_rows(&mut x, hidden, &tokens, 1, Threads::All, |x, tokens| {
            x.chunks_exact_mut(hidden).zip(tokens).for_each(|(row, token)| embedding.copy_row(*token as usize, row));
        });
        (spans, x)
    }

    fn normed(&self, x: &[f32], weight: &[f32], threads: Threads) -> Scratch {
        let width = weight.len();
        let mut out = Scratch::new(x.len());
        in_rows(&mut out, width, x, width, threads, |out, x| {
            let rows = out.chunks_exact_mut(width).zip(x.chunks_exact(width));
            rows.for_each(|(out, x)| rms_norm_row(x, weight, self.config.rms_norm_eps as f32, out));
        });
        out
    }

    /// `[N, 2I]` gate and up side by side to `[N, I]`.
    fn gated(&self, gate_up: &[f32], threads: Threads) -> Scratch {
        let width = self.config.intermediate_size;
        let mut out = Scratch::new(gate_up.len() / 2);
        in_rows(&mut out, width, gate_up, 2 * width, threads, |out, gate_up| {
            for (out, row) in out.chunks_exact_mut(width).zip(gate_up.chunks_exact(2 * width)) {
                let (gate, up) = row.split_at(width);
                silu_mul_forward(gate, up, out);
            }
        });
        out
    }

    /// Columns of queries, and of queries, keys and values together.
    fn widths(&self) -> (usize, usize) {
        let query = self.config.query_width();
        (query, query + 2 * self.config.key_value_width())
    }

    /// Normalises the query and key heads of every row.
    fn normalise_heads(&self, query_key_value: &mut [f32], [query_norm, key_norm]: &[Vec<f32>; 2]) {
        let (query, row_width) = self.widths();
        let keys_end = query + self.config.key_value_width();
        let mut normed = vec![0.0; self.config.head_dim];
        let mut normalise = |heads: &mut [f32], weight: &[f32]| {
            for head in heads.chunks_exact_mut(weight.len()) {
                rms_norm_row(head, weight, self.config.rms_norm_eps as f32, &mut normed);
                head.copy_from_slice(&normed);
            }
        };
        for row in query_key_value.chunks_exact_mut(row_width) {
            normalise(&mut row[..query], query_norm);
            normalise(&mut row[query..keys_end], key_norm);
        }
    }

    /// Rotates the query and key heads of every row by the row's position.
    fn rotate(&self, query_key_value: &mut [f32], positions: &[usize], rope: &RopeTable) {
        let (query, row_width) = self.widths();
        let rotated = query + self.config.key_value_width();
        for (row, position) in query_key_value.chunks_exact_mut(row_width).zip(positions) {
            let (cos, sin) = rope.at(*position);
            row[..rotated].chunks_exact_mut(self.config.head_dim).for_each(|head| rotate(head, cos, sin, 1.0));
        }
    }

    fn store(&self, layer: usize, query_key_value: &[f32], spans: &[Span], segments: &mut [Segment<'_>]) {
        let (query, row_width) = self.widths();
        let store = |(span, segment): (&Span, &mut Segment<'_>)| {
            let rows = query_key_value[span.first_row * row_width..].chunks_exact(row_width);
            for (offset, row) in rows.take(span.len).enumerate() {
                let (key, value) = row[query..].split_at(self.config.key_value_width());
                segment.cache.push(layer, span.first_position + offset, key, value);
            }
        };
        if query_key_value.len() < PARALLEL_NUMBERS {
            spans.iter().zip(segments).for_each(store);
        } else {
            let per_thread = segments.len().div_ceil(rayon::current_num_threads());
            spans.par_iter().zip(segments).with_min_len(per_thread).for_each(store);
        }
    }
}

impl PackedLayer {
    /// Rows that one core takes through the products before attention, or through those behind it; None if there are too few, and all cores share each product.
    /// Encoded weights are decoded once for all rows.
    fn rows_per_task(&self, rows: usize) -> Option<usize> {
        let is_encoded = [&self.query_key_value, &self.output, &self.gate_up, &self.down].iter().any(|linear| linear.is_encoded());
        if is_encoded { None } else { panels::rows_per_task(rows) }
    }

    fn new(source: &impl WeightSource, index: usize, config: &DecoderConfig) -> Result<Self> {
        let name = |name: &str, suffix: &str| format!("model.layers.{index}.{name}.{suffix}");
        let norm = |of: &str| source.vector(&name(of, "weight"));
        let linear = |input: usize, names: &[&str], with_bias: bool| {
            let matrices = names.iter().map(|of| source.matrix(&name(of, "weight"))).collect::<Result<_>>()?;
            let biased = names.iter().filter(|_| with_bias);
            let biases = biased.map(|of| source.vector(&name(of, "bias"))).collect::<Result<Vec<_>>>()?;
            Ok::<_, Error>(Linear::new(input, matrices, &biases))
        };
        let (has_bias, has_norm) = (config.architecture.has_attention_bias(), config.architecture.has_query_key_norm());
        Ok(Self {
            input_norm: norm("input_layernorm")?,
            query_key_value: linear(config.hidden_size, &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], has_bias)?,
            query_key_norm: has_norm.then(|| Ok::<_, Error>([norm("self_attn.q_norm")?, norm("self_attn.k_norm")?])).transpose()?,
            output: linear(config.query_width(), &["self_attn.o_proj"], false)?,
            post_attention_norm: norm("post_attention_layernorm")?,
            gate_up: linear(config.hidden_size, &["mlp.gate_proj", "mlp.up_proj"], false)?,
            down: linear(config.intermediate_size, &["mlp.down_proj"], false)?,
        })
    }
}

impl Decode for PackedDecoder {
    type Source = KvShape;

    fn config(&self) -> &DecoderConfig {
        &self.config
    }

    fn block_source(&self) -> KvShape {
        self.kv_shape()
    }

    fn uses_threads(&self) -> bool {
        self.num_weights > WEIGHTS_PER_CORE_MAX
    }

    fn forward(&self, segments: &mut [Segment<'_>]) -> Result<Scratch> {
        let mut logits = Scratch::new(segments.len() * self.config.num_outputs());
        self.forward_into(segments, &mut logits);
        Ok(logits)
    }
}

impl WeightSource for Decoder {
    fn config(&self) -> &DecoderConfig {
        self.config()
    }

    fn vector(&self, name: &str) -> Result<Vec<f32>> {
        let tensor = self.tensors().get(name).ok_or_else(|| Error::Internal(format!("the decoder has no tensor {name}")))?;
        Ok(tensor.flatten_all()?.to_vec1::<f32>()?)
    }

    fn matrix(&self, name: &str) -> Result<Matrix> {
        // With its adapter: what generates is what learns, merged or not.
        Ok(Matrix::Values(self.merged_tensor(name)?.flatten_all()?.to_vec1::<f32>()?))
    }
}

/// A directory of safetensors, whose weights are read one by one: all at once they would take several times the memory that they are packed in.
struct Checkpoint {
    config: DecoderConfig,
    shapes: BTreeMap<String, Vec<usize>>,
    weights: Weights,
}

impl Checkpoint {
    fn open(directory: &Path) -> Result<Self> {
        let config = DecoderConfig::load(directory)?;
        Ok(Self { shapes: config.tensor_shapes().into_iter().collect(), weights: Weights::open(directory)?, config })
    }
}

impl WeightSource for Checkpoint {
    fn config(&self) -> &DecoderConfig {
        &self.config
    }

    fn vector(&self, name: &str) -> Result<Vec<f32>> {
        let shape = self.shapes.get(name).ok_or_else(|| Error::Internal(format!("the decoder has no tensor {name}")))?;
        self.weights.values(name, shape)
    }

    fn matrix(&self, name: &str) -> Result<Matrix> {
        self.vector(name).map(Matrix::Values)
    }
}

/// The last row of each span, one after the other. `values`: `[N, width]`, where the spans cover the N rows.
fn last_rows(values: &[f32], spans: &[Span]) -> Scratch {
    let num_rows: usize = spans.iter().map(|span| span.len).sum();
    let width = values.len() / num_rows.max(1);
    let mut out = Scratch::new(spans.len() * width);
    for (out, span) in out.chunks_exact_mut(width.max(1)).zip(spans) {
        out.copy_from_slice(&values[(span.first_row + span.len - 1) * width..][..width]);
    }
    out
}

fn add(x: &mut [f32], other: &[f32], threads: Threads) {
    in_rows(x, 1, other, 1, threads, |x, other| x.iter_mut().zip(other).for_each(|(x, other)| *x += other));
}

/// Calls `work` with rows of `out` `[N, width]` and those of `values` `[N, values_width]`, as many on each thread if they are worth it.
fn in_rows<T: Sync>(
    out: &mut [f32],
    width: usize,
    values: &[T],
    values_width: usize,
    threads: Threads,
    work: impl Fn(&mut [f32], &[T]) + Sync,
) {
    let rows = (out.len() / width).div_ceil(rayon::current_num_threads());
    if threads == Threads::One || out.len() < PARALLEL_NUMBERS || rows * width == out.len() {
        return work(out, values);
    }
    let tasks = out.par_chunks_mut(rows * width).zip(values.par_chunks(rows * values_width));
    tasks.for_each(|(out, values)| work(out, values));
}
