use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "rint",
        section: super::SECTION,
        description: "The nearest whole number, of a half the even one, as a cast of double precision to an integer rounds; `round` goes away from zero.",
        parameters: &[super::NUMBER],
        required: 1,
        example: ("SELECT rint(2.5)", "2.0"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| arguments.map_numbers(|[number]| Ok(number.round_ties_even())),
};
