//! One forward of a decoder: by which operations it is computed, and what its layers share.

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor};

use super::attention::{AttentionShape, causal_attention};
use super::plain::{self, Plain};
use super::rope::{Rope, RopeTable, rope};
use super::{embedding, linear, reference, rms_norm, silu_mul};

/// By which operations a decoder is computed and differentiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// The fused operations of this module: f32, on the CPU.
    Fused,
    /// candle's own, on any device: products in this type; norms, rotations, softmax and the sums over layers in f32.
    Plain(DType),
}

/// What the layers of a forward over `N` tokens share. Its operations are those of the functions of the same names.
#[derive(Debug)]
pub struct Pass {
    tokens: Arc<[u32]>,
    eps: f64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Fused { attention: AttentionShape, positions: Arc<[u32]>, table: Arc<RopeTable> },
    Plain(Plain),
}

impl Pass {
    /// `tokens`: those of the forest of `attention`. `eps`: of the norms. `device`: of the weights.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn new(
        arithmetic: Arithmetic,
        tokens: Arc<[u32]>,
        attention: AttentionShape,
        rope: &Rope,
        eps: f64,
        device: &Device,
    ) -> Result<Self> {
        let positions: Arc<[u32]> = attention.forest.positions().collect();
        let table = rope.table(attention.forest.longest());
        let kind = match arithmetic {
            Arithmetic::Fused => Kind::Fused { attention, positions, table },
            Arithmetic::Plain(dtype) => Kind::Plain(Plain::new(dtype, attention, &positions, &table, device)?),
        };
        Ok(Self { tokens, eps, kind })
    }

    /// `[N, H]` of a table `[V, H]`.
    ///
    /// # Errors
    /// If a token is not below `V`.
    pub fn embedding(&self, table: &Tensor) -> Result<Tensor> {
        match &self.kind {
            Kind::Fused { .. } => embedding(table, &self.tokens),
            Kind::Plain(_) => plain::embedding(table, &self.tokens),
        }
    }

    /// # Errors
    /// If shapes do not fit.
    pub fn linear(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        match &self.kind {
            Kind::Fused { .. } => linear(x, weight, bias),
            Kind::Plain(plain) => plain.linear(x, weight, bias),
        }
    }

    /// # Errors
    /// If the widths differ.
    pub fn rms_norm(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        match &self.kind {
            Kind::Fused { .. } => rms_norm(x, weight, self.eps),
            Kind::Plain(_) => reference::rms_norm(&x.to_dtype(DType::F32)?, &weight.to_dtype(DType::F32)?, self.eps),
        }
    }

    /// Every head of `x` rotated by its token's position.
    ///
    /// # Errors
    /// If `x` has not `N` rows.
    pub fn rope(&self, x: &Tensor) -> Result<Tensor> {
        match &self.kind {
            Kind::Fused { positions, table, .. } => rope(x, positions, table),
            Kind::Plain(plain) => plain.rope(x),
        }
    }

    /// # Errors
    /// If shapes do not fit.
    pub fn attention(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
        match &self.kind {
            Kind::Fused { attention, .. } => causal_attention(query, key, value, attention),
            Kind::Plain(plain) => plain.attention(query, key, value),
        }
    }

    /// # Errors
    /// If the shapes differ.
    pub fn silu_mul(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        match &self.kind {
            Kind::Fused { .. } => silu_mul(gate, up),
            Kind::Plain(_) => reference::silu_mul(gate, up),
        }
    }
}
