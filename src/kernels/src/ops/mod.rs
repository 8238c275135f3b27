//! Differentiable fused operations of the decoder.
//!
//! candle-nn's fused operations (`rms_norm`, `rope`, `softmax_last_dim`) cut the autograd graph without an error, and plain
//! candle operations make many passes over memory. Each operation here is a candle custom operation with its own backward on
//! the CPU. A [`Pass`] computes by them, or by candle's own operations on any device ([`Arithmetic`]). Tests compare values and gradients of both with
//! [`mod@reference`], the same formulas in plain differentiable candle operations.
//!
//! Sequences lie end to end, without padding, or in trees that share their beginnings ([`Forest`]): a tensor is `[N, width]` with `N`
//! the tokens of all trees.

mod attention;
mod blocks;
mod embedding;
mod forest;
mod linear;
mod pass;
pub mod plain;
pub mod reference;
mod rms_norm;
mod rope;
mod silu_mul;
mod storage;
#[cfg(test)]
mod tests;
pub mod tiles;

pub use attention::{AttentionShape, causal_attention};
pub use embedding::embedding;
pub use forest::{Forest, Segment};
pub use linear::linear;
pub use pass::{Arithmetic, Pass};
pub use rms_norm::rms_norm;
pub use rope::{Rope, RopeTable, rope};
pub use silu_mul::silu_mul;
pub use storage::Threads;
