//! Low-rank adapters of a decoder (LoRA, Hu et al. 2021, arXiv:2106.09685) and their files, in the layout of PEFT.
//!
//! A matrix `W` `[O, I]` with an adapter computes `W x + s B (A x)`, with `A` `[r, I]` and `B` `[O, r]`. `W` is frozen: it gets no
//! gradient, which saves a product of its size. The scale `s` belongs to the adapter alone, never to `W`.
//! This module knows matrices, names and files; how adapters learn is training's business.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use candle_core::{DType, Device, Tensor, Var};
use regex::Regex;
use serde_json::{Value, json};

use super::config::{DecoderConfig, SCORE, read_json};
use super::ops::{self, Pass};
use super::random::CounterRng;
use super::shown::shown;
use super::weights::{self, Weights};
use crate::error::{Error, Result};

/// Options of the adapters in a directory of PEFT.
pub const CONFIG_FILE: &str = "adapter_config.json";
/// Their weights.
pub const ADAPTER_FILE: &str = "adapter_model.safetensors";
/// The folder of a model with the adapters that were added to its weights. In the model's own, transformers would take them for the model and load their base.
pub const ADAPTER_DIRECTORY: &str = "adapter";
/// The layer of a score.
const SCORE_MODULE: &str = "score";
/// What PEFT puts before the name of every weight.
const FILE_PREFIX: &str = "base_model.model.";
/// The target that stands for all of [`TARGETS`].
const ALL_LINEAR: &str = "all-linear";
/// The linear layers of a block, by the last part of their names.
const TARGETS: [&str; 7] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
/// Fields of `adapter_config.json` that change what an adapter computes; here it computes the plain formula. See [`changes_formula`].
const UNSUPPORTED: [&str; 13] = [
    "bias",
    "lora_bias",
    "fan_in_fan_out",
    "modules_to_save",
    "rank_pattern",
    "alpha_pattern",
    "layers_to_transform",
    "layers_pattern",
    "exclude_modules",
    "layer_replication",
    "trainable_token_indices",
    "target_parameters",
    "alora_invocation_tokens",
];

/// Which matrices get adapters, and of what kind.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraOptions {
    /// Rows of `A`, 1 to the hidden size of the decoder.
    pub rank: usize,
    /// > 0; the adapter counts `alpha / rank`.
    pub alpha: f64,
    /// The adapter counts `alpha / sqrt(rank)` instead (rsLoRA, arXiv:2312.03732).
    pub is_rank_stabilized: bool,
    /// Names of linear layers, whole or their last parts (`q_proj`), in every block, or regular expressions of whole names; `all-linear` stands for all
    /// of them.
    pub targets: Vec<String>,
    /// Seed of the random start of `A`.
    pub seed: u64,
}

impl Default for LoraOptions {
    /// Rank 16 and alpha 32 on every linear layer.
    fn default() -> Self {
        Self { rank: 16, alpha: 32.0, is_rank_stabilized: false, targets: vec![ALL_LINEAR.into()], seed: 0 }
    }
}

impl LoraOptions {
    /// The factor `s` of the adapter's part.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.is_rank_stabilized { rank.sqrt() } else { rank }
    }

    /// Values that the adapters train on a decoder of this shape.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a rank or an alpha out of range, or a target that no layer is named after.
    pub fn num_parameters(&self, config: &DecoderConfig) -> Result<u64> {
        self.check(config)?;
        let shapes = self.modules(config)?.into_values();
        Ok(shapes.map(|[output, input]| self.rank as u64 * (output + input) as u64).sum())
    }

    /// Values of each token that the adapters keep for a backward pass, beside the output of their layers: the two parts of each output, and the
    /// narrow product before and after its scale.
    ///
    /// # Errors
    /// As [`Self::num_parameters`].
    pub fn num_activations(&self, config: &DecoderConfig) -> Result<usize> {
        self.check(config)?;
        let shapes = self.modules(config)?.into_values();
        Ok(shapes.map(|[output, _]| 2 * (output + self.rank)).sum())
    }

    fn check(&self, config: &DecoderConfig) -> Result<()> {
        let invalid = |name: &str, found: String, expected: String| Err(Error::InvalidParameter { name: name.into(), found, expected });
        if self.rank == 0 || self.rank > config.hidden_size {
            let expected = format!("1 to {}, the width of the policy's hidden states", config.hidden_size);
            return invalid("lora_rank", self.rank.to_string(), expected);
        }
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return invalid("lora_alpha", self.alpha.to_string(), "a number > 0".into());
        }
        Ok(())
    }

    /// Shapes `[O, I]` of the matrices that get adapters, by the name of their layer.
    fn modules(&self, config: &DecoderConfig) -> Result<BTreeMap<String, [usize; 2]>> {
        let linear: BTreeMap<String, [usize; 2]> =
            config.tensor_shapes().into_iter().filter_map(|(name, shape)| linear_layer(&name, &shape)).collect();
        let mut modules = BTreeMap::new();
        for target in &self.targets {
            let pattern = pattern(target)?;
            let is_found = |module: &str| pattern.as_ref().map_or_else(|| is_match(module, target), |pattern| pattern.is_match(module));
            let found: Vec<_> = linear.iter().filter(|(module, _)| is_found(module)).collect();
            if found.is_empty() {
                return Err(unknown_target(target));
            }
            modules.extend(found.into_iter().map(|(module, shape)| (module.clone(), *shape)));
        }
        if modules.is_empty() { Err(unknown_target("")) } else { Ok(modules) }
    }
}

