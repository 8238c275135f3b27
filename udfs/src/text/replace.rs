use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::DataType;

use super::{SECTION, TEXT};
use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "replace",
        section: SECTION,
        description: "The text with another one wherever one occurs; an empty one occurs nowhere.",
        parameters: &[
            TEXT,
            Parameter { name: "from", kind: Kind::Text, description: "What is looked for." },
            Parameter { name: "to", kind: Kind::Text, description: "What takes its place." },
        ],
        required: 3,
        example: ("SELECT replace('abcabc', 'b', 'xx')", "axxcaxxc"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let (texts, from, to) = (arguments.text(0)?, arguments.text(1)?, arguments.text(2)?);
        let replaced = |row: usize| {
            let (text, from, to) = (texts.get(row)?, from.get(row)?, to.get(row)?);
            Some(if from.is_empty() { text.to_owned() } else { text.replace(from, to) })
        };
        Ok(Arc::new((0..arguments.num_rows()).map(replaced).collect::<StringArray>()) as ArrayRef)
    },
};
