//! Names to tables: the catalog of RolloutDB, its tables on Lance, their indexes and searches.
//!
//! A table is the Lance dataset `<root>/<schema>/<table>.lance`; [`Catalog`] owns the directory, hands out a
//! [`Table`] (one version of one dataset) per statement and is DataFusion's `CatalogProvider`. Writes are one commit
//! each and reach the disk before they are acknowledged. This crate knows neither SQL text, nor models, nor the wire:
//! the text of a generated column is stored here and evaluated by the engine.

mod alter;
mod append;
mod backfill;
mod catalog;
mod comment;
mod constraint;
mod conversion;
mod definition;
mod dml;
mod durability;
mod error;
mod held_versions;
mod identity;
mod index;
mod leftovers;
mod lineage;
mod maintenance;
mod manifests;
mod matching_rows;
mod names;
mod parameters;
mod property;
mod pushdown;
mod register;
mod resident;
mod retention;
mod rewrite;
mod scan;
mod schema;
mod search;
mod staged;
mod state;
mod storage;
pub mod system;
mod table;
mod table_identity;
mod tags;
mod temporary;
mod unfinished;
mod unwanted_vectors;
mod view;

#[cfg(test)]
mod tests;

pub use append::{Hold, RowSink};
pub use backfill::{Backfill, BackfillInfo, RemainingRows};
pub use catalog::Catalog;
pub use comment::Commented;
pub use conversion::storage_schema;
pub use definition::{Identity, TableDefinition, UniqueConstraint};
pub use dml::{IS_REMOVED, ROW_ADDRESS, Rewrite};
pub use error::{Error, Result, is_disk_full};
pub use held_versions::HeldVersions;
pub use index::{BuildProgress, IndexDefinition, IndexInfo, IndexKind, Metric};
pub use lineage::{NamedLineage, TableLineage};
pub use maintenance::{Removed, TableVersion};
pub use manifests::TornVersion;
#[doc(hidden)]
pub use manifests::manifest_fault;
pub use matching_rows::MatchingRows;
pub use parameters::Parameters;
pub use register::{ObjectKey, ObjectKind};
pub use resident::{GraphPlace, TableInMemory};
pub use schema::RolloutSchema;
pub use search::{
    AskedEffort, Clause, Edits, LateVector, NearestRows, Occur, Operator, QueryVector, RowsWithoutDistance, SearchEffort, TextQuery,
};
pub use storage::MemoryLimits;
pub use table::Table;
pub use table_identity::TableIdentity;
pub use tags::Tag;
pub use temporary::{is_temporary_schema, temporary_schema};
pub use unfinished::UnfinishedWork;
pub use unwanted_vectors::UnwantedVectors;
pub use view::View;
