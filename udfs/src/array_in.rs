//! `array_in`: texts as arrays of one dimension, in PostgreSQL's form.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, ListArray, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::{parse_array, parse_bool, parse_date, parse_interval, parse_time, parse_timestamp};
use crate::{Error, numeric_type, parse_bytea};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "array_in",
        section: "Text",
        description: "Reads an array of one dimension from PostgreSQL's form, `{1,NULL,\"a b\"}`; `text::bigint[]` does the same. NULL for NULL.",
        parameters: &[
            Parameter { name: "text", kind: Kind::Text, description: "Items between braces." },
            Parameter {
                name: "type",
                kind: Kind::Text,
                description: "A constant: the type of the array, such as `bigint[]` or `numeric(10,2)[]`.",
            },
        ],
        required: 2,
        example: ("SELECT array_in('{1,NULL,3}', 'bigint[]')", "[1, , 3]"),
    },
    returns: Returns::Computed(|_, literals| return_type(literals)),
    kernel,
};

/// What the type may be, for messages.
const TYPES: &str = "an array of one dimension of text, boolean, smallint, integer, bigint, real, double precision, numeric, numeric(p,s), bytea, \
    date, time, timestamp, timestamptz or interval, such as bigint[]";

/// The zone of an instant.
const UTC: &str = "+00:00";

fn return_type(literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let Some(name) = literals.get(1).copied().flatten().and_then(|name| name.try_as_str().flatten()) else {
        let reason = "because it decides the type of the result: array_in(text, 'bigint[]')";
        return Err(Error::NotConstant { function: FUNCTION.interface.name, argument: "type", reason }.into());
    };
    let item = name.strip_suffix("[]").and_then(item_type);
    let item = item.ok_or_else(|| FUNCTION.interface.argument_error(1, format!("'{name}'"), TYPES))?;
    Ok(DataType::List(Arc::new(Field::new_list_field(item, true))))
}

fn item_type(name: &str) -> Option<DataType> {
    Some(match name.to_ascii_lowercase().as_str() {
        "text" => DataType::Utf8,
        "boolean" => DataType::Boolean,
        "smallint" => DataType::Int16,
        "integer" => DataType::Int32,
        "bigint" => DataType::Int64,
        "real" => DataType::Float32,
        "double precision" => DataType::Float64,
        "numeric" => numeric_type(),
        "bytea" => DataType::Binary,
        "date" => DataType::Date32,
        "time" => DataType::Time64(TimeUnit::Microsecond),
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        "interval" => DataType::Interval(IntervalUnit::MonthDayNano),
        other => return declared_numeric(other),
    })
}

/// `numeric(10,2)`.
fn declared_numeric(name: &str) -> Option<DataType> {
    let (precision, scale) = name.strip_prefix("numeric(")?.strip_suffix(')')?.split_once(',')?;
    let (precision, scale): (u8, i8) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
    ((1..=38).contains(&precision) && scale <= precision.cast_signed()).then_some(DataType::Decimal128(precision, scale))
}

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let DataType::List(item) = arguments.return_type() else { unreachable!("its type is a list") };
    let texts = arguments.text(0)?;
    let (mut items, mut lengths, mut presence) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..arguments.num_rows() {
        let found = texts.get(row).map(items_of).transpose()?;
        presence.push(found.is_some());
        let found = found.unwrap_or_default();
        lengths.push(found.len());
        items.extend(found);
    }
    let values = read_items(&items, item.data_type())?;
    let nulls = Some(NullBuffer::from(presence));
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), values, nulls)?))
}

/// The items of an array of one dimension.
fn items_of(text: &str) -> Result<Vec<Option<String>>, Error> {
    let array = parse_array(text).ok_or_else(|| Error::ArrayText { text: shortened(text) })?;
    match array.lengths.len() {
        0 | 1 => Ok(array.texts),
        found => Err(Error::ArrayDimensions { found, text: shortened(text) }),
    }
}

fn read_items(items: &[Option<String>], item_type: &DataType) -> Result<ArrayRef> {
    Ok(match item_type {
        DataType::Boolean => column::<_, BooleanArray>(items, |text| parse_bool(text).ok_or_else(|| value_error("boolean", text)))?,
        DataType::Int16 => column::<_, Int16Array>(items, |text| integer(text, "smallint"))?,
        DataType::Int32 => column::<_, Int32Array>(items, |text| integer(text, "integer"))?,
        DataType::Int64 => column::<_, Int64Array>(items, |text| integer(text, "bigint"))?,
        DataType::Float32 => column::<_, Float32Array>(items, single)?,
        DataType::Float64 => column::<_, Float64Array>(items, double)?,
        DataType::Binary => column::<_, BinaryArray>(items, parse_bytea)?,
        DataType::Date32 => column::<_, Date32Array>(items, |text| parse_date(text).ok_or_else(|| time_error("date", text)))?,
        DataType::Time64(_) => column::<_, Time64MicrosecondArray>(items, |text| parse_time(text).ok_or_else(|| time_error("time", text)))?,
        DataType::Timestamp(_, None) => Arc::new(timestamps(items, "timestamp")?),
        DataType::Timestamp(_, Some(_)) => Arc::new(timestamps(items, "timestamptz")?.with_timezone(UTC)),
        DataType::Interval(_) => {
            column::<_, IntervalMonthDayNanoArray>(items, |text| parse_interval(text).ok_or_else(|| time_error("interval", text)))?
        }
        DataType::Utf8 => Arc::new(items.iter().map(Option::as_deref).collect::<StringArray>()),
        // Numbers with declared digits, which Arrow reads exactly and rounds.
        other => {
            let texts: StringArray = items.iter().map(Option::as_deref).collect();
            cast_with_options(&texts, other, &CastOptions { safe: false, ..CastOptions::default() })?
        }
    })
}

