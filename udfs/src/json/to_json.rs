use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use arrow::datatypes::FieldRef;
use datafusion::error::Result;

use super::normal_form::{normalize, quoted};
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::{JsonColumn, JsonReader};
use crate::text_type::TextType;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "to_json",
        section: super::SECTION,
        description: "A value as JSON: arrays as arrays, rows as objects, json as it is, text as a string. NULL for NULL.",
        parameters: &[Parameter { name: "value", kind: Kind::Any, description: "Any value." }],
        required: 1,
        example: ("SELECT to_json(ARRAY['x', NULL])", r#"["x",null]"#),
    },
    returns: Returns::Text(TextType::Json),
    kernel: |arguments| texts(arguments, |text| Ok(text.to_owned())),
};

pub(crate) static JSONB: Function = Function {
    interface: Interface {
        name: "to_jsonb",
        section: super::SECTION,
        description: "A value as jsonb. NULL for NULL.",
        parameters: &[Parameter { name: "value", kind: Kind::Any, description: "Any value." }],
        required: 1,
        example: ("SELECT to_jsonb(ARRAY['x', NULL])", r#"["x", null]"#),
    },
    returns: Returns::Text(TextType::Jsonb),
    kernel: |arguments| texts(arguments, |text| Ok(normalize(text)?)),
};

pub(crate) static ARRAY: Function = Function {
    interface: Interface {
        name: "array_to_json",
        section: super::SECTION,
        description: "An array as JSON. NULL for NULL.",
        parameters: &[Parameter { name: "array", kind: Kind::Any, description: "An array." }],
        required: 1,
        example: ("SELECT array_to_json(ARRAY[1, NULL])", "[1,null]"),
    },
    returns: Returns::Text(TextType::Json),
    kernel: |arguments| texts(arguments, |text| Ok(text.to_owned())),
};

fn texts(arguments: &Arguments, finish: fn(&str) -> Result<String>) -> Result<ArrayRef> {
    let column = arguments.column(0)?;
    let texts = json_texts(column.array(), &arguments.field(0))?;
    let mut json = StringBuilder::new();
    for row in 0..arguments.num_rows() {
        json.append_option(texts[if column.is_constant() { 0 } else { row }].as_deref().map(finish).transpose()?);
    }
    Ok(Arc::new(json.finish()))
}

/// The JSON text of each value; `None` for NULL.
pub(super) fn json_texts(values: &ArrayRef, field: &FieldRef) -> Result<Vec<Option<String>>> {
    Ok(JsonColumn::new(field, values, JsonReader::Sql)?.texts(values.len()).collect())
}

/// A key, which is a string whatever it was.
pub(super) fn key_text(json: &str) -> Result<String> {
    Ok(if json.starts_with('"') { json.to_owned() } else { quoted(json) })
}
