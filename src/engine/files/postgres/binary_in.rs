//! Columns of values in binary form.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, FieldRef, Float16Type, TimestampMicrosecondType};
use rolloutdb_udfs::TextType;
use rolloutdb_udfs::postgres::numeric_binary::{self, Number};

use super::binary_out::JSONB_VERSION;
use super::text_in::{self, VectorBuilder, item_field};
use super::{EPOCH_DAYS, EPOCH_MICROS, is_infinite_date, is_infinite_time};
use crate::engine::files::rows::Problem;
use crate::engine::typing::sql_type_of;
use crate::error::Fault;

/// A column of values; `None` is NULL.
///
/// # Errors
/// The first value that is not of the type (22P03), or breaks a rule of it.
pub fn read_field(values: &[Option<&[u8]>], field: &Field) -> Result<ArrayRef, Problem> {
    match (TextType::of(field), field.data_type()) {
        (None, DataType::Boolean) => scalars::<_, BooleanArray, 1>(values, field, |[byte]| Some(byte != 0)),
        (None, DataType::Int16) => scalars::<_, Int16Array, 2>(values, field, |bytes| Some(i16::from_be_bytes(bytes))),
        (None, DataType::Int32) => scalars::<_, Int32Array, 4>(values, field, |bytes| Some(i32::from_be_bytes(bytes))),
        (None, DataType::Int64) => scalars::<_, Int64Array, 8>(values, field, |bytes| Some(i64::from_be_bytes(bytes))),
        (None, DataType::Float32) => scalars::<_, Float32Array, 4>(values, field, |bytes| Some(f32::from_be_bytes(bytes))),
        (None, DataType::Float64) => scalars::<_, Float64Array, 8>(values, field, |bytes| Some(f64::from_be_bytes(bytes))),
        (None, DataType::Date32) => {
            let since_1970 = |days| if is_infinite_date(days) { Some(days) } else { days.checked_add(EPOCH_DAYS) };
            scalars::<_, Date32Array, 4>(values, field, |bytes| since_1970(i32::from_be_bytes(bytes)))
        }
        (None, DataType::Time64(_)) => {
            let times = scalars::<_, Time64MicrosecondArray, 8>(values, field, |bytes| Some(i64::from_be_bytes(bytes)))?;
            cast(&times, field.data_type()).map_err(|error| Problem::new(0, error))
        }
        (None, DataType::Timestamp(unit, zone)) => {
            let since_1970 = |micros| if is_infinite_time(micros) { Some(micros) } else { micros.checked_add(EPOCH_MICROS) };
            let times = scalars::<_, TimestampMicrosecondArray, 8>(values, field, |bytes| since_1970(i64::from_be_bytes(bytes)))?;
            let times = times.as_primitive::<TimestampMicrosecondType>().clone().with_timezone_opt(zone.clone());
            cast(&times, &DataType::Timestamp(*unit, zone.clone())).map_err(|error| Problem::new(0, error))
        }
        (None, DataType::Binary) => Ok(Arc::new(values.iter().copied().collect::<BinaryArray>())),
        (None, DataType::Decimal128(..)) => {
            let texts = values
                .iter()
                .enumerate()
                .map(|(row, value)| value.map(|bytes| decimal(bytes).ok_or_else(|| incorrect(row, field))).transpose());
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            text_in::read_field(&texts.iter().map(Option::as_deref).collect::<Vec<_>>(), field)
        }
        (None, DataType::List(item)) => arrays(values, field, item),
        (None, DataType::FixedSizeList(item, width)) if item.data_type().is_floating() => vectors(values, field, item, *width),
        (Some(TextType::Uuid), _) => {
            let texts = values
                .iter()
                .enumerate()
                .map(|(row, value)| value.map(|bytes| uuid_text(bytes).ok_or_else(|| incorrect(row, field))).transpose());
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            text_in::read_field(&texts.iter().map(Option::as_deref).collect::<Vec<_>>(), field)
        }
        (Some(TextType::Bit(_) | TextType::Varbit(_)), _) => {
            let texts = values
                .iter()
                .enumerate()
                .map(|(row, value)| value.map(|bytes| bits_text(bytes).ok_or_else(|| incorrect(row, field))).transpose());
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            text_in::read_field(&texts.iter().map(Option::as_deref).collect::<Vec<_>>(), field)
        }
        (Some(_), _) | (None, DataType::Utf8) => texts(values, field),
        _ => Err(Problem { fault: Fault::Bytes, ..Problem::new(0, format!("{} has no binary form", sql_type_of(field))) }),
    }
}

fn incorrect(row: usize, field: &Field) -> Problem {
    Problem { fault: Fault::Bytes, ..Problem::new(row, format!("incorrect binary data for {}", sql_type_of(field))) }
}

