//! The parts of a JSON text as slices of it, so that a value costs nothing until a column wants it, and a text column gets it as it was written:
//! no digit of a number and no blank of an object changes.
//!
//! Slices are found by their brackets and quotes; whether each is JSON is serde_json's verdict.

use std::borrow::Cow;

use memchr::memchr2;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Calls `each` with key (its quotes round it) and value of every member of the object that `text` is, in order.
///
/// # Errors
/// Why `text` is not an object; the first error of `each`.
pub fn members<'a>(text: &'a str, mut each: impl FnMut(&'a str, &'a str) -> Result<(), String>) -> Result<(), String> {
    let mut cursor = Cursor { text, position: 0 };
    let mut member = |cursor: &mut Cursor<'a>| {
        let key = cursor.string()?;
        cursor.expect(b':')?;
        let value = cursor.value()?;
        Some(each(key, value))
    };
    cursor.sequence(b'{', b'}', &mut member).unwrap_or_else(|| Err(why_not_an_object(text)))
}

/// Calls `each` with every element of the array that `text` is, in order.
///
/// # Errors
/// Why `text` is not an array; the first error of `each`.
pub fn elements<'a>(text: &'a str, mut each: impl FnMut(&'a str) -> Result<(), String>) -> Result<(), String> {
    let mut cursor = Cursor { text, position: 0 };
    let mut element = |cursor: &mut Cursor<'a>| Some(each(cursor.value()?));
    cursor.sequence(b'[', b']', &mut element).unwrap_or_else(|| Err(format!("expected an array, found {}", shortened(text))))
}

/// The text that a JSON string stands for; any other value as it was written.
///
/// # Errors
/// Half of a surrogate pair, which stands for no character.
pub fn unquoted(value: &str) -> Result<Cow<'_, str>, String> {
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return Ok(Cow::Borrowed(value)) };
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(value).map(Cow::Owned).map_err(|error| format!("{}: {}", without_position(&error), shortened(value)))
}

/// Whether JSON allows the byte between its tokens.
pub fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Whether `text` is one JSON value.
pub fn is_valid(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// A value as an error quotes it.
pub fn shortened(value: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    match value.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    }
}

fn why_not_an_object(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => format!("expected a JSON object, found {}", kind(&value)),
        Err(error) => format!("{} at column {}", without_position(&error), error.column()),
    }
}

/// serde_json counts lines within the text that it is given, not within the file.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A place in a text. Its methods skip white space first, move past what they find, and give `None` where something else stands.
struct Cursor<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Cursor<'a> {
    /// `open item , item ... close` and nothing after it. Ends early with the first error of an item.
    fn sequence(
        &mut self,
        open: u8,
        close: u8,
        item: &mut dyn FnMut(&mut Self) -> Option<Result<(), String>>,
    ) -> Option<Result<(), String>> {
        self.expect(open)?;
        if self.expect(close).is_none() {
            loop {
                if let Err(error) = item(self)? {
                    return Some(Err(error));
                }
                if self.expect(close).is_some() {
                    break;
                }
                self.expect(b',')?;
            }
        }
        self.peek().is_none().then_some(Ok(()))
    }

    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.position..];
        self.position += rest.iter().take_while(|byte| is_blank(**byte)).count();
        self.text.as_bytes().get(self.position).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.position += 1)
    }

    /// A string with its quotes.
    fn string(&mut self) -> Option<&'a str> {
        (self.peek()? == b'"').then_some(())?;
        let bytes = self.text.as_bytes();
        let start = self.position;
        let mut end = start + 1;
        let mut has_escapes = false;
        loop {
            end += memchr2(b'"', b'\\', bytes.get(end..)?)?;
            if bytes[end] == b'"' {
                break;
            }
            has_escapes = true;
            end += 2;
        }
        self.position = end + 1;
        let string = &self.text[start..=end];
        let is_string = if has_escapes { is_valid(string) } else { !string.bytes().any(|byte| byte < b' ') };
        is_string.then_some(string)
    }

    fn value(&mut self) -> Option<&'a str> {
        let first = self.peek()?;
        let start = self.position;
        match first {
            b'"' => return self.string(),
            b'{' | b'[' => self.skip_nested()?,
            _ => {
                let rest = self.text.as_bytes()[start..].iter();
                self.position += rest.take_while(|byte| !matches!(byte, b',' | b'}' | b']') && !is_blank(**byte)).count();
            }
        }
        let value = &self.text[start..self.position];
        is_valid(value).then_some(value)
    }

    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.position += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}
