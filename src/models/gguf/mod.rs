//! Policies from GGUF files, the format of llama.cpp (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>): the shape of a model, its
//! tokenizer and its weights, most of them quantized, in one file.
//!
//! A version of such a model has the file as it is, and beside it the files of a tokenizer: those that lay beside the file, or what its metadata
//! say. The weights stay as the file has them (`encoded.rs`) and are for generation alone: what would train them needs them in full precision.

mod config;
mod header;
mod source;
mod tokenizer;
mod weights;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use source::OPTION;
pub(super) use source::{FILES, choose, copy, take_option};
pub use weights::GgufWeights;

use crate::error::Error;

/// File name of the weights in a model directory.
pub const GGUF_FILE: &str = "model.gguf";

/// What is known of a model from a GGUF file without loading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GgufInfo {
    /// Memory of the weights, which stay as the file has them.
    pub weight_bytes: u64,
    /// How tensors are stored, each way once: `F32`, `Q4_K`, ...
    pub tensor_types: Vec<String>,
}

/// The file of a model directory, if its weights are in one.
pub(super) fn file(directory: &Path) -> Option<PathBuf> {
    let path = directory.join(GGUF_FILE);
    path.is_file().then_some(path)
}

/// Reads the header of the file of a model directory and writes the tokenizer's files that are not there.
///
/// # Errors
/// Those of [`GgufWeights::open`], and [`Error::NotSupported`] for a tokenizer that cannot be made of the metadata.
pub fn complete(directory: &Path) -> Result<(), Error> {
    tokenizer::write_missing(&header::Header::read(&directory.join(GGUF_FILE))?, directory)
}

fn damaged(path: &Path, reason: impl ToString) -> Error {
    Error::Damaged { path: path.to_owned(), reason: reason.to_string() }
}
