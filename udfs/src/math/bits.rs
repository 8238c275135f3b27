use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "bitwise_not",
        section: super::SECTION,
        description: "An integer with every bit turned; also `~ value`.",
        parameters: &[Parameter { name: "value", kind: Kind::Integer, description: "An integer." }],
        required: 1,
        example: ("SELECT bitwise_not(5)", "-6"),
    },
    returns: Returns::Computed(|types, _| Ok(if types[0].is_null() { DataType::Int64 } else { types[0].clone() })),
    kernel: |arguments| {
        let integers = arguments.integer(0)?;
        let turned: Int64Array = (0..arguments.num_rows()).map(|row| integers.get(row).map(|integer| !integer)).collect();
        Ok(cast(&(Arc::new(turned) as ArrayRef), arguments.return_type())?)
    },
};
