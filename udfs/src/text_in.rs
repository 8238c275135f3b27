//! `text_in` and `text_cast`: texts, and arrays of texts, as values of a type with a rule. One is what an assignment does, the other a cast.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, ListBuilder, StringArray, StringBuilder, new_empty_array, new_null_array};
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::{Arguments, TextsColumn};
use crate::function::{Function, Interface, Kind, Parameter, Returns, type_name};
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

/// The type that a constant names: `varchar(3)`, or `uuid[]`, an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NamedType {
    item: TextType,
    is_array: bool,
}

impl NamedType {
    /// The type of a call's result. `value`: the type of its first argument; `name`: its second, if it is a constant.
    ///
    /// # Errors
    /// [`Error::NotConstant`], [`Error::Argument`] for the name of another type, [`Error::ArgumentType`] for a text as an array and the other way round.
    pub(crate) fn of(interface: &Interface, value: &DataType, name: Option<&ScalarValue>) -> Result<Self, Error> {
        let Some(name) = name.and_then(|name| name.try_as_str().flatten()) else {
            let reason = "because it decides the type of the result: text_in(value, 'varchar(3)')";
            return Err(Error::NotConstant { function: interface.name, argument: TYPE.name, reason });
        };
        let expected = "varchar(n), char(n), json, jsonb, uuid, bit(n), varbit, varbit(n), or an array of one of them";
        let named = Self::named(name).ok_or_else(|| interface.argument_error(1, format!("'{name}'"), expected))?;
        if !value.is_null() && named.is_array != value.is_nested() {
            let expected = if named.is_array { "text[]" } else { "text" };
            return Err(Error::ArgumentType { function: interface.name, argument: VALUE.name, found: type_name(value), expected });
        }
        Ok(named)
    }

    /// The json, jsonb, uuid or bits that the values of a field are, or the items of its arrays; `None` for texts, of a limited length too, and everything else.
    #[must_use]
    pub fn of_field(field: &Field) -> Option<Self> {
        let (of_value, of_items) = (TextType::of(field), TextType::of_items(field));
        let item = of_value.or(of_items).filter(|item| item.is_kept())?;
        Some(Self { item, is_array: of_value.is_none() })
    }

    /// Arrays of the type; `None` for a type of arrays.
    #[must_use]
    pub fn array(self) -> Option<Self> {
        (!self.is_array).then_some(Self { is_array: true, ..self })
    }

    /// The type of the items; `None` for a type of texts.
    #[must_use]
    pub fn item(self) -> Option<Self> {
        self.is_array.then_some(Self { is_array: false, ..self })
    }

    pub(crate) fn is_json(self) -> bool {
        !self.is_array && matches!(self.item, TextType::Json | TextType::Jsonb)
    }

    /// Whether it is uuid.
    #[must_use]
    pub fn is_uuid(self) -> bool {
        !self.is_array && self.item == TextType::Uuid
    }

    pub(crate) fn field(self, name: &str) -> Field {
        if self.is_array { self.item.array_field(name, true) } else { self.item.field(name, true) }
    }

    fn named(name: &str) -> Option<Self> {
        let item = name.strip_suffix("[]");
        Some(Self { item: TextType::named(item.unwrap_or(name))?, is_array: item.is_some() })
    }
}

impl fmt::Display for NamedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.item, if self.is_array { "[]" } else { "" })
    }
}

type ReadText = fn(TextType, &str) -> Result<String, Error>;

fn read(arguments: &Arguments, read: ReadText) -> Result<ArrayRef> {
    // Without rows there is no constant either.
    let Some(named) = arguments.constant_text(1)?.as_deref().and_then(NamedType::named) else {
        return Ok(new_empty_array(arguments.return_type()));
    };
    if !named.is_array {
        let texts = arguments.text(0)?;
        let values = (0..arguments.num_rows()).map(|row| texts.get(row).map(|text| read(named.item, text)).transpose());
        return Ok(Arc::new(values.collect::<Result<StringArray, Error>>()?));
    }
    match arguments.texts(0)? {
        // A NULL of no type: another text is refused when the statement is planned.
        TextsColumn::One(_) => Ok(new_null_array(arguments.return_type(), arguments.num_rows())),
        TextsColumn::Many(arrays) => Ok(Arc::new(read_arrays(arrays.array(), named.item, read)?)),
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
