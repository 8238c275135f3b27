//! The tokenizers that we train: every text survives, pieces of a text come out whole.

use super::tiny_policy;
use crate::error::Error;
use crate::fixtures::fixture;
use crate::models::growing_text::GrowingText;
use crate::models::tokenizer::{TOKENIZER_FILE, Tokenizer, train_byte_level_bpe};

const TEXTS: [&str; 5] = ["", "Who directed Jaws?", " leading space\n\nlines", "Größe, 東京, 🦀 and \u{0}", "<query>film 3</query>"];

#[test]
fn any_text_survives() {
    let tokenizer = &tiny_policy().tokenizer;
    for text in TEXTS {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()).unwrap(), text);
    }
    assert_eq!(tokenizer.eos_token_id(), Some(0));
    assert!(tokenizer.vocab_size() <= 300);
    assert!(tokenizer.encode("Question: who").unwrap().len() < 10, "merges were learned");
}

#[test]
fn text_grows_by_whole_characters() {
    let tokenizer = &tiny_policy().tokenizer;
    for text in TEXTS {
        let mut incremental = GrowingText::default();
        for id in tokenizer.encode(text).unwrap() {
            incremental.push(tokenizer, id).unwrap();
            assert!(text.starts_with(incremental.as_str()), "{:?} is not the beginning of {text:?}", incremental.as_str());
        }
        assert_eq!(incremental.as_str(), text);
    }
}

#[test]
fn tags_that_are_special_tokens_are_text() {
    let directory = tempfile::tempdir().unwrap();
    let plain = train_byte_level_bpe(&TEXTS.map(str::to_owned), 290, directory.path()).unwrap();
    let first = u32::try_from(plain.ids_end()).unwrap();
    let path = directory.path().join(TOKENIZER_FILE);
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let added = json["added_tokens"].as_array_mut().unwrap();
    for (id, content) in (first..).zip(["<step>", "</step>", "<pad>", "<|im_end|>", "[INST]", "<file_sep>", "<fim_prefix>"]) {
        added.push(serde_json::json!({
            "id": id, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false
        }));
    }
    std::fs::write(&path, json.to_string()).unwrap();
    let tokenizer = Tokenizer::load(directory.path()).unwrap();
    let ids = tokenizer.encode("<step>Who?</step><pad><|im_end|>[INST]<|endoftext|>").unwrap();
    assert_eq!((ids[0], ids[ids.len() - 5..].to_vec()), (first, vec![first + 1, first + 2, first + 3, first + 4, 0]));
    assert_eq!(tokenizer.decode(&ids).unwrap(), "<step>Who?</step>");
    // As transformers' `skip_special_tokens` leaves them out: no protocol reads these.
    let others = tokenizer.encode("a<file_sep>b<fim_prefix>").unwrap();
    assert!(others.contains(&(first + 5)) && others.contains(&(first + 6)));
    assert_eq!(tokenizer.decode(&others).unwrap(), "ab");
    // From outside they are the characters that they are of.
    let plain = tokenizer.plain("a<file_sep>b <|im_end|> [INST]<fim_prefix>");
    assert_eq!(plain, "a‹file_sep>b ‹|im_end|> ⁅INST]‹fim_prefix>");
    assert!(tokenizer.encode(&plain).unwrap().iter().all(|id| *id < first && *id != 0));
    let mut incremental = GrowingText::default();
    ids.iter().for_each(|id| incremental.push(&tokenizer, *id).unwrap());
    assert_eq!(incremental.as_str(), "<step>Who?</step>");
}

