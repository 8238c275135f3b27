//! Models on disk: versions, sources, and everything that can be wrong with a directory.

use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::tiny_config;
use crate::error::Error;
use crate::models::Device;
use crate::models::config::DecoderConfig;
use crate::models::decoder::Decoder;
use crate::models::registry::{CreateModel, Registry, Task};
use crate::models::tokenizer::Tokenizer;
use crate::value::Value;

const TEXT: &str = "Question: who directed film 3?\nThought: So the answer is <answer>Ada</answer>";

fn registry() -> (TempDir, Registry) {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::open(&directory.path().join("models")).unwrap();
    (directory, registry)
}

fn random(name: &str) -> CreateModel {
    let sizes =
        [("hidden_size", 32), ("num_hidden_layers", 1), ("vocab_size", 280), ("num_attention_heads", 2), ("num_key_value_heads", 1)];
    CreateModel {
        name: name.to_owned(),
        source: "random://qwen2".to_owned(),
        task: None,
        device: Device::Auto,
        options: sizes.into_iter().map(|(name, size)| (name.to_owned(), Value::Int(size))).collect(),
        texts: vec![TEXT.repeat(5)],
    }
}

fn from_directory(directory: &Path) -> CreateModel {
    let source = directory.display().to_string();
    CreateModel { name: "copied".to_owned(), source, task: None, device: Device::Auto, options: Vec::new(), texts: Vec::new() }
}

fn bert() -> PathBuf {
    crate::fixtures::fixture("models/bert")
}

