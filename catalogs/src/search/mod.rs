//! Search in one version of a table: nearest vectors and best texts, with deterministic ties.

pub(crate) mod counts;
mod loose_phrase;
pub(crate) mod ranking;
mod row_filter;
mod scan;
mod text;
mod text_query;
pub(crate) mod vector;

pub(crate) use row_filter::Condition;
pub use scan::{LateVector, NearestRows, QueryVector, RowsWithoutDistance};
pub use text_query::{Clause, Edits, Occur, Operator, TextQuery};
pub use vector::{AskedEffort, SearchEffort};
