//! Search in one version of a table: nearest vectors and best texts, with deterministic ties.

pub(crate) mod ranking;
mod scan;
mod text;
pub(crate) mod vector;

pub use scan::{NearestRows, QueryVector};
