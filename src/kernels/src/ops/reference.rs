//! The fused operations as plain differentiable candle operations: what the tests compare with, and of which `plain` is made.
//!
//! Arguments, shapes and errors are those of the function of the same name in the parent module.

use std::sync::Arc;

use candle_core::{D, Device, Result, Tensor};
use candle_nn::ops::softmax;

use super::attention::AttentionShape;
use super::rope::RopeTable;

/// See [`super::linear`].
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let product = x.matmul(&weight.t()?)?;
    match bias {
        Some(bias) => product.broadcast_add(bias),
        None => Ok(product),
    }
}

/// See [`super::embedding`].
pub fn embedding(table: &Tensor, ids: &[u32]) -> Result<Tensor> {
    table.index_select(&Tensor::new(ids, table.device())?, 0)
}

/// See [`super::silu_mul`].
pub fn silu_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.silu()?.mul(up)
}

/// See [`super::rms_norm`].
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let mean_square = x.sqr()?.mean_keepdim(D::Minus1)?;
    x.broadcast_div(&(mean_square + eps)?.sqrt()?)?.broadcast_mul(weight)
}

/// See [`super::rope`].
pub fn rope(x: &Tensor, positions: &Arc<[u32]>, table: &Arc<RopeTable>) -> Result<Tensor> {
    let [cos, sin] = rotations(positions, table, x.device())?;
    rotated(x, &cos, &sin)
}

/// Cosines and sines of these positions, each `[N, 1, head_dim / 2]`.
pub fn rotations(positions: &[u32], table: &RopeTable, device: &Device) -> Result<[Tensor; 2]> {
    let half = table.at(0).0.len();
    let gather = |pick: fn(&RopeTable, usize) -> &[f32]| {
        let values: Vec<f32> = positions.iter().flat_map(|position| pick(table, *position as usize).iter().copied()).collect();
        Tensor::from_vec(values, (positions.len(), 1, half), device)
    };
    Ok([gather(|table, at| table.at(at).0)?, gather(|table, at| table.at(at).1)?])
}

/// `x` `[N, heads * head_dim]` rotated by what [`rotations`] gives.
pub fn rotated(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let ((rows, width), half) = (x.dims2()?, cos.dim(2)?);
    let heads = x.reshape((rows, width / (2 * half), 2 * half))?;
    let (first, second) = (heads.narrow(2, 0, half)?, heads.narrow(2, half, half)?);
    let rotated_first = (first.broadcast_mul(cos)? - second.broadcast_mul(sin)?)?;
    let rotated_second = (second.broadcast_mul(cos)? + first.broadcast_mul(sin)?)?;
    Tensor::cat(&[rotated_first, rotated_second], 2)?.reshape((rows, width))
}

/// See [`super::causal_attention`]. Here also in f64.
pub fn causal_attention(query: &Tensor, key: &Tensor, value: &Tensor, shape: &AttentionShape) -> Result<Tensor> {
    let mut outputs = Vec::with_capacity(shape.forest.segments().len());
    for (index, segment) in shape.forest.segments().iter().enumerate().filter(|(_, segment)| !segment.rows.is_empty()) {
        let path = shape.forest.path(index);
        let of_path = |tensor: &Tensor| {
            let runs = path.iter().map(|rows| tensor.narrow(0, rows.start, rows.len())).collect::<Result<Vec<_>>>()?;
            Tensor::cat(&runs, 0)
        };
        let query = query.narrow(0, segment.rows.start, segment.rows.len())?;
        outputs.push(segment_attention(&query, &of_path(key)?, &of_path(value)?, shape)?);
    }
    if outputs.is_empty() { query.copy() } else { Tensor::cat(&outputs, 0) }
}

/// Attention of the rows of a segment over those from the root to its end.
fn segment_attention(query: &Tensor, key: &Tensor, value: &Tensor, shape: &AttentionShape) -> Result<Tensor> {
    let mask = causal_mask(query.dim(0)?, key.dim(0)?, query.device())?.to_dtype(query.dtype())?;
    let mut heads = Vec::with_capacity(shape.num_heads);
    for head in 0..shape.num_heads {
        let of_head = |tensor: &Tensor, head: usize| tensor.narrow(1, head * shape.head_dim, shape.head_dim)?.contiguous();
        let (key, value) = (of_head(key, head / shape.group())?, of_head(value, head / shape.group())?);
        let scores = (of_head(query, head)?.matmul(&key.t()?)? * f64::from(shape.scale()))?;
        heads.push(softmax(&(scores + &mask)?, D::Minus1)?.matmul(&value)?);
    }
    Tensor::cat(&heads, 1)
}

/// `[rows, columns]`, of the last rows of a sequence of so many `columns`: 0 where the column is at most the row's own, a large negative
/// number elsewhere (−inf would make NaN gradients).
fn causal_mask(rows: usize, columns: usize, device: &Device) -> Result<Tensor> {
    let first = columns - rows;
    let value = |row: usize, column: usize| if column <= first + row { 0.0_f32 } else { -1e30 };
    let values: Vec<f32> = (0..rows).flat_map(|row| (0..columns).map(move |column| value(row, column))).collect();
    Tensor::from_vec(values, (rows, columns), device)
}
