//! Text that grows token by token, in which stop texts are looked for.
//!
//! A token may end inside a character, so the newest bytes are held back until they make whole characters. Of a byte-level tokenizer a text is the bytes of
//! its tokens, which are looked up; with any other one the newest tokens are decoded with those before them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use tokenizers::decoders::DecoderWrapper;

use super::tokenizer::{CONTEXT_TOKENS, Tokenizer};
use crate::error::Result;

/// What a byte-level tokenizer writes for the bytes that it does not write as they are begins here (GPT-2).
const FIRST_STAND_IN: u32 = 256;

/// The bytes of each token of a byte-level tokenizer.
#[derive(Debug)]
pub(super) struct TokenBytes {
    bytes: Vec<u8>,
    /// Of each id; empty where there is no such token, and of special tokens that are no part of a text.
    ranges: Vec<Range<u32>>,
}

impl TokenBytes {
    /// None of a tokenizer whose texts are more than the bytes of their tokens.
    pub fn of(tokenizer: &tokenizers::Tokenizer, controls: &HashSet<u32>) -> Option<Self> {
        if !matches!(tokenizer.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
            return None;
        }
        let bytes_by_letter = bytes_by_letter();
        let num_ids = tokenizer.get_vocab(true).into_values().max().map_or(0, |id| id + 1);
        let (mut bytes, mut ranges) = (Vec::new(), Vec::with_capacity(num_ids as usize));
        for id in 0..num_ids {
            let start = bytes.len() as u32;
            if let Some(token) = tokenizer.id_to_token(id).filter(|_| !controls.contains(&id)) {
                let stand_ins: Option<Vec<u8>> = token.chars().map(|letter| bytes_by_letter.get(&letter).copied()).collect();
                // An added token is the text that it is.
                bytes.extend(stand_ins.unwrap_or_else(|| token.into_bytes()));
            }
            ranges.push(start..bytes.len() as u32);
        }
        Some(Self { bytes, ranges })
    }

    fn of_token(&self, id: u32) -> &[u8] {
        self.ranges.get(id as usize).map_or(&[], |range| &self.bytes[range.start as usize..range.end as usize])
    }
}

/// What byte stands behind each letter of the tokens: printable ones stand for themselves, the others for letters from [`FIRST_STAND_IN`] on.
fn bytes_by_letter() -> HashMap<char, u8> {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=u8::MAX).filter(|byte| !is_printable(*byte));
    let stand_ins = (FIRST_STAND_IN..).filter_map(char::from_u32).zip(others);
    (0..=u8::MAX).filter(|byte| is_printable(*byte)).map(|byte| (char::from(byte), byte)).chain(stand_ins).collect()
}

/// Text that grows token by token.
#[derive(Debug, Default)]
pub struct GrowingText {
    text: String,
    /// Of a byte-level tokenizer: what is not a whole character yet.
    pending: Vec<u8>,
    /// Of another one: all tokens.
    ids: Vec<u32>,
    /// Tokens before this index only give context to the decoder, whose first token may lose its leading space.
    context: usize,
    /// Tokens before this index are in `text`.
    read: usize,
}

impl GrowingText {
    /// The text that grows after the tokens of a prompt.
    pub fn after(prompt: &[u32]) -> Self {
        let ids = prompt[prompt.len().saturating_sub(CONTEXT_TOKENS)..].to_vec();
        Self { read: ids.len(), ids, ..Self::default() }
    }

    /// Appends a token.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<()> {
        match tokenizer.bytes() {
            Some(bytes) => self.push_bytes(bytes.of_token(id)),
            None => self.decode(tokenizer, id)?,
        }
        Ok(())
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let mut read = 0;
        // As a whole text is decoded: what is no character becomes U+FFFD.
        for chunk in self.pending.utf8_chunks() {
            self.text.push_str(chunk.valid());
            read += chunk.valid().len();
            let is_last = read + chunk.invalid().len() == self.pending.len();
            if chunk.invalid().is_empty() || (is_last && is_begun_character(chunk.invalid())) {
                break;
            }
            self.text.push(char::REPLACEMENT_CHARACTER);
            read += chunk.invalid().len();
        }
        self.pending.drain(..read);
    }

    fn decode(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<()> {
        self.ids.push(id);
        let known = tokenizer.decode(&self.ids[self.context..self.read])?;
        let all = tokenizer.decode(&self.ids[self.context..])?;
        if all.len() > known.len() && !all.ends_with(char::REPLACEMENT_CHARACTER) {
            self.text.push_str(all.get(known.len()..).unwrap_or_default());
            self.context = self.read;
            self.read = self.ids.len();
        }
        Ok(())
    }

    /// The text of the tokens so far, up to the last whole character.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Whether further bytes could make it a character.
fn is_begun_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the bytes and however they come: the text is what they are all together, but for a character that is not whole yet.
        #[test]
        fn bytes_in_pieces_are_the_text_of_all(
            pieces in vec(prop_oneof![
                vec(any::<u8>(), 0..3),
                prop::sample::select(vec!["é", "本", "🦀", "a"]).prop_flat_map(|text| (0..=text.len()).prop_map(|end| text.as_bytes()[..end].to_vec())),
            ], 0..20),
        ) {
            let mut growing = GrowingText::default();
            for (index, piece) in pieces.iter().enumerate() {
                growing.push_bytes(piece);
                let all = pieces[..=index].concat();
                let pending = if growing.pending.is_empty() { "" } else { "\u{FFFD}" };
                prop_assert_eq!(String::from_utf8_lossy(&all), format!("{}{pending}", growing.as_str()));
            }
        }
    }
}
