//! Shapes of decoders.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::rope::RopeConfig;
use super::{CONFIG_FILE, GENERATION_CONFIG_FILE, LAYERS_MAX, damaged, first_architecture, read_json};
use crate::error::{Error, Result};
use crate::models::shown::shown;

pub const EMBEDDING: &str = "model.embed_tokens.weight";
/// A vocabulary head with a weight of its own.
pub const HEAD: &str = "lm_head.weight";
/// The weight of a score, in the layout of transformers.
pub const SCORE: &str = "score.weight";
/// What sentence-transformers does with a score that is taken as it is.
const IDENTITY: &str = "torch.nn.modules.linear.Identity";

/// The families of decoders, all of pre-norm blocks with SwiGLU, grouped-query attention and rotary positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecoderArchitecture {
    /// Biases on queries, keys and values (Qwen2 technical report, arXiv:2407.10671); Qwen2.5 too.
    Qwen2,
    /// An RMSNorm on every head of queries and keys instead of the biases (Qwen3 technical report, arXiv:2505.09388).
    Qwen3,
    /// Neither (Llama 2 and 3, arXiv:2307.09288 and arXiv:2407.21783).
    Llama,
}

/// What stands behind the last norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputHead {
    /// A logit for each token that may come next.
    #[default]
    Vocabulary,
    /// One number for a whole sequence, as a reward model gives it.
    Score(ScoreConfig),
}

/// A score, as the classes `..ForSequenceClassification` of transformers with one label read it: at the last token that is no padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScoreConfig {
    pub pad_token_id: Option<u32>,
    /// It was learned as a value from 0 to 1 (`problem_type` regression), and is no logit.
    pub is_value: bool,
}

/// Shape of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    pub architecture: DecoderArchitecture,
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
    pub rope: RopeConfig,
    /// The output head is the embedding matrix; never where that is a score.
    pub tie_word_embeddings: bool,
    pub head: OutputHead,
    /// Longest sequence, in tokens.
    pub max_position_embeddings: usize,
    /// Token ids that end a completion.
    pub eos_token_ids: Vec<u32>,
}

impl DecoderArchitecture {
    /// As `model_type` names them.
    const ALL: [Self; 3] = [Self::Qwen2, Self::Qwen3, Self::Llama];

    /// The architecture that a `config.json` names.
    ///
    /// # Errors
    /// [`Error::NotSupported`], with those that are supported.
    pub(in crate::models) fn of_model_type(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.model_type() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::model_type).join(", ");
            Error::NotSupported(format!("a decoder of type \"{}\" is not supported; supported: {known}", shown(name)))
        })
    }

    /// Whether a `config.json` of this type is a decoder's.
    pub fn is_model_type(name: &str) -> bool {
        Self::ALL.into_iter().any(|architecture| architecture.model_type() == name)
    }

    /// `model_type` of its `config.json`.
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Llama => "llama",
        }
    }

    /// Its class in transformers.
    pub fn class(self) -> &'static str {
        match self {
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Llama => "LlamaForCausalLM",
        }
    }

    /// Its class in transformers where it has a score.
    pub fn score_class(self) -> &'static str {
        match self {
            Self::Qwen2 => "Qwen2ForSequenceClassification",
            Self::Qwen3 => "Qwen3ForSequenceClassification",
            Self::Llama => "LlamaForSequenceClassification",
        }
    }

    /// Whether a class of transformers is that of a decoder with a score.
    pub fn is_score_class(name: &str) -> bool {
        Self::ALL.into_iter().any(|architecture| architecture.score_class() == name)
    }

    /// Whether the projections to queries, keys and values have biases.
    pub fn has_attention_bias(self) -> bool {
        self == Self::Qwen2
    }

    /// Whether every head of queries and keys is normalised before its rotation.
    pub fn has_query_key_norm(self) -> bool {
        self == Self::Qwen3
    }
}

