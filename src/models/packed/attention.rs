//! Attention of the rows of a forward, each over its own sequence.
//!
//! Sequences that begin with the same tokens have the same blocks there (`kv_cache.rs`). Rows of several of them are multiplied with such a block together: it
//! is read once for all, as one sequence does with its own rows. A row's sums are the same, block after block, whoever is beside it.

use rayon::prelude::*;

use super::{PackedDecoder, Segment, Span};
use crate::models::kernel::{Fetch, Left, Out, PANEL, Panel, multiply_panel, multiply_values};
use crate::models::kv_cache::{BLOCK, KvCache, KvShape};
use crate::models::scratch::Scratch;
use crate::models::simd::softmax;

/// Rows of a task.
const ROWS_MAX: usize = 48;
/// Multiply-adds below which attention stays on the calling thread.
const PARALLEL_WORK: usize = 1 << 20;
/// Rows, of all query heads that share a key head, that wait for the keys of a block: those of the next one are fetched meanwhile.
const FEW_ROWS: usize = 96;

/// Rows of one sequence, or some of them.
struct Part<'a> {
    span: Span,
    cache: &'a KvCache,
}

/// The keys and the values of a block in one layer, see [`KvBlock::layer`](crate::models::kv_cache::KvBlock).
type LayerBlock<'a> = (&'a [f32], &'a [f32]);

/// Rows that meet the same blocks. A row is one of a query head.
struct Product<'a> {
    first_row: usize,
    num_rows: usize,
    /// Of the sequences, where `blocks` begin.
    first_block: usize,
    blocks: &'a [LayerBlock<'a>],
    /// Up to the end of the last block, or of what is written there.
    num_keys: usize,
}

impl PackedDecoder {
    /// Causal attention of every row over its own sequence: `query_key_value` `[N, query + key + value widths]`, gives `[N, query width]`.
    pub(super) fn attend(&self, layer: usize, query_key_value: &[f32], spans: &[Span], segments: &[Segment<'_>]) -> Scratch {
        let (query, row_width) = self.widths();
        let mut out = Scratch::new(query_key_value.len() / row_width * query);
        let (mut inputs, mut rest) = (query_key_value, &mut *out);
        let mut tasks = Vec::new();
        for parts in tasks_of(spans, segments) {
            let len: usize = parts.iter().map(|part| part.span.len).sum();
            let input = inputs.split_off(..len * row_width).expect("the spans cover the rows");
            tasks.push((parts, input, rest.split_off_mut(..len * query).expect("the spans cover the rows")));
        }
        let work: usize = spans.iter().map(|span| span.len * span.num_keys() * query).sum();
        let run = |(parts, input, out): (Vec<Part<'_>>, &[f32], &mut [f32])| self.attend_parts(layer, input, &parts, out);
        if work < PARALLEL_WORK || rayon::current_num_threads() == 1 {
            tasks.into_iter().for_each(run);
        } else {
            tasks.into_par_iter().for_each(run);
        }
        out
    }

    /// Attention of the rows of some parts, one after the other: `inputs` `[rows, query + key + value widths]`, `out` `[rows, query width]`.
    ///
    /// The query heads that share a key head are rows of one product.
    fn attend_parts(&self, layer: usize, inputs: &[f32], parts: &[Part<'_>], out: &mut [f32]) {
        let (query, row_width) = self.widths();
        let (width, shape) = (self.config.head_dim, self.kv_shape());
        let group = self.config.num_attention_heads / self.config.num_key_value_heads;
        let (rows, group_width) = (out.len() / query * group, group * width);
        let stride = parts.iter().map(|part| part.span.num_keys()).max().unwrap_or(0).next_multiple_of(BLOCK);
        let blocks: Vec<Vec<LayerBlock<'_>>> = parts.iter().map(|part| part.blocks(shape, layer)).collect();
        let products = products(parts, &blocks, group);
        let mut weights = Scratch::new(rows * stride);
        let mut mixed = Scratch::new(rows * width);
        let mut queries = Scratch::new(rows * width);
        for head in 0..self.config.num_key_value_heads {
            let of_group = head * group_width..(head + 1) * group_width;
            for (queries, row) in queries.chunks_exact_mut(group_width).zip(inputs.chunks_exact(row_width)) {
                queries.copy_from_slice(&row[of_group.clone()]);
            }
            products.iter().for_each(|product| product.score(shape, head, &queries, &mut weights, stride));
            let mut rows = weights.chunks_exact_mut(stride);
            for part in parts {
                for (row, weights) in rows.by_ref().take(part.span.len * group).enumerate() {
                    let (seen, unseen) = weights.split_at_mut(part.span.first_position + row / group + 1);
                    softmax(seen);
                    unseen.fill(0.0);
                }
            }
            products.iter().for_each(|product| product.mix(shape, head, &weights, stride, &mut mixed));
            for (out, mixed) in out.chunks_exact_mut(query).zip(mixed.chunks_exact(group_width)) {
                out[of_group.clone()].copy_from_slice(mixed);
            }
        }
    }
}

impl Part<'_> {
    /// Those that its rows see.
    fn blocks(&self, shape: KvShape, layer: usize) -> Vec<LayerBlock<'_>> {
        self.cache.blocks().take(self.span.num_keys().div_ceil(BLOCK)).map(|block| block.layer(shape, layer)).collect()
    }
}

impl Product<'_> {
    /// The scores of the rows over the keys, to their places in `weights` `[rows, stride]`; `queries` `[rows, head_dim]`.
    fn score(&self, shape: KvShape, head: usize, queries: &[f32], weights: &mut [f32], stride: usize) {
        let (width, keys_of) = (shape.head_dim, head * shape.key_panel());
        let scale = 1.0 / (width as f32).sqrt();
        let queries = Left::rows(&queries[self.first_row * width..], width, width);
        for (index, (keys, _)) in self.blocks.iter().enumerate() {
            let next = self.blocks.get(index + 1).filter(|_| self.num_rows <= FEW_ROWS);
            let next = next.map(|(keys, _)| Fetch::of(&keys[keys_of..][..shape.key_panel()])).unwrap_or_default();
            let panel = Panel { next, ..Panel::new(&keys[keys_of..], PANEL, PANEL) };
            let at = self.first_row * stride + (self.first_block + index) * BLOCK;
            multiply_panel(queries, self.num_rows, panel, scale, Out::new(&mut weights[at..], stride, PANEL));
        }
    }

