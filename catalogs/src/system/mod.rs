//! Tables that the engine itself writes. Each column carries its sentence as field metadata `rollout.description`.

mod nodes;
mod prompts;
mod training_metrics;

use arrow::datatypes::{DataType, Field, Schema};

use crate::{Result, Table, TableDefinition};

pub use nodes::node_definition;

/// The schema of system tables and views.
pub const SYSTEM_SCHEMA: &str = "rollout";
/// Field metadata: one sentence on what a column holds.
pub const DESCRIPTION: &str = "rollout.description";

/// A table that every database has.
#[derive(Debug, Clone, Copy)]
pub struct SystemTable {
    pub name: &'static str,
    pub definition: fn() -> TableDefinition,
}

/// The tables of schema `rollout` that every database has. Node tables are not among them: each GENERATE ROLLOUTS
/// makes its own, with [`node_definition`].
#[must_use]
pub fn tables() -> Vec<SystemTable> {
    vec![
        SystemTable { name: "prompts", definition: prompts::definition },
        SystemTable { name: training_metrics::NAME, definition: training_metrics::definition },
    ]
}

/// Changes a stored table to what it is by now, if an older version of this program made it.
///
/// # Errors
/// Of the change; the table can be read as before.
pub(crate) async fn upgrade(name: &str, table: &Table) -> Result<()> {
    if name == training_metrics::NAME { training_metrics::upgrade(table).await } else { Ok(()) }
}

/// The sentence on a column, if it has one.
#[must_use]
pub fn description(field: &Field) -> Option<&str> {
    field.metadata().get(DESCRIPTION).map(String::as_str)
}

/// A column that may be NULL.
fn optional(name: &str, data_type: DataType, sentence: &str) -> Field {
    Field::new(name, data_type, true).with_metadata([(DESCRIPTION.to_owned(), sentence.to_owned())].into())
}

/// A NOT NULL column.
fn required(name: &str, data_type: DataType, sentence: &str) -> Field {
    optional(name, data_type, sentence).with_nullable(false)
}

fn list(item: DataType) -> DataType {
    DataType::new_list(item, true)
}

fn define(columns: Vec<Field>, primary_key: &[&str]) -> TableDefinition {
    let definition = TableDefinition::new(&Schema::new(columns)).and_then(|table| table.with_primary_key(primary_key));
    definition.expect("system tables have storable columns and a key among them; a test makes each")
}
