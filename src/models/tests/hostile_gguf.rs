//! GGUF files that were made to do harm, or that hold what is not computed: each is refused before anything of the sizes that it claims is
//! allocated.

use std::fs;

use crate::error::{Error, Result};
use crate::models::checkpoint::{Checkpoint, inspect};
use crate::models::gguf::{GGUF_FILE, complete};

/// A value of the metadata, by the type that the file says.
#[derive(Clone)]
enum Value {
    Size(u32),
    Number(f32),
    Text(&'static str),
    Texts(Vec<String>),
    /// Of any type, as bytes.
    Raw(u32, Vec<u8>),
}

#[derive(Clone)]
struct Tensor {
    name: String,
    dimensions: Vec<u64>,
    kind: u32,
    offset: u64,
    bytes: u64,
}

/// A small file in parts, to be changed before it is written.
#[derive(Clone)]
struct Parts {
    magic: [u8; 4],
    version: u32,
    num_tensors: Option<u64>,
    num_values: Option<u64>,
    metadata: Vec<(&'static str, Value)>,
    tensors: Vec<Tensor>,
}

const F32: u32 = 0;
const Q8_0: u32 = 8;
const WIDTH: u64 = 32;

/// A llama of one block with eight tokens.
fn parts() -> Parts {
    let tokens = Value::Texts("abcdefgh".chars().map(String::from).collect());
    let mut parts = Parts {
        magic: *b"GGUF",
        version: 3,
        num_tensors: None,
        num_values: None,
        metadata: vec![
            ("general.architecture", Value::Text("llama")),
            ("llama.context_length", Value::Size(64)),
            ("llama.embedding_length", Value::Size(WIDTH as u32)),
            ("llama.block_count", Value::Size(1)),
            ("llama.feed_forward_length", Value::Size(WIDTH as u32)),
            ("llama.attention.head_count", Value::Size(2)),
            ("llama.attention.head_count_kv", Value::Size(2)),
            ("llama.attention.layer_norm_rms_epsilon", Value::Number(1e-5)),
            ("tokenizer.ggml.model", Value::Text("gpt2")),
            ("tokenizer.ggml.pre", Value::Text("llama-bpe")),
            ("tokenizer.ggml.tokens", tokens),
            ("tokenizer.ggml.merges", Value::Texts(Vec::new())),
        ],
        tensors: Vec::new(),
    };
    let mut add = |name: &str, dimensions: &[u64], kind: u32| {
        let values: u64 = dimensions.iter().product();
        let bytes = if kind == F32 { 4 * values } else { values / 32 * 34 };
        let offset = parts.tensors.last().map_or(0, |last| (last.offset + last.bytes).next_multiple_of(32));
        parts.tensors.push(Tensor { name: name.to_owned(), dimensions: dimensions.to_vec(), kind, offset, bytes });
    };
    add("token_embd.weight", &[WIDTH, 8], Q8_0);
    for part in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
        add(&format!("blk.0.{part}.weight"), &[WIDTH, WIDTH], Q8_0);
    }
    for name in ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"] {
        add(name, &[WIDTH], F32);
    }
    parts
}

impl Parts {
    fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).expect("a tensor of the file")
    }

    fn set(&mut self, key: &'static str, value: Value) {
        self.metadata.retain(|(known, _)| *known != key);
        self.metadata.push((key, value));
    }

    fn remove(&mut self, key: &str) {
        self.metadata.retain(|(known, _)| *known != key);
    }

    fn header(&self) -> Vec<u8> {
        let mut bytes = [self.magic, self.version.to_le_bytes()].concat();
        bytes.extend(self.num_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        bytes.extend(self.num_values.unwrap_or(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            bytes.extend(text(key));
            bytes.extend(match value {
                Value::Size(size) => [4_u32.to_le_bytes(), size.to_le_bytes()].concat(),
                Value::Number(number) => [6_u32.to_le_bytes(), number.to_le_bytes()].concat(),
                Value::Text(value) => [8_u32.to_le_bytes().to_vec(), text(value)].concat(),
                Value::Texts(values) => {
                    let begin = [9_u32.to_le_bytes(), 8_u32.to_le_bytes()].concat();
                    let texts = values.iter().flat_map(|value| text(value)).collect();
                    [begin, (values.len() as u64).to_le_bytes().to_vec(), texts].concat()
                }
                Value::Raw(kind, value) => [kind.to_le_bytes().to_vec(), value.clone()].concat(),
            });
        }
        for tensor in &self.tensors {
            bytes.extend(text(&tensor.name));
            bytes.extend((tensor.dimensions.len() as u32).to_le_bytes());
            tensor.dimensions.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
            bytes.extend(tensor.kind.to_le_bytes());
            bytes.extend(tensor.offset.to_le_bytes());
        }
        bytes
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header();
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        // What changes say of places is not followed.
        let data: u64 = self.tensors.iter().map(|tensor| tensor.bytes.next_multiple_of(32)).sum();
        bytes.resize(bytes.len() + data as usize, 0);
        bytes
    }
}

fn text(text: &str) -> Vec<u8> {
    [(text.len() as u64).to_le_bytes().as_slice(), text.as_bytes()].concat()
}

/// What CREATE MODEL makes of a file.
fn read(bytes: &[u8]) -> Result<Checkpoint> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join(GGUF_FILE), bytes).expect("a temporary file is writable");
    complete(directory.path())?;
    inspect(directory.path())
}

