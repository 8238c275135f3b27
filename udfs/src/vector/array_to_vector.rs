use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListBuilder, Float32Builder};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::column::Vectors;
use super::vector_in::width;
use super::vector_type;
use super::vector_type::item_field;

/// Arrow's cast from lists takes the numbers of other rows when the lists do not begin with the first number of their buffer.
pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "array_to_vector",
        section: super::SECTION,
        description: "A list of numbers as a vector; `list::vector(n)` does the same. An error if it has another width than n. NULL for NULL.",
        parameters: &[
            Parameter { name: "list", kind: Kind::Vector, description: "A list of numbers." },
            Parameter { name: "n", kind: Kind::Integer, description: "Width of the result, a constant from 1 to 16000." },
        ],
        required: 2,
        example: ("SELECT array_to_vector(ARRAY[1, 2.5], 2)", "[1.0, 2.5]"),
    },
    returns: Returns::Computed(return_type),
    kernel,
};

/// The width is part of the type, so it has to be known before the first row.
fn return_type(_: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    match literals {
        [_, Some(n)] => Ok(vector_type(width(&FUNCTION, n)?)),
        _ => {
            let reason = "because it decides the type of the result: array_to_vector(list, 384)";
            Err(Error::NotConstant { function: FUNCTION.interface.name, argument: "n", reason }.into())
        }
    }
}

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let DataType::FixedSizeList(_, promised) = *arguments.return_type() else {
        return datafusion::common::internal_err!("array_to_vector returns a FixedSizeList");
    };
    let expected = usize::try_from(promised).expect("Arrow has no negative widths");
    let lists = Vectors::new(arguments, 0)?;
    let capacity = arguments.num_rows();
    let values = Float32Builder::with_capacity(capacity * expected);
    let mut vectors = FixedSizeListBuilder::with_capacity(values, promised, capacity).with_field(item_field());
    for row in 0..capacity {
        let list = lists.get(row);
        match list {
            Some(list) if list.len() != expected => return Err(Error::Width { found: list.len(), expected }.into()),
            Some(list) => vectors.values().append_slice(list),
            None => vectors.values().append_nulls(expected),
        }
        vectors.append(list.is_some());
    }
    Ok(Arc::new(vectors.finish()))
}
