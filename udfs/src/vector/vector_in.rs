use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::built::VectorsBuilder;
use super::column::Vectors;
use super::elements::VECTOR;
use super::text::parse_vector_of;
use super::{DIMENSIONS_MAX, any_vector_field, vector_type};

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
        _ => match own_width(fields, literals, VECTOR)? {
            Some(width) => vector_type(width),
            None => return Ok(any_vector_field("")),
        },
    };
    Ok(Field::new("", data_type, true))
}

/// The width that the first argument tells: that of a constant text, or of the type.
pub(super) fn own_width(fields: &[FieldRef], literals: &[Option<&ScalarValue>], type_name: &'static str) -> Result<Option<usize>, Error> {
    if let Some(text) = literals.first().copied().flatten().and_then(|value| value.try_as_str().flatten()) {
        return Ok(Some(parse_vector_of(text, type_name)?.len()));
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
    read_vectors(arguments, VECTOR)
}

/// Argument 0 as vectors of the type that was promised.
///
/// # Errors
/// Those of [`VectorsBuilder::push`], [`Error::VectorText`], [`Error::NullElement`].
pub(super) fn read_vectors(arguments: &Arguments, type_name: &'static str) -> Result<ArrayRef> {
    let given = Vectors::of_type(arguments, 0, type_name)?;
    let mut vectors = VectorsBuilder::new(arguments.return_type(), arguments.num_rows());
    for row in 0..arguments.num_rows() {
        vectors.push(given.get(row))?;
    }
    vectors.finish()
}
