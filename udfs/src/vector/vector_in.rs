use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListBuilder, Float32Builder};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::column::Vectors;
use super::vector_type::item_field;
use super::{DIMENSIONS_MAX, parse_vector, vector_type};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "vector_in",
        section: super::SECTION,
        description: "Reads a vector from pgvector's text form; `'[1,2,3]'::vector(3)` does the same. An error if the text is \
            not a vector or has another width than n. NULL for NULL.",
        parameters: &[
            Parameter {
                name: "value",
                kind: Kind::Vector,
                description: "Numbers in brackets, `[1,2.5,-3e-2]`; or a vector, which is checked.",
            },
            Parameter {
                name: "n",
                kind: Kind::Integer,
                description: "Width of the result, a constant from 1 to 16000; may be left out if the value is a constant text.",
            },
        ],
        required: 1,
        example: ("SELECT vector_in('[1, 2.5]', 2)", "[1.0, 2.5]"),
    },
    returns: Returns::Computed(|_, literals| return_type(literals)),
    kernel,
};

/// The width is part of the type, so it has to be known before the first row.
fn return_type(literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    match literals {
        [Some(text)] => match text.try_as_str().flatten() {
            Some(text) => Ok(vector_type(parse_vector(text)?.len())),
            None => Err(not_constant("and given, because a NULL has no width: vector_in(NULL, 384)")),
        },
        [_, Some(n)] => Ok(vector_type(width(&FUNCTION, n)?)),
        [None] => Err(not_constant("and given, because the text is not constant: vector_in(text, 384)")),
        _ => Err(not_constant("because it decides the type of the result: vector_in(text, 384)")),
    }
}

fn not_constant(reason: &'static str) -> datafusion::error::DataFusionError {
    Error::NotConstant { function: FUNCTION.interface.name, argument: "n", reason }.into()
}

/// The width that a constant argument says.
pub(super) fn width(function: &Function, n: &ScalarValue) -> Result<usize> {
    let refuse = || function.interface.argument_error(1, n, format!("1 to {DIMENSIONS_MAX}"));
    let ScalarValue::Int64(Some(width)) = n.cast_to(&DataType::Int64)? else { return Err(refuse().into()) };
    let width = usize::try_from(width).ok().filter(|width| (1..=DIMENSIONS_MAX).contains(width));
    Ok(width.ok_or_else(refuse)?)
}

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let DataType::FixedSizeList(_, promised) = *arguments.return_type() else {
        return datafusion::common::internal_err!("vector_in returns a FixedSizeList");
    };
    let expected = usize::try_from(promised).expect("Arrow has no negative widths");
    let given = Vectors::new(arguments, 0)?;
    let capacity = arguments.num_rows();
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
