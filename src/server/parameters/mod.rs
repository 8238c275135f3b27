//! Bound parameters: bytes of a Postgres type, in text or binary form, as the values that a statement takes.
//!
//! The type is the one that the client declared in `Parse`; else the one that the statement implies; else text. `arrow-pg` has a
//! decoder too, which drops untyped NULLs (so that later parameters shift) and reads JSON objects as arrays.

mod binary;
mod probe;
mod text;

pub use probe::reads_parameter;

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{AsArray, FixedSizeListArray, Float32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float32Type, TimeUnit};
use datafusion::common::ScalarValue;
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::api::results::FieldFormat;
use pgwire::error::{PgWireError, PgWireResult};

use super::columns::{plain_type, wire_type};
use super::response::{client_error, wire_error};
use crate::error::Error;

/// Why a parameter has no value.
#[derive(Debug, PartialEq)]
enum Unreadable {
    /// The text is not one of this type (22P02).
    Syntax,
    /// The bytes are not a value of this type (22P03).
    Bytes,
    /// A type, or a shape of array, that is not supported (0A000).
    Unsupported,
    /// A vector of another width (42804).
    Width { found: usize, expected: usize },
}

/// The values of a `Bind` message, one per parameter.
///
/// `declared`: types from `Parse`, may be shorter. `inferred`: what the statement implies, one entry per parameter.
///
/// # Errors
/// 08P01 if the number of values is not that of the parameters; see [`Unreadable`] for values that cannot be read.
pub(super) fn decode(
    values: &[Option<Bytes>],
    format: &Format,
    declared: &[Option<Type>],
    inferred: &[Option<DataType>],
) -> PgWireResult<Vec<ScalarValue>> {
    let decode_one = |(index, bytes): (usize, &Option<Bytes>)| {
        let declared = declared.get(index).and_then(Option::as_ref);
        let inferred = inferred.get(index).and_then(Option::as_ref).map(plain_type);
        let pg_type = parameter_type(declared, inferred.as_ref());
        let target = Target { declared: declared_type(declared), pg_type: &pg_type, inferred: inferred.as_ref() };
        target.read(bytes.as_deref(), format.format_for(index)).map_err(|reason| refusal(index, reason, &target, bytes.as_deref()))
    };
    values.iter().enumerate().map(decode_one).collect()
}

/// The type of a parameter as `ParameterDescription` reports it.
pub(super) fn parameter_type(declared: Option<&Type>, inferred: Option<&DataType>) -> Type {
    declared_type(declared).cloned().or_else(|| inferred.map(wire_type)).unwrap_or(Type::TEXT)
}

/// `unknown` declares nothing.
fn declared_type(declared: Option<&Type>) -> Option<&Type> {
    declared.filter(|pg_type| **pg_type != Type::UNKNOWN)
}

/// What a parameter is to become.
struct Target<'a> {
    declared: Option<&'a Type>,
    pg_type: &'a Type,
    inferred: Option<&'a DataType>,
}

impl Target<'_> {
    fn read(&self, bytes: Option<&[u8]>, format: FieldFormat) -> Result<ScalarValue, Unreadable> {
        let Some(bytes) = bytes else { return self.null() };
        let value = match format {
            FieldFormat::Binary if is_text(self.pg_type) && self.is_vector() && vector_numbers(bytes).is_some() => {
                ScalarValue::List(ScalarValue::new_list_nullable(
                    &vector_numbers(bytes)
                        .unwrap_or_default()
                        .into_iter()
                        .map(|number| ScalarValue::Float32(Some(number)))
                        .collect::<Vec<_>>(),
                    &DataType::Float32,
                ))
            }
            // Text types look the same in both forms.
            FieldFormat::Binary if !is_text(self.pg_type) => binary::read(bytes, self.pg_type)?,
            _ => self.read_text(std::str::from_utf8(bytes).map_err(|_| Unreadable::Syntax)?)?,
        };
        self.align(value)
    }

    /// A text of a text type stands for a value of the inferred type, like a literal in quotes.
    fn read_text(&self, text: &str) -> Result<ScalarValue, Unreadable> {
        match self.inferred {
            Some(inferred) if self.declared.is_none() || is_text(self.pg_type) => text::read(text, inferred),
            _ => text::read_declared(text, self.pg_type),
        }
    }

    fn is_vector(&self) -> bool {
        matches!(self.inferred, Some(DataType::FixedSizeList(element, _)) if element.data_type().is_floating())
    }

    fn null(&self) -> Result<ScalarValue, Unreadable> {
        let declared = || self.declared.and_then(arrow_type);
        let data_type = self.inferred.cloned().or_else(declared).unwrap_or(DataType::Utf8);
        ScalarValue::try_from(&data_type).map_err(|_| Unreadable::Unsupported)
    }

    /// The value in the inferred type where that loses nothing, for the statement is planned with it; elsewhere the planner decides,
    /// as for a literal.
    fn align(&self, value: ScalarValue) -> Result<ScalarValue, Unreadable> {
        let Some(inferred) = self.inferred else { return Ok(value) };
        match (&value, inferred) {
            (ScalarValue::List(list), DataType::FixedSizeList(element, width)) => {
                let floats = cast(&list.value(0), &DataType::Float32).map_err(|_| Unreadable::Unsupported)?;
                vector(floats.as_primitive::<Float32Type>().iter().collect::<Option<Vec<_>>>().ok_or(Unreadable::Syntax)?, element, *width)
            }
            // Arrow would turn truth into 1, and anything into a list of one.
            (ScalarValue::Boolean(_), _) | (_, DataType::Boolean) => Ok(value),
            (_, DataType::List(_)) if !matches!(value, ScalarValue::List(_)) => Ok(value),
            _ => Ok(lossless_cast(&value, inferred).unwrap_or(value)),
        }
    }
}

