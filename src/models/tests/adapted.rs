//! Models from adapters that PEFT wrote: `tests/fixtures/make_lora_goldens.py`.

use std::path::Path;

use candle_core::Device;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::fixtures::fixture;
use crate::models::Decoder;
use crate::models::adapted::{AdapterBase, is_adapter};
use crate::models::registry::{CreateModel, ModelFiles, ModelInfo, Registry, Task};

/// The model of the fixtures, which have no tokenizer: any of at most its 64 ids will do.
const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"unknown": 0, "word": 1}, "unk_token": "unknown"}}"#;

fn create(name: &str, source: &Path) -> CreateModel {
    let (task, device, options, texts) = (None, crate::models::Device::Auto, vec![], vec![]);
    CreateModel { name: name.to_owned(), source: source.display().to_string(), task, device, options, texts }
}

/// A registry with the fixtures' model under this name.
fn registry(home: &TempDir, name: &str) -> Registry {
    let directory = home.path().join("source");
    std::fs::create_dir_all(&directory).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("training/policy").join(file), directory.join(file)).unwrap();
    }
    std::fs::write(directory.join("tokenizer.json"), TOKENIZER).unwrap();
    let registry = Registry::open(&home.path().join("models")).unwrap();
    registry.create(create(name, &directory)).unwrap();
    registry
}

fn adapted(registry: &Registry, name: &str, directory: &Path, base: Option<&str>) -> Result<ModelInfo> {
    let open = |path: &Path| std::fs::File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source });
    let files = ModelFiles { directory, open: &open };
    let base = AdapterBase { name: base, may_use: &|_| Ok(()) };
    registry.create_adapted(create(name, directory), files, base, &|| false)
}

/// A copy of the adapters with other options.
fn changed(change: impl FnOnce(&mut Value)) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(fixture("training/lora/adapter_config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    change(&mut config);
    std::fs::write(copy.path().join("adapter_config.json"), config.to_string()).unwrap();
    std::fs::copy(fixture("training/lora/adapter_model.safetensors"), copy.path().join("adapter_model.safetensors")).unwrap();
    copy
}

fn logits(directory: &Path, tokens: &[u32]) -> Vec<f64> {
    let decoder = Decoder::load(directory, &Device::Cpu, false).unwrap();
    let hidden = decoder.hidden(tokens, &[tokens.len()]).unwrap();
    let logits = hidden.matmul(&decoder.head_weight().t().unwrap()).unwrap();
    logits.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f64::from).collect()
}

#[test]
fn a_model_of_adapters_has_the_logits_of_peft() {
    let home = tempfile::tempdir().unwrap();
    let registry = registry(&home, "policy");
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(fixture("training/lora.json")).unwrap()).unwrap();
    for name in ["lora", "lora_rslora"] {
        let source = fixture("training").join(name);
        assert!(is_adapter(&source));
        // The fixtures' configuration names the base: "policy".
        let info = adapted(&registry, name, &source, None).unwrap();
        assert_eq!((info.version, info.task, info.lineage["base"].as_str()), (1, Task::Generate, Some("policy@1")));
        let tokens: Vec<u32> = serde_json::from_value(golden[name]["tokens"].clone()).unwrap();
        let expected: Vec<Vec<f64>> = serde_json::from_value(golden[name]["merged_logits"].clone()).unwrap();
        let found = logits(&info.directory, &tokens);
        assert_eq!(found.len(), expected.concat().len());
        assert!(found.iter().zip(expected.concat()).all(|(found, expected)| (found - expected).abs() <= 1e-4), "{name}");
        // What was added stays beside it, where transformers does not take it for the model.
        let kept = info.adapter_directory().unwrap();
        let mut base = Decoder::load(&registry.get("policy").unwrap().directory, &Device::Cpu, false).unwrap();
        base.load_adapter(&kept).unwrap();
        assert!(!is_adapter(&info.directory));
        let again = registry.get(name).unwrap();
        assert_eq!(again, info);
    }
    assert_eq!(registry.get("policy").unwrap().adapter_directory(), None);
    let named = adapted(&registry, "named", &fixture("training/lora"), Some("policy@1")).unwrap();
    assert_eq!(
        std::fs::read(named.directory.join("model.safetensors")).unwrap(),
        std::fs::read(registry.get("lora").unwrap().directory.join("model.safetensors")).unwrap()
    );
}