fn with(change: impl FnOnce(&mut Parts)) -> Result<Checkpoint> {
    let mut parts = parts();
    change(&mut parts);
    read(&parts.bytes())
}

fn assert_damaged(what: &str, result: Result<Checkpoint>) {
    assert!(matches!(result, Err(Error::Damaged { .. })), "{what}: {result:?}");
}

fn assert_not_supported(what: &str, result: Result<Checkpoint>) {
    assert!(matches!(result, Err(Error::NotSupported(_))), "{what}: {result:?}");
}

#[test]
fn the_file_itself_passes() {
    let checkpoint = with(|_| {}).expect("it is whole");
    assert_eq!((checkpoint.architecture.as_str(), checkpoint.parameter_count), ("LlamaForCausalLM", 8 * 32 + 7 * 32 * 32 + 3 * 32));
    with(|parts| parts.version = 2).expect("version 2 is the same");
}

#[test]
fn files_that_are_none() {
    let whole = parts().bytes();
    for len in (0..whole.len()).step_by(13).chain([whole.len() - 1]) {
        assert_damaged(&format!("the first {len} bytes"), read(&whole[..len]));
    }
    assert_damaged("another magic", with(|parts| parts.magic = *b"GGML"));
    for version in [0, 1, 4, 3_u32.swap_bytes(), u32::MAX] {
        assert_not_supported(&format!("version {version}"), with(|parts| parts.version = version));
    }
}

#[test]
fn counts_and_lengths_that_lie() {
    for count in [1 << 20, 1 << 40, u64::MAX] {
        assert_damaged(&format!("{count} tensors"), with(|parts| parts.num_tensors = Some(count)));
        assert_damaged(&format!("{count} values"), with(|parts| parts.num_values = Some(count)));
        let of_texts = [8_u32.to_le_bytes().as_slice(), &count.to_le_bytes()].concat();
        assert_damaged(&format!("a list of {count}"), with(|parts| parts.set("x", Value::Raw(9, of_texts))));
        assert_damaged(&format!("a text of {count} bytes"), with(|parts| parts.set("x", Value::Raw(8, count.to_le_bytes().to_vec()))));
    }
    let nested = [9_u32.to_le_bytes().as_slice(), &1_u64.to_le_bytes(), &9_u32.to_le_bytes(), &0_u64.to_le_bytes()].concat();
    assert_damaged("a list of lists", with(|parts| parts.set("x", Value::Raw(9, nested))));
    assert_damaged("a value of an unknown type", with(|parts| parts.set("x", Value::Raw(13, vec![0; 8]))));
    assert_damaged("a key twice", with(|parts| parts.metadata.push(("llama.block_count", Value::Size(1)))));
}

#[test]
fn a_long_header_is_not_read() {
    let result = sparse(&[head(0, 1), (1_u64 << 32).to_le_bytes().to_vec()].concat(), 1 << 34);
    assert!(matches!(result, Err(Error::Damaged { .. })), "{result:?}");
}

/// A file with this header and zeros after it, which take no room on the disk.
fn sparse(header: &[u8], len: u64) -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join(GGUF_FILE);
    fs::write(&path, header).expect("a temporary file is writable");
    fs::OpenOptions::new().write(true).open(&path).expect("it is there").set_len(len).expect("a sparse file");
    complete(directory.path())
}

/// The magic bytes, the version, and how many tensors and keys there are.
fn head(num_tensors: u64, num_values: u64) -> Vec<u8> {
    let counts = [num_tensors.to_le_bytes(), num_values.to_le_bytes()].concat();
    [b"GGUF".as_slice(), &3_u32.to_le_bytes(), &counts].concat()
}

