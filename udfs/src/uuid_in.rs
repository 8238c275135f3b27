use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use uuid::Uuid;

use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::text_type::TextType;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "uuid_in",
        section: "Text",
        description: "Reads a UUID in any of its usual forms, in capitals, braces or without hyphens; `text::uuid` does the same.",
        parameters: &[Parameter { name: "text", kind: Kind::Text, description: "32 hexadecimal digits." }],
        required: 1,
        example: ("SELECT uuid_in('{F47AC10B-58CC-4372-A567-0E02B2C3D479}')", "f47ac10b-58cc-4372-a567-0e02b2c3d479"),
    },
    returns: Returns::Text(TextType::Uuid),
    kernel: |arguments| {
        let texts = arguments.text(0)?;
        let uuids = (0..arguments.num_rows()).map(|row| texts.get(row).map(normalize).transpose());
        Ok(Arc::new(uuids.collect::<Result<StringArray, Error>>()?) as ArrayRef)
    },
};

/// The digits alone, if hyphens stand between groups of four; else the text.
fn without_signs(text: &str) -> String {
    let inner = text.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(text);
    let mut digits = String::with_capacity(32);
    for character in inner.chars() {
        match character {
            '-' if digits.len().is_multiple_of(4) && !digits.is_empty() => {}
            digit if digit.is_ascii_hexdigit() => digits.push(digit),
            _ => return text.to_owned(),
        }
    }
    if digits.len() == 32 { digits } else { text.to_owned() }
}

pub(crate) fn normalize(text: &str) -> Result<String, Error> {
    let uuid = Uuid::try_parse(&without_signs(text.trim()))
        .map_err(|error| Error::UuidText { text: text.chars().take(60).collect(), reason: error.to_string() })?;
    Ok(uuid.hyphenated().to_string())
}