fn column<T, A>(items: &[Option<String>], read: impl Fn(&str) -> Result<T, Error>) -> Result<ArrayRef, Error>
where
    A: FromIterator<Option<T>> + Array + 'static,
{
    let values: A = items.iter().map(|item| item.as_deref().map(&read).transpose()).collect::<Result<_, _>>()?;
    Ok(Arc::new(values))
}

fn timestamps(items: &[Option<String>], type_name: &'static str) -> Result<TimestampMicrosecondArray, Error> {
    let has_zone = type_name == "timestamptz";
    let read = |text: &str| parse_timestamp(text, has_zone).ok_or_else(|| time_error(type_name, text));
    items.iter().map(|item| item.as_deref().map(read).transpose()).collect()
}

fn integer<T: std::str::FromStr>(text: &str, type_name: &'static str) -> Result<T, Error> {
    let text = text.trim();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(value_error(type_name, text));
    }
    text.parse().map_err(|_| Error::ValueRange { type_name, text: shortened(text) })
}

fn single(text: &str) -> Result<f32, Error> {
    let number: f32 = text.trim().parse().map_err(|_| value_error("real", text))?;
    check_range(text, "real", number.is_infinite(), number == 0.0).map(|()| number)
}

fn double(text: &str) -> Result<f64, Error> {
    let number: f64 = text.trim().parse().map_err(|_| value_error("double precision", text))?;
    check_range(text, "double precision", number.is_infinite(), number == 0.0).map(|()| number)
}

/// Refuses digits that became infinite, or nothing.
fn check_range(text: &str, type_name: &'static str, is_infinite: bool, is_zero: bool) -> Result<(), Error> {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let has_digits = mantissa.bytes().any(|byte| byte.is_ascii_digit());
    let has_value = mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    match is_infinite && has_digits || is_zero && has_value {
        true => Err(Error::ValueRange { type_name, text: shortened(text) }),
        false => Ok(()),
    }
}

fn value_error(type_name: &'static str, text: &str) -> Error {
    Error::ValueText { type_name, text: shortened(text) }
}

fn time_error(type_name: &'static str, text: &str) -> Error {
    Error::TimeText { type_name, text: shortened(text) }
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, name: &str) -> Result<String> {
        let items = items_of(text)?;
        let column = read_items(&items, &item_type(name).expect("a type"))?;
        let shown = (0..column.len()).map(|row| match column.is_null(row) {
            true => Ok("NULL".to_owned()),
            false => Ok(arrow::util::display::array_value_to_string(&column, row)?),
        });
        Ok(shown.collect::<Result<Vec<_>>>()?.join(" "))
    }

    #[test]
    fn items_of_every_type_are_read() {
        for (text, name, expected) in [
            ("{1,NULL,-2}", "smallint", "1 NULL -2"),
            ("{ 2147483647 }", "integer", "2147483647"),
            ("{-9223372036854775808}", "bigint", "-9223372036854775808"),
            ("{0.5,1e3}", "real", "0.5 1000.0"),
            ("{t,no}", "boolean", "true false"),
            ("{1.255,-1}", "numeric(10,2)", "1.26 -1.00"),
            (r#"{"a,b",NULL,"NULL",""}"#, "text", "a,b NULL NULL "),
            (r#"{"\\x00ff"}"#, "bytea", "00ff"),
            ("{2024-02-29}", "date", "2024-02-29"),
            (r#"{"2024-02-29 12:00:00.5"}"#, "timestamp", "2024-02-29T12:00:00.500"),
            ("{}", "bigint", ""),
        ] {
            assert_eq!(read(text, name).expect(text), expected, "{text} {name}");
        }
    }

    #[test]
    fn what_is_no_array_of_the_type_is_refused() {
        let refused = |text: &str, name: &str| match read(text, name) {
            Err(datafusion::error::DataFusionError::External(error)) => error.to_string(),
            other => panic!("{text}: {other:?}"),
        };
        assert!(refused("1,2", "bigint").starts_with("malformed array literal: \"1,2\""));
        assert!(refused("{{1},{2}}", "bigint").contains("2 dimensions"));
        assert_eq!(refused("{1,x}", "integer"), "invalid input syntax for type integer: \"x\"");
        assert_eq!(refused("{32768}", "smallint"), "value \"32768\" is out of range for type smallint");
        assert_eq!(refused("{1e400}", "double precision"), "value \"1e400\" is out of range for type double precision");
        assert_eq!(refused("{yesterday-ish}", "date"), "invalid input syntax for type date: \"yesterday-ish\"");
    }

    #[test]
    fn types_are_named_as_in_sql() {
        assert_eq!(item_type("numeric(10,2)"), Some(DataType::Decimal128(10, 2)));
        for name in ["numeric(39,2)", "numeric(2,3)", "bigint[]", "vector(3)", "json"] {
            assert_eq!(item_type(name), None, "{name}");
        }
    }
}
