use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use arrow::datatypes::{DataType, Field};

use super::{Column, ValueType};
use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "text_out",
        section: "Text",
        description: "A value in PostgreSQL's text form: `1e+20`, `2024-02-29 12:00:00+00`, `1 mon 3 days`, `{1,NULL}`, `(1,\"a b\")`; `value::text` does the \
            same. NULL for NULL.",
        parameters: &[Parameter { name: "value", kind: Kind::Any, description: "Any value." }],
        required: 1,
        example: ("SELECT text_out(ARRAY[0.5, NULL])", "{0.5,NULL}"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let column = arguments.column(0)?;
        let field = arguments.field(0);
        let array = column.array();
        let value_type = ValueType::of(&Field::new("", array.data_type().clone(), true).with_metadata(field.metadata().clone()));
        let values = Column::new(&value_type, array)?;
        let mut texts = StringBuilder::new();
        let mut buffer = Vec::new();
        for row in 0..arguments.num_rows() {
            let row = if column.is_constant() { 0 } else { row };
            if values.is_null(row) {
                texts.append_null();
                continue;
            }
            buffer.clear();
            match value_type {
                // A cast gives the words, where the value alone is shown as a letter.
                ValueType::Bool => values.write_word(row, &mut buffer),
                _ => values.write_text(row, &mut buffer),
            }
            texts.append_value(std::str::from_utf8(&buffer).expect("values and what stands between them are text"));
        }
        Ok(Arc::new(texts.finish()) as ArrayRef)
    },
};

/// Whether Arrow's cast to text writes values of the type otherwise than PostgreSQL, which is what `text_out` is for. Vectors have `vector_out`.
#[must_use]
pub fn has_own_text_form(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => has_own_text_form(values),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => true,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => true,
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..) => true,
        DataType::Interval(_) | DataType::Duration(_) => true,
        _ => data_type.is_nested(),
    }
}
