//! Model files that were made to do harm: each is refused before anything of the sizes that it claims is allocated.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::fixtures::fixture;
use crate::models::DecoderConfig;
use crate::models::chat_template::{CHAT_TEMPLATE_FILE, ChatTemplate};
use crate::models::checkpoint::{Checkpoint, inspect};

/// The small encoder of the fixtures, with one file changed.
fn with_file(name: &str, bytes: &[u8]) -> Result<Checkpoint> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for file in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(fixture("models/bert").join(file), directory.path().join(file)).expect("a fixture is copied");
    }
    fs::write(directory.path().join(name), bytes).expect("a temporary file is writable");
    inspect(directory.path())
}

/// The weights with another header; it keeps its data.
fn with_header(change: impl FnOnce(&mut Value)) -> Result<Checkpoint> {
    let whole = fs::read(fixture("models/bert/model.safetensors")).expect("a fixture is readable");
    let length = u64::from_le_bytes(whole[..8].try_into().expect("eight bytes")) as usize;
    let mut header: Value = serde_json::from_slice(&whole[8..8 + length]).expect("a header");
    change(&mut header);
    let header = header.to_string();
    let bytes = [(header.len() as u64).to_le_bytes().as_slice(), header.as_bytes(), &whole[8 + length..]].concat();
    with_file("model.safetensors", &bytes)
}

fn with_config(name: &str, value: Value) -> Result<Checkpoint> {
    let text = fs::read(fixture("models/bert/config.json")).expect("a fixture is readable");
    let mut config: Value = serde_json::from_slice(&text).expect("a configuration");
    config[name] = value;
    with_file("config.json", config.to_string().as_bytes())
}

fn assert_damaged(what: &str, result: Result<Checkpoint>) {
    assert!(matches!(result, Err(Error::Damaged { .. })), "{what}: {result:?}");
}

/// A tensor that every encoder has.
const WORDS: &str = "embeddings.word_embeddings.weight";

#[test]
fn the_fixture_itself_passes() {
    with_header(|_| {}).expect("it is whole");
    with_config("vocab_size", json!(126)).expect("it is its own");
}

#[test]
fn headers_that_lie_about_their_length() {
    for length in [0_u64, 1, 7, 1 << 20, 1 << 40, u64::MAX, u64::MAX - 7] {
        let bytes = [length.to_le_bytes().as_slice(), b"{}"].concat();
        assert_damaged(&format!("a header of {length}"), with_file("model.safetensors", &bytes));
    }
    for bytes in [b"".as_slice(), b"\x01", b"\0\0\0\0\0\0\0"] {
        assert_damaged("a short file", with_file("model.safetensors", bytes));
    }
}

#[test]
fn a_long_header_is_not_read() {
    // Of a sparse file, which takes no room.
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::copy(fixture("models/bert/config.json"), directory.path().join("config.json")).expect("a fixture is copied");
    let path = directory.path().join("model.safetensors");
    fs::write(&path, (1_u64 << 33).to_le_bytes()).expect("a temporary file is writable");
    let file = fs::OpenOptions::new().write(true).open(&path).expect("it is there");
    file.set_len((1 << 33) + 8).expect("a sparse file");
    assert_damaged("a header of 8 GiB", inspect(directory.path()));
}

#[test]
fn tensors_that_lie_about_their_shape() {
    let name = |header: &Value| {
        let tensors = header.as_object().expect("an object");
        tensors.keys().find(|name| name.ends_with(WORDS)).expect("an encoder has words").clone()
    };
    assert_damaged(
        "a product that overflows",
        with_header(|header| {
            let name = name(header);
            header[name]["shape"] = json!([1_u64 << 40, 1_u64 << 40]);
        }),
    );
    assert_damaged(
        "a product that wraps to the right size",
        with_header(|header| {
            let name = name(header);
            header[name]["shape"] = json!([1_u64 << 32, 1_u64 << 32, 0]);
        }),
    );
    assert_damaged(
        "half of the values, of twice the width",
        with_header(|header| {
            let name = name(header);
            header[name]["dtype"] = json!("F64");
        }),
    );
    assert_damaged(
        "bytes of another tensor",
        with_header(|header| {
            let name = name(header);
            header[name]["data_offsets"] = json!([0, u64::MAX]);
        }),
    );
    assert_damaged(
        "an end before the start",
        with_header(|header| {
            let name = name(header);
            header[name]["data_offsets"] = json!([64, 0]);
        }),
    );
    assert_damaged(
        "numbers that are no weights",
        with_header(|header| {
            let name = name(header);
            header[name]["dtype"] = json!("I16");
        }),
    );
    assert_damaged(
        "a type that does not exist",
        with_header(|header| {
            let name = name(header);
            header[name]["dtype"] = json!("F7");
        }),
    );
    assert_damaged("no weights at all", with_header(|header| *header = json!({})));
}

