//! Differentiable fused operations of the decoder.
//!
//! candle-nn's fused operations (`rms_norm`, `rope`, `softmax_last_dim`) cut the autograd graph without an error, and plain
//! candle operations make many passes over memory. Each operation here is a candle custom operation with its own backward on
//! the CPU, and falls back on other devices to [`mod@reference`], the same formula in plain differentiable candle operations,
//! with which the tests compare values and gradients.
//!
//! Sequences lie end to end, without padding, or in trees that share their beginnings ([`Forest`]): a tensor is `[N, width]` with `N`
//! the tokens of all trees.

mod attention;
mod blocks;
mod embedding;
mod forest;
mod linear;
pub mod reference;
mod rms_norm;
mod rope;
mod silu_mul;
mod storage;
#[cfg(test)]
mod tests;

pub use attention::{AttentionShape, causal_attention};
pub use embedding::embedding;
pub use forest::{Forest, Segment};
pub use linear::linear;
pub use rms_norm::rms_norm;
pub use rope::{Rope, RopeTable, rope};
pub use silu_mul::silu_mul;
