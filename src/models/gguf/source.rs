//! Which GGUF file a new model is made of, and its files in the model's directory.

use std::path::Path;

use super::{GGUF_FILE, complete};
use crate::error::{Error, Result};
use crate::models::chat_template::CHAT_TEMPLATE_FILE;
use crate::models::source::{OpenFile, copy_file};
use crate::models::tokenizer::{TOKENIZER_CONFIG_FILE, TOKENIZER_FILE};
use crate::value::Value;

/// The option of CREATE MODEL that names a GGUF file of a directory.
pub const OPTION: &str = "file";
const EXTENSION: &str = ".gguf";
/// Files that go before what a GGUF file says itself.
pub(in crate::models) const FILES: [&str; 4] = [TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, "special_tokens_map.json", CHAT_TEMPLATE_FILE];

/// Takes [`OPTION`] out of `options`.
///
/// # Errors
/// [`Error::InvalidParameter`] if it is not the name of a GGUF file.
pub(in crate::models) fn take_option(options: &mut Vec<(String, Value)>) -> Result<Option<String>> {
    let named: Vec<_> = options.extract_if(.., |(name, _)| name == OPTION).collect();
    match named.as_slice() {
        [] => Ok(None),
        [(_, Value::Text(name))] if is_gguf(name) && Path::new(name).file_name() == Some(name.as_ref()) => Ok(Some(name.clone())),
        [(_, other)] => Err(invalid(&other.to_string(), "the name of a GGUF file in the directory, as in file = 'model-q8_0.gguf'")),
        _ => Err(invalid("several names", "one, in FROM or in the option")),
    }
}

/// The GGUF file of a directory: the one that is named, or else the only one if it has no safetensors.
///
/// # Errors
/// [`Error::InvalidParameter`] if it has several and none is named, [`Error::Io`].
pub(in crate::models) fn choose(directory: &Path, named: Option<String>) -> Result<Option<String>> {
    if named.is_some() {
        return Ok(named);
    }
    let entries = std::fs::read_dir(directory).map_err(|source| Error::Io { path: directory.to_owned(), source })?;
    let names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    if names.iter().any(|name| name.ends_with(".safetensors")) {
        return Ok(None);
    }
    let mut found: Vec<String> = names.into_iter().filter(|name| is_gguf(name)).collect();
    found.sort();
    if found.len() > 1 {
        let listed = found.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        return Err(invalid("none", &format!("one of {listed}")));
    }
    Ok(found.pop())
}

/// Copies a GGUF file and what lies beside it of a tokenizer, and writes the rest of that.
///
/// # Errors
/// Those of `open`; [`Error::Io`]; [`Error::Damaged`] and [`Error::NotSupported`] for a file that is none, or whose tokenizer is not read.
pub(in crate::models) fn copy(directory: &Path, name: &str, target: &Path, open: &OpenFile<'_>) -> Result<()> {
    copy_file(&directory.join(name), &target.join(GGUF_FILE), open)?;
    for name in FILES {
        let from = directory.join(name);
        if from.is_file() {
            copy_file(&from, &target.join(name), open)?;
        }
    }
    complete(target)
}

fn is_gguf(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(EXTENSION)
}

fn invalid(found: &str, expected: &str) -> Error {
    Error::InvalidParameter { name: OPTION.to_owned(), found: found.to_owned(), expected: expected.to_owned() }
}
