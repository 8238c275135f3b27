//! Where the files of a new model come from.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use super::builtin::{BUILTIN, BuiltinFile};
use super::config::{DecoderArchitecture, DecoderConfig, OutputHead, RopeConfig};
use super::decoder::Decoder;
use super::embedder_settings::EmbeddingOptions;
use super::gguf;
use super::tokenizer::train_byte_level_bpe;
use crate::error::{Error, Result};
use crate::value::Value;

/// Files of a model directory that are worth keeping beside the weights.
pub(super) const FILES: [&str; 13] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_xlm-roberta_config.json",
    "config_sentence_transformers.json",
    "model.safetensors.index.json",
];
/// Sizes and seed of a random model, with their defaults.
const RANDOM_OPTIONS: [(&str, i64); 9] = [
    ("vocab_size", 1500),
    ("hidden_size", 128),
    ("intermediate_size", 384),
    ("num_hidden_layers", 4),
    ("num_attention_heads", 4),
    ("num_key_value_heads", 2),
    ("max_position_embeddings", 2048),
    ("rope_theta", 10_000),
    ("seed", 0),
];
/// Beyond this a size is a slip of the pen, and would ask for absurd memory.
const SIZE_MAX: i64 = 1 << 20;

/// Opens a file of a model's directory for reading.
pub type OpenFile<'a> = dyn Fn(&Path) -> Result<File> + 'a;

/// A parsed source.
#[derive(Debug)]
pub enum Source {
    /// Of safetensors or of a GGUF file.
    Directory(PathBuf),
    GgufFile(PathBuf),
    Builtin(&'static [BuiltinFile]),
    RandomQwen2,
    /// A server has it; nothing is written but its options.
    Remote,
}

impl Source {
    /// Reads the text after FROM. Relative directories are below `root`.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for `hf://`, whose files [`super::hub::Hub`] fetches, and unknown schemes, [`Error::UnknownObject`] for an unknown built-in
    /// model, [`Error::Io`] if there is no such directory or file.
    pub fn parse(text: &str, root: &Path) -> Result<Self> {
        match text.split_once("://") {
            Some(("builtin", name)) => builtin(name),
            Some(("random", "qwen2")) => Ok(Self::RandomQwen2),
            Some(("openai", _)) => Ok(Self::Remote),
            Some(("random", other)) => {
                let known = vec!["qwen2".to_owned()];
                Err(Error::UnknownObject { kind: "random architecture", name: other.to_owned(), known })
            }
            Some((scheme, _)) => Err(Error::NotSupported(format!(
                "the source {scheme}:// has no files here; download the model and give its directory, or use hf://org/name or builtin://tinyhop"
            ))),
            None => local(root.join(text)),
        }
    }

    /// Writes the model's files into an empty directory.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::InvalidParameter`], [`Error::NotReady`] (a random model without texts), [`Error::Io`].
    pub fn write(&self, options: &[(String, Value)], texts: &[String], target: &Path, open: &OpenFile<'_>) -> Result<()> {
        let mut others = options.to_vec();
        let file = gguf::take_option(&mut others)?;
        let options = if matches!(self, Self::Directory(_)) { others.as_slice() } else { options };
        if !matches!(self, Self::RandomQwen2)
            && let Some((name, _)) = options.first()
        {
            let of = "CREATE MODEL from a directory or a built-in model".to_owned();
            return Err(Error::UnknownOption {
                kind: "option",
                name: name.clone(),
                of,
                known: ["task", "device", gguf::OPTION].into_iter().chain(EmbeddingOptions::NAMES).map(str::to_owned).collect(),
            });
        }
        match self {
            Self::Directory(directory) => match gguf::choose(directory, file)? {
                Some(name) => gguf::copy(directory, &name, target, open),
                None => copy(directory, target, open),
            },
            Self::GgufFile(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                gguf::copy(path.parent().unwrap_or(path), &name, target, open)
            }
            Self::Builtin(files) => files.iter().try_for_each(|(name, bytes)| {
                let path = target.join(name);
                std::fs::write(&path, bytes).map_err(|source| Error::Io { path, source })
            }),
            Self::RandomQwen2 => random(options, texts, target),
            Self::Remote => Ok(()),
        }
    }
}

/// What `CREATE MODEL` records of how a model was made.
pub fn lineage(source: &str, options: &[(String, Value)]) -> Json {
    let options: Map<String, Json> = options.iter().map(|(name, value)| (name.clone(), json_value(value))).collect();
    json!({ "source": source, "options": options, "rolloutdb_version": env!("CARGO_PKG_VERSION") })
}

fn json_value(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!(text),
        Value::Int(integer) => json!(integer),
        Value::Float(float) => json!(float),
        Value::Bool(boolean) => json!(boolean),
    }
}

fn builtin(name: &str) -> Result<Source> {
    let found = BUILTIN.iter().find(|(known, _)| *known == name);
    let known = || BUILTIN.iter().map(|(known, _)| (*known).to_owned()).collect();
    found.map(|(_, files)| Source::Builtin(files)).ok_or_else(|| Error::UnknownObject {
        kind: "built-in model",
        name: name.to_owned(),
        known: known(),
    })
}

