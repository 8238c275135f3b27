//! The values of `$1 ...` of a job's statement, kept with the job: as one row in Arrow's format of files, so that each has its type when it is read again.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use rolloutdb_udfs::postgres::{Column, ValueType};

use crate::engine::secrets::Secrets;
use crate::error::{Error, Result};

/// Bytes of a value that are shown.
const SHOWN_BYTES_MAX: usize = 1024;

/// As a text for the job's file; `None` for a statement without parameters.
///
/// # Errors
/// [`Error::DataFusion`] for a value that Arrow cannot write.
pub fn kept(values: &[ScalarValue]) -> Result<Option<String>> {
    if values.is_empty() {
        return Ok(None);
    }
    let columns = values.iter().map(ScalarValue::to_array).collect::<Result<Vec<ArrayRef>, _>>()?;
    let fields = columns.iter().enumerate().map(|(position, column)| {
        let name = format!("${}", position + 1);
        Field::new(name, column.data_type().clone(), true)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(DataFusionError::from)?;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).map_err(DataFusionError::from)?;
    writer.write(&batch).map_err(DataFusionError::from)?;
    let bytes = writer.into_inner().map_err(DataFusionError::from)?;
    Ok(Some(STANDARD.encode(bytes)))
}

/// The values again.
///
/// # Errors
/// [`Error::Internal`] for a text that is none of [`kept`]'s.
pub fn read(kept: Option<&str>) -> Result<Vec<ScalarValue>> {
    let Some(kept) = kept else { return Ok(Vec::new()) };
    let broken = |reason: String| Error::Internal(format!("the parameters that are kept of a job cannot be read: {reason}"));
    let bytes = STANDARD.decode(kept).map_err(|error| broken(error.to_string()))?;
    let mut batches = StreamReader::try_new(Cursor::new(bytes), None).map_err(|error| broken(error.to_string()))?;
    let batch = batches.next().ok_or_else(|| broken("there is no row".to_owned()))?.map_err(|error| broken(error.to_string()))?;
    Ok(batch.columns().iter().map(|column| ScalarValue::try_from_array(column, 0)).collect::<Result<_, _>>()?)
}

/// The values as others may see them: without those of the server's secrets, and not longer than is useful.
///
/// # Errors
/// Those of a value that has no text.
pub fn shown(values: &[ScalarValue], secrets: &Secrets) -> Result<Vec<Option<String>>> {
    values.iter().map(|value| Ok(text_of(value)?.map(|text| shortened(secrets.redact(text))))).collect()
}

fn text_of(value: &ScalarValue) -> Result<Option<String>> {
    if value.is_null() {
        return Ok(None);
    }
    let array = value.to_array()?;
    let value_type = ValueType::of(&Field::new("", array.data_type().clone(), true));
    let mut text = Vec::new();
    Column::new(&value_type, &array).map_err(DataFusionError::from)?.write_text(0, &mut text);
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(SHOWN_BYTES_MAX));
    text
}
