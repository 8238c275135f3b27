use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListBuilder, Float16Builder};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;
use half::f16;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::column::Vectors;
use super::{DIMENSIONS_MAX, halfvec_type, parse_vector};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "halfvec_in",
        section: super::SECTION,
        description: "A vector in half precision; `value::halfvec(n)` does the same. An error if it has another width than n, or an element \
            beyond 65504. NULL for NULL.",
        parameters: &[
            Parameter { name: "value", kind: Kind::Vector, description: "A vector, a list of numbers, or their text form." },
            Parameter {
                name: "n",
                kind: Kind::Integer,
                description: "Width of the result, a constant from 1 to 16000; may be left out if the value is a vector or a constant.",
            },
        ],
        required: 1,
        example: ("SELECT halfvec_in('[1, 2.5]', 2)", "[1, 2.5]"),
    },
    returns: Returns::Computed(return_type),
    kernel,
};

/// The width is part of the type, so it has to be known before the first row.
fn return_type(types: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let given = match literals.get(1) {
        Some(Some(n)) => match n.cast_to(&DataType::Int64)? {
            ScalarValue::Int64(Some(width)) => Some(usize::try_from(width).unwrap_or(0)),
            _ => Some(0),
        },
        _ => None,
    };
    let text = literals.first().copied().flatten().and_then(|value| value.try_as_str().flatten());
    let width = match (given, types.first(), text) {
        (Some(width), _, _) => width,
        (None, Some(DataType::FixedSizeList(_, width)), _) => usize::try_from(*width).expect("Arrow has no negative widths"),
        (None, _, Some(text)) => parse_vector(text)?.len(),
        _ => {
            let reason = "because it decides the type of the result: halfvec_in(value, 384)";
            return Err(Error::NotConstant { function: FUNCTION.interface.name, argument: "n", reason }.into());
        }
    };
    if !(1..=DIMENSIONS_MAX).contains(&width) {
        return Err(FUNCTION.interface.argument_error(1, width, format!("1 to {DIMENSIONS_MAX}")).into());
    }
    Ok(halfvec_type(width))
}

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let DataType::FixedSizeList(item, promised) = arguments.return_type() else {
        return datafusion::common::internal_err!("halfvec_in returns a FixedSizeList");
    };
    let expected = usize::try_from(*promised).expect("Arrow has no negative widths");
    let vectors = Vectors::new(arguments, 0)?;
    let capacity = arguments.num_rows();
    let values = Float16Builder::with_capacity(capacity * expected);
    let mut halves = FixedSizeListBuilder::with_capacity(values, *promised, capacity).with_field(Arc::clone(item));
    for row in 0..capacity {
        let vector = vectors.get(row);
        match vector {
            Some(vector) if vector.len() != expected => return Err(Error::Width { found: vector.len(), expected }.into()),
            Some(vector) => {
                for value in vector {
                    halves.values().append_value(to_half(*value)?);
                }
            }
            None => halves.values().append_nulls(expected),
        }
        halves.append(vector.is_some());
    }
    Ok(Arc::new(halves.finish()))
}

/// A number in half precision.
///
/// # Errors
/// [`Error::HalfRange`] beyond 65504.
pub fn to_half(value: f32) -> Result<f16, Error> {
    let half = f16::from_f32(value);
    if half.is_finite() { Ok(half) } else { Err(Error::HalfRange { found: value.to_string() }) }
}
