//! Functions of DataFusion's that count without a sign, with PostgreSQL's types: it has no type without one, so that beside a bigint such a number became
//! numeric.

mod scalar;
mod window;

pub use scalar::{COUNTS, with_integers};
pub use window::{WINDOW_NUMBERS, with_numbers};
