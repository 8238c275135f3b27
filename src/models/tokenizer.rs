//! Text to token ids and back, and training of a byte-level BPE vocabulary.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    AddedToken, Encoding, PostProcessor, SplitDelimiterBehavior, TokenizerBuilder, TruncationDirection, TruncationParams,
    truncate_encodings,
};

use super::added_tokens::AddedTokens;
use super::chat_template::CHAT_TEMPLATE_FILE;
use super::config::{read_bounded, read_json};
use super::growing_text::{GrowingText, TokenBytes};
use super::shown::shown;
use super::tokenizer_growth::check_growth;
use crate::error::{Error, Result};

/// File name of the tokenizer in a model directory.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// File that names the special tokens, among other settings of transformers.
pub const TOKENIZER_CONFIG_FILE: &str = "tokenizer_config.json";
/// The token that ends a text, in the vocabularies that we train.
pub const END_OF_TEXT: &str = "<|endoftext|>";
/// Byte-level BPE starts from one token per byte.
const NUM_BYTES: usize = 256;
/// Words of Qwen2, from its published tokenizer: contractions, letters with one sign before, single digits, signs, white space.
pub(super) const QWEN2_WORDS: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Four times the largest that is published.
const TOKENIZER_BYTES_MAX: u64 = 128 << 20;
/// Tokens that a decoder has to see to write those after them as a part of the same text: one of them is no special token, and ends a character.
pub(super) const CONTEXT_TOKENS: usize = 8;
/// Two special tokens and one of the text.
const TRUNCATED_MIN: usize = 3;
/// Tags that protocols read in what a policy wrote. Models that learned one of them may have them as special tokens, as ProRAG's do.
const TAGS: [&str; 10] = ["step", "subquery", "retrieval", "subanswer", "answer", "query", "evidence", "search", "information", "think"];
/// What the settings call special tokens that are no part of a text, and what they are in files whose settings do not say.
const CONTROLS: [&str; 7] = ["bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"];
const USUAL_CONTROLS: [&str; 9] = ["<s>", "</s>", "<bos>", "<eos>", "<unk>", "<pad>", "<sep>", "<cls>", "<mask>"];

/// A Hugging Face fast tokenizer. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    eos_token_id: Option<u32>,
    pad_token_id: Option<u32>,
    /// What the tokenizer puts before a text, as the beginning-of-text token of Llama.
    beginning: Arc<[u32]>,
    /// Special tokens that are no part of a text.
    controls: Arc<HashSet<u32>>,
    /// Tokens that are no part of a text from outside.
    added: Arc<AddedTokens>,
    /// Of a byte-level tokenizer, made when the first text grows; None inside: of another one.
    bytes: Arc<OnceLock<Option<TokenBytes>>>,
}

impl Tokenizer {
    /// Loads `tokenizer.json`, and the tokens of the end of a text and of padding from `tokenizer_config.json` when that is there.
    ///
    /// Truncation and padding that the file asks for are switched off: the models pack sequences and know their own limits.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Damaged`] if a file does not parse, is too large, or has rules that make texts very long.
    pub fn load(directory: &Path) -> Result<Self> {
        Self::load_with(directory, None)
    }

