//! The arithmetic of the models: matrix products whose rows do not depend on each other, vectorised rows, differentiable operations for candle.
//!
//! A package of its own for one reason: it is compiled with all optimisation also where the rest of the project is built for a short edit cycle.
//! It knows tensors and slices, and nothing of models, files or SQL. `src/models` re-exports it.

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod decoding;
pub mod dots;
pub mod encoding;
pub mod kernel;
pub mod ops;
pub mod simd;