/// Values of so many bytes each.
fn scalars<T, A, const N: usize>(values: &[Option<&[u8]>], field: &Field, read: impl Fn([u8; N]) -> Option<T>) -> Result<ArrayRef, Problem>
where
    A: FromIterator<Option<T>> + Array + 'static,
{
    let mut scalars = Vec::with_capacity(values.len());
    for (row, value) in values.iter().enumerate() {
        scalars.push(match value {
            None => None,
            Some(bytes) => Some(<[u8; N]>::try_from(*bytes).ok().and_then(&read).ok_or_else(|| incorrect(row, field))?),
        });
    }
    Ok(Arc::new(A::from_iter(scalars)))
}

fn texts(values: &[Option<&[u8]>], field: &Field) -> Result<ArrayRef, Problem> {
    let is_jsonb = TextType::of(field) == Some(TextType::Jsonb);
    let mut texts = Vec::with_capacity(values.len());
    for (row, value) in values.iter().enumerate() {
        texts.push(match value {
            Some(bytes) => Some(text(bytes, is_jsonb).ok_or_else(|| incorrect(row, field))?),
            None => None,
        });
    }
    text_in::read_field(&texts, field)
}

fn text(bytes: &[u8], is_jsonb: bool) -> Option<&str> {
    let text = if is_jsonb { bytes.strip_prefix(&[JSONB_VERSION])? } else { bytes };
    std::str::from_utf8(text).ok()
}

/// A column of decimals has neither NaN nor infinities.
fn decimal(bytes: &[u8]) -> Option<String> {
    match numeric_binary::read(bytes)? {
        Number::Decimal(digits) => Some(digits),
        Number::Float(_) | Number::TooLarge => None,
    }
}

fn uuid_text(bytes: &[u8]) -> Option<String> {
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The number of bits, and eight of them in each byte, the first one highest.
fn bits_text(bytes: &[u8]) -> Option<String> {
    let (length, bytes) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok().filter(|length| bytes.len() == length.div_ceil(8))?;
    let mut text: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    text.truncate(length);
    Some(text)
}

fn vectors(values: &[Option<&[u8]>], field: &Field, item: &FieldRef, width: i32) -> Result<ArrayRef, Problem> {
    let mut numbers = VectorBuilder::new(values.len(), width);
    for (row, value) in values.iter().enumerate() {
        let Some(bytes) = value else {
            numbers.push_null();
            continue;
        };
        let Some(([high, low, 0, 0], bytes)) = bytes.split_first_chunk() else { return Err(incorrect(row, field)) };
        let found = usize::from(u16::from_be_bytes([*high, *low]));
        if item.data_type() == &DataType::Float16 {
            let (halves, rest) = bytes.as_chunks::<2>();
            if halves.len() != found || !rest.is_empty() {
                return Err(incorrect(row, field));
            }
            halves.iter().for_each(|half| numbers.push_number(<Float16Type as ArrowPrimitiveType>::Native::from_be_bytes(*half).to_f32()));
        } else {
            let (singles, rest) = bytes.as_chunks::<4>();
            if singles.len() != found || !rest.is_empty() {
                return Err(incorrect(row, field));
            }
            singles.iter().for_each(|single| numbers.push_number(f32::from_be_bytes(*single)));
        }
        numbers.end_vector(row)?;
    }
    numbers.finish(item)
}

fn arrays(values: &[Option<&[u8]>], field: &Field, item: &FieldRef) -> Result<ArrayRef, Problem> {
    let mut items = Vec::new();
    let (mut owners, mut lengths) = (Vec::new(), Vec::with_capacity(values.len()));
    for (row, value) in values.iter().enumerate() {
        let before = items.len();
        if let Some(bytes) = value {
            push_items(bytes, &mut items).ok_or_else(|| incorrect(row, field))?;
        }
        let length = items.len() - before;
        lengths.push(length);
        owners.extend(std::iter::repeat_n(row, length));
    }
    let column = read_field(&items, &item_field(field, item)).map_err(|problem| Problem { row: owners[problem.row], ..problem })?;
    let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
    text_in::list(item, lengths, column, nulls)
}

/// The items of one array; `None` if it is damaged, or has more than one dimension. That its items are of the column's type shows when they are read.
fn push_items<'a>(bytes: &'a [u8], items: &mut Vec<Option<&'a [u8]>>) -> Option<()> {
    let mut rest = bytes;
    let mut word = || {
        let (word, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        Some(i32::from_be_bytes(*word))
    };
    let num_dimensions = word()?;
    let (_has_nulls, _item_type) = (word()?, word()?);
    let count = match num_dimensions {
        0 => 0,
        1 => {
            let count = word()?;
            let _first_index = word()?;
            count
        }
        _ => return None,
    };
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        let length = i32::from_be_bytes(*length);
        if length == -1 {
            items.push(None);
            continue;
        }
        let (item, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        items.push(Some(item));
        rest = after;
    }
    rest.is_empty().then_some(())
}
