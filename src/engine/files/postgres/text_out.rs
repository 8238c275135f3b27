//! Values as text.

use std::fmt::{Display, LowerExp};

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Field, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::error::DataFusionError;
use rolloutdb_udfs::format_bytea;

use super::WriteValue;
use super::array_text::push_item;
use super::plain;
use super::times::{push_date, push_interval, push_time, push_timestamp, put};
use crate::error::{Error, Result};

/// What writes the values of a column.
///
/// # Errors
/// [`Error::DataFusion`] for a value that its PostgreSQL type cannot hold, a number beyond bigint.
pub fn writer(array: &ArrayRef, field: &Field) -> Result<WriteValue> {
    let array = plain::column(array, field)?;
    Ok(match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean().clone();
            Box::new(move |row, out| out.push(if values.value(row) { b't' } else { b'f' }))
        }
        DataType::Int16 => {
            let values = array.as_primitive::<Int16Type>().clone();
            Box::new(move |row, out| put(out, format_args!("{}", values.value(row))))
        }
        DataType::Int32 => {
            let values = array.as_primitive::<Int32Type>().clone();
            Box::new(move |row, out| put(out, format_args!("{}", values.value(row))))
        }
        DataType::Int64 => {
            let values = array.as_primitive::<Int64Type>().clone();
            Box::new(move |row, out| put(out, format_args!("{}", values.value(row))))
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().clone();
            Box::new(move |row, out| push_float(values.value(row), values.value(row).is_finite(), 6, out))
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().clone();
            Box::new(move |row, out| push_float(values.value(row), values.value(row).is_finite(), 15, out))
        }
        DataType::Decimal128(..) => {
            let values = array.as_primitive::<Decimal128Type>().clone();
            Box::new(move |row, out| out.extend(values.value_as_string(row).as_bytes()))
        }
        DataType::Decimal256(..) => {
            let values = array.as_primitive::<Decimal256Type>().clone();
            Box::new(move |row, out| out.extend(values.value_as_string(row).as_bytes()))
        }
        DataType::Utf8 => {
            let values = array.as_string::<i32>().clone();
            Box::new(move |row, out| out.extend(values.value(row).as_bytes()))
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>().clone();
            Box::new(move |row, out| out.extend(format_bytea(values.value(row)).as_bytes()))
        }
        DataType::Date32 => {
            let values = array.as_primitive::<Date32Type>().clone();
            Box::new(move |row, out| push_date(values.value(row).into(), out))
        }
        DataType::Time64(_) => {
            let values = array.as_primitive::<Time64MicrosecondType>().clone();
            Box::new(move |row, out| push_time(values.value(row), out))
        }
        DataType::Timestamp(_, zone) => {
            let (values, has_zone) = (array.as_primitive::<TimestampMicrosecondType>().clone(), zone.is_some());
            Box::new(move |row, out| push_timestamp(values.value(row), has_zone, out))
        }
        DataType::Interval(_) => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>().clone();
            Box::new(move |row, out| push_interval(values.value(row), out))
        }
        DataType::List(item) => {
            let list = array.as_list::<i32>().clone();
            let write_item = writer(list.values(), item)?;
            Box::new(move |row, out| {
                let mut text = Vec::new();
                out.push(b'{');
                let (start, end) = (list.value_offsets()[row] as usize, list.value_offsets()[row + 1] as usize);
                for place in start..end {
                    if place > start {
                        out.push(b',');
                    }
                    if list.values().is_null(place) {
                        out.extend(b"NULL");
                    } else {
                        text.clear();
                        write_item(place, &mut text);
                        push_item(&text, out);
                    }
                }
                out.push(b'}');
            })
        }
        DataType::FixedSizeList(..) => vector_writer(array.as_fixed_size_list())?,
        other => return Err(Error::Internal(format!("{other} has no text form"))),
    })
}

/// As pgvector writes a vector: `[1,2.5]`; each number is the shortest that reads back as the same value.
fn vector_writer(vectors: &FixedSizeListArray) -> Result<WriteValue> {
    let width = vectors.value_length() as usize;
    if *vectors.values().data_type() == DataType::Float64 {
        let values = vectors.values().as_primitive::<Float64Type>().clone();
        return Ok(Box::new(move |row, out| push_vector(&values.values()[row * width..(row + 1) * width], out)));
    }
    let values = cast(vectors.values(), &DataType::Float32).map_err(DataFusionError::from)?;
    let values = values.as_primitive::<Float32Type>().clone();
    Ok(Box::new(move |row, out| push_vector(&values.values()[row * width..(row + 1) * width], out)))
}

fn push_vector(numbers: &[impl Display], out: &mut Vec<u8>) {
    out.push(b'[');
    for (place, number) in numbers.iter().enumerate() {
        put(out, format_args!("{}{number}", if place > 0 { "," } else { "" }));
    }
    out.push(b']');
}

/// As PostgreSQL: `0.1`, `1e+20`, `Infinity`. `digits_max`: from this many digits before the point on, with an exponent.
fn push_float(value: impl Display + LowerExp, is_finite: bool, digits_max: i32, out: &mut Vec<u8>) {
    let scientific = format!("{value:e}");
    match scientific.split_once('e').and_then(|(mantissa, exponent)| Some((mantissa, exponent.parse::<i32>().ok()?))) {
        Some((mantissa, exponent)) if is_finite && !(-4..digits_max).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            put(out, format_args!("{mantissa}e{sign}{:02}", exponent.abs()));
        }
        _ if is_finite => put(out, format_args!("{value}")),
        _ => match scientific.as_str() {
            "inf" => out.extend(b"Infinity"),
            "-inf" => out.extend(b"-Infinity"),
            _ => out.extend(b"NaN"),
        },
    }
}
