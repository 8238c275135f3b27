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

/// What pgvector calls it for halfvec.
pub(crate) static L2_NORM: Function = Function {
    interface: Interface {
        name: "l2_norm",
        section: super::SECTION,
        description: "Euclidean length, as `vector_norm`. NULL for NULL.",
        parameters: &[Parameter { name: "vector", kind: Kind::Vector, description: "A vector or a halfvec." }],
        required: 1,
        example: ("SELECT l2_norm(halfvec_in('[3,4]'))", "5.0"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| map_vectors(arguments, norm),
};
