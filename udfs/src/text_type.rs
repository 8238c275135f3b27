//! Types whose values are text with a rule: `json`, `jsonb`, `uuid`.
//!
//! A column of such a type is a `Utf8` column whose field carries the type's name as metadata, so that it is stored, compared and indexed like
//! text, while the wire and the manual say what it is. Values are checked, and brought to their one form, where they enter: by the function
//! that a cast or an assignment to the column calls.

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field};

use crate::function::is_text;
use crate::{Error, json, uuid_in};

/// Key of the metadata of a field.
const METADATA_KEY: &str = "rolloutdb.type";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextType {
    /// JSON as it was written.
    Json,
    /// JSON in one form: see [`crate::json::normalize`].
    Jsonb,
    /// 32 hexadecimal digits in lower case with hyphens, `f47ac10b-58cc-4372-a567-0e02b2c3d479`.
    Uuid,
}

const ALL: [TextType; 3] = [TextType::Json, TextType::Jsonb, TextType::Uuid];

impl TextType {
    /// Its name in SQL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Jsonb => "jsonb",
            Self::Uuid => "uuid",
        }
    }

    /// The type of that name, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(name))
    }

    /// The type of a field's values; `None` for text without a rule and for everything else.
    #[must_use]
    pub fn of(field: &Field) -> Option<Self> {
        if !is_text(field.data_type()) {
            return None;
        }
        field.metadata().get(METADATA_KEY).and_then(|name| Self::named(name))
    }

    /// A field of this type.
    #[must_use]
    pub fn field(self, name: &str, nullable: bool) -> Field {
        Field::new(name, DataType::Utf8, nullable).with_metadata(self.metadata())
    }

    /// What a field of this type carries.
    #[must_use]
    pub fn metadata(self) -> HashMap<String, String> {
        HashMap::from([(METADATA_KEY.to_owned(), self.name().to_owned())])
    }

    /// A text as a value of this type, in its one form.
    ///
    /// # Errors
    /// [`Error::JsonText`], [`Error::UuidText`] if the text is none.
    pub fn parse(self, text: &str) -> Result<String, Error> {
        match self {
            Self::Json => json::check(text).map(|()| text.to_owned()),
            Self::Jsonb => json::normalize(text),
            Self::Uuid => uuid_in::normalize(text),
        }
    }

    /// The function that reads a text as a value of this type.
    #[must_use]
    pub fn input_function(self) -> &'static str {
        match self {
            Self::Json => "json_in",
            Self::Jsonb => "jsonb_in",
            Self::Uuid => "uuid_in",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_tells_its_type() {
        for text_type in ALL {
            assert_eq!(TextType::of(&text_type.field("c", true)), Some(text_type));
            assert_eq!(TextType::named(&text_type.name().to_uppercase()), Some(text_type));
        }
        assert_eq!(TextType::of(&Field::new("c", DataType::Utf8, true)), None);
        let number = Field::new("c", DataType::Int64, true).with_metadata(TextType::Json.metadata());
        assert_eq!(TextType::of(&number), None, "a result may carry the metadata of what it was computed from");
    }
}