    /// As [`Self::load`], but [`Self::encode_with_special_tokens`] cuts a text to `max_tokens`, special tokens included.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_truncating(directory: &Path, max_tokens: usize) -> Result<Self> {
        Self::load_with(directory, Some(TruncationParams { max_length: max_tokens, ..TruncationParams::default() }))
    }

    fn load_with(directory: &Path, truncation: Option<TruncationParams>) -> Result<Self> {
        if let Some(truncation) = &truncation {
            check_limit(directory, truncation.max_length)?;
        }
        let path = directory.join(TOKENIZER_FILE);
        let bytes = read_bounded(&path, TOKENIZER_BYTES_MAX)?;
        check_growth(&path, &bytes)?;
        let broken = |error: tokenizers::Error| Error::Damaged { path: path.clone(), reason: shown(&error.to_string()) };
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(broken)?;
        inner.with_padding(None).with_truncation(truncation).map_err(broken)?;
        let settings = settings(directory)?;
        let [eos_token_id, pad_token_id] =
            ["eos_token", "pad_token"].map(|name| token_text(&settings, name).and_then(|token| inner.token_to_id(token)));
        let beginning = beginning(&inner).map_err(broken)?;
        let controls = Arc::new(controls(&inner, &settings));
        let added = Arc::new(AddedTokens::new(inner.get_added_tokens_decoder().values()));
        Ok(Self { inner: Arc::new(inner), eos_token_id, pad_token_id, beginning, controls, added, bytes: Arc::default() })
    }

    /// Copies the files of a tokenizer from one model directory to another.
    ///
    /// # Errors
    /// [`Error::Io`] if `tokenizer.json` is absent or a file cannot be copied.
    pub fn copy_files(from: &Path, to: &Path) -> Result<()> {
        for name in [TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, "special_tokens_map.json", CHAT_TEMPLATE_FILE] {
            let path = from.join(name);
            if name == TOKENIZER_FILE || path.exists() {
                std::fs::copy(&path, to.join(name)).map_err(|source| Error::Io { path, source })?;
            }
        }
        Ok(())
    }

    /// The ids of a text, without the special tokens that some models put round one.
    ///
    /// # Errors
    /// [`Error::Internal`] if the tokenizer cannot encode it, which no text should cause.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_as(text, false)
    }

    /// A text from outside as it may stand in a prompt: no token that the tokenizer adds is read in it.
    pub fn plain<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.added.plain(text)
    }

    /// How many of `ids`, from the first, write the first `num_bytes` bytes of their text; all of them if it is shorter. `before`: the tokens before them.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn num_tokens_of(&self, before: &[u32], ids: &[u32], num_bytes: usize) -> Result<usize> {
        let (mut text, mut num_tokens) = (GrowingText::after(before), 0);
        while num_tokens < ids.len() && text.as_str().len() < num_bytes {
            text.push(self, ids[num_tokens])?;
            num_tokens += 1;
        }
        Ok(num_tokens)
    }

    /// The ids of a text with the special tokens of the model, as an encoder reads it (`[CLS] .. [SEP]`).
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_with_special_tokens(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_as(text, true)
    }

    /// The ids of a text that a decoder continues: with the special tokens that the tokenizer puts before a text, unless it begins with them, as a rendered
    /// chat template does; without those that it puts after one.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        let ids = self.encode(text)?;
        Ok(if ids.starts_with(&self.beginning) { ids } else { [&self.beginning, ids.as_slice()].concat() })
    }

    /// Where each token of a text stands in it, in bytes, ascending and at characters' bounds. A token that is a part of a character has all of it.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn token_ranges(&self, text: &str) -> Result<Vec<Range<usize>>> {
        let encoding = self.inner.encode(text, false).map_err(|error| Error::Internal(format!("encoding a text: {error}")))?;
        let mut last = 0..0;
        let ranges = encoding.get_offsets().iter().map(|(start, end)| {
            // A normaliser may have put characters in another order.
            last = text.floor_char_boundary(*start).max(last.start)..text.ceil_char_boundary(*end).max(last.end);
            last.clone()
        });
        Ok(ranges.collect())
    }

    /// The ids of two texts with the special tokens of the model between and round them, and the segment of each, as an encoder reads a pair. What is
    /// beyond `max_tokens`, special tokens included, is cut from the end of the longer text first.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_pair(&self, first: &str, second: &str, max_tokens: usize) -> Result<(Vec<u32>, Vec<u32>)> {
        let longest_first = TruncationParams { max_length: self.room_of_pair(max_tokens), ..TruncationParams::default() };
        let (first, second) = (self.part(first)?, self.part(second)?);
        let (first, second) = truncate_encodings(first, Some(second), &longest_first).map_err(pair_error)?;
        self.joined(first, second)
    }

    /// As [`Self::encode_pair`], but only the first text is cut, at its beginning. `None` if the second one alone is beyond `max_tokens`.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_pair_with_whole_second(&self, first: &str, second: &str, max_tokens: usize) -> Result<Option<(Vec<u32>, Vec<u32>)>> {
        let (mut first, second) = (self.part(first)?, self.part(second)?);
        let Some(room) = self.room_of_pair(max_tokens).checked_sub(second.get_ids().len()) else { return Ok(None) };
        first.truncate(room, 0, TruncationDirection::Left);
        self.joined(first, Some(second)).map(Some)
    }

    /// Tokens that two texts may have together.
    fn room_of_pair(&self, max_tokens: usize) -> usize {
        max_tokens.saturating_sub(self.inner.get_post_processor().map_or(0, |processor| processor.added_tokens(true)))
    }

    /// One text of a pair.
    fn part(&self, text: &str) -> Result<Encoding> {
        self.inner.encode_fast(text, false).map_err(pair_error)
    }

    fn joined(&self, first: Encoding, second: Option<Encoding>) -> Result<(Vec<u32>, Vec<u32>)> {
        let encoding = self.inner.post_process(first, second, true).map_err(pair_error)?;
        Ok((encoding.get_ids().to_vec(), encoding.get_type_ids().to_vec()))
    }

    fn encode_as(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, special).map_err(|error| Error::Internal(format!("encoding a text: {error}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of token ids, without special tokens, as transformers gives it with `skip_special_tokens`; bytes that are not UTF-8 become U+FFFD.
    ///
    /// Tags that were made special tokens are kept, as ProRAG's `<step>`: protocols read them.
    ///
    /// # Errors
    /// [`Error::Internal`] if the tokenizer cannot decode them.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let ids: Vec<u32> = ids.iter().copied().filter(|id| !self.controls.contains(id)).collect();
        self.inner.decode(&ids, false).map_err(|error| Error::Internal(format!("decoding tokens: {error}")))
    }

    /// What `ids` add to the text of the tokens `before` them, of which the last few matter: its leading blank too, which the decoders of some tokenizers take
    /// away from a text (Llama 2).
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn decode_after(&self, before: &[u32], ids: &[u32]) -> Result<String> {
        if self.bytes().is_some() {
            return self.decode(ids);
        }
        let before = &before[before.len().saturating_sub(CONTEXT_TOKENS)..];
        let (known, mut all) = (self.decode(before)?, self.decode(&[before, ids].concat())?);
        // The bytes of one character may be on both sides.
        if all.starts_with(&known) { Ok(all.split_off(known.len())) } else { self.decode(ids) }
    }

    /// The bytes of each token, if a text is the bytes of its tokens one after the other.
    pub(super) fn bytes(&self) -> Option<&TokenBytes> {
        self.bytes.get_or_init(|| TokenBytes::of(&self.inner, &self.controls)).as_ref()
    }

    /// The token that ends a text, if the tokenizer names one.
    pub fn eos_token_id(&self) -> Option<u32> {
        self.eos_token_id
    }

    /// The token that fills up shorter texts of a batch, if the tokenizer names one.
    pub fn pad_token_id(&self) -> Option<u32> {
        self.pad_token_id
    }

    /// The number after the largest id, special tokens included; a file may leave numbers out.
    pub fn ids_end(&self) -> usize {
        self.inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
    }

    /// Number of ids, special tokens included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}

/// Checks that a limit leaves something of a text.
///
/// # Errors
/// [`Error::Damaged`], since the limit is that of the files in `directory`.
pub fn check_limit(directory: &Path, max_tokens: usize) -> Result<()> {
    if max_tokens >= TRUNCATED_MIN {
        return Ok(());
    }
    let reason = format!("texts would be cut to {max_tokens} tokens, expected at least {TRUNCATED_MIN}");
    Err(Error::Damaged { path: directory.join(TOKENIZER_FILE), reason })
}

fn pair_error(error: tokenizers::Error) -> Error {
    Error::Internal(format!("encoding a pair of texts: {error}"))
}

/// The special tokens that stand before the first token of a text.
fn beginning(tokenizer: &tokenizers::Tokenizer) -> tokenizers::Result<Arc<[u32]>> {
    let encoding = tokenizer.encode("a", true)?;
    let special = encoding.get_special_tokens_mask().iter().take_while(|is_special| **is_special == 1).count();
    Ok(encoding.get_ids()[..special].into())
}

/// All special tokens but [`TAGS`] that have no role of their own.
fn controls(tokenizer: &tokenizers::Tokenizer, settings: &Value) -> HashSet<u32> {
    let roles: Vec<&str> = CONTROLS.iter().filter_map(|name| token_text(settings, name)).chain(USUAL_CONTROLS).collect();
    let is_control = |text: &str| !is_tag(text) || roles.contains(&text);
    let added = tokenizer.get_added_tokens_decoder().into_iter();
    added.filter(|(_, token)| token.special && is_control(&token.content)).map(|(id, _)| id).collect()
}

/// Whether a text is `<name>` or `</name>` of one of [`TAGS`].
fn is_tag(text: &str) -> bool {
    let name = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    let name = name.map(|name| name.strip_prefix('/').unwrap_or(name).trim());
    name.is_some_and(|name| TAGS.iter().any(|tag| tag.eq_ignore_ascii_case(name)))
}

/// `tokenizer_config.json`; null without it.
fn settings(directory: &Path) -> Result<Value> {
    let path = directory.join(TOKENIZER_CONFIG_FILE);
    if path.exists() { read_json(&path) } else { Ok(Value::Null) }
}

/// The text of the special token called `name`: a string, or an object with a `content`.
fn token_text<'a>(settings: &'a Value, name: &str) -> Option<&'a str> {
    let token = settings.get(name)?;
    token.as_str().or_else(|| token.get("content")?.as_str())
}

