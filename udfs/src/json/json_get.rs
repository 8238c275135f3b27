use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "json_get",
        section: super::SECTION,
        description: "The value under a key of an object or at a position of an array, as JSON; also `json -> key`. NULL if it is not there.",
        parameters: &[super::JSON, super::KEY],
        required: 2,
        example: ("SELECT json_get('{\"a\": [1, {\"b\": null}]}', 'a')", r#"[1, {"b": null}]"#),
    },
    returns: Returns::Part,
    kernel: |arguments| super::map_parts(arguments, super::append_json),
};
