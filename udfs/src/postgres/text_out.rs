use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;

use super::{Column, ValueType};
use crate::Error;
use crate::arguments::Arguments;
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
    kernel: |arguments| Ok(Arc::new(texts(arguments, 0, true)?) as ArrayRef),
};

/// The type of an argument.
pub(crate) fn type_of(arguments: &Arguments, index: usize) -> Result<ValueType> {
    let (column, field) = (arguments.column(index)?, arguments.field(index));
    Ok(ValueType::of(&Field::new("", column.array().data_type().clone(), true).with_metadata(field.metadata().clone())))
}

/// The values of an argument as texts, one per row. `has_words`: booleans as a cast writes them, `true`; else as they are shown, `t`.
pub(crate) fn texts(arguments: &Arguments, index: usize, has_words: bool) -> Result<StringArray> {
    let column = arguments.column(index)?;
    let value_type = type_of(arguments, index)?;
    let values = Column::new(&value_type, column.array())?;
    check_length(values.longest_nested_text(column.array().len()))?;
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
            ValueType::Bool if has_words => values.write_word(row, &mut buffer),
            _ => values.write_text(row, &mut buffer),
        }
        texts.append_value(std::str::from_utf8(&buffer).expect("values and what stands between them are text"));
    }
    Ok(texts.finish())
}

/// The longest text of an array or a record, as in PostgreSQL, whose values have four bytes of length before them.
const TEXT_BYTES_MAX: u64 = 0x3fff_ffff - 4;

/// # Errors
/// [`Error::TextBytes`] for a text that no value may have.
fn check_length(bytes: u64) -> Result<(), Error> {
    if bytes > TEXT_BYTES_MAX { Err(Error::TextBytes { bytes }) } else { Ok(()) }
}

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
