//! Values whose text has a rule, `json`, `jsonb`, `uuid`, `varchar(n)` and `bytea`: read as a cast reads them, so that a bad one is a bad line of its file.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, Date32Array, FixedSizeListArray, Float16Array, IntervalMonthDayNanoArray, StringBuilder,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, FieldRef, Float32Type, IntervalUnit, TimeUnit, TimestampMicrosecondType};
use rolloutdb_udfs::postgres::{parse_date, parse_interval, parse_time, parse_timestamp};
use rolloutdb_udfs::{TextType, check_digits, parse_bytea, vector};

use super::json::shortened;
use super::rows::Problem;
use crate::engine::typing::sql_type_name;
use crate::error::Fault;

/// Texts of a type with a rule, as a column takes them.
pub fn texts<'a>(values: impl IntoIterator<Item = Option<&'a str>>, text_type: TextType) -> Result<ArrayRef, Problem> {
    let mut texts = StringBuilder::new();
    for (row, value) in values.into_iter().enumerate() {
        texts.append_option(value.map(|value| text_type.parse(value)).transpose().map_err(|error| refused(row, &error))?);
    }
    Ok(Arc::new(texts.finish()))
}

pub fn bytes<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> Result<ArrayRef, Problem> {
    let mut bytes = BinaryBuilder::new();
    for (row, value) in values.into_iter().enumerate() {
        bytes.append_option(value.map(parse_bytea).transpose().map_err(|error| problem(row, &error))?);
    }
    Ok(Arc::new(bytes.finish()))
}

/// Vectors in half precision; `item` is their field.
pub fn halves(vectors: &FixedSizeListArray, item: &FieldRef) -> Result<ArrayRef, Problem> {
    let width = vectors.value_length();
    let mut halves = Vec::with_capacity(vectors.values().len());
    for (place, value) in vectors.values().as_primitive::<Float32Type>().iter().enumerate() {
        let row = place / width.max(1) as usize;
        halves.push(value.map(vector::to_half).transpose().map_err(|error| refused(row, &error))?);
    }
    let halves = Arc::new(halves.into_iter().collect::<Float16Array>());
    let array = FixedSizeListArray::try_new(Arc::clone(item), width, halves, vectors.nulls().cloned());
    array.map(|array| Arc::new(array) as ArrayRef).map_err(|error| problem(0, &error))
}

/// Refuses the numbers of a row's vector that none holds.
pub fn elements(row: usize, numbers: &[f32]) -> Result<(), Problem> {
    vector::check_elements(numbers, "vector").map_err(|error| refused(row, &error))
}

/// Refuses a vector of another width than its column's.
pub fn width(row: usize, found: usize, expected: usize) -> Result<(), Problem> {
    match found == expected {
        true => Ok(()),
        false => Err(refused(row, &rolloutdb_udfs::Error::Width { found, expected })),
    }
}

/// The numbers of a vector in pgvector's text form.
pub fn vector_text(row: usize, text: &str) -> Result<Vec<f32>, Problem> {
    vector::parse_vector(text).map_err(|error| refused(row, &error))
}

/// Dates, times of day, instants and intervals in the forms of PostgreSQL; `None` for another type.
pub fn times<'a>(values: impl IntoIterator<Item = Option<&'a str>>, data_type: &DataType) -> Option<Result<ArrayRef, Problem>> {
    let expected = || sql_type_name(data_type);
    Some(match data_type {
        DataType::Date32 => each::<_, Date32Array>(values, expected, parse_date),
        DataType::Time64(TimeUnit::Microsecond) => each::<_, Time64MicrosecondArray>(values, expected, parse_time),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let instants = each::<_, TimestampMicrosecondArray>(values, expected, |text| parse_timestamp(text, zone.is_some()));
            let with_zone = |instants: ArrayRef| {
                let instants = instants.as_primitive::<TimestampMicrosecondType>().clone();
                Arc::new(instants.with_timezone_opt(zone.clone())) as ArrayRef
            };
            instants.map(with_zone)
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => each::<_, IntervalMonthDayNanoArray>(values, expected, parse_interval),
        _ => return None,
    })
}

fn each<'a, T, A>(
    values: impl IntoIterator<Item = Option<&'a str>>,
    expected: impl Fn() -> String,
    read: impl Fn(&str) -> Option<T>,
) -> Result<ArrayRef, Problem>
where
    A: FromIterator<Option<T>> + Array + 'static,
{
    let each = values.into_iter().enumerate().map(|(row, value)| {
        let Some(text) = value else { return Ok(None) };
        let found = read(text).ok_or_else(|| Problem::new(row, format!("expected {}, found '{}'", expected(), shortened(text))))?;
        Ok(Some(found))
    });
    Ok(Arc::new(each.collect::<Result<A, Problem>>()?))
}

/// Refuses a number with more digits than a `numeric` keeps whose digits were not declared.
pub fn digits<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> Result<(), Problem> {
    for (row, value) in values.into_iter().enumerate() {
        value.map_or(Ok(()), check_digits).map_err(|error| refused(row, &error))?;
    }
    Ok(())
}

fn refused(row: usize, error: &rolloutdb_udfs::Error) -> Problem {
    Problem { fault: Fault::of(error), ..problem(row, error) }
}

fn problem(row: usize, error: &impl ToString) -> Problem {
    Problem::new(row, error.to_string())
}
