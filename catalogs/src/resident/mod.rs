//! What searches read again and again, in memory: columns, words and graphs of tables that are searched often.
//!
//! The table on disk is the only truth. A resident table belongs to one version of it; a later version brings new fragments and deletions in, an older
//! snapshot is answered from disk. Rows are numbered as the fragments hold them, deleted ones too, so that a number never changes its meaning.

use std::sync::OnceLock;

mod bits;
mod budget;
mod codes;
mod columns;
mod graph;
mod graphs;
mod keys;
mod misspelling;
mod nearest;
mod postings;
mod proposals;
mod screening;
mod simd;
mod table;
mod words;

pub(crate) use bits::Bits;
pub(crate) use budget::Budget;
pub use graphs::GraphPlace;
pub(crate) use graphs::{CompactedRows, GraphIndex};
pub(crate) use keys::Keys;
pub(crate) use nearest::Measure;
pub(crate) use proposals::FILTERED_ROWS_MIN;
pub(crate) use simd::{dot, squared_l2};
pub use table::TableInMemory;
pub(crate) use table::{Heat, ResidentTable};

/// Threads that work at once. Asked for once: the answer takes the standard library several files of the system.
fn threads() -> usize {
    static FOUND: OnceLock<usize> = OnceLock::new();
    *FOUND.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
