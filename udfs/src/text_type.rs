//! Types whose values are text with a rule: `json`, `jsonb`, `uuid`, texts of a limited length, and strings of bits.
//!
//! A column of such a type is a `Utf8` column whose field carries the type's name as metadata, so that it is stored, compared and indexed like
//! text, while the wire and the manual say what it is; an array of them is a list of `Utf8` whose field carries `name[]`. Values are checked, and
//! brought to their one form, where they enter: by the function that a cast or an assignment to the column calls.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};

use crate::function::is_text;
use crate::{Error, bits, json, uuid_in};

/// Key of the metadata of a field.
pub(crate) const METADATA_KEY: &str = "rolloutdb.type";

/// The longest `varchar(n)`, as in PostgreSQL.
const LENGTH_MAX: u64 = 10_485_760;

/// The longest string of bits, as in PostgreSQL.
const BITS_MAX: u64 = 83_886_080;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextType {
    /// JSON as it was written.
    Json,
    /// JSON in one form: see [`crate::json::normalize`].
    Jsonb,
    /// 32 hexadecimal digits in lower case with hyphens, `f47ac10b-58cc-4372-a567-0e02b2c3d479`.
    Uuid,
    /// At most so many characters.
    Varchar(u32),
    /// At most so many characters. Blanks at the end mean nothing in PostgreSQL, which fills up with them; here they are not kept.
    Char(u32),
    /// So many digits 0 and 1.
    Bit(u32),
    /// Digits 0 and 1, at most so many.
    Varbit(Option<u32>),
}