#[test]
fn more_than_any_model_has() {
    let refused = |what: &str, header: &[u8], words: &str| {
        let error = sparse(header, 1 << 30).expect_err(what);
        assert!(matches!(error, Error::Damaged { .. }) && error.to_string().contains(words), "{what}: {error}");
    };
    // Zeros are keys without a letter: the second one is there twice.
    refused("keys", &head(0, 4096), "\"\" twice");
    refused("many keys", &head(0, 4097), "4097 keys, at most 4096");
    // And tensors without dimensions.
    refused("tensors", &head(16_384, 0), "0 dimensions");
    refused("many tensors", &head(16_385, 0), "16385 tensors, at most 16384");

    // Lists of bytes take more in memory than in the file, and all of them together have a bound; so have the texts beside.
    let list = |key: &str, len: u64| [text(key).as_slice(), &9_u32.to_le_bytes(), &0_u32.to_le_bytes(), &len.to_le_bytes()].concat();
    let zeros = vec![0; 1 << 22];
    let full = [head(0, 3), list("a", 1 << 22), zeros].concat();
    refused("another element", &[full.as_slice(), &list("b", 1)].concat(), "more than 4194304 elements");
    let long = [text("b").as_slice(), &8_u32.to_le_bytes(), &(100_u64 << 20).to_le_bytes()].concat();
    refused("a long text beside", &[full.as_slice(), &long].concat(), "bytes of memory");
    // What is no UTF-8 takes three bytes for one.
    let wrong = [text("b"), 8_u32.to_le_bytes().to_vec(), (17_u64 << 20).to_le_bytes().to_vec(), vec![0xff; 17 << 20]].concat();
    refused("a text of other bytes beside", &[full, wrong].concat(), "bytes of memory");
}

#[test]
fn what_is_no_utf8_is_replaced() {
    let bytes = b"a\xffb\xf0\x9f\x8dc\xff\xff";
    let pre = [(bytes.len() as u64).to_le_bytes().as_slice(), bytes].concat();
    let error = with(|parts| parts.set("tokenizer.ggml.pre", Value::Raw(8, pre))).expect_err("no rule that is known");
    assert!(error.to_string().contains("\"a\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}\""), "{error}");
}

#[test]
fn long_names_are_quoted_short() {
    let long = "n".repeat(1 << 20);
    let leaked: &'static str = Box::leak(long.clone().into_boxed_str());
    let tensor = |change: &dyn Fn(&mut Tensor)| {
        with(|parts| {
            let tensor = parts.tensor("blk.0.attn_q.weight");
            tensor.name.clone_from(&long);
            change(tensor);
        })
    };
    let results = [
        with(|parts| parts.metadata.extend([(leaked, Value::Size(1)), (leaked, Value::Size(1))])),
        with(|parts| parts.set("general.architecture", Value::Text(leaked))),
        with(|parts| parts.set("general.type", Value::Text(leaked))),
        with(|parts| parts.set("llama.rope.scaling.type", Value::Text(leaked))),
        with(|parts| parts.set("tokenizer.ggml.model", Value::Text(leaked))),
        with(|parts| parts.set("tokenizer.ggml.pre", Value::Text(leaked))),
        with(|parts| parts.set("tokenizer.ggml.merges", Value::Texts(vec![long.clone()]))),
        tensor(&|tensor| tensor.dimensions = vec![0, 32]),
        tensor(&|tensor| tensor.dimensions.clear()),
        tensor(&|tensor| tensor.kind = 7777),
        tensor(&|tensor| tensor.offset = 0),
        with(|parts| parts.tensors.iter_mut().take(2).for_each(|tensor| tensor.name.clone_from(&long))),
        with(|parts| {
            let last = parts.tensors.last().expect("a tensor of the file").clone();
            let offset = (last.offset + last.bytes).next_multiple_of(32);
            parts.tensors.push(Tensor { name: long.clone(), offset, ..last });
        }),
    ];
    for (index, result) in results.into_iter().enumerate() {
        let message = result.expect_err("each is refused").to_string();
        assert!(message.contains("nnn...") && message.len() < 1000, "{index}: {} bytes", message.len());
    }
}

