use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListBuilder, Float32Builder, ListBuilder};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::column::Vectors;
use super::vector_type::item_field;
use super::{DIMENSIONS_MAX, any_vector_field, parse_vector, vector_type};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "vector_in",
        section: super::SECTION,
        description: "Reads a vector from pgvector's text form; `'[1,2,3]'::vector(3)` does the same, and `'[1,2,3]'::vector` without n. An error if \
            the text is not a vector or has another width than n. NULL for NULL.",
        parameters: &[
            Parameter {
                name: "value",
                kind: Kind::Vector,
                description: "Numbers in brackets, `[1,2.5,-3e-2]`; or a vector or a list of numbers, which is checked.",
            },
            Parameter {
                name: "n",
                kind: Kind::Integer,
                description: "Width of the result, a constant from 1 to 16000; without it each vector has its own.",
            },
        ],
        required: 1,
        example: ("SELECT vector_in('[1, 2.5]', 2)", "[1.0, 2.5]"),
    },
    returns: Returns::Field(return_field),
    kernel,
};

/// The width is part of the type, so it has to be known before the first row; without one the type is that of vectors of any width.
fn return_field(fields: &[FieldRef], literals: &[Option<&ScalarValue>]) -> Result<Field> {
    let data_type = match literals {
        [_, Some(n)] => vector_type(width(&FUNCTION, n)?),
        [_, None] => return Err(not_constant().into()),
        _ => match own_width(fields, literals)? {
            Some(width) => vector_type(width),
            None => return Ok(any_vector_field("")),
        },
    };
    Ok(Field::new("", data_type, true))
}

/// The width that the first argument tells: that of a constant text, or of the type.
pub(super) fn own_width(fields: &[FieldRef], literals: &[Option<&ScalarValue>]) -> Result<Option<usize>, Error> {
    if let Some(text) = literals.first().copied().flatten().and_then(|value| value.try_as_str().flatten()) {
        return Ok(Some(parse_vector(text)?.len()));
    }
    Ok(match fields.first().map(|field| field.data_type()) {
        Some(DataType::FixedSizeList(_, width)) => usize::try_from(*width).ok(),
        _ => None,
    })
}

fn not_constant() -> Error {
    let reason = "because it decides the type of the result: vector_in(text, 384)";
    Error::NotConstant { function: FUNCTION.interface.name, argument: "n", reason }
}

/// The width that a constant argument says.
pub(super) fn width(function: &Function, n: &ScalarValue) -> Result<usize> {
    let refuse = || function.interface.argument_error(1, n, format!("1 to {DIMENSIONS_MAX}"));
    let ScalarValue::Int64(Some(width)) = n.cast_to(&DataType::Int64)? else { return Err(refuse().into()) };
    let width = usize::try_from(width).ok().filter(|width| (1..=DIMENSIONS_MAX).contains(width));
    Ok(width.ok_or_else(refuse)?)
}

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let given = Vectors::new(arguments, 0)?;
    match *arguments.return_type() {
        DataType::FixedSizeList(_, promised) => of_width(&given, promised, arguments.num_rows()),
        _ => of_any_width(&given, arguments.num_rows()),
    }
}

fn of_width(given: &Vectors, promised: i32, capacity: usize) -> Result<ArrayRef> {
    let expected = usize::try_from(promised).expect("Arrow has no negative widths");
    let values = Float32Builder::with_capacity(capacity * expected);
    let mut vectors = FixedSizeListBuilder::with_capacity(values, promised, capacity).with_field(item_field());
    for row in 0..capacity {
        let vector = given.get(row);
        match vector {
            Some(vector) if vector.len() != expected => return Err(Error::Width { found: vector.len(), expected }.into()),
            Some(vector) => vectors.values().append_slice(vector),
            None => vectors.values().append_nulls(expected),
        }
        vectors.append(vector.is_some());
    }
    Ok(Arc::new(vectors.finish()))
}

fn of_any_width(given: &Vectors, capacity: usize) -> Result<ArrayRef> {
    let mut vectors = ListBuilder::new(Float32Builder::new()).with_field(item_field());
    for row in 0..capacity {
        let vector = given.get(row);
        check_width(&FUNCTION, vector)?;
        vectors.values().append_slice(vector.unwrap_or_default());
        vectors.append(vector.is_some());
    }
    Ok(Arc::new(vectors.finish()))
}

/// # Errors
/// [`Error::Argument`] for a list of no numbers, or of too many.
pub(super) fn check_width(function: &Function, vector: Option<&[f32]>) -> Result<(), Error> {
    match vector {
        Some(vector) if !(1..=DIMENSIONS_MAX).contains(&vector.len()) => {
            let expected = format!("1 to {DIMENSIONS_MAX} numbers");
            Err(function.interface.argument_error(0, format!("a list of {}", vector.len()), expected))
        }
        _ => Ok(()),
    }
}
