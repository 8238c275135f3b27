use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::column::map_vectors;
use super::kernel::norm;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "vector_norm",
        section: super::SECTION,
        description: "Euclidean length. NULL for NULL.",
        parameters: &[Parameter { name: "vector", kind: Kind::Vector, description: "A vector." }],
        required: 1,
        example: ("SELECT vector_norm('[3,4]')", "5.0"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| map_vectors(arguments, norm),
};
