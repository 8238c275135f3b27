//! Low-rank adapters: where they stand, how they start, what they change, and their files.

use std::path::Path;

use candle_core::Tensor;
use serde_json::{Value, json};

use super::tiny_config;
use crate::error::Error;
use crate::models::config::DecoderArchitecture;
use crate::models::lora::LoraOptions;
use crate::models::packed::{PackedDecoder, Segment};
use crate::models::random::CounterRng;
use crate::models::{Decoder, DecoderConfig};

const TOKENS: [u32; 9] = [3, 1, 4, 1, 5, 9, 2, 6, 5];
const LENGTHS: [usize; 2] = [5, 4];
const ARCHITECTURES: [DecoderArchitecture; 3] = [DecoderArchitecture::Qwen2, DecoderArchitecture::Qwen3, DecoderArchitecture::Llama];

fn decoder(architecture: DecoderArchitecture) -> Decoder {
    Decoder::random(DecoderConfig { architecture, ..tiny_config() }, 5).unwrap()
}

fn options(targets: &[&str]) -> LoraOptions {
    LoraOptions { rank: 4, alpha: 8.0, targets: targets.iter().map(ToString::to_string).collect(), ..LoraOptions::default() }
}

/// A decoder whose adapters change what it computes.
fn adapted(architecture: DecoderArchitecture, options: &LoraOptions) -> Decoder {
    let mut decoder = decoder(architecture);
    decoder.attach_lora(options).unwrap();
    for (index, parameter) in decoder.parameters().values().enumerate() {
        let rng = CounterRng::new(17).stream(index as u64);
        let values: Vec<f32> = (0..parameter.elem_count() as u64).map(|at| 0.1 * rng.normal(at) as f32).collect();
        parameter.set(&Tensor::from_vec(values, parameter.shape(), parameter.device()).unwrap()).unwrap();
    }
    decoder
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn hidden(decoder: &Decoder) -> Vec<f32> {
    values(&decoder.hidden(&TOKENS, &LENGTHS).unwrap())
}

fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    // `f32::max` passes over what is not a number.
    assert!(one.iter().chain(other).all(|value| value.is_finite()));
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

#[test]
fn a_fresh_adapter_changes_nothing() {
    let mut decoder = decoder(DecoderArchitecture::Qwen2);
    let before = hidden(&decoder);
    let weights: Vec<String> = decoder.tensors().keys().cloned().collect();
    decoder.attach_lora(&options(&["q_proj", "mlp.down_proj"])).unwrap();
    assert_eq!(hidden(&decoder), before);
    assert!(decoder.tensors().keys().eq(&weights), "adapters are no weights of the checkpoint");
    let names: Vec<&str> = decoder.parameters().keys().map(String::as_str).collect();
    let expected = [
        "model.layers.0.mlp.down_proj.lora_A.weight",
        "model.layers.0.mlp.down_proj.lora_B.weight",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.layers.0.self_attn.q_proj.lora_B.weight",
        "model.layers.1.mlp.down_proj.lora_A.weight",
        "model.layers.1.mlp.down_proj.lora_B.weight",
        "model.layers.1.self_attn.q_proj.lora_A.weight",
        "model.layers.1.self_attn.q_proj.lora_B.weight",
    ];
    assert_eq!(names, expected);
    assert_eq!(decoder.parameters()[names[0]].dims(), [4, 96]);
    assert_eq!(decoder.parameters()[names[1]].dims(), [48, 4]);
}

#[test]
fn a_is_uniform_b_is_zero_and_the_seed_decides() {
    let start = |seed| {
        let mut decoder = decoder(DecoderArchitecture::Qwen2);
        decoder.attach_lora(&LoraOptions { seed, ..options(&["all-linear"]) }).unwrap();
        decoder
    };
    let decoder = start(1);
    assert_eq!(decoder.parameters().len(), 2 * 7 * 2);
    for (name, parameter) in decoder.parameters() {
        let values = values(parameter);
        if name.ends_with("lora_B.weight") {
            assert!(values.iter().all(|value| *value == 0.0), "{name}");
            continue;
        }
        // `kaiming_uniform_(a = sqrt(5))` of torch.
        let bound = 1.0 / (parameter.dims()[1] as f32).sqrt();
        let largest = values.iter().map(|value| value.abs()).fold(0.0, f32::max);
        assert!(largest <= bound && largest > 0.9 * bound, "{name}: {largest} of {bound}");
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.2 * bound, "{name}: mean {mean}");
    }
    let name = "model.layers.0.self_attn.q_proj.lora_A.weight";
    assert_eq!(values(&decoder.parameters()[name]), values(&start(1).parameters()[name]));
    assert_ne!(values(&decoder.parameters()[name]), values(&start(2).parameters()[name]));
    assert_ne!(values(&decoder.parameters()[name]), values(&decoder.parameters()[&name.replace("layers.0", "layers.1")]));
}