impl TextType {
    /// The type of that name, `uuid` or `varchar(3)`, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let length = |kind: &str| -> Option<u64> { name.strip_prefix(kind)?.strip_suffix(')')?.parse().ok() };
        match name.as_str() {
            "json" => Some(Self::Json),
            "jsonb" => Some(Self::Jsonb),
            "uuid" => Some(Self::Uuid),
            "varbit" => Some(Self::Varbit(None)),
            _ => {
                type OfLength = fn(u64) -> Result<TextType, Error>;
                let of_length: [(&str, OfLength); 4] =
                    [("varchar(", Self::varchar), ("char(", Self::char), ("bit(", Self::bit), ("varbit(", Self::varbit)];
                of_length.into_iter().find_map(|(kind, make)| Some((make, length(kind)?))).and_then(|(make, length)| make(length).ok())
            }
        }
    }

    /// `varchar(length)`.
    ///
    /// # Errors
    /// [`Error::TextLength`] unless the length is from 1 to 10485760.
    pub fn varchar(length: u64) -> Result<Self, Error> {
        checked_length("varchar", length).map(Self::Varchar)
    }

    /// `char(length)`.
    ///
    /// # Errors
    /// As [`Self::varchar`].
    pub fn char(length: u64) -> Result<Self, Error> {
        checked_length("char", length).map(Self::Char)
    }

    /// `bit(length)`.
    ///
    /// # Errors
    /// [`Error::TextLength`] unless the length is from 1 to 83886080.
    pub fn bit(length: u64) -> Result<Self, Error> {
        checked_length_to("bit", length, BITS_MAX).map(Self::Bit)
    }

    /// `varbit(length)`.
    ///
    /// # Errors
    /// As [`Self::bit`].
    pub fn varbit(length: u64) -> Result<Self, Error> {
        checked_length_to("bit varying", length, BITS_MAX).map(|length| Self::Varbit(Some(length)))
    }

    /// Whether its values are strings of bits.
    #[must_use]
    pub fn is_bits(self) -> bool {
        matches!(self, Self::Bit(_) | Self::Varbit(_))
    }

    /// Whether an expression whose value is that of an operand keeps the type: all but texts of a limited length, which PostgreSQL tells as texts too.
    #[must_use]
    pub fn is_kept(self) -> bool {
        !matches!(self, Self::Varchar(_) | Self::Char(_))
    }

    /// The type of a field's values; `None` for text without a rule and for everything else.
    #[must_use]
    pub fn of(field: &Field) -> Option<Self> {
        if !is_text(field.data_type()) {
            return None;
        }
        field.metadata().get(METADATA_KEY).and_then(|name| Self::named(name))
    }

    /// The type of the items of a field's arrays; `None` if they are texts without a rule, and for everything else.
    #[must_use]
    pub fn of_items(field: &Field) -> Option<Self> {
        match field.data_type() {
            DataType::List(item) if is_text(item.data_type()) => {
                field.metadata().get(METADATA_KEY).and_then(|name| Self::named(name.strip_suffix("[]")?))
            }
            _ => None,
        }
    }

    /// A field of this type.
    #[must_use]
    pub fn field(self, name: &str, nullable: bool) -> Field {
        Field::new(name, DataType::Utf8, nullable).with_metadata(metadata(self.to_string()))
    }

    /// A field of arrays of this type.
    #[must_use]
    pub fn array_field(self, name: &str, nullable: bool) -> Field {
        let items = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
        Field::new(name, items, nullable).with_metadata(metadata(format!("{self}[]")))
    }

    /// A text that is assigned to this type, in its one form.
    ///
    /// # Errors
    /// [`Error::JsonText`], [`Error::UuidText`] if the text is none; [`Error::TextTooLong`] if it has more characters, blanks at the end aside.
    pub fn parse(self, text: &str) -> Result<String, Error> {
        let (kept, rest) = match self {
            Self::Json => return json::check(text).map(|()| text.to_owned()),
            Self::Jsonb => return json::normalize(text),
            Self::Uuid => return uuid_in::normalize(text),
            Self::Varchar(length) | Self::Char(length) => split(text, length),
            Self::Bit(length) => {
                let bits = bits::parse(text)?;
                let fits = bits.len() == length as usize;
                return if fits { Ok(bits) } else { Err(Error::BitLength { found: bits.len(), expected: length }) };
            }
            Self::Varbit(length) => {
                let bits = bits::parse(text)?;
                return match length {
                    Some(max) if bits.len() > max as usize => Err(Error::BitTooLong { found: bits.len(), max }),
                    _ => Ok(bits),
                };
            }
        };
        match rest.bytes().all(|byte| byte == b' ') {
            true => Ok(self.without_blanks(kept)),
            false => Err(Error::TextTooLong { text_type: self, found: text.chars().count() }),
        }
    }

    /// A text that is cast to this type, which cuts what is too long.
    ///
    /// # Errors
    /// [`Error::JsonText`], [`Error::UuidText`] if the text is none.
    pub fn cast(self, text: &str) -> Result<String, Error> {
        match self {
            Self::Json | Self::Jsonb | Self::Uuid => self.parse(text),
            Self::Bit(length) => Ok(bits::fitted(bits::parse(text)?, length)),
            Self::Varbit(length) => {
                let mut bits = bits::parse(text)?;
                bits.truncate(length.map_or(usize::MAX, |length| length as usize));
                Ok(bits)
            }
            Self::Varchar(length) | Self::Char(length) => Ok(self.without_blanks(split(text, length).0)),
        }
    }

    /// The most characters, or bits, that a value has; `None`: any number.
    #[must_use]
    pub fn length(self) -> Option<u32> {
        match self {
            Self::Json | Self::Jsonb | Self::Uuid | Self::Varbit(None) => None,
            Self::Varchar(length) | Self::Char(length) | Self::Bit(length) | Self::Varbit(Some(length)) => Some(length),
        }
    }

    /// The type as PostgreSQL's messages call it: `character varying(3)`.
    pub(crate) fn long_name(self) -> String {
        match self {
            Self::Json | Self::Jsonb | Self::Uuid => self.to_string(),
            Self::Varchar(length) => format!("character varying({length})"),
            Self::Char(length) => format!("character({length})"),
            Self::Bit(_) | Self::Varbit(None) => self.to_string(),
            Self::Varbit(Some(length)) => format!("bit varying({length})"),
        }
    }

    fn without_blanks(self, text: &str) -> String {
        let kept = if matches!(self, Self::Char(_)) { text.trim_end_matches(' ') } else { text };
        kept.to_owned()
    }
}

/// As SQL names it: `uuid`, `varchar(3)`.
impl fmt::Display for TextType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json => f.write_str("json"),
            Self::Jsonb => f.write_str("jsonb"),
            Self::Uuid => f.write_str("uuid"),
            Self::Varchar(length) => write!(f, "varchar({length})"),
            Self::Char(length) => write!(f, "char({length})"),
            Self::Bit(length) => write!(f, "bit({length})"),
            Self::Varbit(None) => f.write_str("varbit"),
            Self::Varbit(Some(length)) => write!(f, "varbit({length})"),
        }
    }
}

