//! Tests on real directories.

mod alter;
mod catalog;
pub(crate) mod fixture;
mod graphs;
mod index;
mod overlapping_writes;
mod partitions;
mod pushdown;
mod resident;
mod retention;
mod temporary;
mod text_modes;
mod text_search;
mod torn;
mod unfinished;
mod vector_search;
mod write;
