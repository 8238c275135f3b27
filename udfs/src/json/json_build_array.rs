use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use datafusion::error::Result;

use super::normal_form::normalize;
use super::to_json::json_texts;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::text_type::TextType;

const VALUES: &[Parameter] = &[Parameter { name: "values", kind: Kind::Rest, description: "Values of any types." }];

pub(crate) static JSON: Function = Function {
    interface: Interface {
        name: "json_build_array",
        section: super::SECTION,
        description: "An array of values; a NULL is null.",
        parameters: VALUES,
        required: 0,
        example: ("SELECT json_build_array(1, NULL, 'x')", r#"[1, null, "x"]"#),
    },
    returns: Returns::Text(TextType::Json),
    kernel: |arguments| arrays(arguments, Ok),
};

pub(crate) static JSONB: Function = Function {
    interface: Interface {
        name: "jsonb_build_array",
        section: super::SECTION,
        description: "The same as jsonb.",
        parameters: VALUES,
        required: 0,
        example: ("SELECT jsonb_build_array(1, NULL, 'x')", r#"[1, null, "x"]"#),
    },
    returns: Returns::Text(TextType::Jsonb),
    kernel: |arguments| arrays(arguments, |text| Ok(normalize(&text)?)),
};

fn arrays(arguments: &Arguments, finish: fn(String) -> Result<String>) -> Result<ArrayRef> {
    let columns = columns(arguments)?;
    let mut arrays = StringBuilder::new();
    for row in 0..arguments.num_rows() {
        let items: Vec<String> = columns.iter().map(|column| text(column, row).unwrap_or_else(|| "null".to_owned())).collect();
        arrays.append_value(finish(format!("[{}]", items.join(", ")))?);
    }
    Ok(Arc::new(arrays.finish()))
}

/// The JSON texts of an argument, and whether it is one for all rows.
pub(super) type Texts = (Vec<Option<String>>, bool);

pub(super) fn columns(arguments: &Arguments) -> Result<Vec<Texts>> {
    let column = |index: usize| {
        let column = arguments.column(index)?;
        Ok((json_texts(column.array(), &arguments.field(index))?, column.is_constant()))
    };
    (0..arguments.count()).map(column).collect()
}

pub(super) fn text((texts, is_constant): &Texts, row: usize) -> Option<String> {
    texts[if *is_constant { 0 } else { row }].clone()
}
