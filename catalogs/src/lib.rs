//! Names to tables: the catalog of RolloutDB, its tables on Lance, their indexes and searches.
//!
//! A table is the Lance dataset `<root>/<schema>/<table>.lance`; [`Catalog`] owns the directory, hands out a
//! [`Table`] (one version of one dataset) per statement and is DataFusion's `CatalogProvider`. Writes are one commit
//! each and reach the disk before they are acknowledged. This crate knows neither SQL text, nor models, nor the wire:
//! the text of a generated column is stored here and evaluated by the engine.

mod append;
mod catalog;
mod constraint;
mod conversion;
mod definition;
mod dml;
mod durability;
mod error;
mod index;
mod names;
mod property;
mod pushdown;
mod rewrite;
mod scan;
mod schema;
mod search;
mod state;
mod storage;
pub mod system;
mod table;

#[cfg(test)]
mod tests;

pub use catalog::Catalog;
pub use conversion::storage_schema;
pub use definition::TableDefinition;
pub use dml::{ROW_ADDRESS, Rewrite};
pub use error::{Error, Result};
pub use index::{IndexDefinition, IndexInfo, IndexKind, Metric};
pub use schema::RolloutSchema;
pub use table::Table;
