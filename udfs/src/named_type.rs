//! What Arrow does not tell of a type: of which kind a text is, also within arrays and records.
//!
//! A field carries it as metadata: `jsonb`, `uuid[]`, `(json,,uuid[])[]`. The data type itself says nothing of it, so that two lists of texts are of one type for DataFusion.

use std::fmt;

use arrow::datatypes::{DataType, Field};

use crate::numeric_in::numeric_type;
use crate::text_type::{METADATA_KEY, TextType, metadata};

const NUMERIC: &str = "numeric";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NamedType {
    Text(TextType),
    /// `numeric` without declared digits, within an array or a record.
    Numeric,
    Array(Box<NamedType>),
    /// The columns of a record, where there is something to tell of them.
    Record(Vec<Option<NamedType>>),
}

impl NamedType {
    /// The type of that name; `None` for all others.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match Self::parse(name)? {
            (found, "") => found,
            _ => None,
        }
    }

    /// What a field tells of json, jsonb, uuid and bits; `None` for texts, of a limited length too, and for everything else.
    #[must_use]
    pub fn of_field(field: &Field) -> Option<Self> {
        let named = Self::named(field.metadata().get(METADATA_KEY)?)?;
        // By itself a numeric is known by its field.
        (named.describes(field.data_type()) && !named.has_length() && named != Self::Numeric).then_some(named)
    }

    /// A record of columns of these types; `None` where there is nothing to tell.
    #[must_use]
    pub fn record(columns: Vec<Option<Self>>) -> Option<Self> {
        columns.iter().any(Option::is_some).then_some(Self::Record(columns))
    }

    /// Arrays of the type.
    #[must_use]
    pub fn array(self) -> Self {
        Self::Array(Box::new(self))
    }

    /// The type of the items of arrays.
    #[must_use]
    pub fn item(self) -> Option<Self> {
        match self {
            Self::Array(item) => Some(*item),
            _ => None,
        }
    }

    /// The type of the column of a record in that position.
    #[must_use]
    pub fn column(self, position: usize) -> Option<Self> {
        match self {
            Self::Record(columns) => columns.into_iter().nth(position).flatten(),
            _ => None,
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        matches!(self, Self::Text(TextType::Json | TextType::Jsonb))
    }

    /// Whether it is jsonb.
    #[must_use]
    pub fn is_jsonb(&self) -> bool {
        matches!(self, Self::Text(TextType::Jsonb))
    }

    /// Whether it is uuid.
    #[must_use]
    pub fn is_uuid(&self) -> bool {
        matches!(self, Self::Text(TextType::Uuid))
    }

    /// Whether its values are texts, or arrays of texts.
    #[must_use]
    pub fn is_of_texts(&self) -> bool {
        match self {
            Self::Text(_) => true,
            Self::Array(item) => matches!(**item, Self::Text(_)),
            Self::Record(_) | Self::Numeric => false,
        }
    }

    /// The Arrow type of texts and of arrays of texts; of records and arrays of them `found`, which is that of their values.
    pub(crate) fn data_type(&self, found: &DataType) -> DataType {
        match self {
            Self::Text(_) => DataType::Utf8,
            Self::Array(item) if matches!(**item, Self::Text(_)) => DataType::new_list(DataType::Utf8, true),
            _ => found.clone(),
        }
    }

    /// A field of the type; `found`: the Arrow type of its values.
    pub(crate) fn field(&self, name: &str, found: &DataType) -> Field {
        Field::new(name, self.data_type(found), true).with_metadata(metadata(self.to_string()))
    }

    /// Whether values of an Arrow type can be of this one. An expression may carry the metadata of what it was computed from.
    pub(crate) fn describes(&self, data_type: &DataType) -> bool {
        match (self, data_type) {
            (Self::Text(_), found) => crate::function::is_text(found),
            (Self::Numeric, found) => *found == numeric_type(),
            (Self::Array(item), DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _)) => {
                item.describes(of.data_type())
            }
            (Self::Record(columns), DataType::Struct(fields)) => {
                let describes = |(column, field): (&Option<Self>, &arrow::datatypes::FieldRef)| {
                    column.as_ref().is_none_or(|column| column.describes(field.data_type()))
                };
                columns.len() == fields.len() && columns.iter().zip(fields).all(describes)
            }
            _ => false,
        }
    }

    fn has_length(&self) -> bool {
        match self {
            Self::Text(text_type) => !text_type.is_kept(),
            Self::Numeric => false,
            Self::Array(item) => item.has_length(),
            Self::Record(columns) => columns.iter().flatten().any(Self::has_length),
        }
    }

    /// The type at the start of a text, `None` for one that is left out, and what stands behind it.
    fn parse(text: &str) -> Option<(Option<Self>, &str)> {
        let (mut found, mut rest) = match text.strip_prefix('(') {
            Some(rest) => Self::parse_columns(rest)?,
            None => {
                let letters = text.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(text.len());
                let length = match text[letters..].strip_prefix('(') {
                    Some(rest) => rest.find(')')? + 2,
                    None => 0,
                };
                let (name, rest) = text.split_at(letters + length);
                let found = match name {
                    "" => None,
                    NUMERIC => Some(Self::Numeric),
                    name => Some(Self::Text(TextType::named(name)?)),
                };
                (found, rest)
            }
        };
        while let Some(behind) = rest.strip_prefix("[]") {
            (found, rest) = (Some(found?.array()), behind);
        }
        Some((found, rest))
    }

    /// Columns and the bracket behind them.
    fn parse_columns(text: &str) -> Option<(Option<Self>, &str)> {
        let (mut columns, mut rest) = (Vec::new(), text);
        loop {
            let (column, behind) = Self::parse(rest)?;
            columns.push(column);
            rest = match behind.strip_prefix(',') {
                Some(rest) => rest,
                None => return Some((Some(Self::Record(columns)), behind.strip_prefix(')')?)),
            };
        }
    }
}

