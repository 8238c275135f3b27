//! Shapes of encoders.

use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::{CONFIG_FILE, LAYERS_MAX, damaged, first_architecture, read_json};
use crate::error::{Error, Result};
use crate::models::shown::shown;

/// Shape of a BERT encoder (arXiv:1810.04805) and of its RoBERTa variants: post-norm, learned positions, erf-GELU.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderConfig {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub layer_norm_eps: f64,
    pub max_position_embeddings: usize,
    /// Number of segment embeddings; every token takes segment 0. Zero when the model has none.
    pub type_vocab_size: usize,
    /// First row of the position table: 0 for BERT, `pad_token_id + 1` for RoBERTa.
    pub position_offset: usize,
    /// `BertModel`, `RobertaModel`, ... as the file names it.
    pub architecture: String,
}

impl EncoderConfig {
    /// The longest text, in tokens with the special ones.
    pub fn max_tokens(&self) -> usize {
        self.max_position_embeddings - self.position_offset
    }

    /// Reads `directory/config.json`. Errors as `DecoderConfig::load`.
    pub fn load(directory: &Path) -> Result<Self> {
        let path = directory.join(CONFIG_FILE);
        Self::from_json(&read_json(&path)?, &path)
    }

    /// Reads a parsed `config.json`; `path` is for messages only. Errors as `DecoderConfig::load`.
    pub fn from_json(value: &Value, path: &Path) -> Result<Self> {
        let fields = Fields { value, path };
        let model_type = fields.text("model_type").unwrap_or("bert");
        let position_offset = match model_type {
            "bert" => 0,
            "roberta" | "xlm-roberta" => fields.size_or("pad_token_id", 1)? + 1,
            other => {
                let (found, known) = (shown(other), "bert, roberta, xlm-roberta");
                return Err(Error::NotSupported(format!("an encoder of type \"{found}\" is not supported; supported: {known}")));
            }
        };
        fields.refuse_unless("hidden_act", "gelu")?;
        fields.refuse_unless("position_embedding_type", "absolute")?;
        let config = Self {
            vocab_size: fields.size("vocab_size")?,
            hidden_size: fields.size("hidden_size")?,
            intermediate_size: fields.size("intermediate_size")?,
            num_hidden_layers: fields.size("num_hidden_layers")?,
            num_attention_heads: fields.size("num_attention_heads")?,
            layer_norm_eps: fields.number_or("layer_norm_eps", 1e-12)?,
            max_position_embeddings: fields.size_or("max_position_embeddings", 512)?,
            type_vocab_size: fields.size_or("type_vocab_size", 2)?,
            position_offset,
            architecture: shown(first_architecture(value).unwrap_or("BertModel")),
        };
        let sizes = [config.vocab_size, config.hidden_size, config.intermediate_size, config.num_attention_heads];
        if sizes.contains(&0) || config.num_hidden_layers > LAYERS_MAX {
            return Err(damaged(path, "a size is zero, or it has too many layers"));
        }
        if !config.hidden_size.is_multiple_of(config.num_attention_heads) {
            return Err(damaged(path, "hidden_size is not a multiple of num_attention_heads"));
        }
        if config.max_position_embeddings <= config.position_offset {
            return Err(damaged(path, "max_position_embeddings leaves no position"));
        }
        Ok(config)
    }

    /// Width of one attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    /// Every tensor of a checkpoint in Hugging Face's names without the leading `bert.` or `roberta.`, with its shape.
    pub fn tensor_shapes(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, inter) = (self.hidden_size, self.intermediate_size);
        let mut shapes = vec![
            ("embeddings.word_embeddings.weight".to_owned(), vec![self.vocab_size, hidden]),
            ("embeddings.position_embeddings.weight".to_owned(), vec![self.max_position_embeddings, hidden]),
            ("embeddings.LayerNorm.weight".to_owned(), vec![hidden]),
            ("embeddings.LayerNorm.bias".to_owned(), vec![hidden]),
        ];
        if self.type_vocab_size > 0 {
            shapes.push(("embeddings.token_type_embeddings.weight".to_owned(), vec![self.type_vocab_size, hidden]));
        }
        let linears = [
            ("attention.self.query", hidden, hidden),
            ("attention.self.key", hidden, hidden),
            ("attention.self.value", hidden, hidden),
            ("attention.output.dense", hidden, hidden),
            ("intermediate.dense", inter, hidden),
            ("output.dense", hidden, inter),
        ];
        for layer in 0..self.num_hidden_layers {
            let prefix = format!("encoder.layer.{layer}");
            for (name, output, input) in linears {
                shapes.push((format!("{prefix}.{name}.weight"), vec![output, input]));
                shapes.push((format!("{prefix}.{name}.bias"), vec![output]));
            }
            for norm in ["attention.output.LayerNorm", "output.LayerNorm"] {
                shapes.push((format!("{prefix}.{norm}.weight"), vec![hidden]));
                shapes.push((format!("{prefix}.{norm}.bias"), vec![hidden]));
            }
        }
        shapes
    }
}
