//! Causal self-attention of sequences laid end to end, with grouped key and value heads.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::reference;
use super::storage::{Destination, Matrix, Threads, Write, multiply, values, with_values};
use crate::simd::{dot, softmax, softmax_backward};

/// Query rows per score block. A block sees only the keys up to its last row, which skips half of a long sequence's scores.
const BLOCK: usize = 64;

/// Heads and sequences of one attention call.
#[derive(Debug, Clone)]
pub struct AttentionShape {
    /// Tokens of each sequence; their sum is the number of rows.
    pub lengths: Arc<[usize]>,
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

    fn check(&self, query: (usize, usize), key: (usize, usize), value: (usize, usize)) -> Result<()> {
        let rows: usize = self.lengths.iter().sum();
        if query != (rows, self.query_width()) || key != (rows, self.key_width()) || value != key {
            candle_core::bail!("attention: {self:?} does not fit q {query:?}, k {key:?}, v {value:?}");
        }
        Ok(())
    }
}

/// `softmax(q kᵀ / sqrt(head_dim)) v` over each row's own sequence up to itself.
///
/// `query` `[N, num_heads * head_dim]`, `key` and `value` `[N, num_key_value_heads * head_dim]`; gives `query`'s shape.
///
/// # Errors
/// If shapes do not fit.
pub fn causal_attention(query: &Tensor, key: &Tensor, value: &Tensor, shape: &AttentionShape) -> Result<Tensor> {
    shape.check(query.dims2()?, key.dims2()?, value.dims2()?)?;
    if !query.device().is_cpu() {
        return reference::causal_attention(query, key, value, shape);
    }
    query.contiguous()?.apply_op3(&key.contiguous()?, &value.contiguous()?, CausalAttention(shape.clone()))
}

struct CausalAttention(AttentionShape);

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
        let (query, key, value) = (values(q, lq)?, values(k, lk)?, values(v, lv)?);
        let widths = [self.0.query_width(), self.0.key_width(), self.0.key_width()];
        let inputs = sequences(&self.0.lengths, widths, [query, key, value]);
        let outputs = sequences_mut(&self.0.lengths, [self.0.query_width()], [&mut out]);
        inputs.into_par_iter().zip(outputs).for_each(|([query, key, value], [out])| {
            Sequence { shape: &self.0, query, key, value }.forward(out);
        });
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
                    with_values(out, |out| with_values(grad, |grad| self.backward([query, key, value, out, grad], &mut grads)))
                })
            })
        })?;
        let [grad_query, grad_key, grad_value] = grads;
        let tensor = |values, like: &Tensor| Tensor::from_vec(values, like.shape(), like.device());
        Ok((Some(tensor(grad_query, query)?), Some(tensor(grad_key, key)?), Some(tensor(grad_value, value)?)))
    }
}

impl CausalAttention {
    fn backward(&self, inputs: [&[f32]; 5], grads: &mut [Vec<f32>; 3]) -> Result<()> {
        let (query, key) = (self.0.query_width(), self.0.key_width());
        let inputs = sequences(&self.0.lengths, [query, key, key, query, query], inputs);
        let outputs = sequences_mut(&self.0.lengths, [query, key, key], grads.each_mut().map(Vec::as_mut_slice));
        inputs.into_par_iter().zip(outputs).for_each(|([query, key, value, out, grad], grads)| {
            Sequence { shape: &self.0, query, key, value }.backward(out, grad, grads);
        });
        Ok(())
    }
}

/// Cuts tensors of rows of `widths` values into one slice of each per sequence.
fn sequences<'a, const C: usize>(lengths: &[usize], widths: [usize; C], tensors: [&'a [f32]; C]) -> Vec<[&'a [f32]; C]> {
    let mut start = 0;
    let mut cut = |length: &usize| {
        let rows = start..start + length;
        start = rows.end;
        std::array::from_fn(|i| &tensors[i][rows.start * widths[i]..rows.end * widths[i]])
    };
    lengths.iter().map(&mut cut).collect()
}

/// As [`sequences`], for tensors to write.
fn sequences_mut<'a, const C: usize>(lengths: &[usize], widths: [usize; C], tensors: [&'a mut [f32]; C]) -> Vec<[&'a mut [f32]; C]> {
    let mut rest = tensors;
    let mut cut =
        |length: &usize| std::array::from_fn(|i| rest[i].split_off_mut(..length * widths[i]).expect("the lengths sum to the rows"));
    lengths.iter().map(&mut cut).collect()
}

/// The rows of one sequence.
struct Sequence<'a> {
    shape: &'a AttentionShape,
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
}

/// One head's query rows `first..first + rows`, which see the keys `0..keys`.
#[derive(Clone, Copy)]
struct Block {
    head: usize,
    first: usize,
    rows: usize,
    keys: usize,
}

impl<'a> Sequence<'a> {
    fn blocks(&self) -> impl Iterator<Item = Block> + use<> {
        let length = self.query.len() / self.shape.query_width();
        (0..self.shape.num_heads).flat_map(move |head| {
            (0..length).step_by(BLOCK).map(move |first| {
                let rows = BLOCK.min(length - first);
                Block { head, first, rows, keys: first + rows }
            })
        })
    }

