//! Rows as bytes, with what separates them known: a client gets one message for each row.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use rolloutdb_udfs::postgres::{JsonColumn, JsonReader};

use super::binary;
use super::delimited::{self, Layout};
use super::postgres::{binary_out, text_out};
use crate::error::Result;

/// A format of rows, and their columns.
pub enum RowWriter {
    Delimited { layout: Arc<Layout>, schema: SchemaRef },
    Binary { schema: SchemaRef },
    Jsonl,
}

/// Rows of one batch.
#[derive(Debug, Default)]
pub struct WrittenRows {
    pub bytes: Vec<u8>,
    /// Where each row ends in `bytes`.
    pub ends: Vec<usize>,
}

impl RowWriter {
    /// What comes before the rows: names, or the header of the binary format.
    pub fn begin(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Delimited { layout, schema } if layout.header != delimited::Header::None => {
                delimited::header(layout, schema.fields().iter().map(|field| field.name().as_str()), &mut out);
            }
            Self::Binary { .. } => {
                out.extend(binary::SIGNATURE);
                // No flags, and no extension of the header.
                out.extend([0_u8; 8]);
            }
            Self::Delimited { .. } | Self::Jsonl => {}
        }
        out
    }

    /// What comes after the rows.
    pub fn end(&self) -> Vec<u8> {
        match self {
            Self::Binary { .. } => binary::END.to_be_bytes().to_vec(),
            Self::Delimited { .. } | Self::Jsonl => Vec::new(),
        }
    }

    /// # Errors
    /// A value that its PostgreSQL type cannot hold.
    pub fn rows(&self, batch: &RecordBatch) -> Result<WrittenRows> {
        match self {
            Self::Delimited { layout, schema } => delimited_rows(layout, schema, batch),
            Self::Binary { schema } => binary_rows(schema, batch),
            Self::Jsonl => json_rows(batch),
        }
    }
}

fn delimited_rows(layout: &Layout, schema: &SchemaRef, batch: &RecordBatch) -> Result<WrittenRows> {
    let writers = schema.fields().iter().zip(batch.columns()).map(|(field, column)| text_out::writer(column, field));
    let writers = writers.collect::<Result<Vec<_>>>()?;
    let in_quotes: Vec<bool> = schema.fields().iter().map(|field| layout.is_csv && layout.force_quote.has(field.name())).collect();
    let nulls = nulls_of(batch);
    let mut written = WrittenRows::default();
    let mut buffer = Vec::new();
    for row in 0..batch.num_rows() {
        let value = |column: usize, out: &mut Vec<u8>| {
            let is_there = nulls[column].as_ref().is_none_or(|nulls| nulls.is_valid(row));
            if is_there {
                writers[column](row, out);
            }
            is_there
        };
        delimited::push_row(layout, &in_quotes, &mut buffer, value, &mut written.bytes);
        written.ends.push(written.bytes.len());
    }
    Ok(written)
}

fn binary_rows(schema: &SchemaRef, batch: &RecordBatch) -> Result<WrittenRows> {
    let writers = schema.fields().iter().zip(batch.columns()).map(|(field, column)| binary_out::writer(column, field));
    let writers = writers.collect::<Result<Vec<_>>>()?;
    let nulls = nulls_of(batch);
    let mut written = WrittenRows::default();
    for row in 0..batch.num_rows() {
        // A table has at most 1600 columns in PostgreSQL; the format has room for 32767.
        written.bytes.extend((writers.len() as i16).to_be_bytes());
        for (column, write) in writers.iter().enumerate() {
            let is_null = nulls[column].as_ref().is_some_and(|nulls| nulls.is_null(row));
            binary_out::push_sized(is_null, |out| write(row, out), &mut written.bytes);
        }
        written.ends.push(written.bytes.len());
    }
    Ok(written)
}

/// Of each column, also where a dictionary holds the NULL.
fn nulls_of(batch: &RecordBatch) -> Vec<Option<NullBuffer>> {
    batch.columns().iter().map(|column| column.logical_nulls()).collect()
}

/// One JSON object a line. Every line has every key: a NULL that is left out looks like a column that is not there.
///
/// # Errors
/// A value that its PostgreSQL type cannot hold.
pub fn json_rows(batch: &RecordBatch) -> Result<WrittenRows> {
    let schema = batch.schema();
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let key = serde_json::Value::from(field.name().as_str()).to_string();
        let column = JsonColumn::new(field, column, JsonReader::Lines).map_err(DataFusionError::from)?;
        columns.push((key, column));
    }
    let mut written = WrittenRows::default();
    for row in 0..batch.num_rows() {
        written.bytes.push(b'{');
        for (place, (key, column)) in columns.iter().enumerate() {
            written.bytes.extend_from_slice(if place > 0 { b"," } else { b"" });
            written.bytes.extend_from_slice(key.as_bytes());
            written.bytes.push(b':');
            column.write(row, &mut written.bytes);
        }
        written.bytes.extend_from_slice(b"}\n");
        written.ends.push(written.bytes.len());
    }
    Ok(written)
}
