use crate::function::{Function, Interface, Returns};
use crate::text_type::TextType;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "json_in",
        section: super::SECTION,
        description: "Checks that a text is JSON and keeps it as it is; `text::json` does the same.",
        parameters: &[super::JSON],
        required: 1,
        example: ("SELECT json_in('{\"b\":1, \"a\":2}')", r#"{"b":1, "a":2}"#),
    },
    returns: Returns::Text(TextType::Json),
    kernel: |arguments| super::map_documents(arguments, |document, _, texts| super::append_json(document, texts)),
};