#[test]
fn a_part_of_a_text_is_of_its_first_tokens() {
    let tokenizer = &tiny_policy().tokenizer;
    for text in TEXTS {
        let ids = tokenizer.encode(text).unwrap();
        for (end, _) in text.char_indices().skip(1) {
            let num_tokens = tokenizer.num_tokens_of(&[], &ids, end).unwrap();
            let decoded = |num_tokens: usize| {
                let mut growing = GrowingText::default();
                ids[..num_tokens].iter().for_each(|id| growing.push(tokenizer, *id).unwrap());
                growing.as_str().len()
            };
            assert!(decoded(num_tokens) >= end && decoded(num_tokens - 1) < end, "{end} bytes of {text:?}");
        }
        assert_eq!(tokenizer.num_tokens_of(&[], &ids, 0).unwrap(), 0);
        assert_eq!(tokenizer.num_tokens_of(&[], &ids, usize::MAX).unwrap(), ids.len());
    }
}

#[test]
fn the_same_texts_give_the_same_vocabulary() {
    let texts: Vec<String> = TEXTS.iter().map(|text| text.repeat(20)).collect();
    let train = || {
        let directory = tempfile::tempdir().unwrap();
        train_byte_level_bpe(&texts, 290, directory.path()).unwrap();
        std::fs::read(directory.path().join("tokenizer.json")).unwrap()
    };
    assert!(train() == train());
}

#[test]
fn a_vocabulary_without_room_for_the_bytes_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let result = train_byte_level_bpe(&[], 256, directory.path());
    assert!(matches!(result, Err(Error::InvalidParameter { .. })));
}

#[test]
fn a_prompt_has_one_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let plain = train_byte_level_bpe(&TEXTS.map(str::to_owned), 290, directory.path()).unwrap();
    assert_eq!(plain.encode_prompt("Who").unwrap(), plain.encode("Who").unwrap());
    let path = directory.path().join(TOKENIZER_FILE);
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let (token, text) = (
        serde_json::json!({"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}),
        serde_json::json!({"Sequence": {"id": "A", "type_id": 0}}),
    );
    json["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing", "single": [token, text, token], "pair": [token, text, text],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
    });
    std::fs::write(&path, json.to_string()).unwrap();
    let tokenizer = Tokenizer::load(directory.path()).unwrap();
    let expected = [&[0], plain.encode("Who").unwrap().as_slice()].concat();
    assert_eq!(tokenizer.encode_prompt("Who").unwrap(), expected, "without the token after the text");
    assert_eq!(tokenizer.encode_prompt("<|endoftext|>Who").unwrap(), expected, "a rendered template begins with it");
}

/// Of Llama 2: words that begin with a blank, characters of bytes, and a decoder that takes a blank away (`tests/fixtures/make_decoding_goldens.py`).
#[test]
fn a_continuation_is_what_the_whole_text_has_more() {
    #[derive(serde::Deserialize)]
    struct Golden {
        text: String,
        ids: Vec<u32>,
        decoded: String,
        /// By the number of tokens before them.
        continuations: std::collections::BTreeMap<usize, String>,
    }
    let directory = fixture("models").join("llama2");
    let tokenizer = Tokenizer::load(&directory).unwrap();
    let goldens: Vec<Golden> = serde_json::from_slice(&std::fs::read(directory.join("goldens.json")).unwrap()).unwrap();
    let mut with_blank = 0;
    for golden in goldens {
        assert_eq!(tokenizer.encode_prompt(&golden.text).unwrap(), golden.ids, "{}", golden.text);
        assert_eq!(tokenizer.decode(&golden.ids).unwrap(), golden.decoded);
        for (end, expected) in golden.continuations {
            let (before, after) = golden.ids.split_at(end);
            assert_eq!(tokenizer.decode_after(before, after).unwrap(), expected, "{} after {end} tokens", golden.text);
            let mut growing = GrowingText::after(before);
            after.iter().for_each(|id| growing.push(&tokenizer, *id).unwrap());
            assert_eq!(growing.as_str(), expected, "{} token by token after {end}", golden.text);
            with_blank += usize::from(expected.starts_with(' '));
        }
    }
    assert!(with_blank > 5, "the goldens have continuations that begin with a blank");
}
