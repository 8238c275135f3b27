//! Files in and out: `COPY t FROM 'file'` reads a stream of batches in the table's types, `COPY (query) TO 'file'` writes one.
//!
//! A bad line names file and line. A file appears under its name only when it is complete.

mod csv;
mod jsonl;
mod parquet;
mod write;

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;

pub use write::{nested_as_text, write};

use crate::error::{Error, Result};

/// Rows per batch read.
const BATCH_ROWS: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Jsonl,
    Csv,
    Parquet,
}

impl Format {
    /// The format named, or the one of the file's extension.
    pub fn resolve(named: Option<&str>, path: &Path) -> Result<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_lowercase);
        match named.map(str::to_lowercase).as_deref().or(extension.as_deref()) {
            Some("jsonl" | "json" | "ndjson") => Ok(Self::Jsonl),
            Some("csv") => Ok(Self::Csv),
            Some("parquet") => Ok(Self::Parquet),
            other => Err(Error::InvalidParameter {
                name: "FORMAT".to_owned(),
                found: other.map_or("nothing".to_owned(), |format| format!("'{format}'")),
                expected: "jsonl, csv or parquet".to_owned(),
            }),
        }
    }
}

/// How a CSV file is laid out.
#[derive(Debug, Clone, Copy)]
pub struct CsvOptions {
    pub has_header: bool,
    pub delimiter: u8,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self { has_header: true, delimiter: b',' }
    }
}

/// Reads a file as batches of `schema`, columns by name (CSV without header: by position). Columns that the file lacks are NULL.
///
/// # Errors
/// [`Error::Io`] if it cannot be opened, through the stream [`Error::BadInput`] with the line that is wrong.
pub fn read(path: &Path, format: Format, csv: CsvOptions, schema: SchemaRef) -> Result<SendableRecordBatchStream> {
    let file = std::fs::File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let mut builder = RecordBatchReceiverStreamBuilder::new(schema.clone(), 2);
    let sender = builder.tx();
    let path = PathBuf::from(path);
    builder.spawn_blocking(move || {
        // A closed channel means that the statement ended: reading on would serve nobody.
        let mut emit = |batch: RecordBatch| sender.blocking_send(Ok(batch)).is_ok();
        let result = match format {
            Format::Jsonl => jsonl::read(&path, file, &schema, &mut emit),
            Format::Csv => csv::read(&path, file, csv, &schema, &mut emit),
            Format::Parquet => parquet::read(&path, file, &schema, &mut emit),
        };
        result.map_err(DataFusionError::from)
    });
    Ok(builder.build())
}

fn bad_input(path: &Path, line: Option<usize>, reason: impl ToString) -> Error {
    Error::BadInput { path: path.to_owned(), line, reason: reason.to_string() }
}
