//! The order of vectors: by their first numbers that differ, and a shorter one before a longer one that begins as it does.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array};
use arrow::datatypes::DataType;
use datafusion::error::Result;

use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::column::Vectors;

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "left", kind: Kind::Vector, description: "A vector." },
    Parameter { name: "right", kind: Kind::Vector, description: "Another one, of any width." },
];

pub(crate) static VECTOR_CMP: Function = Function {
    interface: Interface {
        name: "vector_cmp",
        section: super::SECTION,
        description: "-1, 0 or 1 as the left vector comes before the right one, is equal to it, or comes after it: the first numbers that differ \
            decide, then the width. Minus zero is zero. `left < right` and the like compare so. NULL if one of them is NULL.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT vector_cmp('[1,2]', '[1,2,3]')", "-1"),
    },
    returns: Returns::Always(DataType::Int32),
    kernel,
};

pub(crate) static HALFVEC_CMP: Function = Function {
    interface: Interface {
        name: "halfvec_cmp",
        section: super::SECTION,
        description: "As `vector_cmp`.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT halfvec_cmp('[2]', '[1,2,3]')", "1"),
    },
    returns: Returns::Always(DataType::Int32),
    kernel,
};

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let (left, right) = (Vectors::new(arguments, 0)?, Vectors::new(arguments, 1)?);
    let compared = (0..arguments.num_rows()).map(|row| {
        let (left, right) = left.get(row).zip(right.get(row))?;
        Some(order(left, right) as i32)
    });
    Ok(Arc::new(compared.collect::<Int32Array>()))
}

/// No vector has NaN but those that were stored before that was refused: it is equal to itself, and greater than every number.
fn order(left: &[f32], right: &[f32]) -> Ordering {
    let of_numbers = |a: f32, b: f32| a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
    let first = left.iter().zip(right).map(|(a, b)| of_numbers(*a, *b)).find(|order| order.is_ne());
    first.unwrap_or_else(|| left.len().cmp(&right.len()))
}
