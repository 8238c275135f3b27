//! `WITH (name = value)` from the syntax tree to typed options.

use rolloutdb_sql::{OptionValue, Options};

use crate::error::{Error, Result};
use crate::value::Value;

/// The literal of an option as a [`Value`].
///
/// # Errors
/// [`Error::WrongType`] for NULL and lists, which no such option takes.
pub fn value(name: &str, value: &OptionValue) -> Result<Value> {
    match value {
        OptionValue::Text(text) => Ok(Value::Text(text.clone())),
        OptionValue::Integer(integer) => Ok(Value::Int(*integer)),
        OptionValue::Float(float) => Ok(Value::Float(*float)),
        OptionValue::Boolean(boolean) => Ok(Value::Bool(*boolean)),
        OptionValue::Null | OptionValue::List(_) => {
            Err(Error::WrongType { what: format!("option {name}"), found: value.to_string(), expected: "a single value".to_owned() })
        }
    }
}

/// Refuses options that the statement does not have.
pub fn check_known(of: &str, options: &Options, known: &[&str]) -> Result<()> {
    match options.iter().find(|(name, _)| !known.contains(name)) {
        Some((name, _)) => Err(unknown(of, name, known)),
        None => Ok(()),
    }
}

pub fn unknown(of: &str, name: &str, known: &[&str]) -> Error {
    Error::UnknownOption {
        kind: "option",
        name: name.to_owned(),
        of: of.to_owned(),
        known: known.iter().map(|known| (*known).to_owned()).collect(),
    }
}

pub fn text<'a>(options: &'a Options, name: &str) -> Result<Option<&'a str>> {
    match options.get(name) {
        None => Ok(None),
        Some(OptionValue::Text(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(name, other, "a text")),
    }
}

/// `true`, `false`, and as PostgreSQL also reads them: `on`, `off`, `yes`, `no`, 1, 0.
pub fn boolean(options: &Options, name: &str, default: bool) -> Result<bool> {
    match options.get(name) {
        None => Ok(default),
        Some(OptionValue::Boolean(boolean)) => Ok(*boolean),
        Some(OptionValue::Integer(1)) => Ok(true),
        Some(OptionValue::Integer(0)) => Ok(false),
        Some(OptionValue::Text(text)) if matches!(text.as_str(), "on" | "yes") => Ok(true),
        Some(OptionValue::Text(text)) if matches!(text.as_str(), "off" | "no") => Ok(false),
        Some(other) => Err(wrong_type(name, other, "true or false")),
    }
}

fn wrong_type(name: &str, found: &OptionValue, expected: &str) -> Error {
    Error::WrongType { what: format!("option {name}"), found: found.to_string(), expected: expected.to_owned() }
}
