use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;
use half::f16;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::elements::HALFVEC;
use super::vector_in::{own_width, read_vectors};
use super::{DIMENSIONS_MAX, any_halfvec_field, halfvec_type};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "halfvec_in",
        section: super::SECTION,
        description: "A vector in half precision; `value::halfvec(n)` does the same, and `value::halfvec` without n. An error if it has another width \
            than n, or an element beyond 65504. NULL for NULL.",
        parameters: &[
            Parameter { name: "value", kind: Kind::Vector, description: "A vector, a list of numbers, or their text form." },
            Parameter {
                name: "n",
                kind: Kind::Integer,
                description: "Width of the result, a constant from 1 to 16000; without it each vector has its own.",
            },
        ],
        required: 1,
        example: ("SELECT halfvec_in('[1, 2.5]', 2)", "[1, 2.5]"),
    },
    returns: Returns::Field(return_field),
    kernel,
};

/// The width is part of the type, so it has to be known before the first row; without one the type is that of vectors of any width.
fn return_field(fields: &[FieldRef], literals: &[Option<&ScalarValue>]) -> Result<Field> {
    let given = match literals.get(1) {
        Some(Some(n)) => match n.cast_to(&DataType::Int64)? {
            ScalarValue::Int64(Some(width)) => Some(usize::try_from(width).unwrap_or(0)),
            _ => Some(0),
        },
        Some(None) => {
            let reason = "because it decides the type of the result: halfvec_in(value, 384)";
            return Err(Error::NotConstant { function: FUNCTION.interface.name, argument: "n", reason }.into());
        }
        None => None,
    };
    let width = match given {
        Some(width) => width,
        None => match own_width(fields, literals, HALFVEC)? {
            Some(width) => width,
            None => return Ok(any_halfvec_field("")),
        },
    };
    if !(1..=DIMENSIONS_MAX).contains(&width) {
        return Err(FUNCTION.interface.argument_error(1, width, format!("1 to {DIMENSIONS_MAX}")).into());
    }
    Ok(Field::new("", halfvec_type(width), true))
}

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    read_vectors(arguments, HALFVEC)
}

/// A number in half precision.
///
/// # Errors
/// [`Error::HalfRange`] beyond 65504.
pub fn to_half(value: f32) -> Result<f16, Error> {
    let half = f16::from_f32(value);
    if half.is_finite() { Ok(half) } else { Err(Error::HalfRange { found: value.to_string() }) }
}
