//! Is this directory a model that we can run? Read from the configurations and file headers, without loading the weights.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::config::{CONFIG_FILE, DecoderArchitecture, DecoderConfig, EncoderConfig, OutputHead, SCORE, first_architecture, read_json};
use super::embedder_settings::EmbedderSettings;
use super::encoder::tensor_prefix;
use super::gguf::{self, GgufInfo, GgufWeights};
use super::registry::Task;
use super::reranker::{Activation, check_labels, head_shapes, is_classifier};
use super::shown::shown;
use super::tokenizer::{TOKENIZER_FILE, Tokenizer};
use super::weights::{check_shapes, read_shapes};
use crate::error::{Error, Result};

/// What a model directory holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    pub task: Task,
    pub architecture: String,
    /// A tied head counts once.
    pub parameter_count: u64,
    /// How the weights are stored, if they are in a GGUF file.
    pub gguf: Option<GgufInfo>,
}

/// Checks configuration, tokenizer, and the name and shape of every weight.
///
/// # Errors
/// [`Error::Io`], [`Error::Damaged`] for anything missing, truncated or of the wrong shape, [`Error::NotSupported`] for an
/// architecture that we do not have.
pub fn inspect(directory: &Path) -> Result<Checkpoint> {
    if let Some(path) = gguf::file(directory) {
        return inspect_gguf(directory, &path);
    }
    let path = directory.join(CONFIG_FILE);
    let config = read_json(&path)?;
    match family(&config, path)? {
        Family::Decoder => inspect_decoder(directory, &config),
        Family::Encoder => inspect_encoder(directory, &config),
    }
}

/// Checks the configuration alone: whether the rest of the files, which may be still to come, could be a model that we run.
///
/// # Errors
/// As [`inspect`].
pub fn check_configuration(directory: &Path) -> Result<()> {
    let path = directory.join(CONFIG_FILE);
    let config = read_json(&path)?;
    match family(&config, path.clone())? {
        Family::Decoder => DecoderConfig::from_json(&config, &path).map(drop),
        Family::Encoder => EncoderConfig::from_json(&config, &path).map(drop),
    }
}

/// By which a configuration and its weights are read.
enum Family {
    Decoder,
    Encoder,
}

fn family(config: &Value, path: PathBuf) -> Result<Family> {
    match config.get("model_type").and_then(Value::as_str) {
        Some(decoder) if DecoderArchitecture::is_model_type(decoder) => Ok(Family::Decoder),
        Some("bert" | "roberta" | "xlm-roberta") => Ok(Family::Encoder),
        Some(other) => {
            let known =
                "qwen2, qwen3, llama (task generate), bert, roberta, xlm-roberta (task embed), sequence classifiers of these (task rerank)";
            Err(Error::NotSupported(format!("models of type \"{}\" are not supported; supported: {known}", shown(other))))
        }
        None => Err(Error::Damaged { path, reason: "the field \"model_type\" is missing".to_owned() }),
    }
}

fn inspect_decoder(directory: &Path, value: &Value) -> Result<Checkpoint> {
    let config = DecoderConfig::from_json(value, &directory.join(CONFIG_FILE))?;
    let (expected, found) = (config.tensor_shapes(), read_shapes(directory)?);
    let task = match config.head {
        OutputHead::Vocabulary => Task::Generate,
        OutputHead::Score(_) => {
            check_labels(&found, SCORE)?;
            Activation::named(directory)?;
            Task::Rerank
        }
    };
    check_shapes(directory, &found, &expected)?;
    check_tokenizer(directory, config.vocab_size)?;
    let architecture = shown(first_architecture(value).unwrap_or(config.class()));
    Ok(Checkpoint { task, architecture, parameter_count: count(&expected), gguf: None })
}

fn inspect_gguf(directory: &Path, path: &Path) -> Result<Checkpoint> {
    let weights = GgufWeights::open(path)?;
    let config = weights.config();
    check_tokenizer(directory, config.vocab_size)?;
    let (architecture, parameter_count) = (config.architecture.class().to_owned(), count(&config.tensor_shapes()));
    Ok(Checkpoint { task: Task::Generate, architecture, parameter_count, gguf: Some(weights.info()) })
}

fn inspect_encoder(directory: &Path, value: &Value) -> Result<Checkpoint> {
    let config = EncoderConfig::from_json(value, &directory.join(CONFIG_FILE))?;
    let found = read_shapes(directory)?;
    let prefix = tensor_prefix(&found);
    let expected: Vec<_> = config.tensor_shapes().into_iter().map(|(name, shape)| (format!("{prefix}{name}"), shape)).collect();
    let is_reranker = is_classifier(&config.architecture);
    let head = if is_reranker { head_shapes(&config, &found)? } else { Vec::new() };
    let expected = [expected, head].concat();
    check_shapes(directory, &found, &expected)?;
    check_tokenizer(directory, config.vocab_size)?;
    if is_reranker {
        Activation::load(directory)?;
    } else {
        EmbedderSettings::load(directory)?;
    }
    let task = if is_reranker { Task::Rerank } else { Task::Embed };
    Ok(Checkpoint { task, architecture: config.architecture, parameter_count: count(&expected), gguf: None })
}

fn check_tokenizer(directory: &Path, vocab_size: usize) -> Result<()> {
    let ids = Tokenizer::load(directory)?.ids_end();
    if ids > vocab_size {
        let reason = format!("the tokenizer has {ids} ids, the model's vocabulary {vocab_size}");
        return Err(Error::Damaged { path: directory.join(TOKENIZER_FILE), reason });
    }
    Ok(())
}

fn count(tensors: &[(String, Vec<usize>)]) -> u64 {
    tensors.iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum()
}
