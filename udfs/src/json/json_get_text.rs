use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "json_get_text",
        section: super::SECTION,
        description: "The value under a key of an object or at a position of an array, as text: a string without its quotes, NULL for null; also `json ->> key`.",
        parameters: &[super::JSON, super::KEY],
        required: 2,
        example: ("SELECT json_get_text('[\"a\", \"b\"]', -1)", r#"b"#),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| super::map_parts(arguments, super::append_text),
};
