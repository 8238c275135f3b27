//! What the rows of a table stand on, in a file beside them: a line for each statement that brought rows, in the form that the engine gives it.
//!
//! The file goes where the table goes: it keeps over a new name, and another table that is made under the old one has none of it. Lines are on the disk
//! when the statement ends; a kill between the commit and its line leaves rows of which nobody was told.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::durability::{sync_directory, write_durably};
use crate::temporary::is_temporary_schema;
use crate::{Catalog, Error, Result, Table};

const FILE: &str = "lineage.jsonl";
/// The member of the line that names the table.
const ID: &str = "table_id";
/// Beyond it, lines that nothing hangs on go, the oldest first.
const BYTES_MAX: usize = 4 << 20;

/// The lines of one table's file.
#[derive(Debug, Clone, Default)]
pub struct TableLineage {
    /// What the table goes by in the lines of others, over new names; `None` while no other names it.
    pub id: Option<String>,
    /// Oldest first.
    pub records: Vec<Value>,
}

/// The lineage of a table that is there, and what it is called now.
#[derive(Debug, Clone)]
pub struct NamedLineage {
    pub schema: String,
    pub table: String,
    pub lineage: TableLineage,
}

impl Table {
    /// Adds a line. `may_go`: which lines are let go of when the file has grown beyond all measure.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::UnknownTable`] when the table was dropped.
    pub fn note_lineage(&self, record: &Value, may_go: fn(&Value) -> bool) -> Result<()> {
        // Under this lock a table is dropped and renamed: the folder may be another table's afterwards.
        let _same_folder = self.state.counters.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.check_exists()?;
        let path = self.state.directory.join(FILE);
        if std::fs::metadata(&path).is_ok_and(|file| file.len() as usize > BYTES_MAX) {
            shorten(&path, may_go)?;
        }
        append_line(&path, record, !is_temporary_schema(self.schema_name()))
    }

    /// What was noted of the table.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn lineage(&self) -> Result<TableLineage> {
        read(&self.state.directory.join(FILE))
    }

    /// What the table goes by in the lineage of others: no other table ever has it, whatever this one is called later.
    ///
    /// # Errors
    /// As [`Self::note_lineage`].
    pub fn lasting_id(&self) -> Result<String> {
        let _same_folder = self.state.counters.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.check_exists()?;
        let path = self.state.directory.join(FILE);
        if let Some(id) = read(&path)?.id {
            return Ok(id);
        }
        let id = new_id();
        append_line(&path, &json!({ ID: id }), !is_temporary_schema(self.schema_name()))?;
        Ok(id)
    }
}

impl Catalog {
    /// What was noted of all tables, those of sessions too. Tables are not opened for it, so that a damaged one tells what it names.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn lineages(&self) -> Result<Vec<NamedLineage>> {
        let schemas: Vec<_> = self.schemas.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let mut found = Vec::new();
        for schema in schemas {
            for (name, state) in schema.0.tables().iter() {
                let lineage = read(&state.directory.join(FILE))?;
                if lineage.id.is_some() || !lineage.records.is_empty() {
                    found.push(NamedLineage { schema: schema.0.name.clone(), table: name.clone(), lineage });
                }
            }
        }
        Ok(found)
    }
}

/// Writes the first line of a table that has no name yet.
pub(crate) fn begin(directory: &Path, record: &Value) -> Result<()> {
    append_line(&directory.join(FILE), record, true)
}

fn append_line(path: &Path, record: &Value, durably: bool) -> Result<()> {
    let is_new = !path.exists();
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        // A power cut may have left half a line, which is none: this one begins anew.
        file.write_all(format!("\n{record}\n").as_bytes())?;
        if durably {
            file.sync_data()?;
        }
        match path.parent().filter(|_| durably && is_new) {
            Some(folder) => sync_directory(folder),
            None => Ok(()),
        }
    };
    write().map_err(|source| Error::io(path, source))
}

fn read(path: &Path) -> Result<TableLineage> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(TableLineage::default()),
        read => read.map_err(|source| Error::io(path, source))?,
    };
    let mut lineage = TableLineage::default();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for record in lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok()) {
        match record.get(ID).and_then(Value::as_str) {
            Some(id) => lineage.id = Some(id.to_owned()),
            None => lineage.records.push(record),
        }
    }
    Ok(lineage)
}

/// Half of what may go does.
fn shorten(path: &Path, may_go: fn(&Value) -> bool) -> Result<()> {
    let TableLineage { id, records } = read(path)?;
    let mut to_go = records.iter().filter(|record| may_go(record)).count() / 2;
    let kept = records.into_iter().filter(|record| {
        let goes = to_go > 0 && may_go(record);
        to_go -= usize::from(goes);
        !goes
    });
    let lines = id.map(|id| json!({ ID: id })).into_iter().chain(kept);
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    write_durably(path, text.as_bytes())
}

/// A name by which nothing goes yet: the time, and how many were given by this process before.
fn new_id() -> String {
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{since:x}-{:x}-{:x}", std::process::id(), GIVEN.fetch_add(1, Ordering::Relaxed))
}
