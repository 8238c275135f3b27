use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringBuilder, new_null_array};
use arrow::datatypes::{DataType, Field};

use super::SECTION;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::{Column, Items, ValueType, Values};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "array_to_string",
        section: SECTION,
        description: "The texts of the items of an array with a delimiter between them; arrays within it are gone through.",
        parameters: &[
            Parameter { name: "array", kind: Kind::Any, description: "An array of any values." },
            Parameter { name: "delimiter", kind: Kind::Text, description: "What stands between two of them." },
            Parameter { name: "null_string", kind: Kind::Text, description: "What stands for NULL, which is left out otherwise." },
        ],
        required: 2,
        example: ("SELECT array_to_string(ARRAY[1, NULL, 3], ',', '*')", "1,*,3"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let num_rows = arguments.num_rows();
        if arguments.column(0)?.array().data_type().is_null() {
            return Ok(new_null_array(&DataType::Utf8, num_rows));
        }
        let (arrays, delimiters) = (arguments.lists(0)?, arguments.text(1)?);
        let nulls = if arguments.has(2) { Some(arguments.text(2)?) } else { None };
        let lists: ArrayRef = Arc::new(arrays.array().clone());
        let field = Field::new("", lists.data_type().clone(), true).with_metadata(arguments.field(0).metadata().clone());
        let values = Column::new(&ValueType::of(&field), &lists)?;
        let mut joined = StringBuilder::new();
        let mut buffer = Vec::new();
        for row in 0..num_rows {
            let place = if arrays.is_constant() { 0 } else { row };
            let (Values::Array(items), Some(delimiter)) = (&values.values, delimiters.get(row).filter(|_| !values.is_null(place))) else {
                joined.append_null();
                continue;
            };
            buffer.clear();
            let null = nulls.as_ref().and_then(|nulls| nulls.get(row));
            join(items, place, delimiter, null, &mut true, &mut buffer);
            joined.append_value(String::from_utf8_lossy(&buffer));
        }
        Ok(Arc::new(joined.finish()) as ArrayRef)
    },
};

fn join(items: &Items, row: usize, delimiter: &str, null: Option<&str>, is_first: &mut bool, out: &mut Vec<u8>) {
    for place in items.range(row) {
        let column = &items.column;
        match &column.values {
            _ if column.is_null(place) && null.is_none() => continue,
            Values::Array(inner) if !column.is_null(place) => {
                join(inner, place, delimiter, null, is_first, out);
                continue;
            }
            _ => {}
        }
        if !std::mem::replace(is_first, false) {
            out.extend_from_slice(delimiter.as_bytes());
        }
        match null.filter(|_| column.is_null(place)) {
            Some(null) => out.extend_from_slice(null.as_bytes()),
            None => column.write_text(place, out),
        }
    }
}
