//! Causal self-attention of sequences laid end to end or in trees, with grouped key and value heads.

use std::ops::Range;

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::blocks::{Block, Run};
use super::forest::{Forest, Tree};
use super::storage::{Destination, Matrix, Threads, Write, multiply, values, with_values};
use crate::simd::{dot, softmax, softmax_backward};

/// With fewer trees than so many for each thread, each key head of a tree is a task of its own: one tree may be the whole batch.
const TREES_PER_THREAD: usize = 4;
/// Rows per task where the heads of one tree are put side by side again.
const ROWS_PER_TASK: usize = 128;

/// Heads and tokens of one attention call.
#[derive(Debug, Clone)]
pub struct AttentionShape {
    /// Its tokens are the rows.
    pub forest: Forest,
    pub num_heads: usize,
    /// Key head `h` serves the query heads `h * group .. (h + 1) * group`, with `group = num_heads / num_key_value_heads`.
    pub num_key_value_heads: usize,
    pub head_dim: usize,
}

impl AttentionShape {
    pub(super) fn group(&self) -> usize {
        self.num_heads / self.num_key_value_heads
    }

    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    fn query_width(&self) -> usize {
        self.num_heads * self.head_dim
    }

    fn key_width(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    pub(super) fn check(&self, query: (usize, usize), key: (usize, usize), value: (usize, usize)) -> Result<()> {
        let rows = self.forest.num_tokens();
        if query != (rows, self.query_width()) || key != (rows, self.key_width()) || value != key {
            let Self { num_heads, num_key_value_heads, head_dim, .. } = self;
            candle_core::bail!(
                "attention: {rows} tokens, {num_heads} heads of {head_dim}, {num_key_value_heads} of them of keys, do not fit q {query:?}, \
                 k {key:?}, v {value:?}"
            );
        }
        Ok(())
    }
}

/// `softmax(q kᵀ / sqrt(head_dim)) v` over the tokens that each row's own token sees: those before it in its sequence, and itself.
///
/// `query` `[N, num_heads * head_dim]`, `key` and `value` `[N, num_key_value_heads * head_dim]`; gives `query`'s shape. What the
/// branches of a tree give to the gradients of their common beginning is added up in the order of the rows, whatever the number of
/// threads.
///
/// # Errors
/// If shapes do not fit.
pub fn causal_attention(query: &Tensor, key: &Tensor, value: &Tensor, shape: &AttentionShape) -> Result<Tensor> {
    shape.check(query.dims2()?, key.dims2()?, value.dims2()?)?;
    query.contiguous()?.apply_op3(&key.contiguous()?, &value.contiguous()?, CausalAttention(shape.clone()))
}

struct CausalAttention(AttentionShape);

/// All rows and heads.
struct Inputs<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
}

impl CustomOp3 for CausalAttention {
    fn name(&self) -> &'static str {
        "causal_attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        lq: &Layout,
        k: &CpuStorage,
        lk: &Layout,
        v: &CpuStorage,
        lv: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let mut out = vec![0.0; lq.shape().elem_count()];
        let inputs = Inputs { query: values(q, lq)?, key: values(k, lk)?, value: values(v, lv)? };
        let query_width = self.0.group() * self.0.head_dim;
        self.run([query_width], [&mut out], |part, [out]| part.forward(&inputs, out));
        Ok((CpuStorage::F32(out), lq.shape().clone()))
    }

    fn bwd(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        out: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let mut grads = [vec![0.0; query.elem_count()], vec![0.0; key.elem_count()], vec![0.0; value.elem_count()]];
        with_values(query, |query| {
            with_values(key, |key| {
                with_values(value, |value| {
                    with_values(out, |out| {
                        with_values(grad, |grad| {
                            self.backward(&Inputs { query, key, value }, out, grad, &mut grads);
                            Ok(())
                        })
                    })
                })
            })
        })?;
        let [grad_query, grad_key, grad_value] = grads;
        let tensor = |values, like: &Tensor| Tensor::from_vec(values, like.shape(), like.device());
        Ok((Some(tensor(grad_query, query)?), Some(tensor(grad_key, key)?), Some(tensor(grad_value, value)?)))
    }
}

impl CausalAttention {
    fn backward(&self, inputs: &Inputs<'_>, out: &[f32], grad: &[f32], grads: &mut [Vec<f32>; 3]) {
        let key_width = self.0.head_dim;
        let widths = [self.0.group() * key_width, key_width, key_width];
        self.run(widths, grads.each_mut().map(Vec::as_mut_slice), |part, grads| part.backward(inputs, out, grad, grads));
    }

