//! Values in text form.

use std::sync::Arc;

use datafusion::arrow::array::{FixedSizeListArray, Float16Array, Float32Array};
use datafusion::arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Float16Type};
use datafusion::common::ScalarValue;
use rolloutdb_udfs::TextType;
use rolloutdb_udfs::postgres::{CatalogType, ValueType, parse_array, parse_bool, parse_date, parse_interval, parse_time, parse_timestamp};

use super::{Unreadable, list};

/// The largest precision of a decimal, in digits (Arrow's `Decimal128`).
const DECIMAL_DIGITS_MAX: usize = 38;

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// A value of a type. Blanks round it mean nothing, but for those of texts.
pub(super) fn read(text: &str, value_type: &ValueType) -> Result<ScalarValue, Unreadable> {
    let trimmed = text.trim();
    match value_type {
        ValueType::Bool => parse_bool(trimmed).map(|value| ScalarValue::Boolean(Some(value))).ok_or(Unreadable::Syntax),
        ValueType::Int2 => Ok(ScalarValue::Int16(Some(integer(trimmed)?))),
        ValueType::Int4 => Ok(ScalarValue::Int32(Some(integer(trimmed)?))),
        ValueType::Int8 => Ok(ScalarValue::Int64(Some(integer(trimmed)?))),
        ValueType::Catalog(CatalogType::Oid | CatalogType::Xid) => Ok(ScalarValue::Int64(Some(integer::<u32>(trimmed)?.into()))),
        ValueType::Float4 => Ok(ScalarValue::Float32(Some(single(trimmed)?))),
        ValueType::Float8 => Ok(ScalarValue::Float64(Some(double(trimmed)?))),
        ValueType::Numeric(_) => numeric(trimmed),
        ValueType::Text | ValueType::Varchar(_) | ValueType::Catalog(_) => Ok(ScalarValue::Utf8(Some(text.to_owned()))),
        // Blanks at its end mean nothing, and are not kept.
        ValueType::Char(_) => Ok(ScalarValue::Utf8(Some(text.trim_end_matches(' ').to_owned()))),
        ValueType::Json => checked(text, TextType::Json),
        ValueType::Jsonb => checked(text, TextType::Jsonb),
        ValueType::Uuid => checked(trimmed, TextType::Uuid),
        // Their lengths are checked where they are assigned.
        ValueType::Bit(_) | ValueType::Varbit(_) => checked(trimmed, TextType::Varbit(None)),
        ValueType::Bytea => rolloutdb_udfs::parse_bytea(text).map(|bytes| ScalarValue::Binary(Some(bytes))).map_err(|_| Unreadable::Syntax),
        ValueType::Date => read_or_cast(trimmed, value_type, parse_date(trimmed).map(|days| ScalarValue::Date32(Some(days)))),
        ValueType::Time => read_or_cast(trimmed, value_type, parse_time(trimmed).map(|time| ScalarValue::Time64Microsecond(Some(time)))),
        ValueType::Timestamp => {
            let micros = parse_timestamp(trimmed, false);
            read_or_cast(trimmed, value_type, micros.map(|micros| ScalarValue::TimestampMicrosecond(Some(micros), None)))
        }
        ValueType::Timestamptz => {
            let micros = parse_timestamp(trimmed, true);
            read_or_cast(trimmed, value_type, micros.map(|micros| ScalarValue::TimestampMicrosecond(Some(micros), Some("+00:00".into()))))
        }
        ValueType::Interval => {
            let interval = parse_interval(trimmed).ok_or(Unreadable::Syntax)?;
            Ok(ScalarValue::IntervalMonthDayNano(Some(interval)))
        }
        ValueType::Vector(width) => vector(text, *width, &DataType::Float32),
        ValueType::Halfvec(width) => vector(text, *width, &DataType::Float16),
        ValueType::Array(item) => array(trimmed, item),
        // PostgreSQL does not read records of no known type either.
        ValueType::Record(_) => Err(Unreadable::Unsupported),
    }
}

/// What was read, or else what Arrow makes of it: it knows more forms of dates and times.
fn read_or_cast(text: &str, value_type: &ValueType, read: Option<ScalarValue>) -> Result<ScalarValue, Unreadable> {
    match read {
        Some(value) => Ok(value),
        None => ScalarValue::try_from_string(text.to_owned(), &value_type.data_type()).map_err(|_| Unreadable::Syntax),
    }
}

fn checked(text: &str, text_type: TextType) -> Result<ScalarValue, Unreadable> {
    text_type.parse(text).map(|text| ScalarValue::Utf8(Some(text))).map_err(|_| Unreadable::Syntax)
}

fn integer<T: std::str::FromStr>(text: &str) -> Result<T, Unreadable> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Unreadable::Syntax);
    }
    text.parse().map_err(|_| Unreadable::Range)
}

fn double(text: &str) -> Result<f64, Unreadable> {
    let value: f64 = text.parse().map_err(|_| Unreadable::Syntax)?;
    if is_in_range(text, value.is_infinite(), value == 0.0) { Ok(value) } else { Err(Unreadable::Range) }
}