/// A matrix of a decoder, `[O, I]`, and its adapter if it has one.
#[derive(Debug, Clone)]
pub(super) struct Weight {
    pub base: Tensor,
    pub adapter: Option<Adapter>,
}

/// `s B A`
#[derive(Debug, Clone)]
pub(super) struct Adapter {
    /// `[r, I]`
    pub a: Tensor,
    /// `[O, r]`
    pub b: Tensor,
    pub scale: f64,
}

impl Weight {
    /// `[N, I]` to `[N, O]`.
    pub fn forward(&self, x: &Tensor, bias: Option<&Tensor>, pass: &Pass) -> candle_core::Result<Tensor> {
        let out = pass.linear(x, &self.base, bias)?;
        let Some(Adapter { a, b, scale }) = &self.adapter else { return Ok(out) };
        // The scale goes to the narrow side: `[N, r]` instead of `[N, O]`.
        let narrow = (pass.linear(x, a, None)? * *scale)?;
        &out + pass.linear(&narrow, b, None)?
    }

    /// The same numbers without a graph. They stay the same when training changes them in place.
    pub fn detached(&self) -> Self {
        let adapter = self.adapter.as_ref().map(|adapter| Adapter { a: adapter.a.detach(), b: adapter.b.detach(), ..*adapter });
        Self { base: self.base.detach(), adapter }
    }
}

/// The names of `A` and `B` of a layer among a decoder's parameters.
pub(super) fn parameter_names(module: &str) -> [String; 2] {
    ["A", "B"].map(|matrix| format!("{module}.lora_{matrix}.weight"))
}

/// The layer whose `A` has this name.
fn adapted_module(parameter: &str) -> Option<&str> {
    parameter.strip_suffix(".lora_A.weight")
}

/// The adapters at their start, by the names of [`parameter_names`]: `A` uniform in ±1/√I, as PEFT has it, and `B` zero, so that the
/// decoder computes what it did.
///
/// # Errors
/// [`Error::InvalidParameter`] for a rank or an alpha out of range, or a target that no layer is named after.
pub(super) fn initial(config: &DecoderConfig, options: &LoraOptions, device: &Device) -> Result<BTreeMap<String, Tensor>> {
    options.check(config)?;
    let rng = CounterRng::new(options.seed);
    let mut adapters = BTreeMap::new();
    for (index, (module, [output, input])) in options.modules(config)?.into_iter().enumerate() {
        let [name_a, name_b] = parameter_names(&module);
        let (rng, bound) = (rng.stream(index as u64), 1.0 / (input as f64).sqrt());
        let values = (0..(options.rank * input) as u64).map(|at| ((2.0 * rng.uniform(at) - 1.0) * bound) as f32).collect();
        adapters.insert(name_a, Tensor::from_vec::<_, f32>(values, (options.rank, input), device)?);
        adapters.insert(name_b, Tensor::from_vec(vec![0.0_f32; output * options.rank], (output, options.rank), device)?);
    }
    Ok(adapters)
}

/// Writes `W + s B A` over the `W` of every adapter whose name begins with `prefix`, and takes these adapters out.
///
/// # Errors
/// [`Error::Tensor`]; then those of `prefix` are as they were.
pub(super) fn merge(
    prefix: &str,
    scale: f64,
    tensors: &mut BTreeMap<String, Tensor>,
    parameters: &mut BTreeMap<String, Var>,
) -> Result<()> {
    let modules: Vec<String> = parameters
        .keys()
        .filter_map(|name| name.strip_suffix(".lora_A.weight"))
        .filter(|module| module.starts_with(prefix))
        .map(ToOwned::to_owned)
        .collect();
    let mut merged = Vec::with_capacity(modules.len());
    for module in &modules {
        let weight = self::merged(module, scale, tensors, parameters)?.ok_or_else(|| not_whole(module))?;
        merged.push((format!("{module}.weight"), weight));
    }
    tensors.extend(merged);
    for name in modules.iter().flat_map(|module| parameter_names(module)) {
        parameters.remove(&name);
    }
    Ok(())
}

