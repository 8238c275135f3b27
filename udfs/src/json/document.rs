//! Looking into a JSON text without building it: keys, items and values are slices of the text, so that `->` gives a value as it was written.
//!
//! serde_json reads the parts; only the brackets between them are stepped over here.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Deserializer;
use serde_json::de::StrRead;
use serde_json::de::StreamDeserializer;

use crate::Error;

/// The kinds of JSON values, by PostgreSQL's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Number,
    Boolean,
    Null,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Null => "null",
        }
    }
}

/// A JSON value: a text that is known to be well-formed, without blanks round it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Document<'a>(&'a str);

impl<'a> Document<'a> {
    /// # Errors
    /// [`Error::JsonText`] if the text is not one JSON value.
    pub fn parse(text: &'a str) -> Result<Self, Error> {
        let reason = match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) if !has_lone_surrogate(text) => return Ok(Self(text.trim_matches(is_blank))),
            Ok(_) => "a Unicode escape from \\ud800 to \\udfff stands for a character only as one of a pair".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(Error::JsonText { text: shortened(text), reason })
    }

    pub fn as_str(self) -> &'a str {
        self.0
    }

    pub fn kind(self) -> Kind {
        match self.0.as_bytes().first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Boolean,
            Some(b'n') => Kind::Null,
            _ => Kind::Number,
        }
    }

    /// The value under a key of an object, the last one if the key is there twice, as in PostgreSQL.
    pub fn get(self, key: &str) -> Option<Document<'a>> {
        self.entries().filter(|(found, _)| found == key).last().map(|(_, value)| value)
    }

    /// The item at a position of an array, from 0; from the end if negative.
    pub fn item(self, index: i64) -> Option<Document<'a>> {
        match usize::try_from(index) {
            Ok(index) => self.items().nth(index),
            Err(_) => {
                let items: Vec<_> = self.items().collect();
                items.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?).map(|index| items[index])
            }
        }
    }

    /// Keys and values of an object in the order of the text; none for another value.
    pub fn entries(self) -> impl Iterator<Item = (String, Document<'a>)> {
        let mut rest = inside(self.0, Kind::Object == self.kind());
        std::iter::from_fn(move || {
            let key: String = take(&mut rest)?.1;
            let value = take::<IgnoredAny>(&mut rest)?.0;
            Some((key, Document(value)))
        })
    }

    /// The items of an array; none for another value.
    pub fn items(self) -> impl Iterator<Item = Document<'a>> {
        let mut rest = inside(self.0, Kind::Array == self.kind());
        std::iter::from_fn(move || take::<IgnoredAny>(&mut rest).map(|(item, _)| Document(item)))
    }

    /// What `->>` gives: a string without its quotes, `None` for null, the JSON text of everything else.
    pub fn to_text(self) -> Option<String> {
        match self.kind() {
            Kind::Null => None,
            Kind::String => Some(self.string()),
            _ => Some(self.0.to_owned()),
        }
    }

    /// The characters of a string value.
    pub fn string(self) -> String {
        serde_json::from_str(self.0).expect("a string of a well-formed document")
    }
}

/// Whether a text that is JSON otherwise has half of a surrogate pair, which is no character; serde_json finds that when it reads the string.
fn has_lone_surrogate(text: &str) -> bool {
    let mut rest = text;
    // Only strings have backslashes.
    while let Some((_, escape)) = rest.split_once('\\') {
        rest = match code_unit(escape) {
            Some(0xd800..=0xdbff) => match escape[5..].strip_prefix('\\').and_then(code_unit) {
                Some(0xdc00..=0xdfff) => &escape[11..],
                _ => return true,
            },
            Some(0xdc00..=0xdfff) => return true,
            Some(_) => &escape[5..],
            None => &escape[1..],
        };
    }
    false
}

/// Of `uXXXX`, what follows the backslash of a Unicode escape; `None` for another escape.
fn code_unit(escape: &str) -> Option<u16> {
    u16::from_str_radix(escape.strip_prefix('u')?.get(..4)?, 16).ok()
}

/// The text between the brackets of an object or array.
fn inside(text: &str, has_brackets: bool) -> &str {
    if has_brackets { &text[1..text.len() - 1] } else { "" }
}

/// The next value, and its text; what separates it from the one before is skipped.
fn take<'a, T: DeserializeOwned>(rest: &mut &'a str) -> Option<(&'a str, T)> {
    let text = rest.trim_start_matches(|c| is_blank(c) || c == ',' || c == ':');
    let mut values: StreamDeserializer<'a, StrRead<'a>, T> = Deserializer::from_str(text).into_iter();
    let value = values.next()?.ok()?;
    let (taken, left) = text.split_at(values.byte_offset());
    *rest = left;
    Some((taken, value))
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

/// At most 60 characters, for messages: a document may have millions.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#" {"a": [1, 2.50, "x,]\"", {"b" : null}], "c":{}, "a\u0041": true, "n": -1e5 , "c": [ ]} "#;

    fn document(text: &str) -> Document<'_> {
        Document::parse(text).expect("it is JSON")
    }

    #[test]
    fn values_are_as_they_were_written() {
        let found = document(TEXT);
        assert_eq!(found.get("a").map(Document::as_str), Some(r#"[1, 2.50, "x,]\"", {"b" : null}]"#));
        assert_eq!(found.get("aA").map(Document::as_str), Some("true"));
        assert_eq!(found.get("n").map(Document::as_str), Some("-1e5"));
        assert_eq!(found.get("c").map(Document::as_str), Some("[ ]"), "the last of two");
        assert_eq!(found.get("b"), None);
        let array = found.get("a").expect("an array");
        assert_eq!(array.items().count(), 4);
        assert_eq!(array.item(2).and_then(Document::to_text).as_deref(), Some("x,]\""));
        assert_eq!(array.item(-4).map(Document::as_str), Some("1"));
        assert_eq!((array.item(4), array.item(-5), array.item(i64::MIN)), (None, None, None));
        assert_eq!(array.item(3).and_then(|item| item.get("b")).map(Document::to_text), Some(None));
    }

    #[test]
    fn scalars_have_no_parts() {
        for text in ["1", "\"{\"", "true", "null", "[]", "{}", "[ ]", "{\n}"] {
            assert_eq!((document(text).items().count(), document(text).entries().count()), (0, 0), "{text}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "{", "{'a': 1}", "[1,]", "1 2", "nul", "{\"a\" 1}", "NaN"] {
            let message = Document::parse(text).expect_err(text).to_string();
            assert!(message.contains("invalid input syntax for type json"), "{text}: {message}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_no_character() {
        for text in
            [r#""\ud83d""#, r#""\ud83dx""#, r#""\ude00""#, r#""\ud83d\u0041""#, r#""\ud83d\ud83d""#, r#"{"\ud83d": 1}"#, r#"["\\\ude00"]"#]
        {
            let message = Document::parse(text).expect_err(text).to_string();
            assert!(message.contains("only as one of a pair"), "{text}: {message}");
        }
        for (text, character) in [(r#""\ud83d\ude00""#, "\u{1f600}"), (r#""\\ud83d""#, "\\ud83d"), (r#""\u00e9\n""#, "\u{e9}\n")] {
            assert_eq!(document(text).string(), character);
        }
    }
}
