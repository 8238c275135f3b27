//! Policies from GGUF files: their numbers equal those of transformers with the file's weights, their tokens those of the vocabulary's own
//! tokenizer.
//!
//! The files and goldens come from `tests/fixtures/make_gguf_goldens.py`. Only weights are rounded, and transformers has them as rounded as we;
//! so the tolerance is that of checkpoints in f32. The largest differences that were measured: 1.1e-5 (qwen3_k), 1.8e-6 (qwen2_mixed), 2.0e-6
//! (llama).

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tempfile::TempDir;

use super::goldens::{check_greedy, read_goldens};
use crate::error::Error;
use crate::models::Device;
use crate::models::chat_template::{ChatMessage, ChatTemplate};
use crate::models::gguf::{self, GGUF_FILE, GgufWeights};
use crate::models::packed::{PackedDecoder, Segment};
use crate::models::registry::{CreateModel, ModelInfo, Registry, Task};
use crate::models::tokenizer::Tokenizer;
use crate::value::Value;

const MODELS: [&str; 3] = ["qwen3_k", "qwen2_mixed", "llama"];
const TOLERANCE: f32 = 1e-4;

#[derive(Deserialize)]
struct Goldens {
    probed_ids: Vec<usize>,
    tokens: Vec<Vec<u32>>,
    /// By sequence, position and probed id.
    probed: Vec<Vec<Vec<f32>>>,
    last: Vec<Vec<f32>>,
    greedy: Vec<u32>,
    texts: Vec<Text>,
    decoded: Vec<String>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    /// With the special tokens before a text.
    ids: Vec<u32>,
    plain: Vec<u32>,
}

fn fixture(name: &str) -> PathBuf {
    crate::fixtures::fixture("gguf").join(name)
}

fn goldens(name: &str) -> Goldens {
    read_goldens(&fixture(name))
}

fn registry() -> (TempDir, Registry) {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::open(&directory.path().join("models")).unwrap();
    (directory, registry)
}

fn create(registry: &Registry, source: &Path, file: Option<&str>) -> Result<ModelInfo, Error> {
    let options = file.map(|file| ("file".to_owned(), Value::Text(file.to_owned()))).into_iter().collect();
    let source = source.display().to_string();
    registry.create(CreateModel { name: "m".to_owned(), source, task: None, device: Device::Auto, options, texts: Vec::new() })
}

#[test]
fn logits_equal_transformers() {
    for name in MODELS {
        let goldens = goldens(name);
        let decoder = PackedDecoder::load(&fixture(name)).unwrap();
        let mut largest = 0.0_f32;
        let mut compare = |what: &str, found: f32, expected: f32| {
            largest = largest.max((found - expected).abs());
            assert!((found - expected).abs() < TOLERANCE, "{name}, {what}: {found} instead of {expected}");
        };
        for (index, tokens) in goldens.tokens.iter().enumerate() {
            let mut cache = decoder.new_cache();
            for (position, token) in tokens.iter().enumerate() {
                let logits = decoder.forward(&mut [Segment { cache: &mut cache, tokens: &[*token] }]);
                for (id, expected) in goldens.probed_ids.iter().zip(&goldens.probed[index][position]) {
                    compare(&format!("position {position}, id {id}"), logits[*id], *expected);
                }
            }
            let mut cache = decoder.new_cache();
            let last = decoder.forward(&mut [Segment { cache: &mut cache, tokens }]);
            last.iter().zip(&goldens.last[index]).for_each(|(found, expected)| compare("the last logits", *found, *expected));
        }
        println!("{name}: logits differ by up to {largest}");
    }
}

#[test]
fn generation_equals_transformers() {
    for name in MODELS {
        let goldens = goldens(name);
        let decoder = PackedDecoder::load(&fixture(name)).unwrap();
        check_greedy(name, &decoder, &goldens.tokens[1], &goldens.greedy);
    }
}

#[test]
fn alone_equals_batched() {
    for name in MODELS {
        let tokens = goldens(name).tokens;
        let decoder = PackedDecoder::load(&fixture(name)).unwrap();
        let mut caches: Vec<_> = (0..40).map(|_| decoder.new_cache()).collect();
        let mut segments: Vec<_> =
            caches.iter_mut().enumerate().map(|(i, cache)| Segment { cache, tokens: &tokens[1][..1 + i % tokens[1].len()] }).collect();
        let together = decoder.forward(&mut segments);
        for (index, together) in together.chunks_exact(decoder.config().vocab_size).enumerate() {
            let mut cache = decoder.new_cache();
            let tokens = &tokens[1][..1 + index % tokens[1].len()];
            let alone = decoder.forward(&mut [Segment { cache: &mut cache, tokens }]);
            assert_eq!(alone, together, "{name}: sequence {index}");
        }
    }
}

