//! Tests on real directories.

mod catalog;
mod fixture;
mod index;
mod pushdown;
mod resident;
mod text_modes;
mod text_search;
mod torn;
mod vector_search;
mod write;
