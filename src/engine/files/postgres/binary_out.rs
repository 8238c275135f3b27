//! Values in binary form: network byte order, times counted from 2000-01-01.

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float16Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use rolloutdb_udfs::TextType;
use rolloutdb_udfs::postgres::numeric_binary;

use super::{EPOCH_DAYS, EPOCH_MICROS, WriteValue, is_infinite_date, is_infinite_time, plain};
use crate::error::{Error, Result};

/// The only version of jsonb's binary form; the JSON text follows it.
pub const JSONB_VERSION: u8 = 1;

/// What writes the values of a column, each without its length.
///
/// # Errors
/// [`Error::DataFusion`] for a value that its PostgreSQL type cannot hold, a number beyond bigint.
pub fn writer(array: &ArrayRef, field: &Field) -> Result<WriteValue> {
    typed_writer(array, field).map(|(write, _)| write)
}

/// The same, and the OID of the values' type (`pg_type.dat`), which an array names; 0 for vectors, of which there are no arrays.
fn typed_writer(array: &ArrayRef, field: &Field) -> Result<(WriteValue, u32)> {
    let array = plain::column(array, field)?;
    Ok(match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean().clone();
            (Box::new(move |row, out| out.push(values.value(row).into())), 16)
        }
        DataType::Int16 => {
            let values = array.as_primitive::<Int16Type>().clone();
            (Box::new(move |row, out| out.extend(values.value(row).to_be_bytes())), 21)
        }
        DataType::Int32 => {
            let values = array.as_primitive::<Int32Type>().clone();
            (Box::new(move |row, out| out.extend(values.value(row).to_be_bytes())), 23)
        }
        DataType::Int64 => {
            let values = array.as_primitive::<Int64Type>().clone();
            (Box::new(move |row, out| out.extend(values.value(row).to_be_bytes())), 20)
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().clone();
            (Box::new(move |row, out| out.extend(values.value(row).to_be_bytes())), 700)
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().clone();
            (Box::new(move |row, out| out.extend(values.value(row).to_be_bytes())), 701)
        }
        DataType::Decimal128(..) | DataType::Decimal256(..) => (numeric_writer(&array)?, 1700),
        DataType::Utf8 => text_writer(&array, field),
        DataType::Binary => {
            let values = array.as_binary::<i32>().clone();
            (Box::new(move |row, out| out.extend(values.value(row))), 17)
        }
        DataType::Date32 => {
            let values = array.as_primitive::<Date32Type>().clone();
            check_range(values.iter().flatten().all(|days| is_infinite_date(days) || days.checked_sub(EPOCH_DAYS).is_some()), "date")?;
            let since_2000 = |days: i32| if is_infinite_date(days) { days } else { days - EPOCH_DAYS };
            (Box::new(move |row, out| out.extend(since_2000(values.value(row)).to_be_bytes())), 1082)
        }
        DataType::Time64(_) => {
            let values = array.as_primitive::<Time64MicrosecondType>().clone();
            (Box::new(move |row, out| out.extend(values.value(row).to_be_bytes())), 1083)
        }
        DataType::Timestamp(_, zone) => {
            let (values, oid) = (array.as_primitive::<TimestampMicrosecondType>().clone(), if zone.is_some() { 1184 } else { 1114 });
            check_range(
                values.iter().flatten().all(|micros| is_infinite_time(micros) || micros.checked_sub(EPOCH_MICROS).is_some()),
                "timestamp",
            )?;
            let since_2000 = |micros: i64| if is_infinite_time(micros) { micros } else { micros - EPOCH_MICROS };
            (Box::new(move |row, out| out.extend(since_2000(values.value(row)).to_be_bytes())), oid)
        }
        DataType::Interval(_) => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>().clone();
            let write: WriteValue = Box::new(move |row, out| {
                let interval = values.value(row);
                out.extend((interval.nanoseconds / 1000).to_be_bytes());
                out.extend(interval.days.to_be_bytes());
                out.extend(interval.months.to_be_bytes());
            });
            (write, 1186)
        }
        DataType::List(item) => (array_writer(&array, item, field)?, 0),
        DataType::FixedSizeList(..) => (vector_writer(array.as_fixed_size_list())?, 0),
        other => return Err(Error::Internal(format!("{other} has no binary form"))),
    })
}

fn check_range(is_held: bool, what: &str) -> Result<()> {
    match is_held {
        true => Ok(()),
        false => {
            Err(DataFusionError::from(ArrowError::CastError(format!("{what} out of range: PostgreSQL counts from 2000-01-01"))).into())
        }
    }
}

fn numeric_writer(array: &ArrayRef) -> Result<WriteValue> {
    let scale = match array.data_type() {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => (*scale).max(0),
        other => return Err(Error::Internal(format!("{other} is no decimal"))),
    };
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let values = cast_with_options(array, &DataType::Decimal128(38, scale), &strict).map_err(DataFusionError::from)?;
    let values = values.as_primitive::<Decimal128Type>().clone();
    Ok(Box::new(move |row, out| numeric_binary::write(values.value(row), scale, out)))
}