#[test]
fn the_scale_is_by_the_rank_or_its_root() {
    let plain = LoraOptions { rank: 16, alpha: 32.0, ..LoraOptions::default() };
    assert_eq!(plain.scale(), 2.0);
    assert_eq!(LoraOptions { is_rank_stabilized: true, ..plain }.scale(), 8.0);
}

#[test]
fn options_out_of_range_are_refused_and_leave_the_decoder_as_it_was() {
    let mut decoder = decoder(DecoderArchitecture::Qwen2);
    let num_parameters = decoder.parameters().len();
    let good = options(&["q_proj"]);
    let bad = [
        LoraOptions { rank: 0, ..good.clone() },
        LoraOptions { rank: 49, ..good.clone() },
        LoraOptions { rank: usize::MAX, ..good.clone() },
        LoraOptions { alpha: 0.0, ..good.clone() },
        LoraOptions { alpha: f64::NAN, ..good.clone() },
        options(&[]),
        options(&["q_proj", "z_proj"]),
        options(&["proj"]),
        options(&["lm_head"]),
        options(&["input_layernorm"]),
    ];
    for options in bad {
        let result = decoder.attach_lora(&options);
        assert!(matches!(result, Err(Error::InvalidParameter { .. })), "{options:?}: {result:?}");
        let counted = options.num_parameters(decoder.config());
        assert!(matches!(counted, Err(Error::InvalidParameter { .. })), "{options:?}: {counted:?}");
    }
    assert_eq!(decoder.parameters().len(), num_parameters);
    assert!(decoder.lora().is_none());
}

#[test]
fn only_adapters_get_gradients_and_all_of_them() {
    for architecture in ARCHITECTURES {
        let decoder = adapted(architecture, &options(&["all-linear"]));
        let num_values: usize = decoder.parameters().values().map(|parameter| parameter.elem_count()).sum();
        assert_eq!(options(&["all-linear"]).num_parameters(decoder.config()).unwrap(), num_values as u64);
        let hidden = decoder.hidden(&TOKENS, &LENGTHS).unwrap();
        let direction = Tensor::from_vec((0..hidden.elem_count()).map(|at| (at as f32).sin()).collect(), hidden.shape(), hidden.device());
        let gradients = (hidden * direction.unwrap()).unwrap().sum_all().unwrap().backward().unwrap();
        for (name, weight) in decoder.tensors() {
            assert!(gradients.get(weight).is_none(), "{architecture:?}: {name} is frozen and has a gradient");
        }
        for (name, parameter) in decoder.parameters() {
            let gradient = gradients.get(parameter).unwrap_or_else(|| panic!("{architecture:?}: {name} has no gradient"));
            assert!(values(gradient).iter().any(|value| *value != 0.0), "{architecture:?}: the gradient of {name} is zero");
        }
    }
}

