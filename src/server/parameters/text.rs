//! Values in text form.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use pgwire::api::Type;

use super::super::vector::from_text;
use super::{Unreadable, arrow_type, list, vector};

/// The largest precision of a decimal, in digits (Arrow's `Decimal128`).
const DECIMAL_DIGITS_MAX: usize = 38;

/// A value of an Arrow type; text itself for types that have no text form of their own.
pub(super) fn read(text: &str, data_type: &DataType) -> Result<ScalarValue, Unreadable> {
    let trimmed = text.trim();
    Ok(match data_type {
        DataType::Boolean => ScalarValue::Boolean(Some(boolean(trimmed).ok_or(Unreadable::Syntax)?)),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            ScalarValue::Binary(Some(rolloutdb_udfs::parse_bytea(text).map_err(|_| Unreadable::Syntax)?))
        }
        DataType::List(element) => {
            let elements = array_elements(trimmed)?;
            let values = elements.iter().map(|text| text.as_ref().map(|text| read(text, element.data_type())).transpose());
            list(values.collect::<Result<Vec<_>, _>>()?, element.data_type())?
        }
        DataType::FixedSizeList(element, width) => vector(from_text(text).ok_or(Unreadable::Syntax)?, element, *width)?,
        // An inferred decimal has the width of the column; a longer value must not be cut to it.
        DataType::Decimal32(_, _) | DataType::Decimal64(_, _) | DataType::Decimal128(_, _) | DataType::Decimal256(_, _) => {
            numeric(trimmed)?
        }
        scalar if scalar.is_primitive() => ScalarValue::try_from_string(trimmed.to_string(), scalar).map_err(|_| Unreadable::Syntax)?,
        _ => ScalarValue::Utf8(Some(text.to_string())),
    })
}

/// A value of a type that the client declared.
pub(super) fn read_declared(text: &str, pg_type: &Type) -> Result<ScalarValue, Unreadable> {
    match *pg_type {
        Type::NUMERIC => numeric(text.trim()),
        Type::NUMERIC_ARRAY => read(text, &DataType::new_list(DataType::Float64, true)),
        _ => read(text, &arrow_type(pg_type).ok_or(Unreadable::Unsupported)?),
    }
}

/// A decimal with as many digits as it is written with; scientific notation becomes a double.
pub(super) fn numeric(text: &str) -> Result<ScalarValue, Unreadable> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain =
        !(whole.is_empty() && fraction.is_empty()) && [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if !plain {
        return text.parse().map(|number: f64| ScalarValue::Float64(Some(number))).map_err(|_| Unreadable::Syntax);
    }
    let whole = whole.trim_start_matches('0');
    let precision = (whole.len() + fraction.len()).max(1);
    if precision > DECIMAL_DIGITS_MAX {
        return Err(Unreadable::Unsupported);
    }
    let magnitude: i128 = format!("0{whole}{fraction}").parse().map_err(|_| Unreadable::Syntax)?;
    let value = if text.starts_with('-') { -magnitude } else { magnitude };
    // Both are at most 38.
    Ok(ScalarValue::Decimal128(Some(value), precision as u8, fraction.len() as i8))
}

/// What Postgres takes for a boolean.
fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "t" | "true" | "y" | "yes" | "on" | "1" => Some(true),
        "f" | "false" | "n" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// The elements of `{a,"b c",NULL}`; an unquoted NULL is none. Arrays of arrays are not supported.