fn lossless_cast(value: &ScalarValue, data_type: &DataType) -> Option<ScalarValue> {
    let converted = value.cast_to(data_type).ok()?;
    (converted.cast_to(&value.data_type()).ok()? == *value).then_some(converted)
}

/// The numbers of pgvector's binary form: the width, two bytes of zero, and each number as single precision. `None` if it is not that, but text.
fn vector_numbers(bytes: &[u8]) -> Option<Vec<f32>> {
    let ([high, low, 0, 0], numbers) = bytes.split_first_chunk()? else { return None };
    let (numbers, rest) = numbers.as_chunks::<4>();
    let is_whole = rest.is_empty() && numbers.len() == usize::from(u16::from_be_bytes([*high, *low]));
    is_whole.then(|| numbers.iter().map(|number| f32::from_be_bytes(*number)).collect())
}

/// A vector parameter. The numbers are cast on if the column holds other floats than `f32`.
fn vector(numbers: Vec<f32>, element: &FieldRef, width: i32) -> Result<ScalarValue, Unreadable> {
    let expected = usize::try_from(width).map_err(|_| Unreadable::Unsupported)?;
    if numbers.len() != expected {
        return Err(Unreadable::Width { found: numbers.len(), expected });
    }
    let values = cast(&Float32Array::from(numbers), element.data_type()).map_err(|_| Unreadable::Unsupported)?;
    let array = FixedSizeListArray::try_new(element.clone(), width, values, None).map_err(|_| Unreadable::Unsupported)?;
    Ok(ScalarValue::FixedSizeList(Arc::new(array)))
}

/// An array parameter: all elements must have one type, which Arrow checks with a panic.
fn list(elements: Vec<Option<ScalarValue>>, data_type: &DataType) -> Result<ScalarValue, Unreadable> {
    let one_type = |element: Option<ScalarValue>| match element {
        Some(value) => value.cast_to(data_type).map_err(|_| Unreadable::Syntax),
        None => ScalarValue::try_from(data_type).map_err(|_| Unreadable::Unsupported),
    };
    let elements = elements.into_iter().map(one_type).collect::<Result<Vec<_>, _>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list(&elements, data_type, true)))
}

fn is_text(pg_type: &Type) -> bool {
    matches!(*pg_type, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::CHAR | Type::UNKNOWN | Type::JSON | Type::XML)
}

/// The Arrow type of a declared type. `None` for types that are not supported, and for `numeric`, whose precision is the value's.
fn arrow_type(pg_type: &Type) -> Option<DataType> {
    let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    Some(match *pg_type {
        Type::BOOL => DataType::Boolean,
        Type::INT2 => DataType::Int16,
        Type::INT4 => DataType::Int32,
        Type::INT8 | Type::OID => DataType::Int64,
        Type::FLOAT4 => DataType::Float32,
        Type::FLOAT8 => DataType::Float64,
        Type::BYTEA => DataType::Binary,
        Type::DATE => DataType::Date32,
        Type::TIME => DataType::Time64(TimeUnit::Microsecond),
        Type::TIMESTAMP => micros(None),
        Type::TIMESTAMPTZ => micros(Some("+00:00")),
        Type::UUID | Type::JSONB => DataType::Utf8,
        _ if is_text(pg_type) => DataType::Utf8,
        _ => DataType::new_list(arrow_type(&element_type(pg_type)?)?, true),
    })
}

/// The element type of an array type that is supported.
fn element_type(array: &Type) -> Option<Type> {
    Some(match *array {
        Type::BOOL_ARRAY => Type::BOOL,
        Type::INT2_ARRAY => Type::INT2,
        Type::INT4_ARRAY => Type::INT4,
        Type::INT8_ARRAY => Type::INT8,
        Type::FLOAT4_ARRAY => Type::FLOAT4,
        Type::FLOAT8_ARRAY => Type::FLOAT8,
        Type::NUMERIC_ARRAY => Type::NUMERIC,
        Type::TEXT_ARRAY => Type::TEXT,
        Type::VARCHAR_ARRAY => Type::VARCHAR,
        Type::BPCHAR_ARRAY => Type::BPCHAR,
        Type::NAME_ARRAY => Type::NAME,
        Type::BYTEA_ARRAY => Type::BYTEA,
        Type::DATE_ARRAY => Type::DATE,
        Type::TIMESTAMP_ARRAY => Type::TIMESTAMP,
        Type::TIMESTAMPTZ_ARRAY => Type::TIMESTAMPTZ,
        Type::UUID_ARRAY => Type::UUID,
        Type::JSON_ARRAY => Type::JSON,
        Type::JSONB_ARRAY => Type::JSONB,
        _ => return None,
    })
}

