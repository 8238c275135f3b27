//! What tables, runs and models stand on: files, versions of tables, agents, models, with the statements that made them.
//!
//! Each table has its records beside its rows ([`rolloutdb_catalogs::TableLineage`]), each model in its description. A record tells all that a thing stands
//! on, also by way of others, as it was when it was made: it needs nothing that may be dropped or changed later. Tables go by names of their own there,
//! so that another table under an old name is not taken for the one that was meant. What a record names by itself ([`Thing::depth`] 1), agents and
//! models name too, is held ([`holds`]): the removal of old versions leaves it.

mod digests;
mod draft;
pub mod holds;
mod models;
mod sources;
mod tables;

use std::fmt::Display;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use draft::Draft;
pub use models::{of_model, of_policy, without_stands_on};
pub use sources::Sources;
pub use tables::{acting, named_table, of_agent, of_table, table_at};

/// The member of a model's lineage that holds its things.
pub const STANDS_ON: &str = "stands_on";
/// Of a statement that is kept.
const STATEMENT_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    File,
    Table,
    /// A table of rollouts.
    Run,
    Agent,
    Model,
    /// A set of prompts.
    Prompts,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Table => "table",
            Self::Run => "run",
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Prompts => "prompts",
        }
    }
}

/// Something that others stand on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thing {
    pub kind: Kind,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Of a table: what it goes by over new names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Of a file: the table that it was read into, if that is not the one whose record this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// SHA-256, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
    /// 0: the thing itself; 1: what it names; 2 and more: what that stands on.
    #[serde(default)]
    pub depth: u32,
}

impl Thing {
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        let (version, id, via, digest, options, seed, statement) = (None, None, None, None, None, None, None);
        Self { kind, name: name.into(), version, id, via, digest, options, seed, statement, depth: 0 }
    }

    pub fn is_table(&self) -> bool {
        matches!(self.kind, Kind::Table | Kind::Run)
    }

    fn is_same(&self, other: &Self) -> bool {
        let key = |thing: &Self| (thing.kind, thing.name.clone(), thing.version, thing.id.clone(), thing.digest.clone());
        key(self) == key(other)
    }
}

/// The same, one step further from what stands on them.
pub fn deeper(things: Vec<Thing>) -> Vec<Thing> {
    things.into_iter().map(|thing| Thing { depth: thing.depth + 1, ..thing }).collect()
}

/// Adds things that are not there yet. One that is both near and far is near.
pub fn add(things: &mut Vec<Thing>, more: Vec<Thing>) {
    for thing in more {
        match things.iter_mut().find(|known| known.is_same(&thing)) {
            Some(known) => known.depth = known.depth.min(thing.depth),
            None => things.push(thing),
        }
    }
}

/// Why a record was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Made {
    /// Rows of files or other tables.
    Rows,
    /// Rows that an agent or a search gave: they hold what they name.
    Evaluation,
    /// Rollouts: they hold what they name.
    Run,
    /// TRUNCATE: what was noted before is of rows that are gone.
    Emptied,
}

/// What a statement left in a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub made: Made,
    /// Of the table: that of its rows; of a run the one that it began with.
    pub version: u64,
    pub at_ms: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub statement: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stands_on: Vec<Thing>,
}

impl Record {
    pub fn new(made: Made, statement: &dyn Display) -> Self {
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        Self { made, version: 0, at_ms, statement: statement_text(statement), options: None, seed: None, stands_on: Vec::new() }
    }

    pub fn holds(&self) -> bool {
        matches!(self.made, Made::Evaluation | Made::Run)
    }

    /// As a line of a table's file.
    pub fn to_json(&self) -> Json {
        serde_json::to_value(self).expect("a record is JSON")
    }

    fn read(line: &Json) -> Option<Self> {
        serde_json::from_value(line.clone()).ok()
    }

    /// Whether it may be let go of when there are too many: nothing is held by it, and no file is known by it alone.
    pub fn may_go(line: &Json) -> bool {
        Self::read(line).is_some_and(|record| {
            record.made == Made::Rows && !record.stands_on.iter().any(|thing| thing.kind == Kind::File && thing.depth == 1)
        })
    }
}

/// The records that tell of the rows of a version.
pub fn in_force(lines: &[Json], version: u64) -> Vec<Record> {
    let mut records: Vec<Record> = lines.iter().filter_map(Record::read).filter(|record| record.version <= version).collect();
    if let Some(emptied) = records.iter().rposition(|record| record.made == Made::Emptied) {
        records.drain(..=emptied);
    }
    records
}

/// As others may read it: without passwords, and not without end.
pub fn statement_text(statement: &dyn Display) -> String {
    let text = statement.to_string();
    let text = rolloutdb_sql::without_passwords(&text);
    match text.len() > STATEMENT_BYTES_MAX {
        true => format!("{} ...", &text[..text.floor_char_boundary(STATEMENT_BYTES_MAX)]),
        false => text.into_owned(),
    }
}

/// A table as one writes it.
pub fn shown_name(schema: &str, name: &str) -> String {
    if schema == crate::engine::session::DEFAULT_SCHEMA { name.to_owned() } else { format!("{schema}.{name}") }
}
