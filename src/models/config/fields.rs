//! The fields of a `config.json`.

use std::path::Path;

use serde_json::Value;

use super::damaged;
use crate::error::{Error, Result};
use crate::models::shown::shown;

/// A size beyond this is damage, not a model; products of two stay far from overflow.
const SIZE_MAX: usize = 1 << 24;

/// Typed access to the fields of a `config.json`, with the file named in every error.
pub(super) struct Fields<'a> {
    pub value: &'a Value,
    pub path: &'a Path,
}

impl<'a> Fields<'a> {
    /// The field, unless it is absent or `null`.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.value.get(name).filter(|value| !value.is_null())
    }

    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name)?.as_str()
    }

    pub fn size(&self, name: &str) -> Result<usize> {
        let value = self.get(name).ok_or_else(|| damaged(self.path, format!("the field \"{name}\" is missing")))?;
        let number = value.as_u64().and_then(|number| usize::try_from(number).ok()).filter(|number| *number <= SIZE_MAX);
        number.ok_or_else(|| self.other(name, value, &format!("a whole number up to {SIZE_MAX}")))
    }

    pub fn size_or(&self, name: &str, default: usize) -> Result<usize> {
        if self.get(name).is_some() { self.size(name) } else { Ok(default) }
    }

    pub fn number_or(&self, name: &str, default: f64) -> Result<f64> {
        let Some(value) = self.get(name) else { return Ok(default) };
        value.as_f64().ok_or_else(|| self.other(name, value, "a number"))
    }

    pub fn flag(&self, name: &str) -> Result<bool> {
        let Some(value) = self.get(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.other(name, value, "true or false"))
    }

    /// A token id or a list of them; empty when absent.
    pub fn ids(&self, name: &str) -> Result<Vec<u32>> {
        let values = match self.get(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(values)) => values.as_slice(),
            Some(one) => std::slice::from_ref(one),
        };
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids: Option<Vec<u32>> = values.iter().map(id).collect();
        ids.ok_or_else(|| damaged(self.path, format!("\"{name}\" is not a token id or a list of token ids")))
    }

    /// Refuses a feature whose value is not the one that the model computes; an absent field is that value.
    pub fn refuse_unless(&self, name: &str, supported: &str) -> Result<()> {
        match self.text(name) {
            Some(found) if found != supported => {
                let (path, found) = (self.path.display(), shown(found));
                Err(Error::NotSupported(format!("{path}: {name} \"{found}\" is not supported; supported: {supported}")))
            }
            _ => Ok(()),
        }
    }

    fn other(&self, name: &str, found: &Value, expected: &str) -> Error {
        damaged(self.path, format!("\"{name}\" is {}, expected {expected}", shown(&found.to_string())))
    }
}
