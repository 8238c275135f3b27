//! The error of this crate: variants by what a caller would do about them, each with its SQLSTATE.

use std::path::PathBuf;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use crate::names::did_you_mean;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// 42P01. `known`: the nearest names of the schema, nearest first.
    #[error("unknown table \"{name}\"{}", did_you_mean(.known))]
    UnknownTable { name: String, known: Vec<String> },
    /// 42809: a virtual table where one with rows of its own is needed.
    #[error("\"{name}\" is a view: it has no rows of its own to search or change")]
    NotATable { name: String },
    /// 42809.
    #[error("\"{name}\" is not a view that can be dropped")]
    NotAView { name: String },
    /// 42P07.
    #[error("table \"{name}\" already exists")]
    DuplicateTable { name: String },
    /// 3F000.
    #[error("unknown schema \"{name}\"{}", did_you_mean(.known))]
    UnknownSchema { name: String, known: Vec<String> },
    /// 42P06.
    #[error("schema \"{name}\" already exists")]
    DuplicateSchema { name: String },
    /// 42703.
    #[error("table \"{table}\" has no column \"{name}\"{}", did_you_mean(.known))]
    UnknownColumn { table: String, name: String, known: Vec<String> },
    /// 42701.
    #[error("the table has a column \"{name}\" already")]
    DuplicateColumn { name: String },
    /// 22023: a version that does not exist, or that a vacuum removed.
    #[error("table \"{table}\" has no version {wanted}; there are versions {known}")]
    UnknownVersion { table: String, wanted: String, known: String },
    /// 42704.
    #[error("unknown index \"{name}\"{}", did_you_mean(.known))]
    UnknownIndex { name: String, known: Vec<String> },
    /// 42704.
    #[error("table \"{table}\" has no tag \"{name}\"{}", did_you_mean(.known))]
    UnknownTag { name: String, table: String, known: Vec<String> },
    /// 42710.
    #[error("table \"{table}\" has a tag \"{name}\" already; CREATE OR REPLACE TAG moves it")]
    DuplicateTag { name: String, table: String },
    /// 42710.
    #[error("index \"{name}\" already exists on table \"{table}\"")]
    DuplicateIndex { name: String, table: String },
    /// 42602: a name that can not be the name of a table, column or schema.
    #[error("\"{name}\" can not be the name of a {kind}: {reason}")]
    InvalidName { kind: &'static str, name: String, reason: String },
    /// 23502.
    #[error("null value in column \"{column}\" of table \"{table}\", which is NOT NULL")]
    NotNull { table: String, column: String },
    /// 22004.
    #[error("a vector in column \"{column}\" of table \"{table}\" has a NULL among its numbers")]
    NullElement { table: String, column: String },
    /// 22000. `found`: `NaN` or `infinite value`, in pgvector's words.
    #[error("{found} not allowed in vector: column \"{column}\" of table \"{table}\"")]
    NotFinite { table: String, column: String, found: &'static str },
    /// 22000.
    #[error("expected {expected} dimensions, not {found}: column \"{column}\" of table \"{table}\"")]
    Width { table: String, column: String, found: i32, expected: i32 },
    /// 21000: a statement that gives one row two new ones.
    #[error("the statement would change a row of table \"{table}\" twice; make the rows that it matches with unique")]
    RowTwice { table: String },
    /// 23505. `key`: `(columns)=(values)` of the first row that repeats one. `constraint`: its name.
    #[error("duplicate key value violates unique constraint \"{constraint}\": key {key} already exists in table \"{table}\"")]
    UniqueViolation { schema: String, table: String, key: String, constraint: String },
    /// 23505: rows that are stored already do not meet a new constraint.
    #[error("could not create unique constraint \"{constraint}\": key {key} is duplicated in table \"{table}\"")]
    DuplicateKey { schema: String, table: String, key: String, constraint: String },
    /// 42P16.
    #[error("multiple primary keys for table \"{table}\" are not allowed")]
    SecondPrimaryKey { table: String },
    /// 42710.
    #[error("constraint \"{name}\" for table \"{table}\" already exists")]
    DuplicateConstraint { name: String, table: String },
    /// 42704.
    #[error("constraint \"{name}\" of table \"{table}\" does not exist{}", did_you_mean(.known))]
    UnknownConstraint { name: String, table: String, known: Vec<String> },
    /// 42P10.
    #[error("table \"{table}\" has no primary key or UNIQUE constraint on ({columns}), as ON CONFLICT needs")]
    NoConstraint { table: String, columns: String },
    /// 42804: a value of the wrong type.
    #[error("{what} is {found}, expected {expected}")]
    WrongType { what: String, found: String, expected: String },
    /// 22023: an option that does not exist or is out of its range.
    #[error("{name} = {found} is not valid: expected {expected}")]
    InvalidOption { name: String, found: String, expected: String },
    /// 55000: right, but something has to be made first.
    #[error("{0}")]
    NotReady(String),
    /// 0A000.
    #[error("{0}")]
    NotSupported(String),
    /// 2BP01: something else still needs the object.
    #[error("{0}")]
    StillNeeded(String),
    /// 55006: another statement is at work on it.
    #[error("{0}")]
    InUse(String),
    /// 55006: another process has the data directory.
    #[error(
        "data directory {} is in use by {}; one process has it at a time: connect to that one, or stop it",
        .directory.display(),
        .process.map_or("another process".to_owned(), |process| format!("process {process}"))
    )]
    Locked { directory: PathBuf, process: Option<u32> },
    /// 40001: another writer committed first; run the statement again.
    #[error("table \"{table}\" was changed by another writer: {reason}; run the statement again")]
    Conflict { table: String, reason: String },
    /// 40001: the statement was planned for other columns; nothing was written.
    #[error("table \"{table}\" was altered while the statement waited to write it; run the statement again")]
    Altered { table: String },
    /// 40001: nothing was written.
    #[error("table \"{table}\" was changed while the statement computed what to write; run the statement again")]
    Overtaken { table: String },
    /// XX001: stored data are not what they claim to be.
    #[error("table \"{table}\" is damaged: {reason}")]
    Damaged { table: String, reason: String },
    /// 53100: the disk, or what this user or process may take of it.
    #[error(
        "no space left on the disk of table \"{table}\", which is as it was before the statement; free some (VACUUM FULL removes old versions) and run it again"
    )]
    DiskFull { table: String },
    /// 58030, or 53100 when the disk is full.
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// 58030: the table format failed to read or write.
    #[error("storage of table \"{table}\": {}", without_location(.source))]
    Storage { table: String, source: Box<lance::Error> },
    /// The query that feeds a write, or a plan of ours, failed; its own code is along the source chain.
    #[error(transparent)]
    Query(Box<DataFusionError>),
}