/// A copy of a model directory, to be damaged.
fn copy_of(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

#[test]
fn a_model_whose_statement_is_gone_is_not_made() {
    let (_home, registry) = registry();
    assert!(matches!(registry.create_unless(random("policy"), None, &|| true), Err(Error::Cancelled(_))));
    assert!(registry.list().unwrap().is_empty());
    registry.create_unless(random("policy"), None, &|| false).unwrap();
}

#[test]
fn versions_count_up_and_stay() {
    let (home, registry) = registry();
    let first = registry.create(random("policy")).unwrap();
    assert_eq!((first.reference().as_str(), first.task, first.architecture.as_str()), ("policy@1", Task::Generate, "Qwen2ForCausalLM"));
    let decoder = Decoder::load(&first.directory, &candle_core::Device::Cpu, false).unwrap();
    let weights: usize = decoder.tensors().values().map(|tensor| tensor.elem_count()).sum();
    assert_eq!(first.parameter_count, weights as u64);

    for version in [2, 3] {
        let staged = registry.stage().unwrap();
        decoder.save(staged.path()).unwrap();
        Tokenizer::copy_files(&first.directory, staged.path()).unwrap();
        let info = registry.publish("policy", staged, &first, json!({ "steps": version })).unwrap();
        assert_eq!((info.version, info.source.as_str()), (version, "train://policy@1"));
    }
    assert_eq!(registry.get("policy").unwrap().version, 3);
    assert_eq!(registry.get("policy@2").unwrap().lineage, json!({ "steps": 2 }));
    let again = Registry::open(&home.path().join("models")).unwrap();
    assert_eq!(again.list().unwrap(), registry.list().unwrap());
    assert_eq!(again.list().unwrap().iter().map(|info| info.reference()).collect::<Vec<_>>(), ["policy@1", "policy@2", "policy@3"]);

    again.drop_model("policy").unwrap();
    assert!(again.list().unwrap().is_empty());
    let mut left = std::fs::read_dir(home.path().join("models")).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    left.sort();
    assert_eq!(
        left,
        [".known-versions-policy", ".last-version-policy"],
        "the last version's number and what its versions were are left behind"
    );
    assert_eq!(again.create(random("policy")).unwrap().reference(), "policy@4", "a version never names two models");
}

#[test]
fn unknown_references_name_the_known_ones() {
    let (_home, registry) = registry();
    registry.create(random("policy")).unwrap();
    for (reference, expected) in [("polcy", "policy"), ("policy@7", "policy@1"), ("../policy", "policy"), ("policy@x", "")] {
        match registry.get(reference) {
            Err(Error::UnknownObject { known, .. }) => assert_eq!(known.join(","), expected, "{reference}"),
            other => panic!("{reference} gave {other:?}"),
        }
    }
    assert!(matches!(registry.drop_model("other"), Err(Error::UnknownObject { .. })));
}

#[test]
fn names_and_options_are_checked() {
    let (home, registry) = registry();
    registry.create(random("policy")).unwrap();
    assert!(matches!(registry.create(random("policy")), Err(Error::DuplicateObject { .. })));
    for name in ["", "Upper", "a/b", "..", "a@1", "1st"] {
        assert!(matches!(registry.create(random(name)), Err(Error::InvalidParameter { .. })), "{name:?}");
    }
    let with = |name: &str, value: Value| CreateModel { options: vec![(name.to_owned(), value)], ..random("other") };
    assert!(matches!(registry.create(with("hiden_size", Value::Int(8))), Err(Error::UnknownOption { .. })));
    assert!(matches!(registry.create(with("hidden_size", Value::Text("big".into()))), Err(Error::WrongType { .. })));
    for (name, value) in
        [("hidden_size", 0), ("hidden_size", 30), ("num_key_value_heads", 3), ("vocab_size", 100), ("num_hidden_layers", -1)]
    {
        assert!(matches!(registry.create(with(name, Value::Int(value))), Err(Error::InvalidParameter { .. })), "{name} = {value}");
    }
    assert!(matches!(registry.create(CreateModel { texts: Vec::new(), ..random("other") }), Err(Error::NotReady(_))));
    assert!(matches!(registry.create(CreateModel { task: Some(Task::Embed), ..random("other") }), Err(Error::InvalidParameter { .. })));
    for (source, is_expected) in [
        ("hf://Qwen/Qwen2.5-0.5B", (|error| matches!(error, Error::NotSupported(_))) as fn(&Error) -> bool),
        ("openai://gpt 4o", |error| matches!(error, Error::InvalidParameter { .. })),
        ("builtin://nothing", |error| matches!(error, Error::UnknownObject { .. })),
        ("random://llama", |error| matches!(error, Error::UnknownObject { .. })),
        ("/no/such/directory", |error| matches!(error, Error::Io { .. })),
    ] {
        let error = registry.create(CreateModel { source: source.to_owned(), options: Vec::new(), ..random("other") }).unwrap_err();
        assert!(is_expected(&error), "{source} gave {error:?}");
    }
    let left: Vec<_> = std::fs::read_dir(home.path().join("models")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["policy"], "a refused model leaves nothing behind");
}

#[test]
fn a_directory_is_copied_and_a_relative_one_found() {
    let (home, registry) = registry();
    let registry = registry.with_source_root(bert().parent().unwrap().to_owned());
    let info =
        registry.create(CreateModel { source: "bert".to_owned(), task: Some(Task::Embed), ..from_directory(Path::new("")) }).unwrap();
    assert_eq!((info.task, info.architecture.as_str()), (Task::Embed, "BertModel"));
    assert!(info.directory.starts_with(home.path()) && info.directory.join("model.safetensors").is_file());
    assert!(!info.directory.join("goldens.json").exists(), "only the files of a model are copied");
}

#[test]
fn what_ends_a_text_is_in_two_files() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("config.json"), tiny_config().to_json().to_string()).unwrap();
    let ends = || DecoderConfig::load(directory.path()).map(|config| config.eos_token_ids);
    assert_eq!(ends().unwrap(), [0]);
    let path = directory.path().join("generation_config.json");
    std::fs::write(&path, r#"{"eos_token_id": [7, 0], "temperature": 0.6}"#).unwrap();
    assert_eq!(ends().unwrap(), [0, 7]);
    std::fs::write(&path, r#"{"eos_token_id": "end"}"#).unwrap();
    assert!(matches!(ends(), Err(Error::Damaged { .. })));
}

#[test]
fn a_damaged_model_is_refused_when_it_is_created() {
    let (_home, registry) = registry();
    type Damage = (&'static str, fn(&Path));
    let damage: [Damage; 9] = [
        ("truncated weights", |at| truncate(&at.join("model.safetensors"), 0.7)),
        ("weights cut inside the header", |at| truncate(&at.join("model.safetensors"), 0.001)),
        ("empty weights", |at| std::fs::write(at.join("model.safetensors"), "").unwrap()),
        ("weights that are text", |at| {
            std::fs::write(at.join("model.safetensors"), "version https://git-lfs.github.com/spec/v1\n").unwrap()
        }),
        ("a tokenizer that is not JSON", |at| std::fs::write(at.join("tokenizer.json"), "{").unwrap()),
        ("a configuration that is not JSON", |at| std::fs::write(at.join("config.json"), "hidden_size: 64").unwrap()),
        ("another width", |at| replace(&at.join("config.json"), "\"hidden_size\": 64", "\"hidden_size\": 128")),
        ("no width", |at| replace(&at.join("config.json"), "\"hidden_size\": 64,", "")),
        ("absurdly many layers", |at| replace(&at.join("config.json"), "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 99999999999")),
    ];
    for (what, damage) in damage {
        let copy = copy_of(&bert());
        damage(copy.path());
        let result = registry.create(from_directory(copy.path()));
        assert!(matches!(result, Err(Error::Damaged { .. })), "{what} gave {result:?}");
    }
    for missing in ["model.safetensors", "tokenizer.json", "config.json"] {
        let copy = copy_of(&bert());
        std::fs::remove_file(copy.path().join(missing)).unwrap();
        let result = registry.create(from_directory(copy.path()));
        assert!(matches!(result, Err(Error::Io { .. })), "without {missing}: {result:?}");
    }
    let copy = copy_of(&bert());
    replace(&copy.path().join("config.json"), "\"bert\"", "\"t5\"");
    assert!(matches!(registry.create(from_directory(copy.path())), Err(Error::NotSupported(_))));
    assert!(registry.list().unwrap().is_empty());
}

#[test]
fn what_a_crash_left_is_removed_at_open() {
    let (home, registry) = registry();
    let staged = registry.stage().unwrap();
    Decoder::random(tiny_config(), 1).unwrap().save(staged.path()).unwrap();
    // As a process that was killed: the directory stays.
    std::mem::forget(staged);
    let root = home.path().join("models");
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1);
    assert!(registry.list().unwrap().is_empty());
    Registry::open(&root).unwrap();
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
}

fn truncate(path: &Path, share: f64) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..(bytes.len() as f64 * share) as usize]).unwrap();
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    std::fs::write(path, text.replace(from, to)).unwrap();
}
