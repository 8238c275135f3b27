use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use datafusion::error::Result;

use super::json_build_array::{columns, text};
use super::normal_form::normalize;
use super::to_json::key_text;
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::text_type::TextType;

const MEMBERS: &[Parameter] = &[Parameter { name: "keys_and_values", kind: Kind::Rest, description: "Key, value, key, value, ..." }];

pub(crate) static JSON: Function = Function {
    interface: Interface {
        name: "json_build_object",
        section: super::SECTION,
        description: "An object of keys and values, which alternate; a NULL value is null, a NULL key an error.",
        parameters: MEMBERS,
        required: 0,
        example: ("SELECT json_build_object('id', 7, 'tags', ARRAY['x'])", r#"{"id" : 7, "tags" : ["x"]}"#),
    },
    returns: Returns::Text(TextType::Json),
    kernel: |arguments| objects(&JSON, arguments, Ok),
};

pub(crate) static JSONB: Function = Function {
    interface: Interface {
        name: "jsonb_build_object",
        section: super::SECTION,
        description: "The same as jsonb.",
        parameters: MEMBERS,
        required: 0,
        example: ("SELECT jsonb_build_object('tags', ARRAY['x'], 'id', 7)", r#"{"id": 7, "tags": ["x"]}"#),
    },
    returns: Returns::Text(TextType::Jsonb),
    kernel: |arguments| objects(&JSONB, arguments, |text| Ok(normalize(&text)?)),
};

pub(crate) static ROW: Function = Function {
    interface: Interface {
        name: "json_row",
        section: super::SECTION,
        description: "A row as JSON, of the names of its columns and their values, which alternate: what `row_to_json(t)` is of a table's row.",
        parameters: MEMBERS,
        required: 0,
        example: ("SELECT json_row('id', 7, 'tags', ARRAY['x'])", r#"{"id":7,"tags":["x"]}"#),
    },
    returns: Returns::Text(TextType::Json),
    kernel: |arguments| spaced(&ROW, arguments, [":", ","], Ok),
};

fn objects(function: &'static Function, arguments: &Arguments, finish: fn(String) -> Result<String>) -> Result<ArrayRef> {
    spaced(function, arguments, [" : ", ", "], finish)
}

/// `between`: a key and its value, and two members.
fn spaced(
    function: &'static Function,
    arguments: &Arguments,
    between: [&str; 2],
    finish: fn(String) -> Result<String>,
) -> Result<ArrayRef> {
    let columns = columns(arguments)?;
    if columns.len() % 2 == 1 {
        return Err(function.interface.argument_error(0, format!("{} arguments", columns.len()), "a value for each key").into());
    }
    let mut objects = StringBuilder::new();
    for row in 0..arguments.num_rows() {
        let mut members = Vec::with_capacity(columns.len() / 2);
        for pair in columns.chunks_exact(2) {
            let key = text(&pair[0], row).ok_or_else(|| -> Error { function.interface.argument_error(0, "a key that is NULL", "text") })?;
            members.push(format!("{}{}{}", key_text(&key)?, between[0], text(&pair[1], row).unwrap_or_else(|| "null".to_owned())));
        }
        objects.append_value(finish(format!("{{{}}}", members.join(between[1])))?);
    }
    Ok(Arc::new(objects.finish()))
}
