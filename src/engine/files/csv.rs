//! CSV with a header by default. Vectors and lists are written as JSON arrays in a quoted field.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format as CsvFormat;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde_json::Value;

use super::jsonl;
use super::{BATCH_ROWS, CsvOptions, bad_input};
use crate::error::Result;

pub fn read(path: &Path, mut file: File, options: CsvOptions, schema: &SchemaRef, emit: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()> {
    let names = column_names(path, &mut file, options, schema)?;
    // Everything is read as text first: Arrow's own error for a value does not say which line it is in.
    let text_schema = Schema::new(names.iter().map(|name| Field::new(name, DataType::Utf8, true)).collect::<Vec<_>>());
    let reader = ReaderBuilder::new(Arc::new(text_schema))
        .with_format(format(options))
        .with_batch_size(BATCH_ROWS)
        .build(file)
        .map_err(|error| bad_input(path, None, error))?;
    let mut line = 1 + usize::from(options.has_header);
    for batch in reader {
        let batch = batch.map_err(|error| bad_input(path, Some(line), error))?;
        if !emit(convert(path, &batch, schema, line)?) {
            return Ok(());
        }
        line += batch.num_rows();
    }
    Ok(())
}

fn format(options: CsvOptions) -> CsvFormat {
    CsvFormat::default().with_header(options.has_header).with_delimiter(options.delimiter)
}

fn column_names(path: &Path, file: &mut File, options: CsvOptions, schema: &SchemaRef) -> Result<Vec<String>> {
    if !options.has_header {
        return Ok(schema.fields().iter().map(|field| field.name().clone()).collect());
    }
    let mut header = String::new();
    BufReader::new(&mut *file).read_line(&mut header).map_err(|error| bad_input(path, Some(1), error))?;
    file.seek(SeekFrom::Start(0)).map_err(|error| bad_input(path, None, error))?;
    let (inferred, _) = format(options).infer_schema(header.as_bytes(), Some(0)).map_err(|error| bad_input(path, Some(1), error))?;
    let names: Vec<String> = inferred.fields().iter().map(|field| field.name().trim().to_owned()).collect();
    if !schema.fields().iter().any(|field| names.contains(field.name())) {
        return Err(bad_input(path, Some(1), format!("the header has none of the table's columns: {}", header.trim())));
    }
    Ok(names)
}

fn convert(path: &Path, batch: &RecordBatch, schema: &SchemaRef, first_line: usize) -> Result<RecordBatch> {
    let columns = schema
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(texts) => typed(texts.as_string::<i32>(), field.data_type())
                .map_err(|(row, reason)| bad_input(path, Some(first_line + row), format!("column {}: {reason}", field.name()))),
            None => Ok(arrow::array::new_null_array(field.data_type(), batch.num_rows())),
        })
        .collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|error| bad_input(path, Some(first_line), error))
}

fn typed(texts: &StringArray, data_type: &DataType) -> Result<ArrayRef, (usize, String)> {
    if matches!(data_type, DataType::List(_) | DataType::FixedSizeList(..)) {
        return nested(texts, data_type);
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(texts, data_type, &strict).map_err(|_| {
        let wrong = |row: &usize| cast_with_options(&texts.slice(*row, 1), data_type, &strict).is_err();
        let row = (0..texts.len()).find(wrong).unwrap_or(0);
        (row, format!("expected {data_type}, found '{}'", texts.value(row)))
    })
}

fn nested(texts: &StringArray, data_type: &DataType) -> Result<ArrayRef, (usize, String)> {
    let mut values: Vec<Option<Value>> = Vec::with_capacity(texts.len());
    for (row, text) in texts.iter().enumerate() {
        values.push(match text {
            None | Some("") => None,
            Some(text) => Some(serde_json::from_str(text).map_err(|error| (row, format!("expected a JSON array: {error}")))?),
        });
    }
    let values: Vec<Option<&Value>> = values.iter().map(Option::as_ref).collect();
    jsonl::column(&values, data_type).map_err(|problem| (problem.row, problem.reason))
}
