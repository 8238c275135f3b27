//! `mod` and `div`: remainder and whole quotient, both towards zero.

use arrow::array::{ArrayRef, Datum};
use arrow::compute::kernels::numeric;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::error::Result;

use super::SECTION;
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::numeric_in::numeric_type;

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "dividend", kind: Kind::Number, description: "A number." },
    Parameter { name: "divisor", kind: Kind::Number, description: "A number other than zero." },
];

pub(crate) static MOD: Function = Function {
    interface: Interface {
        name: "mod",
        section: SECTION,
        description: "What is left of a division, with the sign of the dividend.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT mod(-7, 3)", "-1"),
    },
    returns: Returns::Computed(|types, _| Ok(common(&types[0], &types[1]))),
    kernel: |arguments| compute(arguments, numeric::rem),
};

pub(crate) static DIV: Function = Function {
    interface: Interface {
        name: "div",
        section: SECTION,
        description: "The whole quotient of a division, towards zero, as a numeric.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT text_out(div(-7, 2))", "-3"),
    },
    returns: Returns::Always(DataType::Decimal128(38, 0)),
    kernel: |arguments| {
        // What is left, taken from the dividend, is a multiple of the divisor.
        let operands = operands(arguments, &numeric_type())?;
        let left = checked(numeric::rem(&operands[0] as &dyn Datum, &operands[1]))?;
        let multiple = numeric::sub(&operands[0], &left)?;
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let (multiple, divisor) = (
            cast_with_options(&multiple, &DataType::Decimal256(60, 10), &strict)?,
            cast_with_options(&operands[1], &DataType::Decimal256(60, 10), &strict)?,
        );
        let quotient = checked(numeric::div(&multiple, &divisor))?;
        Ok(cast_with_options(&quotient, arguments.return_type(), &strict)?)
    },
};

/// The type in which both are computed.
fn common(left: &DataType, right: &DataType) -> DataType {
    let is_integer = |data_type: &DataType| data_type.is_integer() || data_type.is_null();
    match (left, right) {
        (left, right) if is_integer(left) && is_integer(right) => [DataType::Int16, DataType::Int32]
            .into_iter()
            .find(|small| {
                [left, right].iter().all(|found| found == &small || found == &&DataType::Int16 || found.is_null())
                    && !(left.is_null() && right.is_null())
            })
            .unwrap_or(DataType::Int64),
        (left, right) if left.is_floating() || right.is_floating() => DataType::Float64,
        _ => numeric_type(),
    }
}

fn operands(arguments: &Arguments, data_type: &DataType) -> Result<[ArrayRef; 2]> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let operand = |index: usize| -> Result<ArrayRef> {
        let column = arguments.column(index)?;
        let values = cast_with_options(column.array(), data_type, &strict)?;
        match column.is_constant() && arguments.num_rows() != 1 {
            true => Ok(arrow::compute::take(&values, &arrow::array::UInt32Array::from(vec![0; arguments.num_rows()]), None)?),
            false => Ok(values),
        }
    };
    Ok([operand(0)?, operand(1)?])
}

fn compute(arguments: &Arguments, kernel: fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError>) -> Result<ArrayRef> {
    let [left, right] = operands(arguments, arguments.return_type())?;
    checked(kernel(&left, &right))
}

fn checked(result: Result<ArrayRef, ArrowError>) -> Result<ArrayRef> {
    result.map_err(|error| match error {
        ArrowError::DivideByZero => Error::DivisionByZero.into(),
        other => other.into(),
    })
}