/// Text is its own binary form; that of jsonb has a version before it, that of a uuid is its sixteen bytes.
fn text_writer(array: &ArrayRef, field: &Field) -> (WriteValue, u32) {
    let values = array.as_string::<i32>().clone();
    // What was made JSON here has no type in the field.
    let is_text = matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null);
    let oid = match TextType::of(field) {
        Some(TextType::Uuid) => {
            let write: WriteValue = Box::new(move |row, out| push_uuid(values.value(row), out));
            return (write, 2950);
        }
        Some(TextType::Jsonb) => {
            let write: WriteValue = Box::new(move |row, out| {
                out.push(JSONB_VERSION);
                out.extend(values.value(row).as_bytes());
            });
            return (write, 3802);
        }
        Some(TextType::Bit(_) | TextType::Varbit(_)) => {
            let oid = if matches!(TextType::of(field), Some(TextType::Bit(_))) { 1560 } else { 1562 };
            let write: WriteValue = Box::new(move |row, out| push_bits(values.value(row), out));
            return (write, oid);
        }
        Some(TextType::Json) => 114,
        Some(TextType::Varchar(_)) => 1043,
        Some(TextType::Char(_)) => 1042,
        None if is_text || matches!(field.data_type(), DataType::Dictionary(..)) => 25,
        None => 114,
    };
    (Box::new(move |row, out| out.extend(values.value(row).as_bytes())), oid)
}

/// The digits are those of a uuid: no other text is in such a column.
fn push_uuid(text: &str, out: &mut Vec<u8>) {
    let digits: Vec<u8> = text.bytes().filter_map(|byte| char::from(byte).to_digit(16)).map(|digit| digit as u8).collect();
    out.extend(digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low));
}

/// The number of bits, and eight of them in each byte, the first one highest.
pub fn push_bits(digits: &str, out: &mut Vec<u8>) {
    out.extend((digits.len() as i32).to_be_bytes());
    let byte = |eight: &[u8]| eight.iter().enumerate().fold(0_u8, |byte, (place, digit)| byte | ((digit & 1) << (7 - place)));
    out.extend(digits.as_bytes().chunks(8).map(byte));
}

/// Dimensions, whether there are NULLs, the items' type; their number and the index of the first; length and bytes of each.
fn array_writer(array: &ArrayRef, item: &Field, field: &Field) -> Result<WriteValue> {
    let list = array.as_list::<i32>().clone();
    let item = match TextType::of_items(field) {
        Some(text_type) => text_type.field(item.name(), true),
        None => item.clone(),
    };
    let (write_item, oid) = typed_writer(list.values(), &item)?;
    Ok(Box::new(move |row, out| {
        let (start, end) = (list.value_offsets()[row] as usize, list.value_offsets()[row + 1] as usize);
        let has_nulls = (start..end).any(|place| list.values().is_null(place));
        out.extend(i32::from(end > start).to_be_bytes());
        out.extend(i32::from(has_nulls).to_be_bytes());
        out.extend(oid.to_be_bytes());
        if end > start {
            out.extend(((end - start) as i32).to_be_bytes());
            out.extend(1_i32.to_be_bytes());
        }
        for place in start..end {
            push_sized(list.values().is_null(place), |out| write_item(place, out), out);
        }
    }))
}

/// A value after its length; a NULL has the length -1.
pub fn push_sized(is_null: bool, write: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    let start = out.len();
    out.extend((-1_i32).to_be_bytes());
    if !is_null {
        write(out);
        // A value beyond 2 GiB is in no batch: its offsets end there.
        let length = (out.len() - start - size_of::<i32>()) as i32;
        out[start..start + size_of::<i32>()].copy_from_slice(&length.to_be_bytes());
    }
}

/// pgvector's form: the width, two bytes of zero, and the numbers, of `halfvec` in half precision.
fn vector_writer(vectors: &FixedSizeListArray) -> Result<WriteValue> {
    let width = vectors.value_length() as usize;
    let push_width = move |out: &mut Vec<u8>| {
        out.extend((width as u16).to_be_bytes());
        out.extend([0_u8, 0]);
    };
    if *vectors.values().data_type() == DataType::Float16 {
        let values = vectors.values().as_primitive::<Float16Type>().clone();
        return Ok(Box::new(move |row, out| {
            push_width(out);
            out.extend(values.values()[row * width..(row + 1) * width].iter().flat_map(|number| number.to_be_bytes()));
        }));
    }
    let values = arrow::compute::cast(vectors.values(), &DataType::Float32).map_err(DataFusionError::from)?;
    let values = values.as_primitive::<Float32Type>().clone();
    Ok(Box::new(move |row, out| {
        push_width(out);
        out.extend(values.values()[row * width..(row + 1) * width].iter().flat_map(|number| number.to_be_bytes()));
    }))
}
