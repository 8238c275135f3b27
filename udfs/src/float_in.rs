//! `float8_in` and `float4_in`: the texts of numbers in floating point. What is beyond the type is an error, where Arrow makes infinity or 0 of it.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Float64Array};
use arrow::datatypes::DataType;
use datafusion::error::Result;

use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

const TEXT: &[Parameter] =
    &[Parameter { name: "text", kind: Kind::Text, description: "A number, `NaN` or `Infinity`, with blanks round it or without." }];

pub(crate) static FLOAT8: Function = Function {
    interface: Interface {
        name: "float8_in",
        section: "Text",
        description: "Reads a number in double precision; `text::double precision` does the same.",
        parameters: TEXT,
        required: 1,
        example: ("SELECT float8_in(' 1.5e3 ')", "1500.0"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        let texts = arguments.text(0)?;
        let read =
            |text: &str| read(text, "double precision", |text| text.parse::<f64>().ok(), |number| (number.is_infinite(), number == 0.0));
        let numbers = (0..arguments.num_rows()).map(|row| texts.get(row).map(read).transpose());
        Ok(Arc::new(numbers.collect::<Result<Float64Array, Error>>()?) as ArrayRef)
    },
};

pub(crate) static FLOAT4: Function = Function {
    interface: Interface {
        name: "float4_in",
        section: "Text",
        description: "Reads a number in single precision; `text::real` does the same.",
        parameters: TEXT,
        required: 1,
        example: ("SELECT float4_in('1.5')", "1.5"),
    },
    returns: Returns::Always(DataType::Float32),
    kernel: |arguments| {
        let texts = arguments.text(0)?;
        let read = |text: &str| read(text, "real", |text| text.parse::<f32>().ok(), |number| (number.is_infinite(), number == 0.0));
        let numbers = (0..arguments.num_rows()).map(|row| texts.get(row).map(read).transpose());
        Ok(Arc::new(numbers.collect::<Result<Float32Array, Error>>()?) as ArrayRef)
    },
};

/// `ends`: whether a number is infinite, and whether it is 0.
fn read<F: Copy>(
    text: &str,
    type_name: &'static str,
    parse: impl Fn(&str) -> Option<F>,
    ends: impl Fn(F) -> (bool, bool),
) -> Result<F, Error> {
    let trimmed = text.trim_matches(|character: char| character.is_ascii_whitespace() || character == '\u{b}');
    let shown = || text.chars().take(60).collect::<String>();
    let number = parse(trimmed).ok_or_else(|| Error::ValueText { type_name, text: shown() })?;
    let digits = trimmed.split(['e', 'E']).next().unwrap_or_default();
    let is_beyond = match ends(number) {
        (true, _) => digits.contains(|digit: char| digit.is_ascii_digit()),
        (_, true) => digits.contains(|digit: char| matches!(digit, '1'..='9')),
        _ => false,
    };
    if is_beyond { Err(Error::ValueRange { type_name, text: shown() }) } else { Ok(number) }
}
