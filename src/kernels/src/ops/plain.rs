//! The operations of a decoder by candle's own, which any device has.
//!
//! Products have a type of their choice and everything else is f32, as under PyTorch's autocast; weights are cast where they are used, so that their gradients
//! have their own type. Two operations have a backward of their own: products, because candle computes the gradient of a frozen weight too, and
//! attention (`tiles.rs`).

use std::sync::Arc;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp2, DType, Device, Layout, Result, Shape, Tensor};

use super::attention::AttentionShape;
use super::linear::sizes;
use super::reference;
use super::rope::RopeTable;
use super::tiles::{Limits, Tiles, causal_attention};

/// What the layers of one forward share on its device.
#[derive(Debug)]
pub struct Plain {
    /// Of products.
    dtype: DType,
    /// `[N, 1, head_dim / 2]`: cosines and sines.
    rotations: [Tensor; 2],
    tiles: Arc<Tiles>,
}

impl Plain {
    /// `positions`: of the `N` tokens, within the table.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn new(dtype: DType, attention: AttentionShape, positions: &[u32], table: &RopeTable, device: &Device) -> Result<Self> {
        let rotations = reference::rotations(positions, table, device)?;
        Ok(Self { dtype, rotations, tiles: Arc::new(Tiles::new(attention, Limits::DEFAULT, device)?) })
    }

    /// See [`super::linear`]; the result has the type of products.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn linear(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        linear(x, weight, bias, self.dtype)
    }

    /// See [`super::rope`].
    ///
    /// # Errors
    /// If `x` has another number of rows.
    pub fn rope(&self, x: &Tensor) -> Result<Tensor> {
        let [cos, sin] = &self.rotations;
        reference::rotated(&x.to_dtype(DType::F32)?, cos, sin)
    }

    /// See [`super::causal_attention`]; the result has the type of products.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn attention(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
        let cast = |tensor: &Tensor| tensor.to_dtype(self.dtype);
        causal_attention(&cast(query)?, &cast(key)?, &cast(value)?, &self.tiles)
    }
}

/// See [`super::embedding`]; the rows are f32, whatever the table is. A GPU reads beyond a table without a word: tokens are looked at before.
///
/// # Errors
/// If an id is not below `V`.
pub fn embedding(table: &Tensor, ids: &[u32]) -> Result<Tensor> {
    let vocab = table.dim(0)?;
    match ids.iter().find(|&&id| id as usize >= vocab) {
        Some(id) => candle_core::bail!("token id {id} is outside the vocabulary of {vocab}"),
        None => reference::embedding(table, ids)?.to_dtype(DType::F32),
    }
}

/// See [`super::linear`]; computed, and given, in `dtype`.
///
/// # Errors
/// If shapes do not fit.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, dtype: DType) -> Result<Tensor> {
    let product = x.to_dtype(dtype)?.contiguous()?.apply_op2(&weight.to_dtype(dtype)?, Product)?;
    match bias {
        Some(bias) => product.broadcast_add(&bias.to_dtype(dtype)?),
        None => Ok(product),
    }
}

/// `x Wᵀ`.
struct Product;

fn product<S: BackendStorage>(x: &S, lx: &Layout, weight: &S, lw: &Layout) -> Result<(S, Shape)> {
    let (rows, input, output) = sizes(lx, lw)?;
    let out = x.matmul(weight, (1, rows, output, input), lx, &lw.transpose(0, 1)?)?;
    Ok((out, (rows, output).into()))
}

impl CustomOp2 for Product {
    fn name(&self) -> &'static str {
        "product"
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, w: &CpuStorage, lw: &Layout) -> Result<(CpuStorage, Shape)> {
        product(x, lx, w, lw)
    }

    fn cuda_fwd(&self, x: &CudaStorage, lx: &Layout, w: &CudaStorage, lw: &Layout) -> Result<(CudaStorage, Shape)> {
        product(x, lx, w, lw)
    }

    /// `dx = dy W` and `dW = dyᵀ x`, each only if a variable needs it.
    fn bwd(&self, x: &Tensor, w: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let grad_x = x.track_op().then(|| grad.matmul(&w.detach())).transpose()?;
        let grad_weight = w.track_op().then(|| grad.t()?.matmul(&x.detach())).transpose()?;
        Ok((grad_x, grad_weight))
    }
}
