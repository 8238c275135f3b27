//! Model shapes from Hugging Face `config.json` files, and back.
//!
//! The parser is tolerant where the field is: `rope_theta` at the top level (transformers 4) or inside `rope_parameters`
//! (transformers 5), end-of-text ids as a number or a list, `null` where a feature is off. It is strict where tolerance would
//! change the numbers: a rope scaling, a sliding window or an activation that the models do not compute is refused.

use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::error::{Error, Result};

/// File name of the configuration in a model directory.
pub const CONFIG_FILE: &str = "config.json";
/// A size beyond this is damage, not a model; products of two stay far from overflow.
const SIZE_MAX: usize = 1 << 24;
const LAYERS_MAX: usize = 10_000;

/// Shape of a Qwen2 decoder (Qwen2 technical report, arXiv:2407.10671): pre-norm, SwiGLU, grouped-query attention, rotary
/// positions, biases on q, k and v only.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    /// Query heads; a multiple of `num_key_value_heads`.
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    /// Width of one head; even. Usually `hidden_size / num_attention_heads`.
    pub head_dim: usize,
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// The output head is the embedding matrix.
    pub tie_word_embeddings: bool,
    /// Longest sequence, in tokens.
    pub max_position_embeddings: usize,
    /// Token ids that end a completion.
    pub eos_token_ids: Vec<u32>,
}

impl DecoderConfig {
    /// Reads `directory/config.json`.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, [`Error::Damaged`] if a field is missing or shapes do not fit each other,
    /// [`Error::NotSupported`] for another architecture or a feature that the decoder does not compute.
    pub fn load(directory: &Path) -> Result<Self> {
        let path = directory.join(CONFIG_FILE);
        Self::from_json(&read_json(&path)?, &path)
    }

    /// Reads a parsed `config.json`; `path` is for messages only. Errors as [`Self::load`].
    pub fn from_json(value: &Value, path: &Path) -> Result<Self> {
        let fields = Fields { value, path };
        let model_type = fields.text("model_type").unwrap_or("qwen2");
        if model_type != "qwen2" {
            return Err(Error::NotSupported(format!("a decoder of type \"{model_type}\" is not supported; supported: qwen2")));
        }
        fields.refuse_unless("hidden_act", "silu")?;
        let hidden_size = fields.size("hidden_size")?;
        let num_attention_heads = fields.size("num_attention_heads")?;
        let config = Self {
            vocab_size: fields.size("vocab_size")?,
            hidden_size,
            intermediate_size: fields.size("intermediate_size")?,
            num_hidden_layers: fields.size("num_hidden_layers")?,
            num_attention_heads,
            num_key_value_heads: fields.size_or("num_key_value_heads", num_attention_heads)?,
            head_dim: fields.size_or("head_dim", hidden_size / num_attention_heads.max(1))?,
            rms_norm_eps: fields.number_or("rms_norm_eps", 1e-6)?,
            rope_theta: rope_theta(&fields)?,
            tie_word_embeddings: fields.flag("tie_word_embeddings")?,
            max_position_embeddings: fields.size_or("max_position_embeddings", 32_768)?,
            eos_token_ids: fields.ids("eos_token_id")?,
        };
        if fields.flag("use_sliding_window")? {
            return Err(Error::NotSupported(format!("{}: sliding-window attention is not supported", path.display())));
        }
        config.check(path)?;
        Ok(config)
    }

