//! What searches read again and again, in memory: columns, words and graphs of tables that are searched often.
//!
//! The table on disk is the only truth. A resident table belongs to one version of it; a later version brings new fragments and deletions in, an older
//! snapshot is answered from disk. Rows are numbered as the fragments hold them, deleted ones too, so that a number never changes its meaning.

mod bits;
mod budget;
mod columns;
mod graph;
mod graphs;
mod misspelling;
mod nearest;
mod postings;
mod simd;
mod table;
mod words;

pub(crate) use bits::Bits;
pub(crate) use budget::Budget;
pub use graphs::GraphPlace;
pub(crate) use graphs::{CompactedRows, GraphIndex};
pub(crate) use nearest::{FILTERED_ROWS_MIN, Measure};
pub(crate) use simd::{dot, squared_l2};
pub use table::TableInMemory;
pub(crate) use table::{Heat, ResidentTable};