/// `W + s B A` of the layer `module`, as a new f32 tensor in host memory; `None` without an adapter.
///
/// # Errors
/// [`Error::Internal`] if the layer has one matrix of an adapter alone, or no weight; [`Error::Tensor`].
pub(super) fn merged(
    module: &str,
    scale: f64,
    tensors: &BTreeMap<String, Tensor>,
    parameters: &BTreeMap<String, Var>,
) -> Result<Option<Tensor>> {
    let [a, b] = parameter_names(module).map(|name| parameters.get(&name).map(Var::as_detached_tensor));
    let host = |tensor: &Tensor| tensor.detach().to_device(&Device::Cpu)?.to_dtype(DType::F32);
    let (a, b) = match (a, b) {
        (None, None) => return Ok(None),
        (Some(a), Some(b)) => (host(&a)?, host(&b)?),
        _ => return Err(not_whole(module)),
    };
    let base = host(tensors.get(&format!("{module}.weight")).ok_or_else(|| not_whole(module))?)?;
    // Our product, because the order of its sums does not depend on the number of threads.
    let change = (ops::linear(&b, &a.t()?.contiguous()?, None)? * scale)?; // [O, I]
    Ok(Some((base + change)?))
}

fn not_whole(module: &str) -> Error {
    Error::Internal(format!("the adapter of {module} is not whole"))
}

/// Writes the adapters to a directory that PEFT loads, with a score that is among the parameters. `base`: the name of the model that they belong to.
///
/// # Errors
/// [`Error::Io`], [`Error::Tensor`].
pub(super) fn save(directory: &Path, options: &LoraOptions, base: Option<&str>, parameters: &BTreeMap<String, Var>) -> Result<()> {
    let path = directory.join(CONFIG_FILE);
    let modules: BTreeSet<&str> = parameters.keys().filter_map(|name| adapted_module(name)).collect();
    let text = format!("{:#}\n", to_json(options, base, &modules, parameters.contains_key(SCORE)));
    std::fs::write(&path, text).map_err(|source| Error::Io { path, source })?;
    let named: Vec<(String, &Tensor)> = parameters.iter().map(|(name, adapter)| (file_name(name), adapter.as_tensor())).collect();
    weights::save_file(&directory.join(ADAPTER_FILE), named.iter().map(|(name, tensor)| (name.as_str(), *tensor)))
}

/// Reads what [`save`] or PEFT wrote, for a decoder of this shape.
///
/// # Errors
/// [`Error::Io`]; [`Error::Damaged`] for broken files, and for adapters that are missing, of other shapes or not asked for by their
/// options; [`Error::NotSupported`] for adapters that compute something else than LoRA's formula; [`Error::InvalidParameter`] for
/// targets that the decoder does not have.
pub(super) fn load(directory: &Path, config: &DecoderConfig, device: &Device) -> Result<(LoraOptions, BTreeMap<String, Tensor>)> {
    let options = from_json(&directory.join(CONFIG_FILE))?;
    options.check(config)?;
    let path = directory.join(ADAPTER_FILE);
    let mut weights = Weights::open_file(&path)?;
    let mut adapters = BTreeMap::new();
    for (module, [output, input]) in options.modules(config)? {
        let shapes = [[options.rank, input], [output, options.rank]];
        for (name, shape) in parameter_names(&module).into_iter().zip(shapes) {
            let adapter = weights.take(&file_name(&name), &shape, device)?;
            adapters.insert(name, adapter);
        }
    }
    match weights.names().next() {
        Some(name) => {
            let reason = format!("tensor \"{}\" belongs to no layer that {CONFIG_FILE} names", shown(name));
            Err(Error::Damaged { path, reason })
        }
        None => Ok((options, adapters)),
    }
}

fn file_name(parameter: &str) -> String {
    format!("{FILE_PREFIX}{parameter}")
}

/// The layer of a weight and its shape, if it is a linear layer of a block.
fn linear_layer(name: &str, shape: &[usize]) -> Option<(String, [usize; 2])> {
    let module = name.strip_suffix(".weight")?;
    let is_linear = TARGETS.iter().any(|target| is_match(module, target));
    is_linear.then(|| Some((module.to_owned(), shape.try_into().ok()?))).flatten()
}

/// PEFT's rule: the whole name, or its last parts.
fn is_match(module: &str, target: &str) -> bool {
    target == ALL_LINEAR || module == target || module.strip_suffix(target).is_some_and(|before| before.ends_with('.'))
}