impl OutputHead {
    fn read(fields: &Fields<'_>, architecture: DecoderArchitecture) -> Self {
        if first_architecture(fields.value) != Some(architecture.score_class()) {
            return Self::Vocabulary;
        }
        // Some files say -1, which is none.
        let pad_token_id = fields.get("pad_token_id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        Self::Score(ScoreConfig { pad_token_id, is_value: fields.text("problem_type") == Some("regression") })
    }
}

impl ScoreConfig {
    /// What transformers and sentence-transformers read beside the shape of the decoder; the label's names say that there is one.
    fn write(self, config: &mut Map<String, Value>) {
        let mut set = |name: &str, value: Value| config.insert(name.to_owned(), value);
        set("id2label", json!({ "0": "LABEL_0" }));
        set("label2id", json!({ "LABEL_0": 0 }));
        set("pad_token_id", json!(self.pad_token_id));
        set("sentence_transformers", json!({ "activation_fn": IDENTITY }));
        if self.is_value {
            set("problem_type", json!("regression"));
        }
    }
}

impl DecoderConfig {
    /// Reads `directory/config.json`, and what else ends a text from `generation_config.json`: instruction-tuned models name the end of a turn only there.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, [`Error::Damaged`] if a field is missing or shapes do not fit each other,
    /// [`Error::NotSupported`] for another architecture or a feature that the decoder does not compute.
    pub fn load(directory: &Path) -> Result<Self> {
        let path = directory.join(CONFIG_FILE);
        let mut config = Self::from_json(&read_json(&path)?, &path)?;
        let path = directory.join(GENERATION_CONFIG_FILE);
        if path.exists() {
            let ends = Fields { value: &read_json(&path)?, path: &path }.ids("eos_token_id")?;
            for end in ends {
                if !config.eos_token_ids.contains(&end) {
                    config.eos_token_ids.push(end);
                }
            }
        }
        Ok(config)
    }

    /// Reads a parsed `config.json`; `path` is for messages only. Errors as [`Self::load`].
    pub fn from_json(value: &Value, path: &Path) -> Result<Self> {
        let fields = Fields { value, path };
        let architecture = DecoderArchitecture::of_model_type(fields.text("model_type").unwrap_or("qwen2"))?;
        fields.refuse_unless("hidden_act", "silu")?;
        for name in ["mlp_bias", "attention_bias", "use_sliding_window"] {
            // Qwen2 always has the biases of attention that the flag asks for.
            if fields.flag(name)? && !(name == "attention_bias" && architecture.has_attention_bias()) {
                return Err(Error::NotSupported(format!(
                    "{}: {name} is not supported for models of type \"{}\"",
                    path.display(),
                    architecture.model_type()
                )));
            }
        }
        let hidden_size = fields.size("hidden_size")?;
        let num_attention_heads = fields.size("num_attention_heads")?;
        let rope = RopeConfig::read(&fields)?;
        let (head, is_tied) = (OutputHead::read(&fields, architecture), fields.flag("tie_word_embeddings")?);
        let config = Self {
            architecture,
            vocab_size: fields.size("vocab_size")?,
            hidden_size,
            intermediate_size: fields.size("intermediate_size")?,
            num_hidden_layers: fields.size("num_hidden_layers")?,
            num_attention_heads,
            num_key_value_heads: fields.size_or("num_key_value_heads", num_attention_heads)?,
            head_dim: fields.size_or("head_dim", hidden_size / num_attention_heads.max(1))?,
            rms_norm_eps: fields.number_or("rms_norm_eps", 1e-6)?,
            max_position_embeddings: rope.positions(fields.size_or("max_position_embeddings", 32_768)?),
            rope,
            tie_word_embeddings: is_tied && head == OutputHead::Vocabulary,
            head,
            eos_token_ids: fields.ids("eos_token_id")?,
        };
        config.check(path)?;
        Ok(config)
    }

