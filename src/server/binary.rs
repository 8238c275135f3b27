//! Values in binary form, as PostgreSQL's send functions write them: network byte order, times counted from 2000-01-01.

use datafusion::arrow::datatypes::{ArrowPrimitiveType, Float16Type, IntervalMonthDayNano};
use pgwire::error::PgWireResult;
use rolloutdb_udfs::postgres::numeric_binary as numeric;
use rolloutdb_udfs::postgres::{Column, Items, Values};

use super::response::client_error;
use super::wire_type::wire_type;

/// Days from 1970-01-01, where Arrow counts from, to 2000-01-01.
pub(super) const EPOCH_DAYS: i32 = 10_957;
pub(super) const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// The only version of jsonb's binary form; the JSON text follows it.
pub(super) const JSONB_VERSION: u8 = 1;

/// Dimensions of an array, as in PostgreSQL.
pub(super) const DIMENSIONS_MAX: usize = 6;

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// The number of bits, and eight of them in each byte, the first one highest.
fn write_bits(digits: &str, out: &mut Vec<u8>) {
    // A string of bits has at most 83886080 of them.
    out.extend_from_slice(&(digits.len() as i32).to_be_bytes());
    let byte = |eight: &[u8]| eight.iter().enumerate().fold(0_u8, |byte, (place, digit)| byte | ((digit & 1) << (7 - place)));
    out.extend(digits.as_bytes().chunks(8).map(byte));
}

/// Writes the value of a row, which is not NULL, without its length.
///
/// # Errors
/// 22008 for a time beyond what PostgreSQL counts; 2202E for an array of arrays of different lengths, which has no binary form; 54000 for one of more
/// dimensions than six.
pub(super) fn write(column: &Column, row: usize, out: &mut Vec<u8>) -> PgWireResult<()> {
    match &column.values {
        Values::Bool(values) => out.push(u8::from(values.value(row))),
        Values::Int2(values) => out.extend_from_slice(&values.value(row).to_be_bytes()),
        Values::Int4(values) => out.extend_from_slice(&values.value(row).to_be_bytes()),
        Values::Int8(values) => out.extend_from_slice(&values.value(row).to_be_bytes()),
        // Four bytes without a sign; a catalog has no other numbers.
        Values::Oid(values) => out.extend_from_slice(&(values.value(row) as u32).to_be_bytes()),
        Values::Float4(values) => out.extend_from_slice(&values.value(row).to_be_bytes()),
        Values::Float8(values) => out.extend_from_slice(&values.value(row).to_be_bytes()),
        Values::Numeric(values) => {
            let (value, scale) = column.decimal(values, row);
            numeric::write(value, scale, out);
        }
        Values::WideNumeric(_) => {
            let mut text = Vec::new();
            column.write_text(row, &mut text);
            numeric::write_text(&text, out);
        }
        Values::Text(values) => out.extend_from_slice(values.value(row).as_bytes()),
        Values::Padded(..) => column.write_text(row, out),
        Values::Jsonb(values) => {
            out.push(JSONB_VERSION);
            out.extend_from_slice(values.value(row).as_bytes());
        }
        Values::Uuid(values) => write_uuid(values.value(row), out)?,
        Values::Bits(values) => write_bits(values.value(row), out),
        Values::Bytea(values) => out.extend_from_slice(values.value(row)),
        Values::Date(values) => out.extend_from_slice(&date(values.value(row))?.to_be_bytes()),
        Values::Time(values) => out.extend_from_slice(&values.value(row).to_be_bytes()),
        Values::Timestamp(values) | Values::Timestamptz(values) => out.extend_from_slice(&timestamp(values.value(row))?.to_be_bytes()),
        Values::Interval(values) => write_interval(values.value(row), out),
        Values::Vector(vectors) => write_vector(vectors.get(row), out, |number, out| out.extend_from_slice(&number.to_be_bytes())),
        Values::Halfvec(vectors) => {
            write_vector(vectors.get(row), out, |number, out| out.extend_from_slice(&Half::from_f32(number).to_be_bytes()));
        }
        Values::Array(items) => write_array(items, i32::from(!column.value_type.counts_from_zero()), row, out)?,
        Values::Record(columns) => write_record(columns, row, out)?,
    }
    Ok(())
}

/// A value behind its length, as messages, arrays and records have it; -1 is the length of NULL.
pub(super) fn write_sized(column: &Column, row: usize, out: &mut Vec<u8>) -> PgWireResult<()> {
    sized(column, row, out, |out| write(column, row, out))
}

