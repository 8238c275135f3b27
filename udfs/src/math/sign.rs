use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type};

use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "sign",
        section: super::SECTION,
        description: "-1, 0 or 1: whether a number is below, at or above zero.",
        parameters: &[super::NUMBER],
        required: 1,
        example: ("SELECT sign(-2.5)", "-1.0"),
    },
    returns: Returns::Computed(|types, _| {
        Ok(if matches!(types[0], DataType::Decimal128(..)) { DataType::Decimal128(1, 0) } else { DataType::Float64 })
    }),
    kernel: |arguments| {
        if arguments.return_type() == &DataType::Float64 {
            return arguments.map_numbers(|[number]| Ok(if number == 0.0 || number.is_nan() { number } else { number.signum() }));
        }
        let column = arguments.column(0)?;
        let signs: Decimal128Array = column.array().as_primitive::<Decimal128Type>().unary(i128::signum);
        let signs = cast(&signs.with_data_type(DataType::Decimal128(1, 0)), arguments.return_type())?;
        Ok(if column.is_constant() {
            arrow::compute::take(&signs, &arrow::array::UInt32Array::from(vec![0; arguments.num_rows()]), None)?
        } else {
            Arc::clone(&signs) as ArrayRef
        })
    },
};
