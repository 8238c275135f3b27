use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::elements::VECTOR;
use super::vector_in::{read_vectors, width};
use super::vector_type;

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
    kernel: |arguments| read_vectors(arguments, VECTOR),
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
