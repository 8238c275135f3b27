//! Parquet: columns by name, cast to the table's types where nothing is lost.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::SchemaRef;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::{BATCH_ROWS, bad_input};
use crate::error::Result;

pub fn read(path: &Path, file: File, schema: &SchemaRef, emit: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| bad_input(path, None, error))?;
    let reader = builder.with_batch_size(BATCH_ROWS).build().map_err(|error| bad_input(path, None, error))?;
    for batch in reader {
        let batch = batch.map_err(|error| bad_input(path, None, error))?;
        if !emit(convert(path, &batch, schema)?) {
            return Ok(());
        }
    }
    Ok(())
}

fn convert(path: &Path, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let columns = schema
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(column) => cast_with_options(column, field.data_type(), &strict)
                .map_err(|error| bad_input(path, None, format!("column {}: {error}", field.name()))),
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
        })
        .collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|error| bad_input(path, None, error))
}
