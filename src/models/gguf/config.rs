//! The shape of a decoder from the metadata of a GGUF file, and the names of its tensors there.
//!
//! As with `config.json`, what would change the numbers and is not computed is refused: experts, sliding windows, partial rotation, other rope
//! scalings.

use super::damaged;
use super::header::Header;
use crate::error::{Error, Result};
use crate::models::config::{DecoderArchitecture, DecoderConfig, OutputHead, RopeConfig, RopeScaling};
use crate::models::shown::shown;

/// The table of embeddings.
const EMBEDDING: &str = "token_embd.weight";
/// The output head of a model that is not tied.
const HEAD: &str = "output.weight";
/// What the frequencies of a Llama 3.1 are divided by.
pub const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Parts of a block in Hugging Face's names and in llama.cpp's.
const PARTS: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The name in a GGUF file of a tensor that Hugging Face calls `name`; `None` for one that no decoder has.
pub fn tensor_name(name: &str) -> Option<String> {
    match name {
        "model.embed_tokens.weight" => return Some(EMBEDDING.to_owned()),
        "model.norm.weight" => return Some("output_norm.weight".to_owned()),
        "lm_head.weight" => return Some(HEAD.to_owned()),
        _ => {}
    }
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (part, suffix) = rest.rsplit_once('.')?;
    let (_, part) = PARTS.iter().find(|(known, _)| *known == part)?;
    Some(format!("blk.{layer}.{part}.{suffix}"))
}

/// The shape that a file's metadata describe.
///
/// # Errors
/// [`Error::Damaged`] if something is missing or sizes do not fit each other, [`Error::NotSupported`] for another architecture or a feature that
/// the decoder does not compute.
pub fn decoder_config(header: &Header) -> Result<DecoderConfig> {
    refuse_parts(header)?;
    let missing = |key: &str| damaged(header.path(), format!("its metadata have no \"{key}\""));
    let name = header.text("general.architecture")?.ok_or_else(|| missing("general.architecture"))?;
    let architecture = DecoderArchitecture::of_model_type(name)?;
    let key = |name: &str| format!("{}.{name}", architecture.model_type());
    let given = |name: &str| header.size(&key(name));
    let size = |name: &str| given(name)?.ok_or_else(|| missing(&key(name)));
    let hidden_size = size("embedding_length")?;
    let num_attention_heads = size("attention.head_count")?;
    let head_dim = match given("attention.key_length")? {
        Some(width) => width,
        None => hidden_size / num_attention_heads.max(1),
    };
    let max_position_embeddings = size("context_length")?;
    let refused = [
        ("expert_count", given("expert_count")?.filter(|count| *count > 0)),
        ("attention.value_length", given("attention.value_length")?.filter(|width| *width != head_dim)),
        ("rope.dimension_count", given("rope.dimension_count")?.filter(|width| *width != head_dim)),
        ("attention.sliding_window", given("attention.sliding_window")?.filter(|len| (1..max_position_embeddings).contains(len))),
    ];
    if let Some((name, value)) = refused.into_iter().find_map(|(name, value)| Some((name, value?))) {
        return Err(not_supported(header, &format!("{} = {value}", key(name))));
    }
    let embedding = header.tensors().get(EMBEDDING).ok_or_else(|| damaged(header.path(), format!("tensor \"{EMBEDDING}\" is missing")))?;
    let eps = key("attention.layer_norm_rms_epsilon");
    let config = DecoderConfig {
        architecture,
        vocab_size: embedding.shape[0],
        hidden_size,
        intermediate_size: size("feed_forward_length")?,
        num_hidden_layers: size("block_count")?,
        num_attention_heads,
        num_key_value_heads: given("attention.head_count_kv")?.unwrap_or(num_attention_heads),
        head_dim,
        rms_norm_eps: header.number(&eps)?.ok_or_else(|| missing(&eps))?,
        rope: rope(header, &key)?,
        tie_word_embeddings: !header.tensors().contains_key(HEAD),
        head: OutputHead::Vocabulary,
        max_position_embeddings,
        eos_token_ids: end_tokens(header)?,
    };
    config.check(header.path())?;
    Ok(config)
}

/// A file of several, or of something beside a model.
fn refuse_parts(header: &Header) -> Result<()> {
    if header.size("split.count")?.is_some_and(|count| count > 1) {
        let path = header.path().display();
        let advice = "join the files with llama-gguf-split --merge";
        return Err(Error::NotSupported(format!("{path} is one of several files of a model, which are not supported; {advice}")));
    }
    match header.text("general.type")? {
        None | Some("model") => Ok(()),
        Some(other) => Err(not_supported(header, &format!("general.type = {}", shown(other)))),
    }
}

fn rope(header: &Header, key: &dyn Fn(&str) -> String) -> Result<RopeConfig> {
    let theta = header.number(&key("rope.freq_base"))?.unwrap_or(10_000.0);
    let scaling_key = key("rope.scaling.type");
    let factor = match header.number(&key("rope.scaling.factor"))? {
        Some(factor) => Some(factor),
        // Before there were types of scaling.
        None => header.number(&key("rope.scale_linear"))?,
    };
    let scaling = match header.text(&scaling_key)? {
        None | Some("linear") => factor.filter(|factor| *factor != 1.0).map_or(RopeScaling::None, |factor| RopeScaling::Linear { factor }),
        Some("none") => RopeScaling::None,
        Some(other) => return Err(not_supported(header, &format!("{scaling_key} = {}", shown(other)))),
    };
    Ok(RopeConfig { theta, scaling })
}

/// Ids of the tokens that end a text, a turn or a message.
fn end_tokens(header: &Header) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    for name in ["eos", "eot", "eom"] {
        let id = header.token(&format!("tokenizer.ggml.{name}_token_id"))?;
        ids.extend(id.filter(|id| !ids.contains(id)));
    }
    Ok(ids)
}

fn not_supported(header: &Header, what: &str) -> Error {
    Error::NotSupported(format!("{}: {what} is not supported", header.path().display()))
}
