//! Model shapes from Hugging Face `config.json` files, and back.
//!
//! The parser is tolerant where the field is: `rope_theta` at the top level (transformers 4) or inside `rope_parameters`
//! (transformers 5), end-of-text ids as a number or a list, `null` where a feature is off. It is strict where tolerance would
//! change the numbers: a rope scaling, a sliding window or an activation that the models do not compute is refused.

mod decoder;
mod encoder;
mod fields;
mod rope;

use std::io::Read;
use std::path::Path;

use serde_json::Value;

pub use decoder::{DecoderArchitecture, DecoderConfig, EMBEDDING, HEAD, OutputHead, SCORE, ScoreConfig};
pub use encoder::EncoderConfig;
pub use rope::{RopeConfig, RopeScaling};

use crate::error::{Error, Result};

/// File name of the configuration in a model directory.
pub const CONFIG_FILE: &str = "config.json";
/// File that says how texts are generated, where a model has one.
const GENERATION_CONFIG_FILE: &str = "generation_config.json";
const LAYERS_MAX: usize = 10_000;

/// The first entry of `architectures`, which names the model class.
pub fn first_architecture(config: &Value) -> Option<&str> {
    config.get("architectures")?.get(0)?.as_str()
}

/// The longest configuration or list of shards: a hundred times those that are published.
const JSON_BYTES_MAX: u64 = 64 << 20;

/// Reads a JSON object from a file; it is nested at most 128 deep.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, [`Error::Damaged`] if it is too large or not a JSON object.
pub fn read_json(path: &Path) -> Result<Value> {
    let text = String::from_utf8(read_bounded(path, JSON_BYTES_MAX)?).map_err(|error| damaged(path, error))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| damaged(path, error))?;
    Ok(value)
}

/// The bytes of a file that has at most so many.
///
/// # Errors
/// [`Error::Io`]; [`Error::Damaged`] for a longer one.
pub(super) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    std::fs::File::open(path).map_err(io)?.take(bytes_max + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > bytes_max {
        return Err(damaged(path, format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

fn damaged(path: &Path, reason: impl ToString) -> Error {
    Error::Damaged { path: path.to_owned(), reason: reason.to_string() }
}
