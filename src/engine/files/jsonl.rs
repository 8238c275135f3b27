//! JSON Lines: one object a line.
//!
//! A text column takes a string as it is and any other value as its JSON text, so that FlashRAG's `metadata` objects load into `text`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Float64Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions,
    StringArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use serde_json::Value;

use super::{BATCH_ROWS, bad_input};
use crate::error::Result;

pub fn read(path: &Path, file: File, schema: &SchemaRef, emit: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()> {
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut rows = Rows { path, schema, objects: Vec::with_capacity(BATCH_ROWS), lines: Vec::with_capacity(BATCH_ROWS) };
    let mut text = String::new();
    for line in 1.. {
        text.clear();
        let num_bytes = reader.read_line(&mut text).map_err(|error| bad_input(path, Some(line), error))?;
        if num_bytes == 0 {
            break;
        }
        if text.trim().is_empty() {
            continue;
        }
        match serde_json::from_str::<Value>(&text) {
            Ok(value @ Value::Object(_)) => rows.push(value, line),
            Ok(other) => return Err(bad_input(path, Some(line), format!("expected a JSON object, found {}", kind(&other)))),
            Err(error) => return Err(bad_input(path, Some(line), error)),
        }
        if rows.objects.len() == BATCH_ROWS && !emit(rows.take()?) {
            return Ok(());
        }
    }
    if !rows.objects.is_empty() {
        emit(rows.take()?);
    }
    Ok(())
}

struct Rows<'a> {
    path: &'a Path,
    schema: &'a SchemaRef,
    objects: Vec<Value>,
    lines: Vec<usize>,
}

impl Rows<'_> {
    fn push(&mut self, object: Value, line: usize) {
        self.objects.push(object);
        self.lines.push(line);
    }

    fn take(&mut self) -> Result<RecordBatch> {
        let objects = std::mem::take(&mut self.objects);
        let lines = std::mem::take(&mut self.lines);
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            let values: Vec<Option<&Value>> =
                objects.iter().map(|object| object.get(field.name()).filter(|value| !value.is_null())).collect();
            let column = column(&values, field.data_type()).map_err(|problem| {
                let line = lines.get(problem.row).copied();
                bad_input(self.path, line, format!("column {}: {}", field.name(), problem.reason))
            })?;
            columns.push(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(objects.len()));
        RecordBatch::try_new_with_options(Arc::clone(self.schema), columns, &options)
            .map_err(|error| bad_input(self.path, lines.first().copied(), format!("in the {} lines from here: {error}", lines.len())))
    }
}

/// What is wrong with the value in a row of the batch.
pub(super) struct Problem {
    pub row: usize,
    pub reason: String,
}

pub(super) fn column(values: &[Option<&Value>], data_type: &DataType) -> Result<ArrayRef, Problem> {
    match data_type {
        DataType::Utf8 => Ok(Arc::new(values.iter().map(|value| value.map(text)).collect::<StringArray>())),
        DataType::Boolean => scalars::<_, BooleanArray>(values, data_type, Value::as_bool),
        DataType::Int64 => scalars::<_, Int64Array>(values, data_type, Value::as_i64),
        DataType::Float64 => scalars::<_, Float64Array>(values, data_type, Value::as_f64),
        DataType::Float32 => scalars::<_, Float32Array>(values, data_type, |value| value.as_f64().map(|value| value as f32)),
        DataType::List(item) => list(values, item),
        DataType::FixedSizeList(item, width) => fixed_size_list(values, item, *width),
        other => through_text(values, other),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn scalars<T, A>(values: &[Option<&Value>], data_type: &DataType, read: impl Fn(&Value) -> Option<T>) -> Result<ArrayRef, Problem>
where
    A: FromIterator<Option<T>> + arrow::array::Array + 'static,
{
    let mut scalars = Vec::with_capacity(values.len());
    for (row, value) in values.iter().enumerate() {
        scalars.push(match value {
            None => None,
            Some(value) => Some(read(value).ok_or_else(|| Problem { row, reason: format!("expected {data_type}, found {value}") })?),
        });
    }
    Ok(Arc::new(A::from_iter(scalars)))
}

fn list(values: &[Option<&Value>], item: &FieldRef) -> Result<ArrayRef, Problem> {
    let (items, owners, lengths, nulls) = flatten(values, |_| Ok(()))?;
    let items = column(&items, item.data_type()).map_err(|problem| Problem { row: owners[problem.row], reason: problem.reason })?;
    let array = ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), items, Some(nulls));
    array.map(|array| Arc::new(array) as ArrayRef).map_err(|error| Problem { row: 0, reason: error.to_string() })
}

fn fixed_size_list(values: &[Option<&Value>], item: &FieldRef, width: i32) -> Result<ArrayRef, Problem> {
    let null_item = Value::Null;
    let (items, owners, _, nulls) = flatten(values, |found| {
        if found == width as usize { Ok(()) } else { Err(format!("expected a vector of width {width}, found width {found}")) }
    })?;
    // A NULL row still takes `width` places in the child.
    let mut padded: Vec<Option<&Value>> = Vec::with_capacity(values.len() * width as usize);
    let mut rest = items.into_iter();
    for value in values {
        match value {
            Some(_) => padded.extend(rest.by_ref().take(width as usize)),
            None => padded.extend(std::iter::repeat_n(Some(&null_item).filter(|value| !value.is_null()), width as usize)),
        }
    }
    let row_of = |index: usize| if owners.is_empty() { 0 } else { index / width.max(1) as usize };
    let child = column(&padded, item.data_type()).map_err(|problem| Problem { row: row_of(problem.row), reason: problem.reason })?;
    let array = FixedSizeListArray::try_new(Arc::clone(item), width, child, Some(nulls));
    array.map(|array| Arc::new(array) as ArrayRef).map_err(|error| Problem { row: 0, reason: error.to_string() })
}

type Flattened<'a> = (Vec<Option<&'a Value>>, Vec<usize>, Vec<usize>, NullBuffer);

/// The items of all lists, for each item its row, the lists' lengths, and which rows are not NULL.
fn flatten<'a>(values: &[Option<&'a Value>], check: impl Fn(usize) -> Result<(), String>) -> Result<Flattened<'a>, Problem> {
    let (mut items, mut owners, mut lengths) = (Vec::new(), Vec::new(), Vec::with_capacity(values.len()));
    for (row, value) in values.iter().enumerate() {
        match value {
            None => lengths.push(0),
            Some(Value::Array(array)) => {
                check(array.len()).map_err(|reason| Problem { row, reason })?;
                items.extend(array.iter().map(|item| Some(item).filter(|item| !item.is_null())));
                owners.extend(std::iter::repeat_n(row, array.len()));
                lengths.push(array.len());
            }
            Some(other) => return Err(Problem { row, reason: format!("expected an array, found {}", kind(other)) }),
        }
    }
    let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
    Ok((items, owners, lengths, nulls))
}

/// Types that JSON does not have (dates, small integers, numerics) are read from the value's text by Arrow's cast.
fn through_text(values: &[Option<&Value>], data_type: &DataType) -> Result<ArrayRef, Problem> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let texts: StringArray = values.iter().map(|value| value.map(text)).collect();
    if let Ok(array) = cast_with_options(&texts, data_type, &strict) {
        return Ok(array);
    }
    let wrong = |row: &usize| cast_with_options(&texts.slice(*row, 1), data_type, &strict).is_err();
    let row = (0..values.len()).find(wrong).unwrap_or(0);
    let found = values[row].map(ToString::to_string).unwrap_or_default();
    Err(Problem { row, reason: format!("expected {data_type}, found {found}") })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
