//! JSON values to Arrow columns.
//!
//! A text column takes a string as it is and any other value as its JSON text, so that FlashRAG's `metadata` objects load into `text`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, Float32Array, Float64Array, Int64Array, ListArray, StringArray,
    StringBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type};
use rolloutdb_udfs::{TextType, is_plain_numeric};

use super::checked;
use super::json::{elements, shortened, unquoted};
use super::rows::Problem;
use crate::engine::typing::sql_type_name;

/// A column of JSON values, each of them valid; `None` is NULL. One of type `json` has them as they were written, strings with their quotes.
///
/// # Errors
/// The first value that is not of the type.
pub fn read_field(values: &[Option<&str>], field: &Field) -> Result<ArrayRef, Problem> {
    match (TextType::of(field), TextType::of_items(field), field.data_type()) {
        (Some(text_type), ..) => read_texts(values, text_type),
        (None, Some(item_type), DataType::List(item)) => list(values, item, |items| read_texts(items, item_type)),
        _ => {
            let column = read(values, field.data_type())?;
            if is_plain_numeric(field) {
                checked::digits(&texts(values)?)?;
            }
            Ok(column)
        }
    }
}

fn read_texts(values: &[Option<&str>], text_type: TextType) -> Result<ArrayRef, Problem> {
    match text_type {
        TextType::Json => Ok(Arc::new(values.iter().copied().collect::<StringArray>())),
        TextType::Jsonb => checked::texts(values.iter().copied(), text_type),
        TextType::Uuid | TextType::Varchar(_) | TextType::Char(_) | TextType::Bit(_) | TextType::Varbit(_) => {
            checked::texts(&texts(values)?, text_type)
        }
    }
}

/// The same by the Arrow type.
pub fn read(values: &[Option<&str>], data_type: &DataType) -> Result<ArrayRef, Problem> {
    match data_type {
        DataType::Utf8 => Ok(Arc::new(texts(values)?)),
        DataType::Boolean => scalars::<_, BooleanArray>(values, data_type, |value| value.parse().ok()),
        DataType::Int64 => scalars::<_, Int64Array>(values, data_type, |value| value.parse().ok()),
        DataType::Float64 => scalars::<_, Float64Array>(values, data_type, number),
        DataType::Float32 => scalars::<_, Float32Array>(values, data_type, |value| number(value).map(|value| value as f32)),
        DataType::Binary => checked::bytes(&texts(values)?),
        DataType::FixedSizeList(item, width) if *item.data_type() == DataType::Float16 => {
            let single = Arc::new(item.as_ref().clone().with_data_type(DataType::Float32));
            checked::halves(fixed_size_list(values, &single, *width)?.as_fixed_size_list(), item)
        }
        DataType::List(item) => list(values, item, |items| read(items, item.data_type())),
        DataType::FixedSizeList(item, width) => fixed_size_list(values, item, *width),
        other => through_text(values, other),
    }
}

fn texts(values: &[Option<&str>]) -> Result<StringArray, Problem> {
    let mut texts = StringBuilder::with_capacity(values.len(), values.iter().flatten().map(|value| value.len()).sum());
    for (row, value) in values.iter().enumerate() {
        match value {
            Some(value) => texts.append_value(unquoted(value).map_err(|reason| Problem::new(row, reason))?),
            None => texts.append_null(),
        }
    }
    Ok(texts.finish())
}

fn scalars<T, A>(values: &[Option<&str>], data_type: &DataType, read: impl Fn(&str) -> Option<T>) -> Result<ArrayRef, Problem>
where
    A: FromIterator<Option<T>> + Array + 'static,
{
    let mut scalars = Vec::with_capacity(values.len());
    for (row, value) in values.iter().enumerate() {
        scalars.push(match value {
            None => None,
            Some(value) => Some(read(value).ok_or_else(|| expected(row, &sql_type_name(data_type), value))?),
        });
    }
    Ok(Arc::new(A::from_iter(scalars)))
}

/// Not a number beyond the type. NaN and infinity, which JSON does not have, are strings.
fn number(value: &str) -> Option<f64> {
    match value {
        "\"NaN\"" => Some(f64::NAN),
        "\"Infinity\"" => Some(f64::INFINITY),
        "\"-Infinity\"" => Some(f64::NEG_INFINITY),
        _ => value.parse().ok().filter(|number: &f64| number.is_finite()),
    }
}

