//! Columns of values in text form.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Float32Builder, Float64Array, Int16Array, Int32Array,
    Int64Array, ListArray, StringArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef};
use rolloutdb_udfs::TextType;
use rolloutdb_udfs::postgres::{parse_array, parse_bool};

use crate::engine::files::rows::Problem;
use crate::engine::files::{checked, csv, json};
use crate::engine::typing::sql_type_name;
use crate::error::Fault;

/// A column of texts; `None` is NULL.
///
/// # Errors
/// The first text that is not of the type.
pub fn read_field(values: &[Option<&str>], field: &Field) -> Result<ArrayRef, Problem> {
    let column = match (TextType::of(field), field.data_type()) {
        (None, DataType::Utf8) => Ok(Arc::new(values.iter().copied().collect::<StringArray>()) as ArrayRef),
        (None, DataType::Boolean) => scalars::<_, BooleanArray>(values, field, parse_bool),
        (None, DataType::Int16) => scalars::<_, Int16Array>(values, field, |text| text.trim().parse().ok()),
        (None, DataType::Int32) => scalars::<_, Int32Array>(values, field, |text| text.trim().parse().ok()),
        (None, DataType::Int64) => scalars::<_, Int64Array>(values, field, |text| text.trim().parse().ok()),
        (None, DataType::Float32) => scalars::<_, Float32Array>(values, field, |text| text.trim().parse().ok()),
        (None, DataType::Float64) => scalars::<_, Float64Array>(values, field, |text| text.trim().parse().ok()),
        (None, DataType::List(item)) if !values.iter().flatten().all(|text| text.trim_start().starts_with('[')) => {
            arrays(values, field, item)
        }
        (None, DataType::FixedSizeList(item, width)) if item.data_type().is_floating() => vectors(values, item, *width),
        // Lists in brackets are JSON.
        _ => csv::read_column(values, field),
    };
    column.map_err(|problem| match problem.fault {
        Fault::Form => Problem { fault: Fault::Syntax, ..problem },
        _ => problem,
    })
}

fn scalars<T, A>(values: &[Option<&str>], field: &Field, read: impl Fn(&str) -> Option<T>) -> Result<ArrayRef, Problem>
where
    A: FromIterator<Option<T>> + Array + 'static,
{
    let mut scalars = Vec::with_capacity(values.len());
    for (row, value) in values.iter().enumerate() {
        scalars.push(match value {
            None => None,
            Some(text) => {
                let expected = || format!("expected {}, found '{}'", sql_type_name(field.data_type()), json::shortened(text));
                Some(read(text).ok_or_else(|| Problem::new(row, expected()))?)
            }
        });
    }
    Ok(Arc::new(A::from_iter(scalars)))
}

fn arrays(values: &[Option<&str>], field: &Field, item: &FieldRef) -> Result<ArrayRef, Problem> {
    let mut texts = Vec::new();
    let (mut owners, mut lengths) = (Vec::new(), Vec::with_capacity(values.len()));
    for (row, value) in values.iter().enumerate() {
        let items = match value {
            Some(text) => items_of(text).map_err(|reason| Problem::new(row, reason))?,
            None => Vec::new(),
        };
        lengths.push(items.len());
        owners.extend(std::iter::repeat_n(row, items.len()));
        texts.extend(items);
    }
    let items: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
    let items = read_field(&items, &item_field(field, item)).map_err(|problem| Problem { row: owners[problem.row], ..problem })?;
    let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
    list(item, lengths, items, nulls)
}

/// The items of an array of one dimension.
///
/// # Errors
/// Why the text is not one.
fn items_of(text: &str) -> Result<Vec<Option<String>>, String> {
    let items = parse_array(text).ok_or_else(|| format!("expected an array, as in {{1,2}}, found '{}'", json::shortened(text)))?;
    if items.lengths.len() > 1 {
        return Err("expected an array of one dimension".to_owned());
    }
    Ok(items.texts)
}

/// The field of an array's items, with the rule of their text.
pub fn item_field(field: &Field, item: &Field) -> Field {
    match TextType::of_items(field) {
        Some(text_type) => text_type.field(item.name(), true),
        None => item.clone(),
    }
}

pub fn list(item: &FieldRef, lengths: Vec<usize>, items: ArrayRef, nulls: NullBuffer) -> Result<ArrayRef, Problem> {
    let array = ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), items, Some(nulls));
    array.map(|array| Arc::new(array) as ArrayRef).map_err(|error| Problem::new(0, error))
}

/// `[1,2.5]`, as pgvector reads it.
fn vectors(values: &[Option<&str>], item: &FieldRef, width: i32) -> Result<ArrayRef, Problem> {
    let mut numbers = VectorBuilder::new(values.len(), width);
    for (row, value) in values.iter().enumerate() {
        let Some(text) = value else {
            numbers.push_null();
            continue;
        };
        checked::vector_text(row, text)?.into_iter().for_each(|number| numbers.push_number(number));
        numbers.end_vector(row)?;
    }
    numbers.finish(item)
}

/// Vectors of one width, in single precision until they are whole.
pub struct VectorBuilder {
    numbers: Float32Builder,
    presence: Vec<bool>,
    width: i32,
}

impl VectorBuilder {
    pub fn new(num_rows: usize, width: i32) -> Self {
        Self { numbers: Float32Builder::with_capacity(num_rows * width as usize), presence: Vec::with_capacity(num_rows), width }
    }

    pub fn push_number(&mut self, number: f32) {
        self.numbers.append_value(number);
    }

    pub fn push_null(&mut self) {
        self.numbers.append_nulls(self.width as usize);
        self.presence.push(false);
    }

    /// # Errors
    /// Unless the numbers since the last vector are as many as its width, and such as vectors hold.
    pub fn end_vector(&mut self, row: usize) -> Result<(), Problem> {
        let found = self.numbers.len() - self.presence.len() * self.width as usize;
        checked::width(row, found, self.width as usize)?;
        checked::elements(row, &self.numbers.values_slice()[self.numbers.len() - found..])?;
        self.presence.push(true);
        Ok(())
    }

    /// # Errors
    /// A number that is beyond half precision, if `item` is of it.
    pub fn finish(mut self, item: &FieldRef) -> Result<ArrayRef, Problem> {
        let single = Arc::new(item.as_ref().clone().with_data_type(DataType::Float32));
        let nulls = NullBuffer::from_iter(self.presence);
        let array = FixedSizeListArray::try_new(single, self.width, Arc::new(self.numbers.finish()), Some(nulls));
        let array = array.map_err(|error| Problem::new(0, error))?;
        match item.data_type() {
            DataType::Float32 => Ok(Arc::new(array)),
            DataType::Float16 => checked::halves(&array, item),
            other => Err(Problem::new(0, format!("vectors of {other} cannot be read"))),
        }
    }
}
