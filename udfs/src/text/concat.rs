//! `concat` and `concat_ws`: values of any types in the form in which they are shown, one behind the other.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray, StringBuilder};
use arrow::datatypes::DataType;
use datafusion::error::Result;

use super::SECTION;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::text_out::texts;

const VALUES: Parameter = Parameter { name: "values", kind: Kind::Rest, description: "Values of any types; a NULL is left out." };

pub(crate) static CONCAT: Function = Function {
    interface: Interface {
        name: "concat",
        section: SECTION,
        description: "The texts of values, one behind the other. Unlike `||` it leaves out NULL, and truth values are `t` and `f`.",
        parameters: &[VALUES],
        required: 1,
        example: ("SELECT concat('a', 1.5, NULL, true)", "a1.5t"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let values = shown(arguments, 0)?;
        let mut joined = StringBuilder::new();
        for row in 0..arguments.num_rows() {
            joined.append_value(values.iter().filter(|value| value.is_valid(row)).map(|value| value.value(row)).collect::<String>());
        }
        Ok(Arc::new(joined.finish()) as ArrayRef)
    },
};

pub(crate) static CONCAT_WS: Function = Function {
    interface: Interface {
        name: "concat_ws",
        section: SECTION,
        description: "The texts of values with a separator between them; NULL if that is NULL.",
        parameters: &[Parameter { name: "separator", kind: Kind::Text, description: "What stands between two values." }, VALUES],
        required: 2,
        example: ("SELECT concat_ws(', ', 'a', NULL, 1)", "a, 1"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let separators = arguments.text(0)?;
        let values = shown(arguments, 1)?;
        let mut joined = StringBuilder::new();
        for row in 0..arguments.num_rows() {
            let there = values.iter().filter(|value| value.is_valid(row)).map(|value| value.value(row));
            joined.append_option(separators.get(row).map(|separator| there.collect::<Vec<_>>().join(separator)));
        }
        Ok(Arc::new(joined.finish()) as ArrayRef)
    },
};

fn shown(arguments: &Arguments, first: usize) -> Result<Vec<StringArray>> {
    (first..arguments.count()).map(|index| texts(arguments, index, false)).collect()
}
