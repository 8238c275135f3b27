//! Files in and out: tables of a query (`read_jsonl('file')`, `COPY t FROM 'file'`), and `COPY (query) TO 'file'`.
//!
//! Text files are read by [`scan`]: [`jsonl`] and [`csv`] cut them into blocks of whole records and take these apart, [`infer`] finds the columns; so
//! do [`delimited`] and [`binary`] with PostgreSQL's formats, whose values are those of [`postgres`]. A bad line names file and line, or is left out
//! and counted. What a client sends is read as a file is ([`input`]). DataFusion reads the other formats ([`columnar`]). A file is written under
//! another name until it is complete ([`write`]).

mod binary;
mod checked;
mod columnar;
mod compression;
mod csv;
mod delimited;
mod infer;
mod input;
mod json;
mod json_column;
mod jsonl;
mod numbers;
mod pieces;
mod postgres;
mod read_files;
mod row_writer;
mod rows;
mod scan;
mod table;
#[cfg(test)]
mod tests;
mod write;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;

pub use columnar::ColumnarFormat;
pub use csv::delimiter;
pub use delimited::{Chosen, Header, Layout};
pub use infer::{SAMPLE_ROWS, sample_rows};
pub use input::Input;
pub use pieces::in_pieces;
pub use read_files::{FileState, FilesTable, ReadFiles};
pub use row_writer::{RowWriter, WrittenRows, json_rows};
pub use rows::OnError;
pub use scan::{RecordFormat, TextFormat};
pub use write::{infinity_as_text, nested_as_text, write};

use self::compression::Compression;
use self::rows::{BadLine, Columns};
use self::scan::TextFiles;
use self::table::TextTable;
use super::gate;
use super::progress::Notices;
use crate::error::{Error, Fault, Result};

/// Read at once; batches have the rows of about as many bytes.
const BLOCK_BYTES: usize = 1 << 20;
/// The longest line, record or element of an array.
const RECORD_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    Records(RecordFormat),
    Columnar(ColumnarFormat),
}

/// How a CSV file is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CsvOptions {
    pub has_header: bool,
    pub delimiter: u8,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self { has_header: true, delimiter: b',' }
    }
}

/// Where the columns of text files come from.
#[derive(Debug, Clone)]
pub enum ColumnSource {
    /// Names and types are given.
    Given(SchemaRef),
    /// They are those of the first rows of each file.
    Sample(usize),
}

impl Format {
    /// The format named, or the one of the file's extension.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] if it is none.
    pub fn resolve(named: Option<&str>, path: &str, csv: CsvOptions) -> Result<Self> {
        let (compression, plain) = Compression::of_name(path);
        let extension = Path::new(plain).extension().and_then(|extension| extension.to_str()).map(str::to_lowercase);
        let columnar = |format| match compression {
            Compression::None => Ok(Self::Columnar(format)),
            _ => Err(Error::NotSupported(format!(
                "'{path}': only jsonl and csv files are compressed as a whole; parquet compresses its columns"
            ))),
        };
        match named.map(str::to_lowercase).as_deref().or(extension.as_deref()) {
            Some("jsonl" | "json" | "ndjson") => Ok(Self::Records(RecordFormat::Text(TextFormat::Jsonl))),
            Some("csv") => Ok(Self::Records(RecordFormat::Text(TextFormat::Csv(csv)))),
            Some("parquet") => columnar(ColumnarFormat::Parquet),
            Some("arrow" | "feather") => columnar(ColumnarFormat::Arrow),
            other => Err(Error::InvalidParameter {
                name: "FORMAT".to_owned(),
                found: other.map_or("nothing".to_owned(), |format| format!("'{format}'")),
                expected: "jsonl, csv, text, binary, parquet or arrow".to_owned(),
            }),
        }
    }
}

/// Text files as a table; the gate gave their paths.
///
/// # Errors
/// [`Error::Io`] if there is no such file; [`Error::BadInput`] if its columns cannot be found out. Bad lines are errors of the scan.
pub fn text_table(
    paths: Vec<PathBuf>,
    format: TextFormat,
    columns: ColumnSource,
    on_error: OnError,
    notices: &Notices,
) -> Result<Arc<dyn TableProvider>> {
    let columns = match columns {
        ColumnSource::Given(schema) => Columns { schema, sampled_rows: None },
        ColumnSource::Sample(rows) => infer::columns(&paths, format, rows, on_error)?,
    };
    let (input, format) = (Input::files(paths), RecordFormat::Text(format));
    Ok(Arc::new(TextTable::new(TextFiles { input, format, columns, on_error }, notices)))
}

/// Records with given columns, all nullable, as a table.
pub fn record_table(input: Input, format: RecordFormat, schema: SchemaRef, on_error: OnError, notices: &Notices) -> Arc<dyn TableProvider> {
    let columns = Columns { schema, sampled_rows: None };
    Arc::new(TextTable::new(TextFiles { input, format, columns, on_error }, notices))
}

/// Parquet or Arrow files as a table; the gate gave their paths.
///
/// # Errors
/// [`Error::Io`] if there is no such file, [`Error::BadInput`] if it is of another format.
pub fn columnar_table(paths: &[PathBuf], format: ColumnarFormat) -> Result<Arc<dyn TableProvider>> {
    columnar::table(paths, format)
}

fn open(path: &Path) -> Result<File> {
    gate::open(path).map_err(|source| Error::Io { path: path.to_owned(), source })
}

fn bad_input(path: &Path, line: Option<usize>, reason: impl ToString) -> Error {
    Error::BadInput { path: path.to_owned(), line, reason: reason.to_string(), fault: Fault::Form }
}

fn bad_line(path: &Path, bad: BadLine) -> Error {
    Error::BadInput { path: path.to_owned(), line: Some(bad.line), reason: bad.reason, fault: bad.fault }
}

/// The text in a file, decompressed.
fn open_text(path: &Path) -> Result<Box<dyn Read + Send>> {
    compression::reader(open(path)?).map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Some editors begin a file of UTF-8 with one.
fn without_byte_order_mark(text: &mut Vec<u8>) {
    if text.starts_with("\u{feff}".as_bytes()) {
        text.drain(..'\u{feff}'.len_utf8());
    }
}
