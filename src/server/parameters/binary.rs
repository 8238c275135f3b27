//! Values in binary form: network byte order, times counted from 2000-01-01.

use std::sync::Arc;

use bytes::Buf;
use datafusion::arrow::array::{ArrayRef, FixedSizeListArray, Float16Array, Float32Array};
use datafusion::arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Float16Type, IntervalMonthDayNano};
use datafusion::common::ScalarValue;
use rolloutdb_udfs::postgres::numeric_binary::{self as numeric, Number};
use rolloutdb_udfs::postgres::{CatalogType, ValueType};
use rolloutdb_udfs::vector::DIMENSIONS_MAX as WIDTH_MAX;

use super::{Unreadable, list, text};
use crate::server::binary::{DIMENSIONS_MAX, EPOCH_DAYS, EPOCH_MICROS, JSONB_VERSION};
use crate::server::wire_type::declared_type;

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// The first byte of a vector in text form. In the binary form it would begin a width beyond the widest.
const VECTOR_TEXT: u8 = b'[';

/// A value of a type, which takes all of `bytes`.
pub(super) fn read(bytes: &[u8], value_type: &ValueType) -> Result<ScalarValue, Unreadable> {
    let mut rest = bytes;
    let value = match value_type {
        ValueType::Bool => ScalarValue::Boolean(Some(rest.try_get_u8()? != 0)),
        ValueType::Int2 => ScalarValue::Int16(Some(rest.try_get_i16()?)),
        ValueType::Int4 => ScalarValue::Int32(Some(rest.try_get_i32()?)),
        ValueType::Int8 => ScalarValue::Int64(Some(rest.try_get_i64()?)),
        ValueType::Catalog(CatalogType::Oid | CatalogType::Xid) => ScalarValue::Int64(Some(rest.try_get_u32()?.into())),
        ValueType::Float4 => ScalarValue::Float32(Some(rest.try_get_f32()?)),
        ValueType::Float8 => ScalarValue::Float64(Some(rest.try_get_f64()?)),
        ValueType::Date => ScalarValue::Date32(Some(date(rest.try_get_i32()?)?)),
        ValueType::Time => ScalarValue::Time64Microsecond(Some(time(rest.try_get_i64()?)?)),
        ValueType::Timestamp => ScalarValue::TimestampMicrosecond(Some(timestamp(rest.try_get_i64()?)?), None),
        ValueType::Timestamptz => ScalarValue::TimestampMicrosecond(Some(timestamp(rest.try_get_i64()?)?), Some("+00:00".into())),
        ValueType::Interval => interval(&mut rest)?,
        ValueType::Array(_) => return array(bytes),
        _ => return whole(bytes, value_type),
    };
    if rest.is_empty() { Ok(value) } else { Err(Unreadable::Bytes) }
}

/// Types whose values are as long as the bytes are.
fn whole(bytes: &[u8], value_type: &ValueType) -> Result<ScalarValue, Unreadable> {
    match value_type {
        ValueType::Bytea => Ok(ScalarValue::Binary(Some(bytes.to_vec()))),
        ValueType::Uuid => {
            let bytes: [u8; 16] = bytes.try_into().map_err(|_| Unreadable::Bytes)?;
            Ok(ScalarValue::Utf8(Some(uuid(bytes))))
        }
        ValueType::Numeric(_) => match numeric::read(bytes).ok_or(Unreadable::Bytes)? {
            Number::Decimal(digits) => text::numeric(&digits),
            Number::Float(number) => Ok(ScalarValue::Float64(Some(number))),
            Number::TooLarge => Err(Unreadable::Range),
        },
        ValueType::Jsonb => match bytes {
            [JSONB_VERSION, text @ ..] => text::read(super::checked_text(text)?, value_type),
            _ => Err(Unreadable::Bytes),
        },
        ValueType::Vector(_) | ValueType::Halfvec(_) if bytes.first() == Some(&VECTOR_TEXT) => {
            text::read(super::checked_text(bytes)?, value_type)
        }
        ValueType::Vector(_) => {
            let numbers = numbers(bytes, f32::from_be_bytes)?;
            check_elements(numbers.iter().copied())?;
            vector(Arc::new(Float32Array::from(numbers)), DataType::Float32)
        }
        ValueType::Halfvec(_) => {
            let numbers = numbers(bytes, Half::from_be_bytes)?;
            check_elements(numbers.iter().map(|number| number.to_f32()))?;
            vector(Arc::new(Float16Array::from_iter_values(numbers)), DataType::Float16)
        }
        ValueType::Bit(_) | ValueType::Varbit(_) => bits(bytes).map(|bits| ScalarValue::Utf8(Some(bits))).ok_or(Unreadable::Bytes),
        // Of records a client does not say which.
        ValueType::Record(_) => Err(Unreadable::Unsupported),
        _ => text::read(super::checked_text(bytes)?, value_type),
    }
}

/// The ends of the range are the infinities in both countings.
fn date(days: i32) -> Result<i32, Unreadable> {
    if matches!(days, i32::MIN | i32::MAX) { Ok(days) } else { days.checked_add(EPOCH_DAYS).ok_or(Unreadable::TimeRange) }
}