impl Error {
    /// Reads what Lance reports about `table` as the caller's situation: conflict, damage or plain storage.
    pub(crate) fn storage(table: &str, source: lance::Error) -> Self {
        let table = table.to_owned();
        if is_disk_full(&source) {
            return Self::DiskFull { table };
        }
        match &source {
            lance::Error::CommitConflict { .. }
            | lance::Error::IncompatibleTransaction { .. }
            | lance::Error::RetryableCommitConflict { .. }
            | lance::Error::TooMuchWriteContention { .. } => Self::Conflict { table, reason: without_location(&source) },
            lance::Error::CorruptFile { .. } => Self::Damaged { table, reason: without_location(&source) },
            _ => Self::Storage { table, source: Box::new(source) },
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::Query(inner) => *inner,
            other => Self::External(Box::new(other)),
        }
    }
}

impl From<DataFusionError> for Error {
    /// An [`Error`] that travelled through DataFusion comes out as itself.
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::External(inner) => match inner.downcast::<Self>() {
                Ok(ours) => *ours,
                Err(other) => Self::Query(Box::new(DataFusionError::External(other))),
            },
            other => Self::Query(Box::new(other)),
        }
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        Self::Query(Box::new(DataFusionError::from(error)))
    }
}

/// Whether a full disk, or a limit on what may be written, is at the root of an error. Lance and Arrow hand some errors of the system on as text.
#[must_use]
pub fn is_disk_full(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<std::io::Error>().is_some_and(|error| matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)) {
            return true;
        }
        next = error.source();
    }
    let text = error.to_string();
    // ENOSPC, EDQUOT, EFBIG.
    ["(os error 28)", "(os error 122)", "(os error 27)"].iter().any(|code| text.contains(code))
}

/// Lance puts `, <source file>:<line>:<column>` into its messages, which tells a user nothing.
pub(crate) fn without_location(error: &lance::Error) -> String {
    let mut text = error.to_string();
    while let Some(end) = text.find(".rs:") {
        let Some(start) = text[..end].rfind(", ") else { break };
        let is_position = |sign: char| sign.is_ascii_digit() || sign == ':';
        let tail = end + ".rs".len();
        let tail = text[tail..].find(|sign| !is_position(sign)).map_or(text.len(), |length| tail + length);
        text.replace_range(start..tail, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let full = std::io::Error::from_raw_os_error(28);
        assert!(matches!(Error::storage("t", lance::Error::io_source(Box::new(full))), Error::DiskFull { .. }));
        let text = format!("while writing: {}", std::io::Error::from_raw_os_error(28));
        assert!(matches!(Error::storage("t", lance::Error::internal(text)), Error::DiskFull { .. }));
        let other = std::io::Error::from_raw_os_error(5);
        assert!(matches!(Error::storage("t", lance::Error::io_source(Box::new(other))), Error::Storage { .. }));
    }

    #[test]
    fn a_message_loses_the_source_files_of_the_storage() {
        let inner = lance::Error::invalid_input("no such column");
        let outer = lance::Error::invalid_input(format!("bad plan: {inner}; stop"));
        let text = Error::storage("t", outer).to_string();
        assert_eq!(text, "storage of table \"t\": Invalid user input: bad plan: Invalid user input: no such column; stop");
    }
}
