use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;

use super::document::{Document, Kind};
use crate::Error;
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "json_array_length",
        section: super::SECTION,
        description: "The number of items of an array. An error for another value, NULL for NULL.",
        parameters: &[super::JSON],
        required: 1,
        example: ("SELECT json_array_length('[1, [2, 3]]')", "2"),
    },
    returns: Returns::Always(DataType::Int64),
    kernel: |arguments| {
        let texts = arguments.text(0)?;
        let lengths = (0..arguments.num_rows()).map(|row| texts.get(row).map(length).transpose());
        Ok(Arc::new(lengths.collect::<Result<Int64Array, Error>>()?) as ArrayRef)
    },
};

fn length(text: &str) -> Result<i64, Error> {
    let document = Document::parse(text)?;
    match document.kind() {
        Kind::Array => Ok(document.items().count() as i64),
        other => Err(FUNCTION.interface.argument_error(0, format!("of kind {}", other.name()), "an array")),
    }
}