#[test]
fn merged_weights_compute_the_same() {
    for (architecture, is_rank_stabilized) in ARCHITECTURES.into_iter().zip([false, true, false]) {
        let mut merged = adapted(architecture, &LoraOptions { is_rank_stabilized, ..options(&["all-linear"]) });
        let (base, before) = (decoder(architecture), hidden(&merged));
        assert!(largest_difference(&before, &hidden(&base)) > 1e-2, "{architecture:?}: the adapters change something");
        merged.merge_lora().unwrap();
        assert!(largest_difference(&hidden(&merged), &before) < 1e-4, "{architecture:?}");
        assert!(merged.parameters().is_empty() && merged.lora().is_none());
        assert!(merged.tensors().keys().eq(base.tensors().keys()));
        for (name, weight) in merged.tensors() {
            let is_same = values(weight) == values(&base.tensors()[name]);
            assert_eq!(is_same, !name.ends_with("_proj.weight"), "{architecture:?}: {name}");
        }
        let directory = tempfile::tempdir().unwrap();
        merged.save(directory.path()).unwrap();
        let loaded = Decoder::load(directory.path(), merged.device(), false).unwrap();
        assert_eq!(hidden(&loaded), hidden(&merged));
        merged.merge_lora().unwrap();
        assert_eq!(hidden(&loaded), hidden(&merged), "there is nothing more to merge");
    }
}

#[test]
fn adapters_load_as_they_were_saved() {
    let of_names = options(&["q_proj", "down_proj"]);
    for options in [of_names.clone(), LoraOptions { is_rank_stabilized: true, ..options(&["all-linear"]) }] {
        let saved = adapted(DecoderArchitecture::Qwen2, &options);
        let directory = tempfile::tempdir().unwrap();
        saved.save_adapter(directory.path(), None).unwrap();
        let mut loaded = decoder(DecoderArchitecture::Qwen2);
        loaded.load_adapter(directory.path()).unwrap();
        assert!(loaded.parameters().keys().eq(saved.parameters().keys()));
        assert_eq!(hidden(&loaded), hidden(&saved));
        let found = loaded.lora().unwrap();
        assert_eq!((found.rank, found.alpha, found.is_rank_stabilized), (4, 8.0, options.is_rank_stabilized));
        if options == of_names {
            assert_eq!(found.targets, of_names.targets);
        }
    }
    let none = decoder(DecoderArchitecture::Qwen2);
    let result = none.save_adapter(tempfile::tempdir().unwrap().path(), None);
    assert!(matches!(result, Err(Error::NotReady(_))), "{result:?}");
}

/// What loading gives after `change` to the saved options.
fn load_changed(directory: &Path, change: impl FnOnce(&mut Value)) -> Result<(), Error> {
    let path = directory.join("adapter_config.json");
    let saved = std::fs::read_to_string(&path).unwrap();
    let mut config: Value = serde_json::from_str(&saved).unwrap();
    change(&mut config);
    std::fs::write(&path, config.to_string()).unwrap();
    let mut decoder = decoder(DecoderArchitecture::Qwen2);
    let result = decoder.load_adapter(directory);
    assert_eq!(decoder.lora().is_some(), result.is_ok(), "a decoder whose adapters do not load stays as it was");
    std::fs::write(&path, saved).unwrap();
    result
}

#[test]
fn adapters_of_another_kind_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    adapted(DecoderArchitecture::Qwen2, &options(&["q_proj", "down_proj"])).save_adapter(directory.path(), None).unwrap();
    load_changed(directory.path(), |_| {}).unwrap();
    // Fields that PEFT writes and that ask for nothing.
    load_changed(directory.path(), |config| {
        for (name, value) in [("rank_pattern", json!({})), ("modules_to_save", json!(null)), ("loftq_config", json!({})), ("r", json!(4))] {
            config[name] = value;
        }
    })
    .unwrap();
    load_changed(directory.path(), |config| config["target_modules"] = json!(r".*\.(q|down)_proj")).unwrap();
    let unsupported = [
        ("peft_type", json!("IA3")),
        ("bias", json!("all")),
        ("lora_bias", json!(true)),
        ("use_dora", json!(true)),
        ("kasa_config", json!({"beta": 0.01})),
        ("fan_in_fan_out", json!(true)),
        ("modules_to_save", json!(["lm_head"])),
        ("rank_pattern", json!({"q_proj": 8})),
        ("layers_to_transform", json!(0)),
        ("init_lora_weights", json!("pissa")),
    ];
    for (name, value) in unsupported {
        let result = load_changed(directory.path(), |config| config[name] = value.clone());
        assert!(matches!(result, Err(Error::NotSupported(_))), "{name} = {value}: {result:?}");
    }
}