/// Of whole names, as PEFT reads a text of `target_modules`; `None` for a plain name.
fn pattern(target: &str) -> Result<Option<Regex>> {
    let is_plain = !target.contains(|sign: char| r"*+?()[]{}|^$\".contains(sign));
    (!is_plain).then(|| Regex::new(&format!("^(?:{target})$")).map_err(|_| unknown_target(target))).transpose()
}

fn unknown_target(target: &str) -> Error {
    Error::InvalidParameter {
        name: "lora_targets".into(),
        found: format!("\"{}\"", shown(target)),
        expected: format!(
            "names of linear layers of the policy ({}), regular expressions of whole names (.*self_attn.*), or {ALL_LINEAR}",
            TARGETS.join(", ")
        ),
    }
}

/// `has_score`: the adapters are those of a sequence classifier, whose score PEFT loads whole.
fn to_json(options: &LoraOptions, base: Option<&str>, modules: &BTreeSet<&str>, has_score: bool) -> Value {
    // PEFT takes `all-linear` only as a text of its own, and means the same layers by it.
    let is_all = options.targets.iter().any(|target| target == ALL_LINEAR);
    let has_pattern = options.targets.iter().any(|target| !matches!(pattern(target), Ok(None)));
    let targets = match (is_all, has_pattern) {
        (true, _) => json!(TARGETS),
        // Among several targets PEFT takes only names.
        (false, true) => json!(modules),
        (false, false) => json!(options.targets),
    };
    let (task, whole) = if has_score { ("SEQ_CLS", json!([SCORE_MODULE])) } else { ("CAUSAL_LM", Value::Null) };
    json!({
        "peft_type": "LORA",
        "task_type": task,
        "base_model_name_or_path": base,
        "r": options.rank,
        "lora_alpha": options.alpha,
        "use_rslora": options.is_rank_stabilized,
        "target_modules": targets,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": false,
        "use_dora": false,
        "modules_to_save": whole,
        "init_lora_weights": true,
        "inference_mode": true,
    })
}

fn from_json(path: &Path) -> Result<LoraOptions> {
    let config = read_json(path)?;
    let get = |name: &str| config.get(name).filter(|value| !value.is_null());
    let not_supported = |name: &str, found: &Value| {
        let found = shown(&found.to_string());
        Error::NotSupported(format!("{name} = {found} in {CONFIG_FILE} is not supported; adapters are plain LoRA on linear layers"))
    };
    let other = |name: &str, expected: &str| {
        let found = shown(&get(name).unwrap_or(&Value::Null).to_string());
        Error::Damaged { path: path.to_owned(), reason: format!("\"{name}\" is {found}, expected {expected}") }
    };
    let flag = |name: &str| match get(name) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or_else(|| other(name, "true or false")),
    };
    if get("peft_type").and_then(Value::as_str) != Some("LORA") {
        return Err(not_supported("peft_type", get("peft_type").unwrap_or(&Value::Null)));
    }
    let mut fields = config.as_object().into_iter().flatten();
    if let Some((name, value)) = fields.find(|(name, value)| changes_formula(name) && is_set(value)) {
        return Err(not_supported(name, value));
    }
    // The other starts that have names take something out of the base's weights, which the base of a registry still has.
    if let Some(start) = get("init_lora_weights").filter(|start| start.as_str().is_some_and(|start| start != "gaussian")) {
        return Err(not_supported("init_lora_weights", start));
    }
    let targets = match get("target_modules") {
        Some(Value::String(text)) if text == ALL_LINEAR => vec![text.clone()],
        // A regular expression, even where it looks like a name.
        Some(Value::String(text)) => vec![format!("(?:{text})")],
        Some(Value::Array(names)) => {
            let names: Option<Vec<String>> = names.iter().map(|name| name.as_str().map(ToOwned::to_owned)).collect();
            names.ok_or_else(|| other("target_modules", "a list of names"))?
        }
        _ => return Err(other("target_modules", "a list of names")),
    };
    let rank = get("r").and_then(Value::as_u64).and_then(|rank| usize::try_from(rank).ok());
    Ok(LoraOptions {
        rank: rank.ok_or_else(|| other("r", "a whole number"))?,
        alpha: get("lora_alpha").and_then(Value::as_f64).ok_or_else(|| other("lora_alpha", "a number"))?,
        is_rank_stabilized: flag("use_rslora")?,
        targets,
        seed: 0,
    })
}

/// Variants of LoRA are switched on by `use_<variant>` or by a `<variant>_config`; PEFT gets new ones with every release.
fn changes_formula(field: &str) -> bool {
    let is_variant = field.ends_with("_config") || field.starts_with("use_") && field != "use_rslora";
    is_variant || UNSUPPORTED.contains(&field)
}

/// Whether a field asks for something: `false`, `"none"` and what is empty do not.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(_) => true,
        Value::String(text) => !text.is_empty() && text != "none",
        Value::Array(values) => !values.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}
