use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::column::{distance_type, map_pairs};
use super::kernel::dot;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "negative_inner_product",
        section: super::SECTION,
        description: "Inner product with its sign turned, also `left <#> right`, so that the nearest vector comes first in ascending order. \
            NULL if one of them is NULL.",
        parameters: &[
            Parameter { name: "left", kind: Kind::Vector, description: "A vector." },
            Parameter { name: "right", kind: Kind::Vector, description: "A vector of the same width." },
        ],
        required: 2,
        example: ("SELECT negative_inner_product('[1,2]', '[3,4]')", "-11.0"),
    },
    returns: Returns::Computed(|types, _| distance_type(types)),
    kernel: |arguments| map_pairs(arguments, |left, right| -dot(left, right)),
};
