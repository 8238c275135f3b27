//! The engine: sessions, planning, one executor per statement; the API that embedders call.
//!
//! ```no_run
//! # async fn example() -> rolloutdb::Result<()> {
//! use futures::TryStreamExt;
//! let database = rolloutdb::Database::open("./data").await?;
//! let batches: Vec<_> = database.session().sql("SELECT 1 AS one").await?.try_collect().await?;
//! # Ok(()) }
//! ```
//!
//! It is the only part that knows all others: SQL text comes from `rolloutdb_sql`, tables from `rolloutdb_catalogs`, functions from `rolloutdb_udfs`,
//! models, agent and training from their modules. It knows no sockets and no tensor arithmetic.

mod agents;
mod apply;
mod binding;
mod casts;
mod correlated;
mod database;
mod exists_as_column;
mod files;
mod function;
mod fusion;
mod index_builds;
mod lateral_names;
mod macros;
mod memory;
mod nearest_neighbours;
mod options;
mod output_names;
mod parameter_values;
pub mod pg_catalog;
mod pinned_models;
mod planning;
mod prepared;
mod progress;
mod quoted_constants;
mod reranking;
mod retention;
mod retrieval;
mod retrieval_columns;
mod row_conditions;
mod session;
mod settings;
mod single_row;
mod statement;
mod statement_catalog;
mod system;
mod three_valued_in;
mod typing;
mod values_of_queries;
mod versions;
mod views;

pub use agents::{AgentDefinition, AgentRegistry};
pub use database::{Database, DatabaseOptions};
pub use files::{EmbeddedJson, nested_as_text};
pub use index_builds::PROGRESS_VIEW;
pub use memory::parse_bytes;
pub use prepared::PreparedStatement;
pub use progress::{Notice, Severity};
pub use retention::parse_retention;
pub use session::{Description, Response, Session, TransactionStatus};
pub use settings::SessionSettings;
