//! Writing a stream of batches to a file, which appears under its name only when it is complete.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Date32Type, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::ipc::writer::FileWriter;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rolloutdb_udfs::format_bytea;
use rolloutdb_udfs::postgres::json_lines;
use std::sync::Arc;
use tempfile::NamedTempFile;

use super::compression::{Compression, Output};
use super::row_writer::RowWriter;
use super::{ColumnarFormat, Format, RecordFormat, TextFormat};
use crate::engine::gate;
use crate::engine::progress::CopyPosition;
use crate::error::{Error, Result};

/// The end of the name of a file that is being written: `.films.jsonl.Xa81bC.unfinished`.
const UNFINISHED: &str = ".unfinished";

/// Writes the stream and gives the number of rows. `position`: told how many bytes are in the file by now.
///
/// # Errors
/// [`Error::Io`] if the directory does not exist or the disk is full; an error of the stream. Then no file is left.
pub async fn write(path: &Path, format: Format, mut rows: SendableRecordBatchStream, position: &CopyPosition) -> Result<u64> {
    let io_error = |source: std::io::Error| Error::Io { path: path.to_owned(), source };
    let file = unfinished(path).map_err(io_error)?;
    // Its folder may have been replaced by a link since the path was allowed.
    gate::is_still(file.as_file(), file.path()).map_err(io_error)?;
    let schema = rows.schema();
    let handle = file.reopen().map_err(io_error)?;
    let (compression, _) = Compression::of_name(&path.to_string_lossy());
    let output = Output::new(compression, handle).map_err(io_error)?;
    let mut writer = Writer::new(format, output, schema)?;
    let mut num_rows = 0;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        num_rows += batch.num_rows() as u64;
        writer.write(&batch)?;
        position.reach(file.as_file().metadata().map_err(io_error)?.len(), batch.num_rows() as u64);
    }
    writer.finish()?;
    file.as_file().sync_all().map_err(io_error)?;
    file.persist(path).map_err(|error| io_error(error.error))?;
    File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(io_error)?;
    Ok(num_rows)
}

/// A new file beside `path`, locked until it is closed. Those that a killed process left of the same target, which nobody holds a lock on, are removed.
fn unfinished(path: &Path) -> std::io::Result<NamedTempFile> {
    let directory = folder_of(path);
    let prefix = format!(".{}.", path.file_name().unwrap_or_default().to_string_lossy());
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_one = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(UNFINISHED)).is_some_and(|random| !random.contains('.'));
        if is_one && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            // What cannot be removed stays: it is in nobody's way.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    // Readable for whom other new files are, not only for this user.
    let permissions = Permissions::from_mode(0o666);
    let file = tempfile::Builder::new().prefix(&prefix).suffix(UNFINISHED).permissions(permissions).tempfile_in(directory)?;
    file.as_file().lock()?;
    Ok(file)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

enum Writer {
    Csv(Box<arrow::csv::Writer<Output>>),
    Parquet(Box<ArrowWriter<Output>>),
    Arrow(Box<FileWriter<Output>>),
    Rows(RowWriter, Box<Output>),
}

impl Writer {
    fn new(format: Format, output: Output, schema: SchemaRef) -> Result<Self> {
        Ok(match format {
            Format::Records(RecordFormat::Text(TextFormat::Jsonl)) => Self::rows(RowWriter::Jsonl, output)?,
            Format::Records(RecordFormat::Text(TextFormat::Csv(csv))) => Self::Csv(Box::new(
                arrow::csv::WriterBuilder::new().with_header(csv.has_header).with_delimiter(csv.delimiter).build(output),
            )),
            Format::Records(RecordFormat::Delimited(layout)) => Self::rows(RowWriter::Delimited { layout, schema }, output)?,
            Format::Records(RecordFormat::Binary) => Self::rows(RowWriter::Binary { schema }, output)?,
            Format::Columnar(ColumnarFormat::Parquet) => {
                let properties = WriterProperties::builder().set_compression(parquet::basic::Compression::SNAPPY).build();
                let writer = ArrowWriter::try_new(output, schema, Some(properties)).map_err(DataFusionError::from)?;
                Self::Parquet(Box::new(writer))
            }
            Format::Columnar(ColumnarFormat::Arrow) => {
                Self::Arrow(Box::new(FileWriter::try_new(output, &schema).map_err(DataFusionError::from)?))
            }
        })
    }

