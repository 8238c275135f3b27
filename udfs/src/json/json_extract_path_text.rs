use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "json_extract_path_text",
        section: super::SECTION,
        description: "The value at the end of a path, as text; also `json #>> path`.",
        parameters: &[super::JSON, super::STEPS],
        required: 2,
        example: ("SELECT json_extract_path_text('{\"a\": [1, {\"b\": \"x\"}]}', ARRAY['a', '1', 'b'])", r#"x"#),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| super::map_paths(arguments, super::append_text),
};