impl fmt::Display for NamedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text_type) => write!(f, "{text_type}"),
            Self::Numeric => f.write_str(NUMERIC),
            Self::Array(item) => write!(f, "{item}[]"),
            Self::Record(columns) => {
                f.write_str("(")?;
                for (position, column) in columns.iter().enumerate() {
                    f.write_str(if position > 0 { "," } else { "" })?;
                    if let Some(column) = column {
                        write!(f, "{column}")?;
                    }
                }
                f.write_str(")")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_read_from_its_name() {
        for name in ["jsonb", "uuid[]", "json[][]", "(json,,uuid[])", "(,(jsonb,)[])[]", "varchar(3)", "(,char(12)[])", "(numeric,)[]"] {
            assert_eq!(NamedType::named(name).map(|named| named.to_string()).as_deref(), Some(name));
        }
        for name in ["", "vector", "json[", "(json", "json)", "(,)[]x", "[]"] {
            assert_eq!(NamedType::named(name), None, "{name}");
        }
    }

    #[test]
    fn a_field_tells_its_type_if_it_has_such_values() {
        let record = DataType::Struct(vec![Field::new("a", DataType::Utf8, true), Field::new("b", DataType::Int64, true)].into());
        let named = NamedType::record(vec![Some(NamedType::Text(TextType::Json)), None]).expect("one column is told");
        assert_eq!(NamedType::of_field(&named.field("r", &record)), Some(named.clone()));
        let list = DataType::new_list(record, true);
        assert_eq!(NamedType::of_field(&named.clone().array().field("l", &list)), Some(named.clone().array()));
        assert_eq!(NamedType::of_field(&named.field("r", &list)), None, "a result may carry the metadata of what it was computed from");
        assert_eq!(NamedType::of_field(&TextType::Varchar(3).field("v", true)), None);
    }
}
