//! Sums, differences and products of vectors, number by number.

use arrow::array::ArrayRef;
use datafusion::error::Result;
use half::f16;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::built::{VectorKind, VectorsBuilder};
use super::column::{Vectors, pair};

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "left", kind: Kind::Vector, description: "A vector or a halfvec." },
    Parameter { name: "right", kind: Kind::Vector, description: "One of the same width." },
];

/// In half precision if one of the two is.
const RETURNS: Returns = Returns::Field(|fields, literals| {
    let [left, right] = VectorKind::of_both(fields, literals)?;
    match (left.width, right.width) {
        (Some(left), Some(right)) if left != right => Err(Error::Dimensions { left, right }.into()),
        (width, other) => Ok(VectorKind { width: width.or(other), ..left }.field()),
    }
});

pub(crate) static ADD: Function = Function {
    interface: Interface {
        name: "vector_add",
        section: super::SECTION,
        description: "The sum of two vectors, number by number; also `left + right`. An error beyond the type's range. NULL if one of them is NULL.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT vector_add('[1,2]', '[3,4]')", "[4.0, 6.0]"),
    },
    returns: RETURNS,
    kernel: |arguments| combined(arguments, |a, b| Some(a + b)),
};

pub(crate) static SUB: Function = Function {
    interface: Interface {
        name: "vector_sub",
        section: super::SECTION,
        description: "The difference of two vectors, number by number; also `left - right`. An error beyond the type's range. NULL if one of them \
            is NULL.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT vector_sub('[3,4]', '[1,2]')", "[2.0, 2.0]"),
    },
    returns: RETURNS,
    kernel: |arguments| combined(arguments, |a, b| Some(a - b)),
};

pub(crate) static MUL: Function = Function {
    interface: Interface {
        name: "vector_mul",
        section: super::SECTION,
        description: "The product of two vectors, number by number; also `left * right`. An error beyond the type's range, and for a product too \
            near to zero. NULL if one of them is NULL.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT vector_mul('[1,2]', '[3,4]')", "[3.0, 8.0]"),
    },
    returns: RETURNS,
    kernel: |arguments| combined(arguments, |a, b| if a == 0.0 || b == 0.0 { None } else { Some(a * b) }),
};

/// `term` gives `None` for a zero that is exact.
fn combined(arguments: &Arguments, term: fn(f32, f32) -> Option<f32>) -> Result<ArrayRef> {
    let (left, right) = (Vectors::new(arguments, 0)?, Vectors::new(arguments, 1)?);
    let mut vectors = VectorsBuilder::new(arguments.return_type(), arguments.num_rows());
    let is_half = vectors.kind().is_half;
    let is_product = arguments.interface.name == MUL.interface.name;
    let number = |(a, b): (&f32, &f32)| -> Result<f32, Error> {
        let Some(exact) = term(*a, *b) else { return Ok(a * b) };
        let rounded = if is_half { f16::from_f32(exact).to_f32() } else { exact };
        match rounded {
            number if number.is_infinite() => Err(Error::VectorRange { fault: "overflow" }),
            0.0 if is_product => Err(Error::VectorRange { fault: "underflow" }),
            number => Ok(number),
        }
    };
    for row in 0..arguments.num_rows() {
        match pair(&left, &right, row)? {
            Some((left, right)) => {
                let numbers = left.iter().zip(right).map(number).collect::<Result<Vec<_>, Error>>()?;
                vectors.push(Some(&numbers))?;
            }
            None => vectors.push_null(),
        }
    }
    vectors.finish()
}
