use std::sync::Arc;

use arrow::array::Int32Array;
use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::column::Vectors;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "vector_dims",
        section: super::SECTION,
        description: "Number of elements. NULL for NULL.",
        parameters: &[Parameter { name: "vector", kind: Kind::Vector, description: "A vector." }],
        required: 1,
        example: ("SELECT vector_dims('[1,2,3]')", "3"),
    },
    returns: Returns::Always(DataType::Int32),
    kernel: |arguments| {
        let vectors = Vectors::new(arguments, 0)?;
        let width = |vector: &[f32]| i32::try_from(vector.len()).expect("an Arrow list has at most i32::MAX elements");
        let rows = (0..arguments.num_rows()).map(|row| vectors.get(row).map(width));
        Ok(Arc::new(rows.collect::<Int32Array>()))
    },
};