    /// The `config.json` that transformers (4 and 5) loads.
    pub fn to_json(&self) -> Value {
        let eos = match self.eos_token_ids.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            many => json!(many),
        };
        let mut config = Map::new();
        let mut set = |name: &str, value: Value| config.insert(name.to_owned(), value);
        set("architectures", json!([self.class()]));
        set("model_type", json!(self.architecture.model_type()));
        set("torch_dtype", json!("float32"));
        set("vocab_size", json!(self.vocab_size));
        set("hidden_size", json!(self.hidden_size));
        set("intermediate_size", json!(self.intermediate_size));
        set("num_hidden_layers", json!(self.num_hidden_layers));
        set("num_attention_heads", json!(self.num_attention_heads));
        set("num_key_value_heads", json!(self.num_key_value_heads));
        set("head_dim", json!(self.head_dim));
        set("hidden_act", json!("silu"));
        set("rms_norm_eps", json!(self.rms_norm_eps));
        set("tie_word_embeddings", json!(self.tie_word_embeddings));
        set("max_position_embeddings", json!(self.max_position_embeddings));
        set("attention_dropout", json!(0.0));
        set("bos_token_id", Value::Null);
        set("eos_token_id", eos);
        match self.architecture {
            DecoderArchitecture::Qwen2 => set("use_sliding_window", json!(false)),
            DecoderArchitecture::Qwen3 | DecoderArchitecture::Llama => set("attention_bias", json!(false)),
        };
        self.rope.write(&mut config);
        if let OutputHead::Score(score) = self.head {
            score.write(&mut config);
        }
        Value::Object(config)
    }

    /// The same blocks with a score behind them.
    #[must_use]
    pub fn with_score(self, score: ScoreConfig) -> Self {
        Self { tie_word_embeddings: false, head: OutputHead::Score(score), ..self }
    }

    /// Its class in transformers.
    pub fn class(&self) -> &'static str {
        match self.head {
            OutputHead::Vocabulary => self.architecture.class(),
            OutputHead::Score(_) => self.architecture.score_class(),
        }
    }

    /// The name of the weight of the output head; that of the embedding when tied.
    pub fn head_tensor(&self) -> &'static str {
        match self.head {
            OutputHead::Score(_) => SCORE,
            OutputHead::Vocabulary if self.tie_word_embeddings => EMBEDDING,
            OutputHead::Vocabulary => HEAD,
        }
    }

    /// Numbers that the output head gives for a token.
    pub fn num_outputs(&self) -> usize {
        match self.head {
            OutputHead::Vocabulary => self.vocab_size,
            OutputHead::Score(_) => 1,
        }
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
        let mut shapes = vec![(EMBEDDING.to_owned(), vec![self.vocab_size, hidden])];
        for layer in 0..self.num_hidden_layers {
            let mut of_layer = vec![
                ("input_layernorm.weight", vec![hidden]),
                ("self_attn.q_proj.weight", vec![query, hidden]),
                ("self_attn.k_proj.weight", vec![key_value, hidden]),
                ("self_attn.v_proj.weight", vec![key_value, hidden]),
                ("self_attn.o_proj.weight", vec![hidden, query]),
                ("post_attention_layernorm.weight", vec![hidden]),
                ("mlp.gate_proj.weight", vec![inter, hidden]),
                ("mlp.up_proj.weight", vec![inter, hidden]),
                ("mlp.down_proj.weight", vec![hidden, inter]),
            ];
            if self.architecture.has_attention_bias() {
                of_layer.extend([
                    ("self_attn.q_proj.bias", vec![query]),
                    ("self_attn.k_proj.bias", vec![key_value]),
                    ("self_attn.v_proj.bias", vec![key_value]),
                ]);
            }
            if self.architecture.has_query_key_norm() {
                of_layer.extend([("self_attn.q_norm.weight", vec![self.head_dim]), ("self_attn.k_norm.weight", vec![self.head_dim])]);
            }
            shapes.extend(of_layer.into_iter().map(|(name, shape)| (format!("model.layers.{layer}.{name}"), shape)));
        }
        shapes.push(("model.norm.weight".to_owned(), vec![hidden]));
        if !self.tie_word_embeddings {
            shapes.push((self.head_tensor().to_owned(), vec![self.num_outputs(), hidden]));
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
        } else if let Some(problem) = self.rope.problem() {
            problem
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