fn array_elements(text: &str) -> Result<Vec<Option<String>>, Unreadable> {
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or(Unreadable::Syntax)?;
    if inner.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut characters = inner.chars().peekable();
    let mut elements = Vec::new();
    loop {
        while characters.next_if(|character| character.is_whitespace()).is_some() {}
        let element = match characters.peek() {
            Some('"') => Some(quoted_element(&mut characters)?),
            Some('{') => return Err(Unreadable::Unsupported),
            _ => bare_element(&mut characters)?,
        };
        elements.push(element);
        while characters.next_if(|character| character.is_whitespace()).is_some() {}
        match characters.next() {
            None => return Ok(elements),
            Some(',') => {}
            Some(_) => return Err(Unreadable::Syntax),
        }
    }
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn quoted_element(characters: &mut Characters) -> Result<String, Unreadable> {
    characters.next();
    let mut element = String::new();
    loop {
        match characters.next().ok_or(Unreadable::Syntax)? {
            '"' => return Ok(element),
            '\\' => element.push(characters.next().ok_or(Unreadable::Syntax)?),
            character => element.push(character),
        }
    }
}

fn bare_element(characters: &mut Characters) -> Result<Option<String>, Unreadable> {
    let mut element = String::new();
    while let Some(character) = characters.next_if(|character| *character != ',') {
        match character {
            '\\' => element.push(characters.next().ok_or(Unreadable::Syntax)?),
            '"' | '{' | '}' => return Err(Unreadable::Syntax),
            _ => element.push(character),
        }
    }
    let element = element.trim_end();
    match element {
        "" => Err(Unreadable::Syntax),
        _ if element.eq_ignore_ascii_case("null") => Ok(None),
        _ => Ok(Some(element.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_elements_follow_postgres_quoting() {
        let some = |text: &str| Some(text.to_string());
        assert_eq!(array_elements("{}"), Ok(vec![]));
        assert_eq!(array_elements("{1, 2 ,NULL}"), Ok(vec![some("1"), some("2"), None]));
        assert_eq!(array_elements(r#"{"a,b","c\"d","NULL",""}"#), Ok(vec![some("a,b"), some("c\"d"), some("NULL"), some("")]));
        assert_eq!(array_elements(r"{a\,b}"), Ok(vec![some("a,b")]));
        assert_eq!(array_elements("{{1},{2}}"), Err(Unreadable::Unsupported));
        for damaged in ["", "{", "{1,}", "{,1}", "{\"a}", "{a\"b}", "{\"a\"b}", "{1}}"] {
            assert_eq!(array_elements(damaged), Err(Unreadable::Syntax), "{damaged}");
        }
    }

    #[test]
    fn numeric_keeps_every_digit() {
        assert_eq!(numeric("-12.340"), Ok(ScalarValue::Decimal128(Some(-12340), 5, 3)));
        assert_eq!(numeric("0"), Ok(ScalarValue::Decimal128(Some(0), 1, 0)));
        assert_eq!(numeric(".5"), Ok(ScalarValue::Decimal128(Some(5), 1, 1)));
        assert_eq!(numeric("1e3"), Ok(ScalarValue::Float64(Some(1000.0))));
        assert_eq!(numeric(&"9".repeat(39)), Err(Unreadable::Unsupported));
        for damaged in ["", "-", ".", "1.2.3", "--1", "twelve"] {
            assert_eq!(numeric(damaged), Err(Unreadable::Syntax), "{damaged}");
        }
    }

    #[test]
    fn an_array_has_one_type() {
        for element in [DataType::Utf8, DataType::Utf8View, DataType::Decimal128(10, 2), DataType::Float64, DataType::Int32] {
            let value = read("{1,NULL,23}", &DataType::new_list(element.clone(), true)).expect("it has one");
            assert_eq!(value.data_type(), DataType::new_list(element, true));
        }
    }

    #[test]
    fn a_json_object_is_text_and_not_an_array() {
        let object = r#"{"a": 1}"#;
        assert_eq!(read(object, &DataType::Utf8), Ok(ScalarValue::Utf8(Some(object.to_string()))));
    }

    #[test]
    fn scalars_that_do_not_parse_are_refused() {
        assert_eq!(read(" 42 ", &DataType::Int32), Ok(ScalarValue::Int32(Some(42))));
        assert_eq!(read("2024-02-29", &DataType::Date32), Ok(ScalarValue::Date32(Some(19_782))));
        for (text, data_type) in
            [("x", DataType::Int32), ("2.5", DataType::Int64), ("maybe", DataType::Boolean), ("2024-02-30", DataType::Date32)]
        {
            assert_eq!(read(text, &data_type), Err(Unreadable::Syntax), "{text}");
        }
    }
}
