//! The tokenizer of a GGUF file as the files that every model directory has: byte-level BPE of the Qwen and Llama 3 families.
//!
//! A file has tokens, merges, and the name of the rule that cuts texts into words, but not the rule; so only known names are read. For others,
//! and for SentencePiece vocabularies as Llama 2 has them, `tokenizer.json` has to lie beside the file.

use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::damaged;
use super::header::Header;
use crate::error::{Error, Result};
use crate::models::chat_template::CHAT_TEMPLATE_FILE;
use crate::models::config::read_json;
use crate::models::shown::shown;
use crate::models::tokenizer::{QWEN2_WORDS, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE};

/// Words of Llama 3, from its published tokenizer: those of Qwen2, with numbers of up to three digits.
const LLAMA3_WORDS: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Kinds of tokens that are found in a text before it is cut into words: control tokens, and those that the maker added.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
/// Special tokens that a file names.
const SPECIAL: [(&str, &str); 4] = [("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")];

/// How texts are cut into words before each is cut into tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    Qwen2,
    Llama3,
}

/// Tokens of a file and what it says of them.
struct Vocabulary<'a> {
    tokens: Vec<&'a str>,
    /// Kinds of the tokens; empty if the file has none.
    kinds: Vec<i64>,
}

/// Writes `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` as the metadata have them, each unless it is there.
///
/// # Errors
/// [`Error::NotSupported`] for a tokenizer that is not known, [`Error::Damaged`], [`Error::Io`].
pub fn write_missing(header: &Header, directory: &Path) -> Result<()> {
    if !directory.join(TOKENIZER_FILE).exists() {
        write(directory, TOKENIZER_FILE, &tokenizer(header)?.to_string())?;
    }
    let path = directory.join(TOKENIZER_CONFIG_FILE);
    if !path.exists() {
        write(directory, TOKENIZER_CONFIG_FILE, &format!("{:#}\n", special_tokens(header)?))?;
    }
    let has_template = directory.join(CHAT_TEMPLATE_FILE).exists() || read_json(&path)?.get("chat_template").is_some();
    match header.text("tokenizer.chat_template")? {
        Some(template) if !has_template => write(directory, CHAT_TEMPLATE_FILE, template),
        _ => Ok(()),
    }
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    std::fs::write(&path, text).map_err(|source| Error::Io { path, source })
}

/// A `tokenizer_config.json` that names the special tokens.
fn special_tokens(header: &Header) -> Result<Json> {
    let tokens = header.texts("tokenizer.ggml.tokens")?.unwrap_or_default();
    let mut config = Map::new();
    config.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
    config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
    for (name, key) in SPECIAL {
        let id = header.token(&format!("tokenizer.ggml.{key}_token_id"))?;
        if let Some(token) = id.and_then(|id| tokens.get(id as usize)) {
            config.insert(name.to_owned(), json!(token));
        }
    }
    Ok(Json::Object(config))
}

/// A `tokenizer.json`.
fn tokenizer(header: &Header) -> Result<Json> {
    let words = words(header)?;
    let vocabulary = Vocabulary::read(header)?;
    let pattern = match words {
        Words::Qwen2 => QWEN2_WORDS,
        Words::Llama3 => LLAMA3_WORDS,
    };
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added(),
        "normalizer": if words == Words::Qwen2 { json!({ "type": "NFC" }) } else { Json::Null },
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false },
            { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false },
        ] },
        "post_processor": beginning(header, &vocabulary, words)?,
        "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false },
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": words == Words::Llama3,
            "vocab": vocabulary.ids(header)?,
            "merges": merges(header)?,
        },
    }))
}

