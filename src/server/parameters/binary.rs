//! Values in binary form: network byte order, times counted from 2000-01-01.

use bytes::Buf;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use pgwire::api::Type;

use super::super::numeric::from_binary;
use super::{Unreadable, arrow_type, element_type, is_text, list, text};

/// Days from 1970-01-01, where Arrow counts from, to 2000-01-01.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// The only version of jsonb's binary form; the JSON text follows it.
const JSONB_VERSION: u8 = 1;

/// A value of a type, which takes all of `bytes`.
pub(super) fn read(mut bytes: &[u8], pg_type: &Type) -> Result<ScalarValue, Unreadable> {
    if is_text(pg_type) || *pg_type == Type::JSONB {
        return json_or_text(bytes, pg_type);
    }
    if element_type(pg_type).is_some() {
        return array(bytes);
    }
    let value = match *pg_type {
        Type::BOOL => ScalarValue::Boolean(Some(bytes.try_get_u8()? != 0)),
        Type::INT2 => ScalarValue::Int16(Some(bytes.try_get_i16()?)),
        Type::INT4 => ScalarValue::Int32(Some(bytes.try_get_i32()?)),
        Type::INT8 => ScalarValue::Int64(Some(bytes.try_get_i64()?)),
        Type::OID => ScalarValue::Int64(Some(bytes.try_get_u32()?.into())),
        Type::FLOAT4 => ScalarValue::Float32(Some(bytes.try_get_f32()?)),
        Type::FLOAT8 => ScalarValue::Float64(Some(bytes.try_get_f64()?)),
        Type::DATE => ScalarValue::Date32(Some(bytes.try_get_i32()?.checked_add(EPOCH_DAYS).ok_or(Unreadable::Bytes)?)),
        Type::TIME => ScalarValue::Time64Microsecond(Some(bytes.try_get_i64()?)),
        Type::TIMESTAMP => ScalarValue::TimestampMicrosecond(Some(micros(&mut bytes)?), None),
        Type::TIMESTAMPTZ => ScalarValue::TimestampMicrosecond(Some(micros(&mut bytes)?), Some("+00:00".into())),
        Type::UUID => ScalarValue::Utf8(Some(uuid(std::mem::take(&mut bytes))?)),
        Type::BYTEA => ScalarValue::Binary(Some(std::mem::take(&mut bytes).to_vec())),
        Type::NUMERIC => text::numeric(&from_binary(std::mem::take(&mut bytes)).ok_or(Unreadable::Bytes)?)?,
        _ => return Err(Unreadable::Unsupported),
    };
    if bytes.has_remaining() { Err(Unreadable::Bytes) } else { Ok(value) }
}

fn json_or_text(bytes: &[u8], pg_type: &Type) -> Result<ScalarValue, Unreadable> {
    let text = match bytes {
        [JSONB_VERSION, text @ ..] if *pg_type == Type::JSONB => text,
        _ if *pg_type == Type::JSONB => return Err(Unreadable::Bytes),
        text => text,
    };
    let text = std::str::from_utf8(text).map_err(|_| Unreadable::Bytes)?;
    Ok(ScalarValue::Utf8(Some(text.to_string())))
}

/// Dimensions, a flag for NULLs, the element type, size and lower bound per dimension, then length and bytes per element.
fn array(mut bytes: &[u8]) -> Result<ScalarValue, Unreadable> {
    let dimensions = bytes.try_get_i32()?;
    let _has_nulls = bytes.try_get_i32()?;
    let element = Type::from_oid(bytes.try_get_u32()?).ok_or(Unreadable::Unsupported)?;
    // Arrays of arrays have more dimensions instead; an array type here would let a message nest without end.
    if element_type(&element).is_some() {
        return Err(Unreadable::Bytes);
    }
    let count = match dimensions {
        0 => 0,
        1 => {
            let count = usize::try_from(bytes.try_get_i32()?).map_err(|_| Unreadable::Bytes)?;
            let _lower_bound = bytes.try_get_i32()?;
            count
        }
        _ => return Err(Unreadable::Unsupported),
    };
    // Every element has four bytes of length, so a count beyond that is damage and must not reserve memory.
    if count > bytes.remaining() / size_of::<i32>() {
        return Err(Unreadable::Bytes);
    }
    let elements = (0..count).map(|_| array_element(&mut bytes, &element)).collect::<Result<Vec<_>, _>>()?;
    // Decimals of different scales have no common type here; the widest float holds what vectors and scores need.
    let data_type = arrow_type(&element).unwrap_or(DataType::Float64);
    if bytes.has_remaining() {
        return Err(Unreadable::Bytes);
    }
    list(elements, &data_type)
}

fn array_element(bytes: &mut &[u8], element: &Type) -> Result<Option<ScalarValue>, Unreadable> {
    const NULL: i32 = -1;
    let length = bytes.try_get_i32()?;
    if length == NULL {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| Unreadable::Bytes)?;
    let (value, rest) = bytes.split_at_checked(length).ok_or(Unreadable::Bytes)?;
    *bytes = rest;
    read(value, element).map(Some)
}

fn micros(bytes: &mut &[u8]) -> Result<i64, Unreadable> {
    bytes.try_get_i64()?.checked_add(EPOCH_MICROS).ok_or(Unreadable::Bytes)
}

fn uuid(bytes: &[u8]) -> Result<String, Unreadable> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| Unreadable::Bytes)?;
    let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

impl From<bytes::TryGetError> for Unreadable {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_year_2000() {
        assert_eq!(read(&0_i32.to_be_bytes(), &Type::DATE), Ok(ScalarValue::Date32(Some(10_957))));
        let instant = ScalarValue::TimestampMicrosecond(Some(946_684_800_000_001), None);
        assert_eq!(read(&1_i64.to_be_bytes(), &Type::TIMESTAMP), Ok(instant));
        assert_eq!(read(&i32::MAX.to_be_bytes(), &Type::DATE), Err(Unreadable::Bytes));
    }

    #[test]
    fn values_must_have_the_length_of_their_type() {
        for (bytes, pg_type) in [(&[0_u8; 3][..], Type::INT4), (&[0; 5], Type::INT4), (&[0; 15], Type::UUID), (&[], Type::BOOL)] {
            assert_eq!(read(bytes, &pg_type), Err(Unreadable::Bytes), "{pg_type}");
        }
        assert_eq!(read(&[2, b'{', b'}'], &Type::JSONB), Err(Unreadable::Bytes));
    }

    #[test]
    fn arrays_hold_nulls_and_refuse_damage() {
        let header = [1_i32, 1, 23, 2, 1];
        let words = header.iter().chain(&[4, 7, -1]);
        let bytes = words.flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        let expected = ScalarValue::new_list(&[ScalarValue::Int32(Some(7)), ScalarValue::Int32(None)], &DataType::Int32, true);
        assert_eq!(read(&bytes, &Type::INT4_ARRAY), Ok(ScalarValue::List(expected)));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length], &Type::INT4_ARRAY), Err(Unreadable::Bytes), "{length} bytes");
        }
        let huge = [1_i32, 0, 23, i32::MAX, 1].iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        assert_eq!(read(&huge, &Type::INT4_ARRAY), Err(Unreadable::Bytes));
    }
}