    /// Calls `work` for all trees and heads, with the outputs of each call.
    ///
    /// `widths`: the values of a row of each output that belong to one key head. The outputs are zero where nothing is written. Whether
    /// the heads of a tree are one task or several does not change the results: each key head has a sum of its own.
    fn run<const C: usize>(&self, widths: [usize; C], outputs: [&mut [f32]; C], work: impl Fn(&Part<'_>, [&mut [f32]; C]) + Sync) {
        let (trees, num_heads) = (self.0.forest.trees(), self.0.num_key_value_heads);
        let part = |tree, heads| Part { shape: &self.0, tree, heads };
        let tasks = trees.par_iter().zip(cut(trees, widths.map(|width| width * num_heads), outputs));
        if num_heads == 1 || trees.len() >= TREES_PER_THREAD * rayon::current_num_threads() {
            return tasks.for_each(|(tree, outputs)| work(&part(tree, 0..num_heads), outputs));
        }
        tasks.for_each(|(tree, outputs)| {
            let of_head = |head: usize| {
                let mut outputs = widths.map(|width| vec![0.0; tree.rows.len() * width]);
                work(&part(tree, head..head + 1), outputs.each_mut().map(Vec::as_mut_slice));
                outputs
            };
            let of_heads: Vec<[Vec<f32>; C]> = (0..num_heads).into_par_iter().map(of_head).collect();
            for (index, (output, width)) in outputs.into_iter().zip(widths).enumerate() {
                let heads: Vec<&[f32]> = of_heads.iter().map(|outputs| outputs[index].as_slice()).collect();
                side_by_side(&heads, width, output);
            }
        });
    }
}

/// Cuts tensors of rows of `widths` values into one slice of each per tree.
fn cut<'a, const C: usize>(trees: &[Tree], widths: [usize; C], tensors: [&'a mut [f32]; C]) -> Vec<[&'a mut [f32]; C]> {
    let mut rest = tensors;
    let mut cut = |tree: &Tree| {
        std::array::from_fn(|i| rest[i].split_off_mut(..tree.rows.len() * widths[i]).expect("the trees have as many rows as the tensors"))
    };
    trees.iter().map(&mut cut).collect()
}

/// Puts the rows of `width` values that each head has next to each other.
fn side_by_side(heads: &[&[f32]], width: usize, out: &mut [f32]) {
    let row_width = heads.len() * width;
    out.par_chunks_mut(ROWS_PER_TASK * row_width).enumerate().for_each(|(task, rows)| {
        for (offset, row) in rows.chunks_exact_mut(row_width).enumerate() {
            let start = (task * ROWS_PER_TASK + offset) * width;
            for (out, head) in row.chunks_exact_mut(width).zip(heads) {
                out.copy_from_slice(&head[start..start + width]);
            }
        }
    });
}

/// Some key heads of one tree, with the query heads that they serve. Its outputs have the rows of the tree and these heads alone.
struct Part<'a> {
    shape: &'a AttentionShape,
    tree: &'a Tree,
    /// Key heads.
    heads: Range<usize>,
}