    /// The `config.json` that transformers (4 and 5) loads as `Qwen2ForCausalLM`.
    pub fn to_json(&self) -> Value {
        let eos = match self.eos_token_ids.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            many => json!(many),
        };
        json!({
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "torch_dtype": "float32",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.tie_word_embeddings,
            "max_position_embeddings": self.max_position_embeddings,
            "use_sliding_window": false,
            "attention_dropout": 0.0,
            "bos_token_id": null,
            "eos_token_id": eos,
        })
    }

    /// Writes `directory/config.json`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, directory: &Path) -> Result<()> {
        let path = directory.join(CONFIG_FILE);
        let text = format!("{:#}\n", self.to_json());
        std::fs::write(&path, text).map_err(|source| Error::Io { path, source })
    }

    /// Width of the concatenated query heads.
    pub fn query_width(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Width of the concatenated key (or value) heads.
    pub fn key_value_width(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// Every tensor of a checkpoint in Hugging Face's names, with its shape; a tied head is not listed.
    pub fn tensor_shapes(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, inter) = (self.hidden_size, self.intermediate_size);
        let (query, key_value) = (self.query_width(), self.key_value_width());
        let mut shapes = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocab_size, hidden])];
        for layer in 0..self.num_hidden_layers {
            let of_layer: [(&str, Vec<usize>); 12] = [
                ("input_layernorm.weight", vec![hidden]),
                ("self_attn.q_proj.weight", vec![query, hidden]),
                ("self_attn.q_proj.bias", vec![query]),
                ("self_attn.k_proj.weight", vec![key_value, hidden]),
                ("self_attn.k_proj.bias", vec![key_value]),
                ("self_attn.v_proj.weight", vec![key_value, hidden]),
                ("self_attn.v_proj.bias", vec![key_value]),
                ("self_attn.o_proj.weight", vec![hidden, query]),
                ("post_attention_layernorm.weight", vec![hidden]),
                ("mlp.gate_proj.weight", vec![inter, hidden]),
                ("mlp.up_proj.weight", vec![inter, hidden]),
                ("mlp.down_proj.weight", vec![hidden, inter]),
            ];
            shapes.extend(of_layer.map(|(name, shape)| (format!("model.layers.{layer}.{name}"), shape)));
        }
        shapes.push(("model.norm.weight".to_owned(), vec![hidden]));
        if !self.tie_word_embeddings {
            shapes.push(("lm_head.weight".to_owned(), vec![self.vocab_size, hidden]));
        }
        shapes
    }

    /// Refuses shapes that cannot be computed; `path` is for the message.
    pub(crate) fn check(&self, path: &Path) -> Result<()> {
        let heads_fit = self.num_key_value_heads > 0 && self.num_attention_heads.is_multiple_of(self.num_key_value_heads);
        let sizes = [self.vocab_size, self.hidden_size, self.intermediate_size, self.num_attention_heads, self.head_dim];
        let reason = if sizes.contains(&0) {
            "a size is zero"
        } else if self.num_hidden_layers > LAYERS_MAX {
            "it has too many layers"
        } else if !(self.rope_theta.is_finite() && self.rope_theta > 0.0) {
            "rope_theta is not a positive number"
        } else if !heads_fit {
            "num_attention_heads is not a multiple of num_key_value_heads"
        } else if !self.head_dim.is_multiple_of(2) {
            "head_dim is odd, rotary positions need an even width"
        } else {
            return Ok(());
        };
        Err(damaged(path, reason))
    }
}

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

    /// Reads `directory/config.json`. Errors as [`DecoderConfig::load`].
    pub fn load(directory: &Path) -> Result<Self> {
        let path = directory.join(CONFIG_FILE);
        Self::from_json(&read_json(&path)?, &path)
    }

    /// Reads a parsed `config.json`; `path` is for messages only. Errors as [`DecoderConfig::load`].
    pub fn from_json(value: &Value, path: &Path) -> Result<Self> {
        let fields = Fields { value, path };
        let model_type = fields.text("model_type").unwrap_or("bert");
        let position_offset = match model_type {
            "bert" => 0,
            "roberta" | "xlm-roberta" => fields.size_or("pad_token_id", 1)? + 1,
            other => {
                let known = "bert, roberta, xlm-roberta";
                return Err(Error::NotSupported(format!("an encoder of type \"{other}\" is not supported; supported: {known}")));
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
            architecture: first_architecture(value).unwrap_or("BertModel").to_owned(),
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

fn rope_theta(fields: &Fields<'_>) -> Result<f64> {
    let nested = ["rope_parameters", "rope_scaling"].iter().find_map(|name| fields.value.get(*name)?.as_object());
    if let Some(kind) = nested.and_then(|rope| rope_kind(rope)).filter(|kind| *kind != "default") {
        return Err(Error::NotSupported(format!("rope scaling of type \"{kind}\" is not supported; supported: default")));
    }
    match nested.and_then(|rope| rope.get("rope_theta")).and_then(Value::as_f64) {
        Some(theta) => Ok(theta),
        None => fields.number_or("rope_theta", 10_000.0),
    }
}

fn rope_kind(rope: &Map<String, Value>) -> Option<&str> {
    rope.get("rope_type").or_else(|| rope.get("type"))?.as_str()
}

fn damaged(path: &Path, reason: impl ToString) -> Error {
    Error::Damaged { path: path.to_owned(), reason: reason.to_string() }
}

/// Typed access to the fields of a `config.json`, with the file named in every error.
struct Fields<'a> {
    value: &'a Value,
    path: &'a Path,
}

impl<'a> Fields<'a> {
    /// The field, unless it is absent or `null`.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.value.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name)?.as_str()
    }

    fn size(&self, name: &str) -> Result<usize> {
        let value = self.get(name).ok_or_else(|| damaged(self.path, format!("the field \"{name}\" is missing")))?;
        let number = value.as_u64().and_then(|number| usize::try_from(number).ok()).filter(|number| *number <= SIZE_MAX);
        number.ok_or_else(|| damaged(self.path, format!("\"{name}\" is {value}, expected a whole number up to {SIZE_MAX}")))
    }

    fn size_or(&self, name: &str, default: usize) -> Result<usize> {
        if self.get(name).is_some() { self.size(name) } else { Ok(default) }
    }

    fn number_or(&self, name: &str, default: f64) -> Result<f64> {
        let Some(value) = self.get(name) else { return Ok(default) };
        value.as_f64().ok_or_else(|| damaged(self.path, format!("\"{name}\" is {value}, expected a number")))
    }

    fn flag(&self, name: &str) -> Result<bool> {
        let Some(value) = self.get(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| damaged(self.path, format!("\"{name}\" is {value}, expected true or false")))
    }

    /// A token id or a list of them; empty when absent.
    fn ids(&self, name: &str) -> Result<Vec<u32>> {
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
    fn refuse_unless(&self, name: &str, supported: &str) -> Result<()> {
        match self.text(name) {
            Some(found) if found != supported => {
                Err(Error::NotSupported(format!("{}: {name} \"{found}\" is not supported; supported: {supported}", self.path.display())))
            }
            _ => Ok(()),
        }
    }
}