/// The rule by its name.
fn words(header: &Header) -> Result<Words> {
    let advice = "put the model's tokenizer.json beside the file";
    let path = header.path().display();
    match header.text("tokenizer.ggml.model")? {
        Some("gpt2") => {}
        Some(other) => {
            let kind = shown(other);
            return Err(Error::NotSupported(format!("{path}: tokenizers of type \"{kind}\" are not read from GGUF files; {advice}")));
        }
        None => return Err(Error::NotSupported(format!("{path} has no tokenizer; {advice}"))),
    }
    match header.text("tokenizer.ggml.pre")? {
        Some("qwen2" | "deepseek-r1-qwen") => Ok(Words::Qwen2),
        Some("llama-bpe" | "llama3" | "llama-v3") => Ok(Words::Llama3),
        other => {
            let found = other.map_or_else(|| "that it does not name".to_owned(), |name| format!("\"{}\"", shown(name)));
            Err(Error::NotSupported(format!("{path} cuts texts into words by a rule {found}; supported: qwen2, llama-bpe; {advice}")))
        }
    }
}

impl<'a> Vocabulary<'a> {
    fn read(header: &'a Header) -> Result<Self> {
        let missing = || damaged(header.path(), "its metadata have no \"tokenizer.ggml.tokens\"");
        let tokens = header.texts("tokenizer.ggml.tokens")?.ok_or_else(missing)?;
        let kinds = header.integers("tokenizer.ggml.token_type")?.unwrap_or_default();
        if !kinds.is_empty() && kinds.len() != tokens.len() {
            return Err(damaged(header.path(), format!("it has {} tokens, and the kinds of {}", tokens.len(), kinds.len())));
        }
        Ok(Self { tokens, kinds })
    }

    /// The ids of all tokens, those that are added too: so each keeps the id that the file gives it.
    fn ids(&self, header: &Header) -> Result<Json> {
        let ids: Map<String, Json> = self.tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), json!(id))).collect();
        if ids.len() != self.tokens.len() {
            return Err(damaged(header.path(), "it has a token twice"));
        }
        Ok(Json::Object(ids))
    }

    fn added(&self) -> Vec<Json> {
        let added = self.tokens.iter().zip(&self.kinds).enumerate().filter(|(_, (_, kind))| matches!(**kind, CONTROL | USER_DEFINED));
        let token = |(id, (token, kind)): (usize, (&&str, &i64))| {
            json!({
                "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                "special": *kind == CONTROL,
            })
        };
        added.map(token).collect()
    }
}

/// What puts the token of a beginning before a text, if the file asks for that. Llama 3 does if nothing is said.
fn beginning(header: &Header, vocabulary: &Vocabulary<'_>, words: Words) -> Result<Json> {
    if !header.flag("tokenizer.ggml.add_bos_token")?.unwrap_or(words == Words::Llama3) {
        return Ok(Json::Null);
    }
    let id = header.token("tokenizer.ggml.bos_token_id")?;
    let Some((id, token)) = id.and_then(|id| Some((id, *vocabulary.tokens.get(id as usize)?))) else { return Ok(Json::Null) };
    let special = json!({ "SpecialToken": { "id": token, "type_id": 0 } });
    let text = |id: &str, segment: u32| json!({ "Sequence": { "id": id, "type_id": segment } });
    let mut special_tokens = Map::new();
    special_tokens.insert(token.to_owned(), json!({ "id": token, "ids": [id], "tokens": [token] }));
    Ok(json!({
        "type": "TemplateProcessing",
        "single": [special, text("A", 0)],
        "pair": [special, text("A", 0), text("B", 1)],
        "special_tokens": special_tokens,
    }))
}

/// Pairs of tokens that become one, the first ones first.
fn merges(header: &Header) -> Result<Vec<[&str; 2]>> {
    let merges = header.texts("tokenizer.ggml.merges")?.unwrap_or_default();
    let parts = merges.into_iter().map(|merge| {
        let no_pair = || damaged(header.path(), format!("the merge \"{}\" is no pair of tokens", shown(merge)));
        merge.split_once(' ').map(|(first, second)| [first, second]).ok_or_else(no_pair)
    });
    parts.collect()
}
