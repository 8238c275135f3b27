//! Search in one version of a table: nearest vectors and best texts, with deterministic ties.

mod ranking;
mod text;
mod vector;