/// Trains a byte-level BPE vocabulary of at most `vocab_size` tokens and writes `tokenizer.json` and `tokenizer_config.json`,
/// which transformers' `AutoTokenizer` loads. The first id is [`END_OF_TEXT`]. Any text encodes, since every byte is a token;
/// it comes back in Unicode's normal form C.
///
/// # Errors
/// [`Error::InvalidParameter`] if `vocab_size` cannot hold the bytes and the special token, [`Error::Io`].
pub fn train_byte_level_bpe(texts: &[String], vocab_size: usize, directory: &Path) -> Result<Tokenizer> {
    if vocab_size <= NUM_BYTES {
        let expected = format!("at least {}, one token per byte and the end of text", NUM_BYTES + 1);
        return Err(Error::InvalidParameter { name: "vocab_size".to_owned(), found: vocab_size.to_string(), expected });
    }
    let internal = |error: tokenizers::Error| Error::Internal(format!("training a tokenizer: {error}"));
    let mut tokenizer = TokenizerBuilder::<_, _, _, tokenizers::PostProcessorWrapper, _>::new()
        .with_model(BPE::default())
        .with_normalizer(Some(NFC))
        .with_pre_tokenizer(Some(qwen2_words().map_err(internal)?))
        .with_decoder(Some(ByteLevel::default()))
        .build()
        .map_err(internal)?;
    let mut trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(vocab_size)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(vec![AddedToken::from(END_OF_TEXT, true)])
        .build();
    tokenizer.train(&mut trainer, texts.iter()).map_err(internal)?;
    tokenizer.save(directory.join(TOKENIZER_FILE), true).map_err(internal)?;
    save_tokenizer_config(directory)?;
    Tokenizer::load(directory)
}

/// How Qwen2 cuts a text into words, before each is cut into tokens.
///
/// transformers 5 gives every model of this type this normaliser and these words, whatever its `tokenizer.json` says.
fn qwen2_words() -> tokenizers::Result<Sequence> {
    let words = Split::new(SplitPattern::Regex(QWEN2_WORDS.to_owned()), SplitDelimiterBehavior::Isolated, false)?;
    let bytes = ByteLevel::new(false, true, false);
    Ok(Sequence::new(vec![words.into(), bytes.into()]))
}

fn save_tokenizer_config(directory: &Path) -> Result<()> {
    let config: Value = json!({
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": false,
    });
    let path = directory.join(TOKENIZER_CONFIG_FILE);
    std::fs::write(&path, format!("{config:#}\n")).map_err(|source| Error::Io { path, source })
}