fn refusal(index: usize, reason: Unreadable, target: &Target, bytes: Option<&[u8]>) -> PgWireError {
    let number = index + 1;
    // A vector is text on the wire; its own name says what was expected.
    let name = match target.inferred {
        Some(DataType::FixedSizeList(_, width)) => format!("vector({width})"),
        Some(inferred) if is_text(target.pg_type) => wire_type(inferred).name().to_string(),
        _ => target.pg_type.name().to_string(),
    };
    match reason {
        Unreadable::Syntax => {
            let text = String::from_utf8_lossy(bytes.unwrap_or_default());
            client_error("22P02", format!("parameter ${number}: invalid input syntax for type {name}: \"{}\"", shortened(&text)))
        }
        Unreadable::Bytes => client_error("22P03", format!("parameter ${number}: incorrect binary data for type {name}")),
        Unreadable::Unsupported => client_error("0A000", format!("parameter ${number} of type {name} is not supported; send it as text")),
        Unreadable::Width { found, expected } => wire_error(Error::WrongType {
            what: format!("parameter ${number}"),
            found: format!("a vector of {found} numbers"),
            expected: format!("vector({expected})"),
        }),
    }
}

/// The beginning of a long text: an error message is not the place for a whole document.
fn shortened(text: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_one(bytes: &[u8], format: &Format, declared: Option<Type>, inferred: Option<DataType>) -> PgWireResult<ScalarValue> {
        decode(&[Some(Bytes::copy_from_slice(bytes))], format, &[declared], &[inferred]).map(|mut values| values.remove(0))
    }

    fn code(outcome: PgWireResult<ScalarValue>) -> String {
        match outcome {
            Err(PgWireError::UserError(info)) => info.code,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn the_inferred_type_is_met_where_nothing_is_lost() {
        let text = Format::UnifiedText;
        let of = |value: &[u8], declared: Type, inferred| decode_one(value, &text, Some(declared), Some(inferred)).expect("it reads");
        assert_eq!(of(b"7", Type::INT2, DataType::Int64), ScalarValue::Int64(Some(7)));
        assert_eq!(of(b"7", Type::TEXT, DataType::Int64), ScalarValue::Int64(Some(7)));
        assert_eq!(of(b"7", Type::TEXT, DataType::Utf8View), ScalarValue::Utf8View(Some("7".to_string())));
        assert_eq!(of(b"2.5", Type::FLOAT8, DataType::Int64), ScalarValue::Float64(Some(2.5)));
        assert_eq!(of(b"3000000000", Type::INT8, DataType::Int32), ScalarValue::Int64(Some(3_000_000_000)));
        assert_eq!(of(b"t", Type::BOOL, DataType::Int64), ScalarValue::Boolean(Some(true)));
    }

    #[test]
    fn nulls_have_a_type_and_keep_their_place() {
        let values = [None, Some(Bytes::from_static(b"x")), None];
        let inferred = [Some(DataType::Int64), None, None];
        let decoded = decode(&values, &Format::UnifiedText, &[], &inferred).expect("it reads");
        assert_eq!(decoded, [ScalarValue::Int64(None), ScalarValue::Utf8(Some("x".to_string())), ScalarValue::Utf8(None)]);
    }

    #[test]
    fn a_vector_has_its_width() {
        let vector = DataType::new_fixed_size_list(DataType::Float32, 3, true);
        for format in [Format::UnifiedText, Format::UnifiedBinary] {
            let value = decode_one(b"[1,2,3]", &format, None, Some(vector.clone())).expect("it reads");
            assert_eq!(value.data_type(), vector);
            assert_eq!(code(decode_one(b"[1,2]", &format, None, Some(vector.clone()))), "42804");
        }
        let array = decode_one(b"{1,2,3}", &Format::UnifiedText, Some(Type::FLOAT8_ARRAY), Some(vector.clone()));
        assert_eq!(array.expect("it reads").data_type(), vector);
    }

    #[test]
    fn what_cannot_be_read_has_its_code() {
        let text = Format::UnifiedText;
        assert_eq!(code(decode_one(b"seven", &text, None, Some(DataType::Int64))), "22P02");
        assert_eq!(code(decode_one(b"\xff", &text, Some(Type::INT4), None)), "22P02");
        assert_eq!(code(decode_one(b"abc", &Format::UnifiedBinary, Some(Type::INT4), None)), "22P03");
        assert_eq!(code(decode_one(b"(1,2)", &text, Some(Type::POINT), None)), "0A000");
    }
}
