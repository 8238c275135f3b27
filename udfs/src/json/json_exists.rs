use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::DataType;

use super::document::{Document, Kind};
use crate::Error;
use crate::function::{Function, Interface, Kind as Argument, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "json_exists",
        section: super::SECTION,
        description: "Whether a text is a key of an object or a string in an array; also `json ? key`.",
        parameters: &[super::JSON, Parameter { name: "key", kind: Argument::Text, description: "A key or string." }],
        required: 2,
        example: ("SELECT json_exists('{\"a\": null}', 'a')", "true"),
    },
    returns: Returns::Always(DataType::Boolean),
    kernel: |arguments| {
        let (texts, keys) = (arguments.text(0)?, arguments.text(1)?);
        let found = (0..arguments.num_rows()).map(|row| texts.get(row).zip(keys.get(row)).map(|(text, key)| exists(text, key)).transpose());
        Ok(Arc::new(found.collect::<Result<BooleanArray, Error>>()?) as ArrayRef)
    },
};

pub(super) fn exists(text: &str, key: &str) -> Result<bool, Error> {
    let document = Document::parse(text)?;
    let is_key = |value: Document<'_>| value.kind() == Kind::String && value.string() == key;
    Ok(document.get(key).is_some() || document.items().any(is_key) || is_key(document))
}