    fn rows(writer: RowWriter, mut output: Output) -> Result<Self> {
        output.write_all(&writer.begin()).map_err(DataFusionError::from)?;
        Ok(Self::Rows(writer, Box::new(output)))
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Self::Csv(writer) => writer.write(&nested_as_text(&bytes_as_text(batch)?)?).map_err(DataFusionError::from)?,
            Self::Parquet(writer) => writer.write(batch).map_err(DataFusionError::from)?,
            Self::Arrow(writer) => writer.write(batch).map_err(DataFusionError::from)?,
            Self::Rows(writer, output) => output.write_all(&writer.rows(batch)?.bytes).map_err(DataFusionError::from)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Csv(writer) => writer.into_inner().finish().map_err(DataFusionError::from)?,
            Self::Parquet(writer) => {
                let output = writer.into_inner().map_err(DataFusionError::from)?;
                output.finish().map_err(DataFusionError::from)?;
            }
            Self::Arrow(mut writer) => {
                writer.finish().map_err(DataFusionError::from)?;
                writer.into_inner().and_then(|output| output.finish().map_err(Into::into)).map_err(DataFusionError::from)?;
            }
            Self::Rows(writer, mut output) => {
                output.write_all(&writer.end()).and_then(|()| output.finish()).map_err(DataFusionError::from)?;
            }
        }
        Ok(())
    }
}

/// The batch with `bytea` as PostgreSQL writes it, `\x01ff`: Arrow would write the digits alone, which are read as text.
fn bytes_as_text(batch: &RecordBatch) -> Result<RecordBatch> {
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if *field.data_type() == DataType::Binary {
            let texts: StringArray = column.as_binary::<i32>().iter().map(|bytes| bytes.map(format_bytea)).collect();
            columns.push(Arc::new(texts));
            fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
        } else {
            columns.push(Arc::clone(column));
            fields.push(Arc::clone(field));
        }
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(DataFusionError::from)?)
}

/// The batch as CSV can hold it: CSV has no lists, they are written as JSON arrays, which is also how they are read. Times are written as JSON has them, for
/// `infinity` too.
///
/// # Errors
/// [`Error::DataFusion`] for a column that has no JSON form.
pub fn nested_as_text(batch: &RecordBatch) -> Result<RecordBatch> {
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        match field.data_type() {
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Struct(_) | DataType::Map(..) => {
                columns.push(Arc::new(json_texts(column, field)?));
                fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
            }
            DataType::Date32 | DataType::Timestamp(..) => {
                columns.push(Arc::new(unquoted(column, field)?));
                fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
            }
            _ => {
                columns.push(Arc::clone(column));
                fields.push(Arc::clone(field));
            }
        }
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(DataFusionError::from)?)
}

/// The batch with those columns of times as texts that have an infinity, for which Arrow has no text.
///
/// # Errors
/// [`Error::DataFusion`] for a column that is no table's.
pub fn infinity_as_text(batch: &RecordBatch) -> Result<RecordBatch> {
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let has_infinity = match column.data_type() {
            DataType::Date32 => column.as_primitive::<Date32Type>().values().iter().any(|day| matches!(*day, i32::MAX | i32::MIN)),
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                column.as_primitive::<TimestampMicrosecondType>().values().iter().any(|micros| matches!(*micros, i64::MAX | i64::MIN))
            }
            _ => false,
        };
        if has_infinity {
            columns.push(Arc::new(unquoted(column, field)?));
            fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
        } else {
            columns.push(Arc::clone(column));
            fields.push(Arc::clone(field));
        }
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(DataFusionError::from)?)
}

/// Times as JSON has them, without the quotes.
fn unquoted(column: &ArrayRef, field: &Field) -> Result<StringArray> {
    let texts = json_texts(column, field)?;
    Ok(texts.iter().map(|text| text.map(|text| text.trim_matches('"'))).collect())
}

/// The values of a column as JSON; NULL stays NULL.
pub(super) fn json_texts(column: &ArrayRef, field: &Field) -> Result<StringArray> {
    Ok(json_lines(field, column).map_err(DataFusionError::from)?)
}