impl Part<'_> {
    fn query_heads(&self) -> Range<usize> {
        let group = self.shape.group();
        self.heads.start * group..self.heads.end * group
    }

    /// `values` of all rows and heads seen as the block's query rows `[rows, head_dim]`.
    fn query_rows<'v>(&self, values: &'v [f32], block: &Block, head: usize) -> Matrix<'v> {
        let width = self.shape.query_width();
        Matrix::rows(&values[(self.tree.rows.start + block.rows.start) * width + head * self.shape.head_dim..], width)
    }

    /// `values` of all rows and heads seen as the key rows `[keys of the run, head_dim]` of a query head.
    fn key_rows<'v>(&self, values: &'v [f32], run: &Run, head: usize) -> Matrix<'v> {
        let width = self.shape.key_width();
        Matrix::rows(&values[(self.tree.rows.start + run.rows.start) * width + head / self.shape.group() * self.shape.head_dim..], width)
    }

    /// How far the rows of an output of queries are apart.
    fn query_stride(&self) -> usize {
        self.heads.len() * self.shape.group() * self.shape.head_dim
    }

    /// How far the rows of an output of keys are apart.
    fn key_stride(&self) -> usize {
        self.heads.len() * self.shape.head_dim
    }

    /// Room for the scores of any block.
    fn scores_of_a_block(&self) -> Vec<f32> {
        vec![0.0; self.tree.blocks.iter().map(|block| block.rows.len() * block.num_keys).max().unwrap_or(0)]
    }

    /// `scale · queries · keysᵀ`, `[rows, keys]`.
    fn scores(&self, block: &Block, head: usize, queries: &[f32], keys: &[f32], scale: f32, scores: &mut [f32]) {
        let queries = self.query_rows(queries, block, head);
        for run in &block.runs {
            let size = [block.rows.len(), self.shape.head_dim, run.rows.len()];
            let keys = self.key_rows(keys, run, head).transposed();
            product(size, queries, keys, scale, &mut scores[run.column..], block.num_keys, Write::Replace);
        }
    }

    /// Puts `scale · scores · keys`, `[rows, head_dim]`, into an output of queries.
    fn mix(&self, block: &Block, head: usize, scores: &[f32], keys: &[f32], scale: f32, out: &mut [f32]) {
        let stride = self.query_stride();
        let out = &mut out[block.rows.start * stride + (head - self.query_heads().start) * self.shape.head_dim..];
        for (index, run) in block.runs.iter().enumerate() {
            let size = [block.rows.len(), run.rows.len(), self.shape.head_dim];
            let scores = Matrix::rows(&scores[run.column..], block.num_keys);
            let write = if index == 0 { Write::Replace } else { Write::Add };
            product(size, scores, self.key_rows(keys, run, head), scale, out, stride, write);
        }
    }

    /// Adds `scale · scoresᵀ · queries`, `[keys, head_dim]`, to an output of keys.
    fn spread(&self, block: &Block, head: usize, scores: &[f32], queries: &[f32], scale: f32, out: &mut [f32]) {
        let stride = self.key_stride();
        let column = (head / self.shape.group() - self.heads.start) * self.shape.head_dim;
        let queries = self.query_rows(queries, block, head);
        for run in &block.runs {
            let size = [run.rows.len(), block.rows.len(), self.shape.head_dim];
            let scores = Matrix::rows(&scores[run.column..], block.num_keys).transposed();
            product(size, scores, queries, scale, &mut out[run.rows.start * stride + column..], stride, Write::Add);
        }
    }

    /// Attention weights `[rows, keys]`; zero for what a row does not see.
    fn weights(&self, inputs: &Inputs<'_>, block: &Block, head: usize, weights: &mut [f32]) {
        self.scores(block, head, inputs.query, inputs.key, self.shape.scale(), weights);
        let mut rows = weights.chunks_exact_mut(block.num_keys);
        for piece in &block.pieces {
            for (offset, weights) in rows.by_ref().take(piece.num_rows).enumerate() {
                let (seen, unseen) = weights.split_at_mut(piece.column + offset + 1);
                piece.gaps.iter().for_each(|gap| seen[gap.clone()].fill(f32::NEG_INFINITY));
                softmax(seen);
                piece.gaps.iter().for_each(|gap| seen[gap.clone()].fill(0.0));
                unseen.fill(0.0);
            }
        }
    }

    fn forward(&self, inputs: &Inputs<'_>, out: &mut [f32]) {
        let mut weights = self.scores_of_a_block();
        for head in self.query_heads() {
            for block in &self.tree.blocks {
                self.weights(inputs, block, head, &mut weights);
                self.mix(block, head, &weights, inputs.value, 1.0, out);
            }
        }
    }

    /// With `P` the weights recomputed and `D = rowsum(dO O)`: `dV = Pᵀ dO`, `dS = P (dO Vᵀ − D)`, `dQ = c dS K`, `dK = c dSᵀ Q`.
    fn backward(&self, inputs: &Inputs<'_>, out: &[f32], grad: &[f32], [grad_query, grad_key, grad_value]: [&mut [f32]; 3]) {
        let scale = self.shape.scale();
        let mut weights = self.scores_of_a_block();
        let mut grad_scores = self.scores_of_a_block();
        for head in self.query_heads() {
            for block in &self.tree.blocks {
                self.weights(inputs, block, head, &mut weights);
                let weights = &weights[..block.rows.len() * block.num_keys];
                self.spread(block, head, weights, grad, 1.0, grad_value);
                self.scores(block, head, grad, inputs.value, 1.0, &mut grad_scores);
                self.grad_scores(block, head, weights, out, grad, &mut grad_scores);
                self.mix(block, head, &grad_scores, inputs.key, scale, grad_query);
                self.spread(block, head, &grad_scores, inputs.query, scale, grad_key);
            }
        }
    }

    /// Turns the gradient of the weights `[rows, keys]` into the gradient of the scores.
    fn grad_scores(&self, block: &Block, head: usize, weights: &[f32], out: &[f32], grad: &[f32], grad_scores: &mut [f32]) {
        let first_row = self.tree.rows.start + block.rows.start;
        let rows = weights.chunks_exact(block.num_keys).zip(grad_scores.chunks_exact_mut(block.num_keys));
        for (offset, (weights, grad_scores)) in rows.enumerate() {
            let start = (first_row + offset) * self.shape.query_width() + head * self.shape.head_dim;
            let of_head = start..start + self.shape.head_dim;
            softmax_backward(weights, grad_scores, dot(&grad[of_head.clone()], &out[of_head]));
        }
    }
}

/// A product on this thread: trees and their heads are the parallel tasks.
fn product(size: [usize; 3], left: Matrix<'_>, right: Matrix<'_>, scale: f32, values: &mut [f32], stride: usize, write: Write) {
    multiply(size, left, right, scale, Destination { values, stride, write }, Threads::One);
}
