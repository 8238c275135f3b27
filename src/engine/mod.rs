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

mod abandonable_rules;
mod activity;
mod agents;
mod apply;
mod background_planning;
mod binding;
mod casts;
mod checked_integers;
mod column_origins;
mod constants;
mod copy_streams;
mod corpus_retriever;
mod correlated;
mod cursors;
mod database;
mod declared_types;
mod durable_file;
mod exists_as_column;
mod files;
mod function;
mod fusion;
mod gate;
mod index_builds;
mod interruptible_sort;
mod interruption;
mod jobs;
mod kept_types;
mod known_rows;
mod large_values;
mod lateral_names;
mod macros;
mod memory;
mod model_jobs;
mod model_views;
mod name_locks;
mod named_statements;
mod nearest_neighbours;
mod operating_system;
mod options;
mod outbound;
mod output_names;
mod parameter_types;
mod parameter_values;
pub mod pg_catalog;
mod pinned_models;
mod planning;
mod prepared;
mod privileges;
mod progress;
mod progress_views;
mod query_progress;
mod quoted_constants;
mod remote_models;
mod reranking;
mod retention;
mod retrieval;
mod retrieval_cache;
mod retrieval_columns;
mod roles;
mod row_conditions;
mod savepoints;
mod search_path;
mod secrets;
mod session;
mod session_memory;
mod session_user;
mod setting_definitions;
mod settings;
mod shown_text;
mod single_row;
mod sort_pieces;
mod statement;
mod statement_catalog;
mod system;
mod table_arguments;
mod task_history;
mod temporary;
mod three_valued_in;
mod timeouts;
mod typing;
mod using_columns;
mod values_of_queries;
mod versions;
mod views;
mod with_names;

pub use activity::SessionActivity;
pub use agents::{AgentDefinition, AgentRegistry};
pub use column_origins::Origin;
pub use copy_streams::{CopyIn, CopyInput, CopyMessages, CopyOut, CopySender, copy_channel};
pub use database::{Database, DatabaseOptions};
pub use files::{EmbeddedJson, nested_as_text};
pub use memory::parse_bytes;
pub use named_statements::NamedStatement;
pub use operating_system::{name_of as operating_system_name, user_id as operating_system_user};
pub use outbound::Outbound;
pub use prepared::{BRIEF, PreparedStatement};
pub use progress::{Notice, Severity};
pub use retention::parse_retention;
pub use roles::{Membership, Role, Roles, Verifier};
pub use secrets::{SecretPlace, SecretValue, Secrets};
pub use session::{CATALOG_NAME as DATABASE_NAME, Description, Response, Session, TransactionStatus};
pub use session_user::SessionUser;
pub use settings::SessionSettings;
pub use shown_text::{shown_text, shown_texts};
pub use timeouts::{IDLE_TIMEOUT, Timeouts};
