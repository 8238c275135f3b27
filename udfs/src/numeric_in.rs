//! `numeric` without declared digits. PostgreSQL keeps every digit; here it is `numeric(38, 10)`, and a text with more of them behind its point is
//! refused, where a column that was declared with its digits rounds. What is computed is rounded in both.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;

use crate::Error;
use crate::arguments::{Arguments, Column};
use crate::function::{Function, Interface, Kind, Parameter, Returns, is_text};
use crate::text_type::{METADATA_KEY, metadata};

/// Its name in SQL and in the metadata of a field.
const NAME: &str = "numeric";
/// Digits in all.
const PRECISION: u8 = 38;
/// Digits behind the point.
const SCALE: i8 = 10;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "numeric_in",
        section: "Text",
        description: "A number as `numeric` without declared digits: one that is computed is rounded to ten digits behind the point, a text with more \
            of them is an error; `value::numeric` does the same.",
        parameters: &[Parameter { name: "value", kind: Kind::Any, description: "A number, or its text." }],
        required: 1,
        example: ("SELECT numeric_in('1234567890.0123456789')", "1234567890.0123456789"),
    },
    returns: Returns::Numeric,
    kernel,
};

/// The Arrow type of `numeric`.
#[must_use]
pub fn numeric_type() -> DataType {
    DataType::Decimal128(PRECISION, SCALE)
}

/// Whether a field is a `numeric` that was declared without digits.
#[must_use]
pub fn is_plain_numeric(field: &Field) -> bool {
    *field.data_type() == numeric_type() && field.metadata().get(METADATA_KEY).is_some_and(|name| name == NAME)
}

/// A field of that type.
#[must_use]
pub fn field(name: &str) -> Field {
    Field::new(name, numeric_type(), true).with_metadata(metadata(NAME.to_owned()))
}

/// A field of arrays of that type.
#[must_use]
pub fn array_field(name: &str) -> Field {
    Field::new(name, DataType::new_list(numeric_type(), true), true).with_metadata(metadata(format!("{NAME}[]")))
}

/// Refuses the text of a number whose digits `numeric` does not keep.
///
/// # Errors
/// [`Error::NumericDigits`].
pub fn check_digits(text: &str) -> Result<(), Error> {
    let found = num_fraction_digits(text);
    if found <= i64::from(SCALE) {
        return Ok(());
    }
    Err(Error::NumericDigits { text: text.trim().chars().take(60).collect(), found, kept: SCALE })
}

/// Digits behind the point without the zeros at the end; of a text that is a number.
fn num_fraction_digits(text: &str) -> i64 {
    let (mantissa, exponent) = text.trim().split_once(['e', 'E']).unwrap_or((text.trim(), "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = whole.trim_start_matches(['+', '-']).chars().chain(fraction.chars());
    if digits.clone().all(|digit| digit == '0') {
        return 0;
    }
    let num_zeros = digits.rev().take_while(|digit| *digit == '0').count();
    fraction.len() as i64 - num_zeros as i64 - exponent.parse().unwrap_or(0_i64)
}

/// Texts of numbers, those with an exponent written out: Arrow reads none.
fn with_plain_digits(texts: &Column<StringArray>, arguments: &Arguments) -> ArrayRef {
    let num_rows = if texts.is_constant() { arguments.num_rows().min(1) } else { arguments.num_rows() };
    let plain = |row: usize| texts.get(row).map(|text| written_out(text.trim()).unwrap_or_else(|| text.trim().to_owned()));
    Arc::new((0..num_rows).map(plain).collect::<StringArray>())
}

/// `None`: it has no exponent, is no number, or has more digits than a numeric.
fn written_out(text: &str) -> Option<String> {
    let (mantissa, exponent) = text.split_once(['e', 'E'])?;
    let (sign, mantissa) = mantissa.split_at(usize::from(mantissa.starts_with(['-', '+'])));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.parse::<i32>().ok().filter(|exponent| exponent.abs() <= i32::from(PRECISION))?;
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // The point moves over the digits, which get zeros where it leaves them.
    let point = whole.len() as i32 + exponent;
    let before = "0".repeat(usize::try_from(-point).unwrap_or(0));
    let behind = "0".repeat(usize::try_from(point).unwrap_or(0).saturating_sub(all.len()));
    let digits = format!("{before}{all}{behind}");
    let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
    Some(format!("{sign}{}.{}", if whole.is_empty() { "0" } else { whole }, if fraction.is_empty() { "0" } else { fraction }))
}

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let column = arguments.column(0)?;
    let texts = if is_text(column.array().data_type()) { Some(with_plain_digits(&arguments.text(0)?, arguments)) } else { None };
    let values = texts.as_ref().unwrap_or(column.array());
    // Not `safe`: a value that does not fit is an error, never a silent NULL.
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let numbers = cast_with_options(values, &numeric_type(), &strict)?;
    if is_text(values.data_type()) {
        let texts = arguments.text(0)?;
        for text in (0..arguments.num_rows()).filter_map(|row| texts.get(row)) {
            check_digits(text)?;
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_behind_the_point_are_those_of_the_value() {
        for (text, digits) in [
            ("1", 0),
            ("-12.50", 1),
            ("0.12345678901", 11),
            (" .5 ", 1),
            ("1.5e-10", 11),
            ("10e-11", 10),
            ("1.25e1", 1),
            ("-0.00000000000000", 0),
            ("0e-20", 0),
        ] {
            assert_eq!(num_fraction_digits(text), digits, "{text}");
        }
    }

    #[test]
    fn exponents_are_written_out() {
        for (text, expected) in [
            ("1e5", Some("100000.0")),
            ("-1.25e1", Some("-12.5")),
            ("1.25E-3", Some("0.00125")),
            ("+.5e0", Some("+0.5")),
            ("1e400", None),
            ("1.5", None),
            ("xe5", None),
        ] {
            assert_eq!(written_out(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn ten_digits_are_kept_and_more_are_refused() {
        assert_eq!(check_digits("1234567890123456789.0123456789000"), Ok(()));
        let refused = Error::NumericDigits { text: "0.00000000001".to_owned(), found: 11, kept: 10 };
        assert_eq!(check_digits("0.00000000001"), Err(refused));
    }

    #[test]
    fn a_declared_numeric_is_another_type() {
        assert!(is_plain_numeric(&field("n")));
        assert!(!is_plain_numeric(&Field::new("n", numeric_type(), true)));
        assert!(!is_plain_numeric(&field("n").with_data_type(DataType::Decimal128(38, 14))));
    }
}