fn local(path: PathBuf) -> Result<Source> {
    if path.is_dir() {
        return Ok(Source::Directory(path));
    }
    if path.is_file() {
        return Ok(Source::GgufFile(path));
    }
    Err(Error::Io { path, source: std::io::Error::new(std::io::ErrorKind::NotFound, "no such directory or GGUF file") })
}

/// Copies the files of a model that we know, and its weights.
fn copy(directory: &Path, target: &Path, open: &OpenFile<'_>) -> Result<()> {
    let io = |path: &Path, source| Error::Io { path: path.to_owned(), source };
    let entries = std::fs::read_dir(directory).map_err(|source| io(directory, source))?;
    let names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let weights = names.iter().map(String::as_str).filter(|name| name.ends_with(".safetensors"));
    for name in weights.chain(FILES) {
        let (from, to) = (directory.join(name), target.join(name));
        if !from.is_file() {
            continue;
        }
        let parent = to.parent().unwrap_or(target);
        std::fs::create_dir_all(parent).map_err(|source| io(parent, source))?;
        copy_file(&from, &to, open)?;
    }
    Ok(())
}

pub(super) fn copy_file(from: &Path, to: &Path, open: &OpenFile<'_>) -> Result<()> {
    let mut file = open(from)?;
    let mut copied = File::create(to).map_err(|source| Error::Io { path: to.to_owned(), source })?;
    std::io::copy(&mut file, &mut copied).map_err(|source| Error::Io { path: from.to_owned(), source })?;
    Ok(())
}

/// A Qwen2 with random weights and a tokenizer trained on `texts`.
fn random(options: &[(String, Value)], texts: &[String], target: &Path) -> Result<()> {
    let sizes = RandomSizes::read(options)?;
    if texts.iter().all(|text| text.is_empty()) {
        let hint =
            "random://qwen2 needs texts to train its tokenizer on: CREATE MODEL m FROM 'random://qwen2' USING (SELECT text FROM ...)";
        return Err(Error::NotReady(hint.to_owned()));
    }
    let tokenizer = train_byte_level_bpe(texts, sizes.get("vocab_size"), target)?;
    let (hidden_size, num_attention_heads) = (sizes.get("hidden_size"), sizes.get("num_attention_heads"));
    if !hidden_size.is_multiple_of(2 * num_attention_heads) {
        return Err(out_of_range("hidden_size", hidden_size, &format!("a multiple of twice the {num_attention_heads} heads")));
    }
    let num_key_value_heads = sizes.get("num_key_value_heads");
    if !num_attention_heads.is_multiple_of(num_key_value_heads) {
        return Err(out_of_range(
            "num_key_value_heads",
            num_key_value_heads,
            &format!("a divisor of num_attention_heads = {num_attention_heads}"),
        ));
    }
    let config = DecoderConfig {
        architecture: DecoderArchitecture::Qwen2,
        // Few texts may give fewer merges than asked for.
        vocab_size: tokenizer.vocab_size(),
        hidden_size,
        intermediate_size: sizes.get("intermediate_size"),
        num_hidden_layers: sizes.get("num_hidden_layers"),
        num_attention_heads,
        num_key_value_heads,
        head_dim: hidden_size / num_attention_heads,
        rms_norm_eps: 1e-6,
        rope: RopeConfig::plain(sizes.get("rope_theta") as f64),
        tie_word_embeddings: true,
        head: OutputHead::Vocabulary,
        max_position_embeddings: sizes.get("max_position_embeddings"),
        eos_token_ids: tokenizer.eos_token_id().into_iter().collect(),
    };
    Decoder::random(config, sizes.get("seed") as u64)?.save(target)
}

/// The options of a random model, each given or by default.
struct RandomSizes([(&'static str, i64); RANDOM_OPTIONS.len()]);

impl RandomSizes {
    fn read(options: &[(String, Value)]) -> Result<Self> {
        let mut sizes = RANDOM_OPTIONS;
        for (name, value) in options {
            let known = || RANDOM_OPTIONS.iter().map(|(name, _)| (*name).to_owned()).collect();
            let Some((_, size)) = sizes.iter_mut().find(|(known, _)| known == name) else {
                let of = "CREATE MODEL from random://qwen2".to_owned();
                return Err(Error::UnknownOption { kind: "option", name: name.clone(), of, known: known() });
            };
            *size = read_size(name, value)?;
        }
        Ok(Self(sizes))
    }

    fn get(&self, name: &str) -> usize {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, size)| *size as usize).expect("only names of the list are asked for")
    }
}

fn read_size(name: &str, value: &Value) -> Result<i64> {
    let range = if name == "seed" { 0..=i64::MAX } else { 1..=SIZE_MAX };
    match value {
        Value::Int(size) if range.contains(size) => Ok(*size),
        Value::Int(size) => Err(out_of_range(name, size, &format!("a whole number from {} to {}", range.start(), range.end()))),
        other => Err(Error::WrongType {
            what: format!("option {name}"),
            found: json_value(other).to_string(),
            expected: "a whole number".to_owned(),
        }),
    }
}

fn out_of_range(name: &str, found: impl ToString, expected: &str) -> Error {
    Error::InvalidParameter { name: name.to_owned(), found: found.to_string(), expected: expected.to_owned() }
}
