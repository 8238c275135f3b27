//! How much longer a tokenizer's rules can make a text. A `tokenizer.json` is data, but its replacements are a small program: twenty of them in a row,
//! each ten letters for one, make a text of one letter one of 10^20.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::shown::shown;
use crate::error::{Error, Result};

/// Beyond this a file is a trap. Published ones stay below 120: the longest form of a letter in XLM-RoBERTa's table has 36 bytes, and "▁" has three.
const GROWTH_MAX: u64 = 256;
/// Tokens that are put round a text, of each kind.
const TEMPLATE_MAX: usize = 64;

/// The parts of the file with rules; the vocabulary is passed over.
#[derive(Deserialize)]
struct Rules {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    post_processor: Value,
}

/// # Errors
/// [`Error::Damaged`] for rules that make a text more than [`GROWTH_MAX`] times as long, or put more than [`TEMPLATE_MAX`] tokens round it.
pub fn check_growth(path: &Path, tokenizer: &[u8]) -> Result<()> {
    let damaged = |reason: String| Error::Damaged { path: path.to_owned(), reason };
    let rules: Rules = serde_json::from_slice(tokenizer).map_err(|error| damaged(shown(&error.to_string())))?;
    // A normalizer's output is what the next one reads: they multiply.
    let read = growth(&rules.normalizer).saturating_mul(growth(&rules.pre_tokenizer));
    for growth in [read, growth(&rules.decoder)] {
        if growth > GROWTH_MAX {
            return Err(damaged(format!("its rules can make a text {growth} times as long, at most {GROWTH_MAX} times is read")));
        }
    }
    if template_tokens(&rules.post_processor) > TEMPLATE_MAX {
        return Err(damaged(format!("it puts more than {TEMPLATE_MAX} tokens round a text")));
    }
    Ok(())
}

/// The most bytes that a rule makes of one.
fn growth(rule: &Value) -> u64 {
    match rule.get("type").and_then(Value::as_str) {
        Some("Sequence") => {
            let parts = ["normalizers", "pretokenizers", "decoders"].into_iter().filter_map(|name| rule.get(name)?.as_array()).flatten();
            parts.map(growth).fold(1, u64::saturating_mul)
        }
        Some("Replace") => {
            let content = text_bytes(rule.get("content"));
            let pattern = rule.get("pattern").map_or(0, least_match);
            if pattern == 0 { content + 1 } else { content.div_ceil(pattern).max(1) }
        }
        Some("Prepend") => text_bytes(rule.get("prepend")) + 1,
        Some("Precompiled") => longest_form(rule).max(1),
        // A byte becomes a letter, of two bytes at most.
        Some("ByteLevel") => 2,
        Some("Metaspace") => text_bytes(rule.get("replacement")).max(1),
        _ => 1,
    }
}

/// The fewest bytes that a pattern matches: of a regular expression 0, since it may match between any two, but for runs of a letter such as ` {2,}`.
fn least_match(pattern: &Value) -> u64 {
    let expression = pattern.get("Regex").and_then(Value::as_str).unwrap_or_default();
    let run = expression.strip_suffix(",}").and_then(|run| run.split_once('{'));
    match run {
        Some((letter, least)) if letter == " " || (letter.chars().count() == 1 && letter.chars().all(char::is_alphanumeric)) => {
            least.parse::<u64>().unwrap_or(0).saturating_mul(letter.len() as u64)
        }
        _ => pattern.get("String").map_or(0, |text| text_bytes(Some(text))),
    }
}

fn text_bytes(text: Option<&Value>) -> u64 {
    text.and_then(Value::as_str).map_or(0, |text| text.len() as u64)
}

/// The longest text that a table of letters has for one of them: the table is a trie's size, the trie, and texts that end with a zero. What is no table
/// the tokenizer refuses itself.
fn longest_form(rule: &Value) -> u64 {
    let table = rule.get("precompiled_charsmap").and_then(Value::as_str).and_then(|text| STANDARD.decode(text).ok());
    let texts = table.as_ref().and_then(|table| {
        let (size, rest) = table.split_first_chunk::<4>()?;
        rest.get(u32::from_le_bytes(*size) as usize..)
    });
    texts.map_or(1, |texts| texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(0) as u64)
}

