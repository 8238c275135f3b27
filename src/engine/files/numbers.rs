//! Numbers of text files, and the type that keeps every digit of those of a column.

use arrow::datatypes::DataType;
use rolloutdb_udfs::{check_digits, numeric_type};

use super::json::elements;

/// Digits that every number in double precision keeps.
const SHORT: usize = 15;
/// Digits up to which a number is compared with what double precision makes of it.
const COMPARED: usize = 60;
/// Digits before the point that a numeric without declared digits has room for.
const NUMERIC_WHOLE: i64 = 28;

/// What is true of all numbers of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numbers {
    are_bigint: bool,
    are_double: bool,
    are_numeric: bool,
}

impl Numbers {
    /// Of one number.
    pub fn of(text: &str) -> Self {
        Self { are_bigint: text.parse::<i64>().is_ok(), are_double: is_double(text), are_numeric: is_numeric(text) }
    }

    pub fn with(self, other: Self) -> Self {
        Self {
            are_bigint: self.are_bigint && other.are_bigint,
            are_double: self.are_double && other.are_double,
            are_numeric: self.are_numeric && other.are_numeric,
        }
    }

    /// The first of bigint, double precision, numeric and text that changes none.
    pub fn data_type(self) -> DataType {
        match self {
            Self { are_bigint: true, .. } => DataType::Int64,
            Self { are_double: true, .. } => DataType::Float64,
            Self { are_numeric: true, .. } => numeric_type(),
            _ => DataType::Utf8,
        }
    }
}

/// The first number of a value, or of the JSON array that it is, whose digits double precision does not keep.
pub fn changed_by_double(value: &str) -> Option<String> {
    let number = |text: &str| (!is_double(text)).then(|| text.to_owned());
    if !value.starts_with('[') {
        return number(value);
    }
    let mut found = None;
    // What is no array is told by what reads it.
    let _ = elements(value, |item| {
        found = found.take().or_else(|| if item.starts_with(['[', '"']) || item == "null" { None } else { number(item) });
        Ok(())
    });
    found
}

/// Whether a number in double precision, written with as many digits, is the same. What is no number is told by what reads it.
fn is_double(text: &str) -> bool {
    if text.len() <= SHORT && !text.contains(['e', 'E']) {
        return true;
    }
    let (Some((digits, exponent)), Ok(value)) = (significant(text), text.parse::<f64>()) else { return true };
    if digits.len() <= SHORT {
        // An exponent may be beyond the type.
        return value.is_finite() && value != 0.0;
    }
    digits.len() <= COMPARED && significant(&format!("{:.*e}", digits.len() - 1, value)).is_some_and(|found| found == (digits, exponent))
}

fn is_numeric(text: &str) -> bool {
    check_digits(text).is_ok() && significant(text).is_none_or(|(_, exponent)| exponent < NUMERIC_WHOLE)
}

/// The digits of a number without zeros at its ends, and the power of ten of the first. `None`: it is 0, or no number.
fn significant(text: &str) -> Option<(String, i64)> {
    let text = text.trim_start_matches(['+', '-']);
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let leading = all.find(|digit| digit != '0')?;
    let power = exponent.parse::<i64>().ok()?.checked_add(whole.len() as i64 - 1 - leading as i64)?;
    Some((all[leading..].trim_end_matches('0').to_owned(), power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_type_that_keeps_its_digits() {
        let type_of = |texts: &[&str]| texts.iter().map(|text| Numbers::of(text)).reduce(Numbers::with).expect("a number").data_type();
        for (texts, expected) in [
            (&["1", "-9223372036854775808"][..], DataType::Int64),
            (&["1", "0.5"], DataType::Float64),
            (&["0.1", "0.10000000000000001", "1e300", "0.1000000000000000055511151231257827"], DataType::Float64),
            (&["9007199254740992", "0.5"], DataType::Float64),
            (&["9007199254740993", "0.5"], numeric_type()),
            (&["9007199254740993.5"], numeric_type()),
            (&["18446744073709551615"], numeric_type()),
            (&["9007199254740993", "1e-20"], DataType::Utf8),
            (&["123456789012345678901234567890123"], DataType::Utf8),
            (&["1e400"], DataType::Utf8),
        ] {
            assert_eq!(type_of(texts), expected, "{texts:?}");
        }
    }

    #[test]
    fn what_double_precision_changes_is_found() {
        assert_eq!(changed_by_double("[1.5, null, 9007199254740993, 2]").as_deref(), Some("9007199254740993"));
        for kept in ["9007199254740994", "[1, [9007199254740993]]", "0", "-0.000", "nan", "[", "3.141592653589793"] {
            assert_eq!(changed_by_double(kept), None, "{kept}");
        }
    }
}