fn timestamp(micros: i64) -> Result<i64, Unreadable> {
    if matches!(micros, i64::MIN | i64::MAX) { Ok(micros) } else { micros.checked_add(EPOCH_MICROS).ok_or(Unreadable::TimeRange) }
}

fn time(micros: i64) -> Result<i64, Unreadable> {
    if (0..=86_400_000_000).contains(&micros) { Ok(micros) } else { Err(Unreadable::TimeRange) }
}

/// Microseconds, days, months. Arrow counts nanoseconds.
fn interval(rest: &mut &[u8]) -> Result<ScalarValue, Unreadable> {
    let (micros, days, months) = (rest.try_get_i64()?, rest.try_get_i32()?, rest.try_get_i32()?);
    let nanos = micros.checked_mul(1_000).ok_or(Unreadable::TimeRange)?;
    Ok(ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(months, days, nanos))))
}

fn uuid(bytes: [u8; 16]) -> String {
    let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The number of bits, and eight of them in each byte, the first one highest.
fn bits(bytes: &[u8]) -> Option<String> {
    let (length, bytes) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    if bytes.len() != length.div_ceil(8) {
        return None;
    }
    let mut text: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    text.truncate(length);
    Some(text)
}

fn check_elements(numbers: impl Iterator<Item = f32>) -> Result<(), Unreadable> {
    let found = |number: f32| if number.is_nan() { "NaN" } else { "infinite value" };
    numbers.into_iter().find(|number| !number.is_finite()).map_or(Ok(()), |number| Err(Unreadable::NotFinite { found: found(number) }))
}

/// The numbers of pgvector's binary form: the width, two bytes of zero, and each number.
fn numbers<T, const SIZE: usize>(bytes: &[u8], read: fn([u8; SIZE]) -> T) -> Result<Vec<T>, Unreadable> {
    let Some(([high, low, 0, 0], numbers)) = bytes.split_first_chunk() else { return Err(Unreadable::Bytes) };
    let (numbers, rest) = numbers.as_chunks::<SIZE>();
    let width = usize::from(u16::from_be_bytes([*high, *low]));
    let is_whole = rest.is_empty() && numbers.len() == width && (1..=WIDTH_MAX).contains(&width);
    if is_whole { Ok(numbers.iter().map(|number| read(*number)).collect()) } else { Err(Unreadable::Bytes) }
}

fn vector(numbers: ArrayRef, item: DataType) -> Result<ScalarValue, Unreadable> {
    // At most as wide as the widest vector.
    let width = i32::try_from(numbers.len()).map_err(|_| Unreadable::Bytes)?;
    let field = Arc::new(Field::new_list_field(item, true));
    let array = FixedSizeListArray::try_new(field, width, numbers, None).map_err(|_| Unreadable::Bytes)?;
    Ok(ScalarValue::FixedSizeList(Arc::new(array)))
}

/// Dimensions, a flag for NULLs, the type of the items, size and lower bound per dimension, then length and bytes per item.
fn array(bytes: &[u8]) -> Result<ScalarValue, Unreadable> {
    let mut rest = bytes;
    let num_dimensions = usize::try_from(rest.try_get_i32()?).ok().filter(|count| *count <= DIMENSIONS_MAX).ok_or(Unreadable::Bytes)?;
    if !matches!(rest.try_get_i32()?, 0 | 1) {
        return Err(Unreadable::Bytes);
    }
    let item_type = declared_type(rest.try_get_u32()?).ok_or(Unreadable::Unsupported)?;
    // Arrays of arrays have more dimensions instead; an array type here would let a message nest without end.
    if matches!(item_type, ValueType::Array(_)) {
        return Err(Unreadable::Bytes);
    }
    let mut lengths = Vec::with_capacity(num_dimensions);
    let mut count = usize::from(num_dimensions > 0);
    for _ in 0..num_dimensions {
        let length = usize::try_from(rest.try_get_i32()?).map_err(|_| Unreadable::Bytes)?;
        let _lower_bound = rest.try_get_i32()?;
        count = count.checked_mul(length).ok_or(Unreadable::Bytes)?;
        lengths.push(length);
    }
    // Every item has four bytes of length, so a count beyond that is damage and must not reserve memory.
    if count > rest.remaining() / size_of::<i32>() {
        return Err(Unreadable::Bytes);
    }
    let items = (0..count).map(|_| item(&mut rest, &item_type)).collect::<Result<Vec<_>, _>>()?;
    if rest.has_remaining() {
        return Err(Unreadable::Bytes);
    }
    list::list(items, if count == 0 { &[] } else { lengths.as_slice() }, &item_type)
}

fn item(bytes: &mut &[u8], item_type: &ValueType) -> Result<Option<ScalarValue>, Unreadable> {
    const NULL: i32 = -1;
    let length = bytes.try_get_i32()?;
    if length == NULL {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| Unreadable::Bytes)?;
    let (value, rest) = bytes.split_at_checked(length).ok_or(Unreadable::Bytes)?;
    *bytes = rest;
    read(value, item_type).map(Some)
}

impl From<bytes::TryGetError> for Unreadable {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Bytes
    }
}
