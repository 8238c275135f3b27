//! What bytes from outside are given to. A target may refuse them or read them, but neither panic nor take long.
//!
//! `tests/it/fuzz.rs` runs them within the suite, the crate of this folder under `cargo fuzz`; both give them the same bytes.

use std::path::Path;
use std::sync::OnceLock;

use futures::TryStreamExt;
use rolloutdb::models::checkpoint::inspect;
use rolloutdb::models::gguf::{GGUF_FILE, complete};
use rolloutdb::models::packed::{PackedDecoder, Segment};
use rolloutdb::models::weights::read_shapes;
use rolloutdb::models::{DecoderConfig, EncoderConfig};
use rolloutdb::{Database, Session, server};

/// A target's name, which is that of its folder of the corpus.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("wire", wire),
    ("dialect", dialect),
    ("values", values),
    ("manifest", manifest),
    ("model_config", model_config),
    ("model_weights", model_weights),
    ("gguf", gguf),
    ("rows", rows),
];

/// Messages of a client, from its first one on and from its second one on.
pub fn wire(bytes: &[u8]) {
    let _ = server::count_messages(bytes, true);
    let _ = server::count_messages(bytes, false);
}

/// SQL; what is printed of a statement reads as the same statement.
pub fn dialect(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(statements) = rolloutdb_sql::parse(text) else { return };
    for statement in statements {
        let printed = statement.to_string();
        // Passwords are not printed.
        if printed.to_ascii_uppercase().contains("PASSWORD") {
            continue;
        }
        match rolloutdb_sql::parse(&printed) {
            Ok(again) => assert!(again == [statement], "{text:?} prints as {printed:?}, which is another statement"),
            Err(error) => panic!("{text:?} prints as {printed:?}, which does not parse: {error}"),
        }
    }
}

/// Values in text and binary form. The first byte says of which type, the second in which form.
pub fn values(bytes: &[u8]) {
    let [kind, form, bytes @ ..] = bytes else { return };
    let type_oid = PARAMETER_TYPES[usize::from(*kind) % PARAMETER_TYPES.len()];
    let _ = server::reads_parameter(bytes, type_oid, form % 2 == 1);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = rolloutdb_udfs::vector::parse_vector(text);
    let _ = rolloutdb_udfs::json::check(text);
    if let Ok(normal) = rolloutdb_udfs::json::normalize(text) {
        assert_eq!(rolloutdb_udfs::json::normalize(&normal).ok(), Some(normal.clone()), "a normal form is its own");
    }
    if let Ok(read) = rolloutdb_udfs::parse_bytea(text) {
        let printed = rolloutdb_udfs::format_bytea(&read);
        assert_eq!(rolloutdb_udfs::parse_bytea(&printed).ok(), Some(read), "{printed}");
    }
}

/// bool, bytea, int8, int2, int4, text, json, float4, float8, date, time, timestamp, timestamptz, interval, numeric, uuid, jsonb, arrays of some, vector
/// and halfvec and their arrays.
const PARAMETER_TYPES: &[u32] = &[
    16, 17, 20, 21, 23, 25, 114, 700, 701, 1082, 1083, 1114, 1184, 1186, 1700, 2950, 3802, 1000, 1005, 1007, 1009, 1016, 1021, 1022, 1231,
    2951, 16380, 16381, 16382, 16383,
];

/// The manifest of a version of a table.
pub fn manifest(bytes: &[u8]) {
    let _ = rolloutdb_catalogs::manifest_fault(bytes);
}

/// The `config.json` of a model.
pub fn model_config(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice(bytes) else { return };
    let path = Path::new("config.json");
    if let Ok(config) = DecoderConfig::from_json(&value, path) {
        let _ = config.tensor_shapes();
        assert_eq!(DecoderConfig::from_json(&config.to_json(), path).ok(), Some(config), "what is written reads as the same");
    }
    if let Ok(config) = EncoderConfig::from_json(&value, path) {
        let _ = config.tensor_shapes();
    }
}

/// The header of a model's weights.
pub fn model_weights(bytes: &[u8]) {
    let folder = folder();
    std::fs::write(folder.join("model.safetensors"), bytes).expect("a temporary file");
    let _ = read_shapes(folder);
}

/// A GGUF file of a model: its header, the tokenizer that its metadata make, and its weights. What passes all checks computes a token.
pub fn gguf(bytes: &[u8]) {
    let folder = folder().join("gguf");
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    for name in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] {
        // Of the bytes before; there may be none.
        let _ = std::fs::remove_file(folder.join(name));
    }
    std::fs::write(folder.join(GGUF_FILE), bytes).expect("a temporary file");
    if complete(&folder).is_err() || inspect(&folder).is_err() {
        return;
    }
    if let Ok(decoder) = PackedDecoder::load(&folder) {
        let mut cache = decoder.new_cache();
        let _ = decoder.forward(&mut [Segment { cache: &mut cache, tokens: &[0] }]);
    }
}

/// A file of rows, as CSV and as JSON lines.
pub fn rows(bytes: &[u8]) {
    static READER: OnceLock<(tokio::runtime::Runtime, Session)> = OnceLock::new();
    let (runtime, session) = READER.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let database = runtime.block_on(Database::open(folder().join("data"))).expect("an empty database");
        (runtime, database.session())
    });
    for format in ["csv", "jsonl"] {
        let file = folder().join(format!("rows.{format}"));
        std::fs::write(&file, bytes).expect("a temporary file");
        let text = format!("SELECT * FROM read_{format}('{}')", file.display());
        runtime.block_on(async {
            if let Ok(rows) = session.sql(&text).await {
                let _ = rows.try_collect::<Vec<_>>().await;
            }
        });
    }
}

/// A folder for the files that targets read; there as long as the process.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary directory")).path()
}
