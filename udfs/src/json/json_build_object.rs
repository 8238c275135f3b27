use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};

use super::to_json::{json_texts, key_text};
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::text_type::TextType;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "json_build_object",
        section: super::SECTION,
        description: "An object of keys and values, which alternate; a NULL value is null, a NULL key an error.",
        parameters: &[Parameter { name: "keys_and_values", kind: Kind::Rest, description: "Key, value, key, value, ..." }],
        required: 0,
        example: ("SELECT json_build_object('id', 7, 'tags', ARRAY['x'])", r#"{"id" : 7, "tags" : ["x"]}"#),
    },
    returns: Returns::Text(TextType::Json),
    kernel: |arguments| {
        let columns = (0..arguments.count())
            .map(|index| {
                let column = arguments.column(index)?;
                Ok((json_texts(column.array(), &arguments.field(index))?, column.is_constant()))
            })
            .collect::<datafusion::error::Result<Vec<_>>>()?;
        if columns.len() % 2 == 1 {
            return Err(FUNCTION.interface.argument_error(0, format!("{} arguments", columns.len()), "a value for each key").into());
        }
        let mut objects = StringBuilder::new();
        for row in 0..arguments.num_rows() {
            let text = |(texts, is_constant): &(Vec<Option<String>>, bool)| texts[if *is_constant { 0 } else { row }].clone();
            let mut members = Vec::with_capacity(columns.len() / 2);
            for pair in columns.chunks_exact(2) {
                let key = text(&pair[0]).ok_or_else(|| -> Error { FUNCTION.interface.argument_error(0, "a key that is NULL", "text") })?;
                members.push(format!("{} : {}", key_text(&key)?, text(&pair[1]).unwrap_or_else(|| "null".to_owned())));
            }
            objects.append_value(format!("{{{}}}", members.join(", ")));
        }
        Ok(Arc::new(objects.finish()) as ArrayRef)
    },
};