#[test]
fn a_vocabulary_of_the_metadata_gives_the_tokens_of_its_own_tokenizer() {
    for name in MODELS {
        let goldens = goldens(name);
        let directory = tempfile::tempdir().unwrap();
        std::fs::copy(fixture(name).join(GGUF_FILE), directory.path().join(GGUF_FILE)).unwrap();
        gguf::complete(directory.path()).unwrap();
        let tokenizer = Tokenizer::load(directory.path()).unwrap();
        for (text, decoded) in goldens.texts.iter().zip(&goldens.decoded) {
            assert_eq!(tokenizer.encode(&text.text).unwrap(), text.plain, "{name}: {:?}", text.text);
            assert_eq!(tokenizer.encode_with_special_tokens(&text.text).unwrap(), text.ids, "{name}: {:?}", text.text);
            assert_eq!(tokenizer.decode(&text.ids).unwrap(), *decoded, "{name}: {:?}", text.text);
        }
        assert_eq!(tokenizer.eos_token_id(), Some(1));
    }
}

#[test]
fn a_file_is_a_model_with_its_tokenizer_and_template() {
    let (home, registry) = registry();
    let info = create(&registry, &fixture("qwen2_mixed").join(GGUF_FILE), None).unwrap();
    assert_eq!((info.task, info.architecture.as_str()), (Task::Generate, "Qwen2ForCausalLM"));
    assert!(info.directory.starts_with(home.path()));
    let same = |name: &str| std::fs::read(info.directory.join(name)).unwrap() == std::fs::read(fixture("qwen2_mixed").join(name)).unwrap();
    assert!(same(GGUF_FILE), "the file is kept as it is");
    let gguf = info.gguf.clone().unwrap();
    assert_eq!(gguf.tensor_types, ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]);
    assert!(gguf.weight_bytes < std::fs::metadata(info.directory.join(GGUF_FILE)).unwrap().len());
    let shapes = GgufWeights::open(&info.directory.join(GGUF_FILE)).unwrap().config().tensor_shapes();
    assert_eq!(info.parameter_count, shapes.iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum::<u64>());
    let template = ChatTemplate::load(&info.directory).unwrap().unwrap();
    let rendered = template.render(&[ChatMessage::user("Who?")], false).unwrap();
    assert_eq!(rendered, "<|im_start|>user\nWho?<|im_end|>\n");
    assert_eq!(registry.get("m").unwrap(), info, "what is written is what is read");
    let error = info.require_trainable("TRAIN").unwrap_err();
    assert!(matches!(&error, Error::NotSupported(message) if message.contains("safetensors")), "{error}");
}

#[test]
fn files_beside_go_before_the_metadata() {
    let (_home, registry) = registry();
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(fixture("qwen2_mixed").join(GGUF_FILE), directory.path().join("model-q8_0.GGUF")).unwrap();
    std::fs::write(directory.path().join("chat_template.jinja"), "beside").unwrap();
    std::fs::write(directory.path().join("tokenizer_config.json"), r#"{"eos_token": "a"}"#).unwrap();
    let info = create(&registry, directory.path(), None).unwrap();
    let template = ChatTemplate::load(&info.directory).unwrap().unwrap();
    assert_eq!(template.render(&[], false).unwrap(), "beside");
    let tokenizer = Tokenizer::load(&info.directory).unwrap();
    assert_eq!(tokenizer.eos_token_id(), Some(tokenizer.encode("a").unwrap()[0]));
}

#[test]
fn of_several_files_one_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.gguf", "b.gguf"] {
        std::fs::copy(fixture("llama").join(GGUF_FILE), directory.path().join(name)).unwrap();
    }
    std::fs::write(directory.path().join("c.gguf"), "version https://git-lfs.github.com/spec/v1\n").unwrap();
    let (_home, registry) = registry();
    let error = create(&registry, directory.path(), None).unwrap_err();
    assert!(error.to_string().contains("'a.gguf', 'b.gguf', 'c.gguf'"), "{error}");
    for file in ["", "b", "../a.gguf", "/a.gguf", "a/b.gguf", "tokenizer.json"] {
        let error = create(&registry, directory.path(), Some(file)).unwrap_err();
        assert!(matches!(error, Error::InvalidParameter { .. }), "{file}: {error}");
    }
    assert!(matches!(create(&registry, directory.path(), Some("d.gguf")), Err(Error::Io { .. })));
    assert!(matches!(create(&registry, directory.path(), Some("c.gguf")), Err(Error::Damaged { .. })));
    assert!(registry.list().unwrap().is_empty());
    assert_eq!(create(&registry, directory.path(), Some("b.gguf")).unwrap().architecture, "LlamaForCausalLM");
    // Beside safetensors a GGUF file is not taken unless it is named.
    let mixed = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(crate::fixtures::fixture("models/llama3")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), mixed.path().join(entry.file_name())).unwrap();
    }
    std::fs::copy(fixture("llama").join(GGUF_FILE), mixed.path().join("a.gguf")).unwrap();
    let (_home, registry) = self::registry();
    assert!(matches!(create(&registry, mixed.path(), None), Err(Error::Io { .. })), "the fixture of safetensors has no tokenizer");
    assert!(create(&registry, mixed.path(), Some("a.gguf")).unwrap().gguf.is_some());
}
