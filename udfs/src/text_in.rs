//! `text_in` and `text_cast`: texts, and arrays of texts, as values of a type with a rule. One is what an assignment does, the other a cast.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, ListBuilder, StringArray, StringBuilder, new_empty_array, new_null_array};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::{Arguments, TextsColumn};
use crate::function::{Function, Interface, Kind, Parameter, Returns, type_name};
use crate::named_type::NamedType;
use crate::text_type::TextType;

const VALUE: Parameter = Parameter { name: "value", kind: Kind::Any, description: "A text, or an array of texts." };
const TYPE: Parameter = Parameter {
    name: "type",
    kind: Kind::Text,
    description: "A constant: `varchar(n)`, `char(n)`, `json`, `jsonb`, `uuid`, `bit(n)`, `varbit` or `varbit(n)`, or an array of one of them, such as `uuid[]`.",
};

pub(crate) static TEXT_IN: Function = Function {
    interface: Interface {
        name: "text_in",
        section: "Text",
        description: "A text, or an array of texts, as a column of that type takes it: an error if it is too long or not of the type.",
        parameters: &[VALUE, TYPE],
        required: 2,
        example: ("SELECT text_in('Eve', 'varchar(3)')", "Eve"),
    },
    returns: Returns::NamedText,
    kernel: |arguments| read(arguments, TextType::parse),
};

pub(crate) static TEXT_CAST: Function = Function {
    interface: Interface {
        name: "text_cast",
        section: "Text",
        description: "A text, or an array of texts, as that type: what is too long is cut; `value::varchar(n)` and `value::uuid[]` do the same.",
        parameters: &[VALUE, TYPE],
        required: 2,
        example: ("SELECT text_cast('Evelyn', 'varchar(3)')", "Eve"),
    },
    returns: Returns::NamedText,
    kernel: |arguments| read(arguments, TextType::cast),
};

/// The type of a call's result. `value`: the type of its first argument; `name`: its second, if it is a constant.
///
/// # Errors
/// [`Error::NotConstant`], [`Error::Argument`] for the name of another type, [`Error::ArgumentType`] for a text as an array and the other way round.
pub(crate) fn type_of(interface: &Interface, value: &DataType, name: Option<&ScalarValue>) -> Result<NamedType, Error> {
    let Some(name) = name.and_then(|name| name.try_as_str().flatten()) else {
        let reason = "because it decides the type of the result: text_in(value, 'varchar(3)')";
        return Err(Error::NotConstant { function: interface.name, argument: TYPE.name, reason });
    };
    let expected = "varchar(n), char(n), json, jsonb, uuid, bit(n), varbit, varbit(n), or an array of one of them";
    let named = named(name).ok_or_else(|| interface.argument_error(1, format!("'{name}'"), expected))?;
    let is_array = matches!(named, NamedType::Array(_));
    if !value.is_null() && is_array != value.is_nested() {
        let expected = if is_array { "text[]" } else { "text" };
        return Err(Error::ArgumentType { function: interface.name, argument: VALUE.name, found: type_name(value), expected });
    }
    Ok(named)
}

fn named(name: &str) -> Option<NamedType> {
    NamedType::named(name).filter(NamedType::is_of_texts)
}

type ReadText = fn(TextType, &str) -> Result<String, Error>;

fn read(arguments: &Arguments, read: ReadText) -> Result<ArrayRef> {
    // Without rows there is no constant either.
    let Some(named) = arguments.constant_text(1)?.as_deref().and_then(named) else {
        return Ok(new_empty_array(arguments.return_type()));
    };
    let item = match named {
        NamedType::Text(text_type) => {
            let texts = arguments.text(0)?;
            let values = (0..arguments.num_rows()).map(|row| texts.get(row).map(|text| read(text_type, text)).transpose());
            return Ok(Arc::new(values.collect::<Result<StringArray, Error>>()?));
        }
        NamedType::Array(item) => *item,
        NamedType::Record(_) | NamedType::Numeric => return Ok(new_empty_array(arguments.return_type())),
    };
    let NamedType::Text(item) = item else { return Ok(new_empty_array(arguments.return_type())) };
    match arguments.texts(0)? {
        // A NULL of no type: another text is refused when the statement is planned.
        TextsColumn::One(_) => Ok(new_null_array(arguments.return_type(), arguments.num_rows())),
        TextsColumn::Many(arrays) => Ok(Arc::new(read_arrays(arrays.array(), item, read)?)),
    }
}

/// Only the items that belong to a row are read: a part of a larger column has others round them.
fn read_arrays(arrays: &ListArray, item: TextType, read: ReadText) -> Result<ListArray, Error> {
    let (texts, offsets) = (arrays.values().as_string::<i32>(), arrays.value_offsets());
    let mut values = ListBuilder::new(StringBuilder::new());
    for row in 0..arrays.len() {
        if arrays.is_valid(row) {
            for place in offsets[row] as usize..offsets[row + 1] as usize {
                values.values().append_option(texts.is_valid(place).then(|| read(item, texts.value(place))).transpose()?);
            }
        }
        values.append(arrays.is_valid(row));
    }
    Ok(values.finish())
}