/// The same for any form of the value.
pub(super) fn sized(
    column: &Column,
    row: usize,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> PgWireResult<()>,
) -> PgWireResult<()> {
    const NULL: i32 = -1;
    if column.is_null(row) {
        out.extend_from_slice(&NULL.to_be_bytes());
        return Ok(());
    }
    let place = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let length = out.len() - place - 4;
    let Ok(length) = i32::try_from(length) else {
        return Err(client_error("54000", format!("a value of {length} bytes is too long for a message; select a part of it")));
    };
    out[place..place + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// The text is one that was checked when it entered.
fn write_uuid(text: &str, out: &mut Vec<u8>) -> PgWireResult<()> {
    let digits = text.chars().filter(|character| *character != '-').map(|character| character.to_digit(16));
    let digits = digits.collect::<Option<Vec<_>>>().filter(|digits| digits.len() == 32);
    let Some(digits) = digits else {
        return Err(client_error("22P02", format!("invalid input syntax for type uuid: \"{text}\"")));
    };
    // Two digits below 16 make a byte.
    out.extend(digits.chunks_exact(2).map(|pair| ((pair[0] << 4) | pair[1]) as u8));
    Ok(())
}

/// The ends of the range are the infinities in both countings.
fn date(days: i32) -> PgWireResult<i32> {
    if matches!(days, i32::MIN | i32::MAX) {
        return Ok(days);
    }
    days.checked_sub(EPOCH_DAYS).ok_or_else(|| client_error("22008", "date out of range".to_owned()))
}

fn timestamp(micros: i64) -> PgWireResult<i64> {
    if matches!(micros, i64::MIN | i64::MAX) {
        return Ok(micros);
    }
    micros.checked_sub(EPOCH_MICROS).ok_or_else(|| client_error("22008", "timestamp out of range".to_owned()))
}

fn write_interval(interval: IntervalMonthDayNano, out: &mut Vec<u8>) {
    out.extend_from_slice(&(interval.nanoseconds / 1_000).to_be_bytes());
    out.extend_from_slice(&interval.days.to_be_bytes());
    out.extend_from_slice(&interval.months.to_be_bytes());
}

/// pgvector's form: the width, two bytes of zero, and the numbers.
fn write_vector(numbers: &[f32], out: &mut Vec<u8>, write_number: impl Fn(f32, &mut Vec<u8>)) {
    // The widest vector has 16000 numbers.
    out.extend_from_slice(&(numbers.len() as u16).to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    for number in numbers {
        write_number(*number, out);
    }
}

/// Dimensions, whether there are NULLs, the type of the items; size and lower bound (`first`) of each dimension; then the items.
fn write_array(items: &Items, first: i32, row: usize, out: &mut Vec<u8>) -> PgWireResult<()> {
    let (item_type, depth) = items.column.value_type.innermost();
    let item_oid = wire_type(item_type).oid();
    if !items.has_any(row) {
        write_words([0, 0], out);
        out.extend_from_slice(&item_oid.to_be_bytes());
        return Ok(());
    }
    let mut sizes = [0; DIMENSIONS_MAX];
    let Some(sizes) = sizes.get_mut(..=depth) else {
        return Err(client_error(
            "54000",
            format!("an array has at most {DIMENSIONS_MAX} dimensions; select its items, or to_json(array)"),
        ));
    };
    if !measure(items, row, sizes, true) {
        let message =
            "multidimensional arrays must have sub-arrays with matching dimensions in binary form; select to_json(array), or ask for text";
        return Err(client_error("2202E", message.to_owned()));
    }
    write_words([word(sizes.len()), i32::from(has_nulls(items, row))], out);
    out.extend_from_slice(&item_oid.to_be_bytes());
    for size in sizes.iter() {
        write_words([word(*size), first], out);
    }
    write_items(items, row, out)
}

/// Finds the lengths of an array and of those in it, from the outside to the inside; `false` if they differ or an array is NULL.
fn measure(items: &Items, row: usize, sizes: &mut [usize], is_first: bool) -> bool {
    let mut range = items.range(row);
    let Some((size, inner_sizes)) = sizes.split_first_mut() else { return false };
    if is_first {
        *size = range.len();
    } else if *size != range.len() {
        return false;
    }
    let Values::Array(inner) = &items.column.values else { return true };
    let start = range.start;
    range.all(|place| !items.column.is_null(place) && measure(inner, place, inner_sizes, is_first && place == start))
}

fn has_nulls(items: &Items, row: usize) -> bool {
    let mut range = items.range(row);
    match &items.column.values {
        Values::Array(inner) => range.any(|place| has_nulls(inner, place)),
        _ => range.any(|place| items.column.is_null(place)),
    }
}

fn write_items(items: &Items, row: usize, out: &mut Vec<u8>) -> PgWireResult<()> {
    for place in items.range(row) {
        match &items.column.values {
            Values::Array(inner) => write_items(inner, place, out)?,
            _ => write_sized(&items.column, place, out)?,
        }
    }
    Ok(())
}

/// The number of columns; of each its type and its value.
fn write_record(columns: &[Column], row: usize, out: &mut Vec<u8>) -> PgWireResult<()> {
    out.extend_from_slice(&word(columns.len()).to_be_bytes());
    for column in columns {
        out.extend_from_slice(&wire_type(&column.value_type).oid().to_be_bytes());
        write_sized(column, row, out)?;
    }
    Ok(())
}

fn write_words(words: [i32; 2], out: &mut Vec<u8>) {
    for word in words {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

/// Arrow counts items in signed words too.
fn word(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
