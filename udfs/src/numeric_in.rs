//! `numeric` without declared digits. PostgreSQL keeps every digit; here it is `numeric(38, 10)`, and a text with more of them behind its point is
//! refused, where a column that was declared with its digits rounds. What is computed is rounded in both.

use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;

use crate::Error;
use crate::arguments::Arguments;
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

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let column = arguments.column(0)?;
    let values = column.array();
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
