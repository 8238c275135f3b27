//! Which files of a repository are a model's.

use serde_json::Value as Json;

use super::listing::{Listing, RepositoryFile};
use super::names::is_name;
use super::options::HubOptions;
use crate::error::{Error, Result};
use crate::models::gguf;
use crate::models::shown::shown;
use crate::models::source::FILES;
use crate::models::weights::{INDEX_FILE, WEIGHTS_FILE};

const WEIGHTS_EXTENSION: &str = ".safetensors";
const GGUF_EXTENSION: &str = ".gguf";
/// Of any file but the weights: twice the longest that is read (`tokenizer.json`).
const SMALL_BYTES_MAX: u64 = 256 << 20;
/// Of the files that a message lists.
const LISTED_MAX: usize = 10;

/// Where the weights are.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Weights {
    One(RepositoryFile),
    /// The one file is the tokenizer too.
    Gguf(RepositoryFile),
    /// The index says which files.
    Sharded {
        index: RepositoryFile,
    },
}

/// The weights of a model, by the options or as the repository has them.
///
/// # Errors
/// [`Error::NotSupported`] if there are none that we read, naming what there is; [`Error::InvalidParameter`] for several GGUF files of which none is
/// named; [`Error::UnknownObject`] for a file that is not there.
pub(super) fn weights(options: &HubOptions, listing: &Listing) -> Result<Weights> {
    let get = |name: &str| listing.files.get(name).cloned();
    let gguf: Vec<&String> = listing.files.keys().filter(|name| name.ends_with(GGUF_EXTENSION)).collect();
    if let Some(name) = &options.file {
        let known = || gguf.iter().take(LISTED_MAX).map(|name| shown(name)).collect();
        return get(name).map(Weights::Gguf).ok_or_else(|| Error::UnknownObject { kind: "file", name: name.clone(), known: known() });
    }
    // One whole file comes first: readers of both would take the shards.
    match (get(WEIGHTS_FILE), get(INDEX_FILE), gguf.as_slice()) {
        (Some(whole), ..) => Ok(Weights::One(whole)),
        (None, Some(index), _) => Ok(Weights::Sharded { index }),
        (None, None, [only]) => get(only).map(Weights::Gguf).ok_or_else(|| no_weights(options, listing)),
        (None, None, _) => Err(no_weights(options, listing)),
    }
}

/// The files beside the weights, the configuration first.
pub(super) fn beside(weights: &Weights, listing: &Listing) -> Vec<RepositoryFile> {
    let get = |name: &&str| listing.files.get(*name).cloned();
    if let Weights::Gguf(_) = weights {
        return gguf::FILES.iter().filter_map(get).collect();
    }
    let known = FILES.iter().filter(|name| **name != INDEX_FILE).filter_map(get);
    let templates = listing.files.values().filter(|file| is_template(&file.name) && !FILES.contains(&file.name.as_str()));
    known.chain(templates.cloned()).collect()
}

/// The shards that an index names.
///
/// # Errors
/// What is wrong with the index.
pub(super) fn shards(index: &Json, listing: &Listing) -> Result<Vec<RepositoryFile>, String> {
    let map = index.get("weight_map").and_then(Json::as_object).ok_or("the field \"weight_map\" is missing")?;
    let mut names: Vec<&str> = map.values().filter_map(Json::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let shard = |name: &str| {
        if !is_name(name) || !name.ends_with(WEIGHTS_EXTENSION) {
            return Err(format!("\"{}\" is no name of a shard", shown(name)));
        }
        listing.files.get(name).cloned().ok_or_else(|| format!("the repository has no \"{name}\""))
    };
    names.into_iter().map(shard).collect()
}

/// How large a file may be: what is read whole into memory has a bound.
pub(super) fn bytes_max(name: &str) -> u64 {
    if name.ends_with(WEIGHTS_EXTENSION) || name.ends_with(GGUF_EXTENSION) { u64::MAX } else { SMALL_BYTES_MAX }
}

/// `chat_template.jinja`, and others of several.
fn is_template(name: &str) -> bool {
    is_name(name) && name.starts_with("chat_template") && name.ends_with(".jinja")
}

fn no_weights(options: &HubOptions, listing: &Listing) -> Error {
    let source = options.source();
    let of = |ending: &str| {
        let names = listing.files.keys().filter(|name| name.ends_with(ending));
        names.take(LISTED_MAX).map(|name| shown(name)).collect::<Vec<_>>()
    };
    let gguf = of(GGUF_EXTENSION);
    if !gguf.is_empty() {
        let expected = format!("one of {}", gguf.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", "));
        return Error::InvalidParameter { name: gguf::OPTION.to_owned(), found: "none".to_owned(), expected };
    }
    let others = [of(".bin"), of(".pt"), of(".pth"), of(".onnx"), of(".h5"), of(".msgpack")].concat();
    let has = if others.is_empty() { "other files".to_owned() } else { others.join(", ") };
    Error::NotSupported(format!(
        "{source} has no weights in the form safetensors ({WEIGHTS_FILE}); it has {has}; look for a revision or a repository with them"
    ))
}