fn template_tokens(rule: &Value) -> usize {
    match rule.get("type").and_then(Value::as_str) {
        Some("Sequence") => rule.get("processors").and_then(Value::as_array).into_iter().flatten().map(template_tokens).sum(),
        Some("TemplateProcessing") => {
            let pieces = ["single", "pair"].into_iter().filter_map(|name| rule.get(name)?.as_array()).map(Vec::len).max().unwrap_or(0);
            let tokens = rule.get("special_tokens").and_then(Value::as_object).into_iter().flat_map(serde_json::Map::values);
            let ids = tokens.filter_map(|token| token.get("ids")?.as_array()).map(Vec::len).max().unwrap_or(0);
            pieces.saturating_mul(ids.max(1))
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(tokenizer: &Value) -> Result<()> {
        check_growth(Path::new("tokenizer.json"), tokenizer.to_string().as_bytes())
    }

    fn replace(pattern: &str, content: &str) -> Value {
        json!({ "type": "Replace", "pattern": { "String": pattern }, "content": content })
    }

    #[test]
    fn published_rules_pass() {
        // XLM-RoBERTa's shape: a table, runs of blanks, and a sign for blanks.
        let texts = [b"\x04\0\0\0trie".as_slice(), &[b'x'; 36], b"\0ab\0"].concat();
        let tokenizer = json!({
            "normalizer": { "type": "Sequence", "normalizers": [
                { "type": "Precompiled", "precompiled_charsmap": STANDARD.encode(texts) },
                { "type": "Replace", "pattern": { "Regex": " {2,}" }, "content": " " },
            ] },
            "pre_tokenizer": { "type": "Metaspace", "replacement": "▁" },
            "post_processor": { "type": "TemplateProcessing", "single": [{}, {}, {}], "special_tokens": { "<s>": { "ids": [0] } } },
            "model": { "vocab": { "a": 0 } },
        });
        check(&tokenizer).expect("36 * 1 * 3 = 108");
        // As newer conversions of SentencePiece write it: runs of blanks become the sign.
        let mut converted = tokenizer.clone();
        converted["normalizer"]["normalizers"][1]["content"] = json!("▁");
        check(&converted).expect("36 * 2 * 3 = 216");
        converted["normalizer"]["normalizers"][1]["pattern"] = json!({ "Regex": " {0,}" });
        assert!(matches!(check(&converted), Err(Error::Damaged { .. })), "36 * 4 * 3 = 432");
        check(&json!({ "normalizer": null })).expect("no rules");
        check(&json!({ "normalizer": { "type": "Sequence", "normalizers": [replace("``", "\""), replace(" ", "▁")] } }))
            .expect("a sign for blanks");
    }

    #[test]
    fn traps_are_refused() {
        let doubling = json!({ "normalizer": { "type": "Sequence", "normalizers": vec![replace("a", "aa"); 60] } });
        let long = json!({ "normalizer": replace("a", &"b".repeat(1_000)) });
        let everywhere = json!({ "decoder": { "type": "Replace", "pattern": { "Regex": "" }, "content": "x".repeat(300) } });
        let table = STANDARD.encode([b"\0\0\0\0".as_slice(), &[b'x'; 1_000]].concat());
        let table = json!({ "normalizer": { "type": "Precompiled", "precompiled_charsmap": table } });
        let ids = vec![0; 1_000];
        let template =
            json!({ "post_processor": { "type": "TemplateProcessing", "single": [{}], "special_tokens": { "<s>": { "ids": ids } } } });
        for trap in [doubling, long, everywhere, table, template] {
            assert!(matches!(check(&trap), Err(Error::Damaged { .. })), "{trap}");
        }
        let deep = format!("{}{}", "{\"normalizer\":".repeat(100_000), "}".repeat(100_000));
        assert!(matches!(check_growth(Path::new("tokenizer.json"), deep.as_bytes()), Err(Error::Damaged { .. })));
    }
}