#[test]
fn configurations_that_ask_for_too_much() {
    for (name, value) in [
        ("vocab_size", json!(1_u64 << 60)),
        ("vocab_size", json!(1_000_000)),
        ("vocab_size", json!(-1)),
        ("vocab_size", json!(1.5)),
        ("hidden_size", json!(u64::MAX)),
        ("hidden_size", json!(0)),
        ("num_attention_heads", json!(0)),
        ("num_attention_heads", json!(63)),
        ("num_hidden_layers", json!(1_000_000_000)),
        ("num_hidden_layers", json!(9_999)),
        ("max_position_embeddings", json!(1 << 24)),
        ("intermediate_size", json!("160")),
    ] {
        assert_damaged(&format!("{name} = {value}"), with_config(name, value));
    }
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    assert_damaged("a deep list", with_file("config.json", deep.as_bytes()));
    assert_damaged("no text", with_file("config.json", b"\xff\xfe{}"));
}

#[test]
fn tokenizers_that_are_traps() {
    let text = fs::read(fixture("models/bert/tokenizer.json")).expect("a fixture is readable");
    let tokenizer: Value = serde_json::from_slice(&text).expect("a tokenizer");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut tokenizer = tokenizer.clone();
        change(&mut tokenizer);
        with_file("tokenizer.json", tokenizer.to_string().as_bytes())
    };
    with(&|_| {}).expect("it is whole");
    assert_damaged(
        "an id outside of the table",
        with(&|tokenizer| {
            tokenizer["model"]["vocab"]["far"] = json!(4_000_000_000_u32);
        }),
    );
    assert_damaged(
        "more ids than the model has",
        with(&|tokenizer| {
            for id in 126..400 {
                tokenizer["model"]["vocab"][format!("more{id}")] = json!(id);
            }
        }),
    );
    assert_damaged(
        "rules that multiply",
        with(&|tokenizer| {
            let rule = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aaaaaaaaaa" });
            tokenizer["normalizer"] = json!({ "type": "Sequence", "normalizers": vec![rule; 20] });
        }),
    );
    // What it asks for is not done: padding to a length of its own, cutting to another.
    with(&|tokenizer| {
        tokenizer["padding"] = json!({ "strategy": { "Fixed": 1_000_000_000_000_u64 }, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]" });
    })
    .expect("padding is switched off");
}

/// A decoder's configuration with another scaling of its rotary positions.
fn with_scaling(kind: &str) -> Result<()> {
    let text = fs::read(fixture("models/qwen2_tied/config.json")).expect("a fixture is readable");
    let mut config: Value = serde_json::from_slice(&text).expect("a configuration");
    config["rope_parameters"] = json!({ "rope_type": kind });
    DecoderConfig::from_json(&config, Path::new("config.json")).map(drop)
}

fn with_template(template: &str) -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join(CHAT_TEMPLATE_FILE), template).expect("a temporary file is writable");
    ChatTemplate::load(directory.path()).map(drop)
}

#[test]
fn long_texts_are_quoted_short() {
    let long = "n".repeat(1 << 18);
    let index = json!({ "weight_map": { WORDS: format!("{long}/x") } }).to_string();
    let results = [
        ("a type", with_config("model_type", json!(long)).map(drop)),
        ("an activation", with_config("hidden_act", json!(long)).map(drop)),
        ("a size", with_config("vocab_size", json!([long])).map(drop)),
        ("a number", with_config("layer_norm_eps", json!(long)).map(drop)),
        ("a scaling", with_scaling(&long)),
        ("a template", with_template(&format!("{{% {long} %}}"))),
        ("a shard", with_file("model.safetensors.index.json", index.as_bytes()).map(drop)),
        ("a module", with_file("modules.json", json!([{ "type": long }]).to_string().as_bytes()).map(drop)),
        ("a tokenizer", with_file("tokenizer.json", json!(long).to_string().as_bytes()).map(drop)),
        (
            "a shape",
            with_header(|header| {
                let tensors = header.as_object_mut().expect("an object");
                let (_, words) = tensors.iter_mut().find(|(name, _)| name.ends_with(WORDS)).expect("an encoder has words");
                words["shape"].as_array_mut().expect("a list").resize(1 << 18, json!(1));
            })
            .map(drop),
        ),
    ];
    for (what, result) in results {
        let message = result.expect_err(what).to_string();
        assert!(message.contains("...") && message.len() < 1000, "{what}: {} bytes, {message:.500}", message.len());
    }
    let checkpoint = with_config("architectures", json!([long])).expect("a name like another");
    assert_eq!(checkpoint.architecture.len(), 303);
}

#[test]
fn shards_stay_in_their_directory() {
    for shard in ["../model.safetensors", "/etc/passwd", "sub/model.safetensors", ".", "..", ""] {
        let index = json!({ "weight_map": { WORDS: shard } }).to_string();
        assert_damaged(&format!("a shard '{shard}'"), with_file("model.safetensors.index.json", index.as_bytes()));
    }
    let other = with_file("model.safetensors.index.json", json!({ "weight_map": { WORDS: "pytorch_model.bin" } }).to_string().as_bytes());
    assert!(other.is_err(), "a pickle is no weights: {other:?}");
}