fn expected(row: usize, what: &str, found: &str) -> Problem {
    Problem::new(row, format!("expected {what}, found {}", shortened(found)))
}

fn list(
    values: &[Option<&str>],
    item: &FieldRef,
    read_items: impl Fn(&[Option<&str>]) -> Result<ArrayRef, Problem>,
) -> Result<ArrayRef, Problem> {
    let Flattened { items, owners, lengths, nulls } = flatten(values)?;
    let items = read_items(&items).map_err(|problem| Problem { row: owners[problem.row], ..problem })?;
    let array = ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), items, Some(nulls));
    array.map(|array| Arc::new(array) as ArrayRef).map_err(|error| Problem::new(0, error))
}

fn fixed_size_list(values: &[Option<&str>], item: &FieldRef, width: i32) -> Result<ArrayRef, Problem> {
    let Flattened { items, owners, lengths, nulls } = flatten(values)?;
    let is_wrong = |row: &usize| nulls.is_valid(*row) && lengths[*row] != width as usize;
    if let Some(row) = (0..values.len()).find(is_wrong) {
        checked::width(row, lengths[row], width as usize)?;
    }
    // A vector has neither NaN nor infinity, which are strings in JSON.
    if let Some(place) = items.iter().position(|item| item.is_some_and(|item| item.starts_with('"'))) {
        return Err(expected(owners[place], &sql_type_name(item.data_type()), items[place].unwrap_or_default()));
    }
    let items = read(&items, item.data_type()).map_err(|problem| Problem { row: owners[problem.row], ..problem })?;
    // JSON has numbers that are beyond single precision.
    if let Some(numbers) = items.as_primitive_opt::<Float32Type>()
        && let Some(place) = numbers.values().iter().position(|number| !number.is_finite())
    {
        checked::elements(owners[place], &numbers.values()[place..])?;
    }
    // A NULL row still takes `width` places in the child.
    let mut next = 0..items.len() as u32;
    let places = nulls.iter().flat_map(|is_there| {
        let mut row = if is_there { next.by_ref().take(width as usize).map(Some).collect() } else { Vec::new() };
        row.resize(width as usize, None);
        row
    });
    let places = arrow::array::UInt32Array::from_iter(places.collect::<Vec<_>>());
    let child = arrow::compute::take(&items, &places, None);
    let array = child.and_then(|child| FixedSizeListArray::try_new(Arc::clone(item), width, child, Some(nulls)));
    array.map(|array| Arc::new(array) as ArrayRef).map_err(|error| Problem::new(0, error))
}

/// The items of all lists.
struct Flattened<'a> {
    items: Vec<Option<&'a str>>,
    /// The row of each item.
    owners: Vec<usize>,
    /// Of the lists.
    lengths: Vec<usize>,
    nulls: NullBuffer,
}

fn flatten<'a>(values: &[Option<&'a str>]) -> Result<Flattened<'a>, Problem> {
    let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
    let mut flattened = Flattened { items: Vec::new(), owners: Vec::new(), lengths: Vec::with_capacity(values.len()), nulls };
    for (row, value) in values.iter().enumerate() {
        let before = flattened.items.len();
        if let Some(value) = value {
            let push = |item: &'a str| {
                flattened.items.push(Some(item).filter(|item| *item != "null"));
                Ok(())
            };
            elements(value, push).map_err(|reason| Problem::new(row, reason))?;
        }
        let length = flattened.items.len() - before;
        flattened.owners.extend(std::iter::repeat_n(row, length));
        flattened.lengths.push(length);
    }
    Ok(flattened)
}

/// Types that JSON does not have (dates, small integers, numerics) are read from the value's text: times as PostgreSQL reads them, others by Arrow's cast.
fn through_text(values: &[Option<&str>], data_type: &DataType) -> Result<ArrayRef, Problem> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let texts = texts(values)?;
    if let Some(times) = checked::times(texts.iter(), data_type) {
        return times;
    }
    if let Ok(array) = cast_with_options(&texts, data_type, &strict) {
        return Ok(array);
    }
    let is_wrong = |row: &usize| cast_with_options(&texts.slice(*row, 1), data_type, &strict).is_err();
    let row = (0..values.len()).find(is_wrong).unwrap_or(0);
    Err(expected(row, &sql_type_name(data_type), values[row].unwrap_or("null")))
}