#[test]
fn layers_are_named_by_a_pattern() {
    let directory = tempfile::tempdir().unwrap();
    adapted(DecoderArchitecture::Qwen2, &options(&[r".*\.1\.self_attn\.[qk]_proj"])).save_adapter(directory.path(), None).unwrap();
    let config = std::fs::read_to_string(directory.path().join("adapter_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["target_modules"], json!(["model.layers.1.self_attn.k_proj", "model.layers.1.self_attn.q_proj"]));
    load_changed(directory.path(), |_| {}).unwrap();
    for target in ["q_pro[", ".*nothing", "[qk]_proj"] {
        let error = options(&[target]).num_parameters(&tiny_config()).unwrap_err().to_string();
        assert!(error.contains(target) && error.contains("regular expressions"), "{error}");
    }
}

#[test]
fn damaged_adapters_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    adapted(DecoderArchitecture::Qwen2, &options(&["q_proj", "down_proj"])).save_adapter(directory.path(), None).unwrap();
    let damaged = [
        ("r", json!(5)),
        ("r", json!("four")),
        ("lora_alpha", json!(null)),
        ("use_rslora", json!(3)),
        ("target_modules", json!(null)),
        ("target_modules", json!(["q_proj", "down_proj", 3])),
        // A weight in the file that has no place, and a place that has no weight in the file.
        ("target_modules", json!(["q_proj"])),
        ("target_modules", json!(["q_proj", "down_proj", "up_proj"])),
        ("target_modules", json!(".*_proj")),
    ];
    for (name, value) in damaged {
        let result = load_changed(directory.path(), |config| config[name] = value.clone());
        assert!(matches!(result, Err(Error::Damaged { .. })), "{name} = {value}: {result:?}");
    }
    let result = load_changed(directory.path(), |config| config["r"] = json!(0));
    assert!(matches!(result, Err(Error::InvalidParameter { .. })), "{result:?}");
    let path = directory.path().join("adapter_model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let result = load_changed(directory.path(), |_| {});
    assert!(matches!(result, Err(Error::Damaged { .. })), "{result:?}");
    std::fs::remove_file(&path).unwrap();
    let result = load_changed(directory.path(), |_| {});
    assert!(matches!(result, Err(Error::Io { .. })), "{result:?}");
}

/// Logits after [`TOKENS`], as generation computes them.
fn generated(decoder: &Decoder) -> Vec<f32> {
    let packed = PackedDecoder::new(decoder).unwrap();
    let mut cache = packed.new_cache();
    packed.forward(&mut [Segment { cache: &mut cache, tokens: &TOKENS }])
}

/// An adapter that was left out would generate as the base does, and the policy would never see what it has learned.
#[test]
fn what_generates_has_the_adapters_in_it() {
    for architecture in ARCHITECTURES {
        let mut decoder = adapted(architecture, &options(&["all-linear"]));
        let base = decoder.without_adapters().unwrap();
        let (with_adapters, without) = (generated(&decoder), generated(&base));
        assert!(largest_difference(&with_adapters, &without) > 1e-3);
        assert_eq!(hidden(&base), hidden(&self::decoder(architecture)), "they share the memory of what does not learn");
        assert!(base.parameters().is_empty());
        decoder.merge_lora().unwrap();
        assert_eq!(generated(&decoder), with_adapters, "bit for bit what the merged weights compute");
        assert!(decoder.without_adapters().is_err());
    }
}
