use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "atan2",
        section: super::SECTION,
        description: "The angle of the point (x, y) in radians, in double precision.",
        parameters: &[
            Parameter { name: "y", kind: Kind::Number, description: "Upwards." },
            Parameter { name: "x", kind: Kind::Number, description: "To the right." },
        ],
        required: 2,
        example: ("SELECT atan2(1, 2)", "0.4636476090008061"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| arguments.map_numbers(|[y, x]| Ok(y.atan2(x))),
};
