use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "json_typeof",
        section: super::SECTION,
        description: "The kind of a JSON value: object, array, string, number, boolean or null.",
        parameters: &[super::JSON],
        required: 1,
        example: ("SELECT json_typeof('[1]')", r#"array"#),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| super::map_documents(arguments, |document, _, texts| texts.append_value(document.kind().name())),
};