fn single(text: &str) -> Result<f32, Unreadable> {
    let value: f32 = text.parse().map_err(|_| Unreadable::Syntax)?;
    if is_in_range(text, value.is_infinite(), value == 0.0) { Ok(value) } else { Err(Unreadable::Range) }
}

/// Whether digits did not become infinite, and not nothing.
fn is_in_range(text: &str, is_infinite: bool, is_zero: bool) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let has_digits = mantissa.bytes().any(|byte| byte.is_ascii_digit());
    let has_value = mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    !(is_infinite && has_digits || is_zero && has_value)
}

/// A decimal with as many digits as it is written with, `1e3` with those that it means; NaN and the infinities, which decimals have not, as a double.
pub(super) fn numeric(text: &str) -> Result<ScalarValue, Unreadable> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, integer::<i32>(exponent)?),
        None => (text, 0),
    };
    let (is_negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain =
        !(whole.is_empty() && fraction.is_empty()) && [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_plain {
        return match digits.to_ascii_lowercase().as_str() {
            "nan" | "inf" | "infinity" if exponent == 0 => double(text).map(|number| ScalarValue::Float64(Some(number))),
            _ => Err(Unreadable::Syntax),
        };
    }
    let mut digits = format!("{whole}{fraction}").trim_start_matches('0').to_owned();
    let mut scale = i64::try_from(fraction.len()).map_err(|_| Unreadable::Range)? - i64::from(exponent);
    // What no decimal holds is refused before zeros are made of an exponent; zeros at the end of a fraction may go.
    while scale > 0 && digits.ends_with('0') && digits.len().max(usize::try_from(scale).unwrap_or(usize::MAX)) > DECIMAL_DIGITS_MAX {
        digits.pop();
        scale -= 1;
    }
    if digits.is_empty() {
        scale = scale.clamp(0, DECIMAL_DIGITS_MAX as i64);
    }
    if scale < 0 && !digits.is_empty() {
        let zeros = usize::try_from(-scale).ok().filter(|zeros| *zeros <= DECIMAL_DIGITS_MAX).ok_or(Unreadable::Range)?;
        digits.extend(std::iter::repeat_n('0', zeros));
        scale = 0;
    }
    let scale = u8::try_from(scale).map_err(|_| Unreadable::Range)?;
    let precision = digits.len().max(usize::from(scale)).max(1);
    if precision > DECIMAL_DIGITS_MAX {
        return Err(Unreadable::Range);
    }
    let magnitude: i128 = format!("0{digits}").parse().map_err(|_| Unreadable::Range)?;
    let value = if is_negative { -magnitude } else { magnitude };
    // Both are at most 38.
    Ok(ScalarValue::Decimal128(Some(value), precision as u8, scale as i8))
}

fn unreadable(error: rolloutdb_udfs::Error) -> Unreadable {
    match error {
        rolloutdb_udfs::Error::NotFinite { found, .. } => Unreadable::NotFinite { found },
        rolloutdb_udfs::Error::ValueRange { .. } => Unreadable::Range,
        _ => Unreadable::Syntax,
    }
}

/// `[1,2.5,-3]`, and `{1,2.5,-3}` for clients that bind an array. `width`: 0 is any.
fn vector(text: &str, width: i32, item: &DataType) -> Result<ScalarValue, Unreadable> {
    let trimmed = text.trim();
    let bracketed = trimmed.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).map(|inner| format!("[{inner}]"));
    let numbers = rolloutdb_udfs::vector::parse_vector(bracketed.as_deref().unwrap_or(trimmed)).map_err(unreadable)?;
    let expected = usize::try_from(width).map_err(|_| Unreadable::Unsupported)?;
    if expected != 0 && numbers.len() != expected {
        return Err(Unreadable::Width { found: numbers.len(), expected });
    }
    let width = i32::try_from(numbers.len()).map_err(|_| Unreadable::Range)?;
    let field = Arc::new(Field::new_list_field(item.clone(), true));
    let array = if *item == DataType::Float16 {
        let halves: Vec<Half> = numbers.into_iter().map(Half::from_f32).collect();
        if !halves.iter().all(|number| number.is_finite()) {
            return Err(Unreadable::Range);
        }
        FixedSizeListArray::try_new(field, width, Arc::new(Float16Array::from_iter_values(halves)), None)
    } else {
        FixedSizeListArray::try_new(field, width, Arc::new(Float32Array::from(numbers)), None)
    };
    Ok(ScalarValue::FixedSizeList(Arc::new(array.map_err(|_| Unreadable::Unsupported)?)))
}

fn array(text: &str, item: &ValueType) -> Result<ScalarValue, Unreadable> {
    // The text says how many dimensions there are, whatever was expected.
    let (item, _) = item.innermost();
    let items = parse_array(text).ok_or(Unreadable::Syntax)?;
    let values = items.texts.iter().map(|text| text.as_ref().map(|text| read(text, item)).transpose());
    list::list(values.collect::<Result<Vec<_>, _>>()?, &items.lengths, item)
}
