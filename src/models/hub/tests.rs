//! Sources, options, lists of files and what is chosen of them; servers that fail are in `tests/it/hub.rs`.

use serde_json::{Value as Json, json};

use super::choice::{Weights, beside, shards, weights};
use super::digest::ContentDigest;
use super::failure::Setback;
use super::listing::Listing;
use super::names::{is_name, is_path};
use super::options::HubOptions;
use crate::error::Error;
use crate::models::remote::failure::FaultKind;
use crate::value::Value;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const BLOB: &str = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";

fn options(options: &[(&str, Value)]) -> Result<HubOptions, Error> {
    let options: Vec<(String, Value)> = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    HubOptions::read("hf://org/model", &options)
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn listing(names: &[&str]) -> Listing {
    let siblings: Vec<Json> = names.iter().map(|name| json!({ "rfilename": name, "size": 1 })).collect();
    Listing::read(json!({ "sha": COMMIT, "siblings": siblings }).to_string().as_bytes()).expect("a list of files")
}

fn names(files: &[super::listing::RepositoryFile]) -> Vec<&str> {
    files.iter().map(|file| file.name.as_str()).collect()
}

#[test]
fn sources_are_repositories_with_a_revision() {
    for (source, resolved) in [
        ("hf://org/model", "hf://org/model@main"),
        ("hf://Qwen/Qwen2.5-0.5B-Instruct@v1.0", "hf://Qwen/Qwen2.5-0.5B-Instruct@v1.0"),
        ("hf://org/model@refs/pr/3", "hf://org/model@refs/pr/3"),
    ] {
        assert_eq!(HubOptions::read(source, &[]).expect(source).source(), resolved);
    }
    for source in [
        "hf://",
        "hf://model",
        "hf://org/",
        "hf:///model",
        "hf://org/model/more",
        "hf://org/model@",
        "hf://org/../../etc",
        "hf://../model",
        "hf://org/model@../../x",
        "hf://org/model@a//b",
        "hf://org/mo del",
        "hf://org/model?x=1",
        "hf://user:pass@host/model",
    ] {
        let error = HubOptions::read(source, &[]).expect_err(source);
        assert!(matches!(error, Error::InvalidParameter { .. }), "{source}: {error}");
    }
}

#[test]
fn options_have_ranges_and_urls_one_form() {
    let read = options(&[("endpoint", text("https://mirror.example/hub/")), ("file", text("q4/model.gguf")), ("retries", Value::Int(0))]);
    let read = read.expect("these are options");
    assert_eq!((read.endpoint.as_deref(), read.file.as_deref()), (Some("https://mirror.example/hub"), Some("q4/model.gguf")));
    for (name, value) in [
        ("endpoint", text("ftp://mirror.example")),
        ("endpoint", text("https://user:planted@mirror.example")),
        ("endpoint", text("https://mirror.example/?token=planted")),
        ("endpoint", text("mirror.example/planted")),
        ("file", text("pytorch_model.bin")),
        ("file", text("../model.gguf")),
        ("file", text("/model.gguf")),
        ("retries", Value::Int(-1)),
        ("timeout", Value::Int(0)),
    ] {
        let error = options(&[(name, value.clone())]).expect_err(name);
        assert!(matches!(error, Error::InvalidParameter { .. }), "{name} = {value}: {error}");
        assert!(!error.to_string().contains("planted"), "{error}");
    }
    assert!(matches!(options(&[("revison", text("main"))]), Err(Error::UnknownOption { .. })));
    assert!(matches!(options(&[("retries", text("many"))]), Err(Error::WrongType { .. })));
}

#[test]
fn names_stay_in_their_folder() {
    for name in ["config.json", "1_Pooling/config.json", "model-00001-of-00002.safetensors", "a/b/c+d_e"] {
        assert!(is_path(name), "{name}");
    }
    let long = "a".repeat(201);
    for name in [
        "", ".", "..", "../a", "a/..", "a/../b", "/a", "a/", "a//b", "a\\b", ".hidden", "a/.git", "a b", "a\0", "ä", "C:", "a:b", "%2e%2e",
        &long,
    ] {
        assert!(!is_path(name), "{name:?}");
    }
    assert!(!is_name("a/b") && !is_path(&["a"; 9].join("/")));
}

#[test]
fn a_listing_tells_sizes_and_digests() {
    let answer = json!({"_id": "x", "sha": COMMIT, "siblings": [
        {"rfilename": "config.json", "size": 12, "blobId": BLOB},
        {"rfilename": "model.safetensors", "size": 34, "blobId": BLOB, "lfs": {"sha256": SHA256, "size": 34, "pointerSize": 134}},
        {"rfilename": "old.gguf", "lfs": {"oid": SHA256}},
        {"rfilename": "README.md"},
        {"rfilename": "../../etc/passwd", "size": 1},
        {"rfilename": "/etc/passwd", "size": 1},
        {"rfilename": "a picture.png", "size": 1},
    ]});
    let listing = Listing::read(answer.to_string().as_bytes()).expect("a list of files");
    let told: Vec<_> =
        listing.files.values().map(|file| (file.name.as_str(), file.size, file.digest.map(|digest| digest.to_string()))).collect();
    let sha256 = Some(format!("sha256 {SHA256}"));
    assert_eq!(listing.commit, COMMIT);
    assert_eq!(
        told,
        [
            ("README.md", None, None),
            ("config.json", Some(12), Some(format!("git blob {BLOB}"))),
            ("model.safetensors", Some(34), sha256.clone()),
            ("old.gguf", None, sha256),
        ]
    );
    for wrong in [
        json!([]),
        json!({"sha": COMMIT}),
        json!({"siblings": []}),
        json!({"sha": "../../..", "siblings": []}),
        json!({"sha": "main", "siblings": []}),
        json!({"sha": COMMIT.to_uppercase(), "siblings": []}),
        json!({"sha": COMMIT, "siblings": [{"rfilename": "a", "size": -1}]}),
        json!({"sha": COMMIT, "siblings": [{"rfilename": "a", "lfs": {"sha256": "abc"}}]}),
        json!({"sha": COMMIT, "siblings": [{"rfilename": "a", "blobId": "abc"}]}),
    ] {
        assert!(Listing::read(wrong.to_string().as_bytes()).is_err(), "{wrong}");
    }
    assert!(Listing::read(b"<html>").is_err());
    let long = "n".repeat(1 << 20);
    let path = ["n".repeat(200).as_str(); 8].join("/");
    for wrong in
        [json!(long), json!({"sha": COMMIT, "siblings": long}), json!({"sha": COMMIT, "siblings": [{"rfilename": path, "blobId": "abc"}]})]
    {
        let reason = Listing::read(wrong.to_string().as_bytes()).expect_err("it is none");
        assert!(reason.contains("nnn...") && reason.len() < 500, "{} bytes", reason.len());
    }
}

#[test]
fn a_commit_is_that_one() {
    let listing = listing(&["config.json"]);
    for right in [COMMIT, &COMMIT.to_uppercase(), "main", "refs/pr/1", &COMMIT[..39], &format!("v{}", &COMMIT[1..])] {
        assert!(!listing.is_other_than(right), "{right}");
    }
    for wrong in [BLOB, &BLOB.to_uppercase(), SHA256] {
        assert!(listing.is_other_than(wrong), "{wrong}");
    }
}

#[test]
fn digests_are_told_apart() {
    assert_eq!(ContentDigest::of_etag(&format!("\"{SHA256}\"")), ContentDigest::sha256(SHA256));
    assert_eq!(ContentDigest::of_etag(&format!("W/\"{BLOB}\"")), ContentDigest::git_blob(BLOB));
    for none in ["", "\"\"", "\"5d41402abc4b2a76b9719d911017c592\"", &SHA256.replace('e', "g"), &format!("{BLOB}-2")] {
        assert_eq!(ContentDigest::of_etag(none), None, "{none}");
    }
}

#[test]
fn of_a_repository_the_files_of_a_model_are_taken() {
    let all = listing(&[
        ".gitattributes",
        "1_Pooling/config.json",
        "README.md",
        "chat_template.jinja",
        "chat_template_tools.jinja",
        "config.json",
        "model.safetensors",
        "modules.json",
        "onnx/model.onnx",
        "pytorch_model.bin",
        "tokenizer.json",
        "tokenizer_config.json",
        "train_script.py",
    ]);
    let options_of_none = options(&[]).expect("options");
    let whole = weights(&options_of_none, &all).expect("one file");
    assert_eq!(Some(&whole), all.files.get("model.safetensors").cloned().map(Weights::One).as_ref());
    assert_eq!(
        names(&beside(&whole, &all)),
        [
            "config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "modules.json",
            "1_Pooling/config.json",
            "chat_template_tools.jinja"
        ]
    );
    // A whole file is enough, though there are shards too.
    let both = listing(&["model.safetensors", "model.safetensors.index.json", "config.json"]);
    let one = weights(&options_of_none, &both).expect("one file");
    assert!(matches!(&one, Weights::One(_)));
    assert_eq!(names(&beside(&one, &both)), ["config.json"]);
    let sharded = listing(&["config.json", "model.safetensors.index.json", "model-00001-of-00001.safetensors"]);
    assert!(matches!(weights(&options_of_none, &sharded), Ok(Weights::Sharded { .. })));
    // One file is the whole model.
    let gguf = listing(&["config.json", "model-q4.gguf", "model-q8.gguf", "tokenizer.json"]);
    let with_file = options(&[("file", text("model-q4.gguf"))]).expect("options");
    let named = weights(&with_file, &gguf).expect("it is there");
    assert!(matches!(&named, Weights::Gguf(file) if file.name == "model-q4.gguf"));
    assert_eq!(names(&beside(&named, &gguf)), ["tokenizer.json"]);
    assert!(matches!(weights(&options_of_none, &listing(&["q4/model.gguf"])), Ok(Weights::Gguf(_))), "the only one");
    assert!(matches!(weights(&with_file, &all), Err(Error::UnknownObject { .. })));
    let unnamed = weights(&options_of_none, &gguf).expect_err("which of them?");
    assert!(
        matches!(&unnamed, Error::InvalidParameter { .. }) && unnamed.to_string().contains("'model-q4.gguf', 'model-q8.gguf'"),
        "{unnamed}"
    );
    let pickled = weights(&options_of_none, &listing(&["config.json", "pytorch_model.bin"])).expect_err("no weights that we read");
    assert!(pickled.to_string().contains("pytorch_model.bin"), "{pickled}");
}

#[test]
fn shards_are_files_of_the_repository() {
    let all = listing(&["config.json", "model-1.safetensors", "model-2.safetensors", "sub/model.safetensors"]);
    let index = json!({"weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}});
    assert_eq!(names(&shards(&index, &all).expect("an index")), ["model-1.safetensors", "model-2.safetensors"]);
    assert!(shards(&json!({}), &all).is_err());
    let long = "n".repeat(1 << 20);
    for shard in ["../model-1.safetensors", "/etc/passwd", "sub/model.safetensors", "config.json", "", "..", "model-3.safetensors", &long] {
        let reason = shards(&json!({"weight_map": {"a": shard}}), &all).expect_err("it is none");
        assert!(!reason.is_empty() && reason.len() < 500, "{reason:.500}");
    }
}

#[test]
fn a_failure_says_what_to_look_at() {
    let options = options(&[("secret", text("hub"))]).expect("options");
    let error = |status, code: Option<&str>| {
        let setback =
            Setback { code: code.map(str::to_owned), ..Setback::new(FaultKind::Status(status), "in its words", "huggingface.co") };
        setback.into_error(&options, "config.json", 1).to_string()
    };
    for (status, code, words) in [
        (401, Some("RepoNotFound"), "org/model is its name"),
        (401, None, "secret \"hub\""),
        (403, Some("GatedRepo"), "gated"),
        (404, Some("RevisionNotFound"), "revision \"main\""),
        (404, None, "org/model"),
        (429, None, "later"),
        (503, None, "again"),
    ] {
        let message = error(status, code);
        let is_whole = ["hf://org/model@main", "huggingface.co", "in its words", words].iter().all(|part| message.contains(part));
        assert!(is_whole, "{status} {code:?}: {message}");
    }
    let tried = Setback::new(FaultKind::Connect, "refused", "huggingface.co").into_error(&options, "config.json", 3);
    assert!(matches!(&tried, Error::RemoteUnreachable(message) if message.contains("tried 3 times")), "{tried}");
}
