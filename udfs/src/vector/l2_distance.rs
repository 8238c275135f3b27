use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::column::{distance_type, map_pairs};
use super::kernel::squared_distance;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "l2_distance",
        section: super::SECTION,
        description: "Euclidean distance, also `left <-> right`. NULL if one of them is NULL.",
        parameters: &[
            Parameter { name: "left", kind: Kind::Vector, description: "A vector." },
            Parameter { name: "right", kind: Kind::Vector, description: "A vector of the same width." },
        ],
        required: 2,
        example: ("SELECT l2_distance('[0,0]', '[3,4]')", "5.0"),
    },
    returns: Returns::Computed(|types, _| distance_type(types)),
    kernel: |arguments| map_pairs(arguments, |left, right| squared_distance(left, right).sqrt()),
};