    /// Where the block's first query value is; rows are `query_width` apart.
    fn query_offset(&self, block: Block) -> usize {
        block.first * self.shape.query_width() + block.head * self.shape.head_dim
    }

    /// Where the first value of the block's key head is; rows are `key_width` apart.
    fn key_offset(&self, block: Block) -> usize {
        block.head / self.shape.group() * self.shape.head_dim
    }

    /// `values` seen as the block's query rows `[rows, head_dim]`.
    fn query_rows(&self, values: &'a [f32], block: Block) -> Matrix<'a> {
        Matrix::rows(&values[self.query_offset(block)..], self.shape.query_width())
    }

    /// `values` seen as the key rows `[keys, head_dim]` of the block's head.
    fn key_rows(&self, values: &'a [f32], block: Block) -> Matrix<'a> {
        Matrix::rows(&values[self.key_offset(block)..], self.shape.key_width())
    }

    /// Attention weights `[rows, keys]`; zero after each row's own position.
    fn weights(&self, block: Block, weights: &mut [f32]) {
        let Block { first, rows, keys, .. } = block;
        let size = [rows, self.shape.head_dim, keys];
        let (query, key) = (self.query_rows(self.query, block), self.key_rows(self.key, block).transposed());
        product(size, query, key, self.shape.scale(), weights, keys, Write::Replace);
        for (row, weights) in weights.chunks_exact_mut(keys).take(rows).enumerate() {
            let (seen, unseen) = weights.split_at_mut(first + row + 1);
            softmax(seen);
            unseen.fill(0.0);
        }
    }

    fn forward(&self, out: &mut [f32]) {
        let mut weights = vec![0.0; BLOCK * (self.query.len() / self.shape.query_width())];
        for block in self.blocks() {
            self.weights(block, &mut weights);
            let size = [block.rows, block.keys, self.shape.head_dim];
            let (weights, value) = (Matrix::rows(&weights, block.keys), self.key_rows(self.value, block));
            let out = &mut out[self.query_offset(block)..];
            product(size, weights, value, 1.0, out, self.shape.query_width(), Write::Replace);
        }
    }

    /// With `P` the weights recomputed and `D = rowsum(dO O)`: `dV = Pᵀ dO`, `dS = P (dO Vᵀ − D)`, `dQ = c dS K`, `dK = c dSᵀ Q`.
    fn backward(&self, out: &'a [f32], grad: &'a [f32], [grad_query, grad_key, grad_value]: [&mut [f32]; 3]) {
        let (query_width, key_width) = (self.shape.query_width(), self.shape.key_width());
        let (width, scale) = (self.shape.head_dim, self.shape.scale());
        let mut weights = vec![0.0; BLOCK * (self.query.len() / query_width)];
        let mut grad_scores = weights.clone();
        for block in self.blocks() {
            let Block { rows, keys, .. } = block;
            self.weights(block, &mut weights);
            let weights = &weights[..rows * keys];
            let grad_out = self.query_rows(grad, block);
            let grad_value = &mut grad_value[self.key_offset(block)..];
            let transposed = Matrix::rows(weights, keys).transposed();
            product([keys, rows, width], transposed, grad_out, 1.0, grad_value, key_width, Write::Add);

            let value = self.key_rows(self.value, block).transposed();
            product([rows, width, keys], grad_out, value, 1.0, &mut grad_scores, keys, Write::Replace);
            self.grad_scores(block, weights, out, grad, &mut grad_scores);
            let grad_scores = Matrix::rows(&grad_scores, keys);
            let grad_query = &mut grad_query[self.query_offset(block)..];
            product([rows, keys, width], grad_scores, self.key_rows(self.key, block), scale, grad_query, query_width, Write::Replace);
            let grad_key = &mut grad_key[self.key_offset(block)..];
            let query = self.query_rows(self.query, block);
            product([keys, rows, width], grad_scores.transposed(), query, scale, grad_key, key_width, Write::Add);
        }
    }

    /// Turns the gradient of the weights `[rows, keys]` into the gradient of the scores.
    fn grad_scores(&self, block: Block, weights: &[f32], out: &[f32], grad: &[f32], grad_scores: &mut [f32]) {
        let rows = weights.chunks_exact(block.keys).zip(grad_scores.chunks_exact_mut(block.keys));
        for (row, (weights, grad_scores)) in rows.enumerate() {
            let start = self.query_offset(block) + row * self.shape.query_width();
            let head = start..start + self.shape.head_dim;
            softmax_backward(weights, grad_scores, dot(&grad[head.clone()], &out[head]));
        }
    }
}

/// A product on this thread: the sequences are the parallel tasks.
fn product(size: [usize; 3], left: Matrix<'_>, right: Matrix<'_>, scale: f32, values: &mut [f32], stride: usize, write: Write) {
    multiply(size, left, right, scale, Destination { values, stride, write }, Threads::One);
}