    /// The sums of the values by their weights `[rows, stride]`, added to `mixed` `[rows, head_dim]`, which the first block of a sequence begins.
    fn mix(&self, shape: KvShape, head: usize, weights: &[f32], stride: usize, mixed: &mut [f32]) {
        let width = shape.head_dim;
        for (index, (_, values)) in self.blocks.iter().enumerate() {
            let block = self.first_block + index;
            let weights = &weights[self.first_row * stride + block * BLOCK..];
            let weights = Left::rows(weights, stride, BLOCK.min(self.num_keys - block * BLOCK));
            let out = Out::new(&mut mixed[self.first_row * width..], width, width).adding(block > 0);
            multiply_values(weights, self.num_rows, &values[shape.value_column(head)..], shape.value_row(), out);
        }
    }
}

/// The rows in tasks, so that every core has some; a sequence that has few shares a task with its neighbours.
fn tasks_of<'a>(spans: &[Span], segments: &'a [Segment<'_>]) -> Vec<Vec<Part<'a>>> {
    let num_rows: usize = spans.iter().map(|span| span.len).sum();
    let rows_max = num_rows.div_ceil(rayon::current_num_threads()).clamp(1, ROWS_MAX);
    let (mut tasks, mut room) = (Vec::<Vec<Part<'_>>>::new(), 0);
    for (span, segment) in spans.iter().zip(segments) {
        for start in (0..span.len).step_by(rows_max) {
            let len = rows_max.min(span.len - start);
            let span = Span { first_row: span.first_row + start, first_position: span.first_position + start, len };
            if len > room {
                tasks.push(Vec::new());
                room = rows_max;
            }
            room -= len;
            tasks.last_mut().expect("it was just pushed").push(Part { span, cache: &*segment.cache });
        }
    }
    tasks
}

/// All rows of a task over the blocks with which all of its sequences begin, then each part over its others. `blocks`: those of each part.
fn products<'a>(parts: &[Part<'_>], blocks: &'a [Vec<LayerBlock<'a>>], group: usize) -> Vec<Product<'a>> {
    let num_shared = if parts.len() > 1 { num_shared(blocks) } else { 0 };
    let num_rows = parts.iter().map(|part| part.span.len * group).sum();
    let shared = blocks.first().map_or(&[][..], |blocks| &blocks[..num_shared]);
    let mut products = vec![Product { first_row: 0, num_rows, first_block: 0, blocks: shared, num_keys: num_shared * BLOCK }];
    let mut first_row = 0;
    for (part, blocks) in parts.iter().zip(blocks) {
        let (num_rows, num_keys) = (part.span.len * group, part.span.num_keys());
        products.push(Product { first_row, num_rows, first_block: num_shared, blocks: &blocks[num_shared..], num_keys });
        first_row += num_rows;
    }
    products
}

/// How many blocks all sequences begin with. A block that is shared is whole, and was written before the rows of this forward.
fn num_shared(blocks: &[Vec<LayerBlock<'_>>]) -> usize {
    let Some((first, others)) = blocks.split_first() else { return 0 };
    let is_shared =
        |index: &usize| others.iter().all(|other| other.get(*index).is_some_and(|(keys, _)| std::ptr::eq(*keys, first[*index].0)));
    (0..first.len()).take_while(is_shared).count()
}
