use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::column::{distance_type, map_pairs};
use super::kernel::absolute_distance;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "l1_distance",
        section: super::SECTION,
        description: "Sum of the absolute differences (taxicab distance), also `left <+> right`. NULL if one of them is NULL.",
        parameters: &[
            Parameter { name: "left", kind: Kind::Vector, description: "A vector." },
            Parameter { name: "right", kind: Kind::Vector, description: "A vector of the same width." },
        ],
        required: 2,
        example: ("SELECT l1_distance('[0,0]', '[3,-4]')", "7.0"),
    },
    returns: Returns::Computed(|types, _| distance_type(types)),
    kernel: |arguments| map_pairs(arguments, absolute_distance),
};
