use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "json_extract_path",
        section: super::SECTION,
        description: "The value at the end of a path, as JSON; also `json #> path`. NULL if it is not there.",
        parameters: &[super::JSON, super::STEPS],
        required: 2,
        example: ("SELECT json_extract_path('{\"a\": [1, {\"b\": 2}]}', ARRAY['a', '1'])", r#"{"b": 2}"#),
    },
    returns: Returns::Part,
    kernel: |arguments| super::map_paths(arguments, super::append_json),
};