/// What a field of the type with this name carries.
pub(crate) fn metadata(type_name: String) -> HashMap<String, String> {
    HashMap::from([(METADATA_KEY.to_owned(), type_name)])
}

fn checked_length(name: &'static str, length: u64) -> Result<u32, Error> {
    checked_length_to(name, length, LENGTH_MAX)
}

fn checked_length_to(name: &'static str, length: u64, max: u64) -> Result<u32, Error> {
    let in_range = u32::try_from(length).ok().filter(|_| (1..=max).contains(&length));
    in_range.ok_or(Error::TextLength { name, found: length, max })
}

/// The first `length` characters, and the rest.
fn split(text: &str, length: u32) -> (&str, &str) {
    let end = text.char_indices().nth(length as usize).map_or(text.len(), |(place, _)| place);
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [TextType; 8] = [
        TextType::Json,
        TextType::Jsonb,
        TextType::Uuid,
        TextType::Varchar(3),
        TextType::Char(12),
        TextType::Bit(3),
        TextType::Varbit(None),
        TextType::Varbit(Some(4)),
    ];

    #[test]
    fn a_field_tells_its_type() {
        for text_type in ALL {
            let (field, arrays) = (text_type.field("c", true), text_type.array_field("c", true));
            assert_eq!((TextType::of(&field), TextType::of_items(&field)), (Some(text_type), None));
            assert_eq!((TextType::of(&arrays), TextType::of_items(&arrays)), (None, Some(text_type)));
            assert_eq!(TextType::named(&text_type.to_string().to_uppercase()), Some(text_type));
        }
        assert_eq!(TextType::of(&Field::new("c", DataType::Utf8, true)), None);
        let number = Field::new("c", DataType::Int64, true).with_metadata(metadata("json".to_owned()));
        assert_eq!(TextType::of(&number), None, "a result may carry the metadata of what it was computed from");
        let item = TextType::Uuid.array_field("c", true).with_data_type(DataType::Utf8);
        assert_eq!(TextType::of(&item), None, "an item of an array may carry its metadata");
    }

    #[test]
    fn a_length_counts_characters() {
        let varchar = TextType::Varchar(3);
        assert_eq!(varchar.parse("čšž").as_deref(), Ok("čšž"));
        assert_eq!(varchar.parse("ab    ").as_deref(), Ok("ab "), "blanks that are too many go silently");
        assert_eq!(varchar.parse("abcd"), Err(Error::TextTooLong { text_type: varchar, found: 4 }));
        assert_eq!(varchar.parse("ab  d"), Err(Error::TextTooLong { text_type: varchar, found: 5 }));
        assert_eq!(varchar.cast("čšžď").as_deref(), Ok("čšž"));
        let char = TextType::Char(3);
        assert_eq!((char.parse("a  "), char.parse("ab   "), char.cast("a b c")), (Ok("a".into()), Ok("ab".into()), Ok("a b".into())));
        assert!(char.parse("abcd").is_err());
    }

    #[test]
    fn bits_are_cut_and_filled_by_a_cast_only() {
        let (bit, varbit) = (TextType::Bit(3), TextType::Varbit(Some(3)));
        assert_eq!((bit.cast("10111").as_deref(), bit.cast("1").as_deref(), bit.cast("x5").as_deref()), (Ok("101"), Ok("100"), Ok("010")));
        assert_eq!(bit.parse("1011"), Err(Error::BitLength { found: 4, expected: 3 }));
        assert_eq!((varbit.cast("10111").as_deref(), varbit.parse("1").as_deref()), (Ok("101"), Ok("1")));
        assert_eq!(varbit.parse("1011"), Err(Error::BitTooLong { found: 4, max: 3 }));
        assert_eq!(bit.parse("1a1"), Err(Error::BitDigit { found: 'a', kind: "binary" }));
    }

    #[test]
    fn a_length_is_in_postgres_range() {
        assert_eq!((TextType::varchar(10_485_760), TextType::char(1)), (Ok(TextType::Varchar(10_485_760)), Ok(TextType::Char(1))));
        for length in [0, 10_485_761] {
            assert!(TextType::varchar(length).is_err() && TextType::char(length).is_err(), "{length}");
        }
    }
}