#[test]
fn the_base_is_named_or_known_by_where_it_came_from() {
    let home = tempfile::tempdir().unwrap();
    let registry = registry(&home, "other");
    let source = home.path().join("source").display().to_string();
    let refused = |result: Result<ModelInfo>| match result {
        Err(Error::InvalidParameter { name, found, .. }) => (name == "base").then_some(found).unwrap(),
        other => panic!("{other:?}"),
    };
    let of = |base: Value| changed(|config| config["base_model_name_or_path"] = base);
    assert!(refused(adapted(&registry, "m", of(json!("policy")).path(), None)).contains("\"policy\""));
    assert!(refused(adapted(&registry, "m", of(json!("../other")).path(), None)).contains("../other"));
    for none in [json!(null), json!(""), json!(3)] {
        assert!(refused(adapted(&registry, "m", of(none).path(), None)).contains("names none"));
    }
    let made = adapted(&registry, "made", of(json!(source)).path(), None).unwrap();
    assert_eq!(made.lineage["base"], "other@1");
    registry.create(create("third", &home.path().join("source"))).unwrap();
    let both = refused(adapted(&registry, "m", of(json!(source)).path(), None));
    assert!(both.contains("other@1, third@1"), "{both}");
    assert!(matches!(adapted(&registry, "m", of(json!(null)).path(), Some("missing")), Err(Error::UnknownObject { .. })));
}

#[test]
fn adapters_that_cannot_be_added_leave_no_model() {
    let home = tempfile::tempdir().unwrap();
    let registry = registry(&home, "policy");
    let of = |name: &str, value: Value| changed(|config| config[name] = value);
    for (name, value) in [("peft_type", json!("IA3")), ("use_dora", json!(true)), ("modules_to_save", json!(["lm_head"]))] {
        let result = adapted(&registry, "m", of(name, value).path(), None);
        assert!(matches!(&result, Err(Error::NotSupported(message)) if message.starts_with(name)), "{name}: {result:?}");
    }
    let other_rank = of("r", json!(5));
    let result = adapted(&registry, "m", other_rank.path(), None);
    assert!(
        matches!(&result, Err(Error::Damaged { path, .. }) if path.starts_with(other_rank.path())),
        "it names the user's file: {result:?}"
    );
    let other_layers = adapted(&registry, "m", of("target_modules", json!(["z_proj"])).path(), None);
    assert!(matches!(other_layers, Err(Error::InvalidParameter { .. })), "{other_layers:?}");

    let pickle = of("r", json!(4));
    std::fs::rename(pickle.path().join("adapter_model.safetensors"), pickle.path().join("adapter_model.bin")).unwrap();
    let result = adapted(&registry, "m", pickle.path(), None);
    assert!(matches!(&result, Err(Error::NotSupported(message)) if message.contains("hold code")), "{result:?}");
    std::fs::remove_file(pickle.path().join("adapter_model.bin")).unwrap();
    assert!(matches!(adapted(&registry, "m", pickle.path(), None), Err(Error::Io { .. })));

    let with_option = CreateModel {
        options: vec![("pooling".to_owned(), crate::value::Value::Text("mean".to_owned()))],
        ..create("m", &fixture("training/lora"))
    };
    let open = |path: &Path| std::fs::File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source });
    let directory = fixture("training/lora");
    let files = ModelFiles { directory: &directory, open: &open };
    let base = AdapterBase { name: Some("policy"), may_use: &|_| Ok(()) };
    assert!(matches!(registry.create_adapted(with_option, files, base, &|| false), Err(Error::UnknownOption { .. })));
    let refused = AdapterBase { may_use: &|info| Err(Error::InsufficientPrivilege(info.reference())), ..base };
    let denied = registry.create_adapted(create("m", &directory), files, refused, &|| false);
    assert!(matches!(denied, Err(Error::InsufficientPrivilege(_))));
    assert!(matches!(registry.create_adapted(create("m", &directory), files, base, &|| true), Err(Error::Cancelled(_))));

    let models: Vec<String> = registry.list().unwrap().iter().map(ModelInfo::reference).collect();
    assert_eq!(models, ["policy@1"]);
    assert_eq!(std::fs::read_dir(home.path().join("models")).unwrap().count(), 1, "nothing half made is left");
}