#[test]
fn tensors_that_lie_about_their_shape_or_place() {
    let query = "blk.0.attn_q.weight";
    for dimensions in [
        vec![1 << 40, 1 << 40],
        vec![1 << 32, 1 << 32],
        vec![u64::MAX, 2],
        vec![0, 32],
        vec![32, 1 << 32],
        vec![16, 64],
        vec![1024],
        vec![32, 32, 1],
        vec![],
        vec![32, 32, 1, 1, 1],
    ] {
        assert_damaged(&format!("dimensions {dimensions:?}"), with(|parts| parts.tensor(query).dimensions = dimensions.clone()));
    }
    for offset in [1, 1 << 20, 1 << 60, u64::MAX - 31] {
        assert_damaged(&format!("an offset of {offset}"), with(|parts| parts.tensor(query).offset = offset));
    }
    assert_damaged("the place of another", with(|parts| parts.tensor(query).offset = 0));
    assert_damaged("a name twice", with(|parts| parts.tensor(query).name = "blk.0.attn_k.weight".to_owned()));
    assert_damaged(
        "a tensor that is missing",
        with(|parts| {
            parts.tensors.retain(|tensor| tensor.name != query);
        }),
    );
    // Q2_K, an integer, and numbers that nobody has.
    for kind in [10, 26, 7777, u32::MAX] {
        assert_not_supported(&format!("type {kind}"), with(|parts| parts.tensor(query).kind = kind));
    }
    assert_not_supported(
        "a bias that would be left out",
        with(|parts| {
            let last = parts.tensors.last().expect("a tensor of the file").clone();
            let name = "blk.0.attn_q.bias".to_owned();
            parts.tensors.push(Tensor { name, offset: (last.offset + last.bytes).next_multiple_of(32), ..last });
        }),
    );
}

#[test]
fn sizes_that_are_none() {
    for (key, value) in [
        ("llama.block_count", 1_000_000_000),
        ("llama.block_count", 9_999),
        ("llama.embedding_length", 0),
        ("llama.embedding_length", 64),
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count", 3),
        ("llama.attention.head_count_kv", 0),
        ("llama.attention.key_length", 7),
        ("llama.feed_forward_length", u32::MAX),
        ("general.alignment", 0),
        ("general.alignment", 24),
        ("general.alignment", 1 << 30),
    ] {
        let result = with(|parts| parts.set(key, Value::Size(value)));
        assert_damaged(&format!("{key} = {value}"), result);
    }
    assert_damaged("a text for a size", with(|parts| parts.set("llama.block_count", Value::Text("1"))));
    assert_damaged("no epsilon", with(|parts| parts.remove("llama.attention.layer_norm_rms_epsilon")));
    assert_damaged("no architecture", with(|parts| parts.remove("general.architecture")));
    assert_damaged("a rope base below zero", with(|parts| parts.set("llama.rope.freq_base", Value::Number(-1.0))));
    assert_damaged("a rope factor that is not a number", with(|parts| parts.set("llama.rope.scaling.factor", Value::Number(f32::NAN))));
}

#[test]
fn what_is_not_computed_is_refused() {
    for (key, value) in [
        ("general.architecture", Value::Text("qwen3moe")),
        ("general.type", Value::Text("adapter")),
        ("split.count", Value::Size(3)),
        ("llama.expert_count", Value::Size(8)),
        ("llama.rope.dimension_count", Value::Size(8)),
        ("llama.attention.value_length", Value::Size(8)),
        ("llama.attention.sliding_window", Value::Size(32)),
        ("llama.rope.scaling.type", Value::Text("yarn")),
        ("tokenizer.ggml.model", Value::Text("llama")),
        ("tokenizer.ggml.pre", Value::Text("viking")),
    ] {
        assert_not_supported(key, with(|parts| parts.set(key, value)));
    }
    assert_not_supported("no tokenizer", with(|parts| parts.remove("tokenizer.ggml.model")));
}

#[test]
fn vocabularies_that_do_not_fit() {
    let texts = |texts: &[&str]| Value::Texts(texts.iter().map(|text| (*text).to_owned()).collect());
    assert_damaged(
        "more tokens than the model has",
        with(|parts| parts.set("tokenizer.ggml.tokens", texts(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]))),
    );
    assert_damaged("a token twice", with(|parts| parts.set("tokenizer.ggml.tokens", texts(&["a", "a"]))));
    assert_damaged("a merge of unknown tokens", with(|parts| parts.set("tokenizer.ggml.merges", texts(&["x y"]))));
    assert_damaged("a merge of one token", with(|parts| parts.set("tokenizer.ggml.merges", texts(&["ab"]))));
    assert_damaged("no tokens", with(|parts| parts.remove("tokenizer.ggml.tokens")));
    let kinds = [5_u32.to_le_bytes().as_slice(), &1_u64.to_le_bytes(), &1_i32.to_le_bytes()].concat();
    assert_damaged("kinds of fewer tokens", with(|parts| parts.set("tokenizer.ggml.token_type", Value::Raw(9, kinds))));
    // Ids that there are none of are not asked for.
    with(|parts| {
        parts.set("tokenizer.ggml.bos_token_id", Value::Size(u32::MAX));
        parts.set("tokenizer.ggml.eos_token_id", Value::Size(1_000_000));
    })
    .expect("no token stands before a text");
}
