//! Tokens that a tokenizer adds to its vocabulary, in texts from outside.
//!
//! A tokenizer reads such a token wherever its text stands, so a passage could end a turn, or say what only a template may. There the text is changed by as
//! little as it takes: it looks the same, and is read as the characters that it is of.

use std::borrow::Cow;
use std::collections::HashSet;

use tokenizers::AddedToken;

/// Stand for the first character of a token: they look like it, and stay what they are where a tokenizer normalises compatible characters.
const LOOKALIKES: [(char, char); 2] = [('<', '‹'), ('[', '⁅')];
/// Parts a token that begins with another character, and is not seen.
const WORD_JOINER: char = '\u{2060}';

/// The added tokens that no text from outside may have.
#[derive(Debug, Default)]
pub struct AddedTokens {
    /// In small letters: there are tokenizers that read texts so.
    texts: HashSet<String>,
    /// Of the texts, in bytes, the longest first.
    lengths: Vec<usize>,
    first_bytes: HashSet<u8>,
}

impl AddedTokens {
    /// Special tokens, and others that look like markup. The rest are words and blanks, which mean what they say.
    pub fn new<'a>(tokens: impl Iterator<Item = &'a AddedToken>) -> Self {
        let is_mark = |token: &&AddedToken| token.special || token.content.starts_with(LOOKALIKES.map(|(mark, _)| mark));
        let texts = tokens.filter(is_mark).map(|token| token.content.to_ascii_lowercase());
        // A token of one character cannot be parted; one of blanks is what blanks are read as.
        let texts: HashSet<String> = texts.filter(|text| text.trim().chars().count() > 1).collect();
        let lengths: HashSet<usize> = texts.iter().map(String::len).collect();
        let mut lengths: Vec<usize> = lengths.into_iter().collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let first_bytes = texts.iter().map(|text| text.as_bytes()[0]).collect();
        Self { texts, lengths, first_bytes }
    }

    /// The text without any of these tokens.
    pub fn plain<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let lower = text.to_ascii_lowercase();
        let starts = |start: &usize| self.first_bytes.contains(&lower.as_bytes()[*start]) && self.is_at(&lower, *start);
        let mut found = (0..lower.len()).filter(starts).peekable();
        if found.peek().is_none() {
            return Cow::Borrowed(text);
        }
        let (mut plain, mut copied) = (String::with_capacity(text.len() + 8), 0);
        for start in found {
            let Some(first) = text[start..].chars().next() else { break };
            plain.push_str(&text[copied..start]);
            match LOOKALIKES.iter().find(|(mark, _)| *mark == first) {
                Some((_, lookalike)) => plain.push(*lookalike),
                None => plain.extend([first, WORD_JOINER]),
            }
            copied = start + first.len_utf8();
        }
        plain.push_str(&text[copied..]);
        Cow::Owned(plain)
    }

    fn is_at(&self, lower: &str, start: usize) -> bool {
        self.lengths.iter().any(|len| lower.get(start..start + len).is_some_and(|text| self.texts.contains(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> AddedTokens {
        let special = ["<unk>", "<file_sep>", "<|im_end|>", "[SEP]", "ENDOFTEXT", "▁", "\n\n"].map(|text| AddedToken::from(text, true));
        let other = ["<tool_call>", "cinema", "  "].map(|text| AddedToken::from(text, false));
        AddedTokens::new(special.iter().chain(&other))
    }

    #[test]
    fn tokens_are_parted_and_everything_else_stays() {
        let tokens = tokens();
        for (text, expected) in [
            ("a <file_sep> b<unk>", "a ‹file_sep> b‹unk>"),
            ("<FILE_SEP><<unk>>", "‹FILE_SEP><‹unk>>"),
            ("[SEP] <|im_end|> <tool_call>", "⁅SEP] ‹|im_end|> ‹tool_call>"),
            ("see ENDOFTEXT", "see E\u{2060}NDOFTEXT"),
            ("é<unk>é", "é‹unk>é"),
        ] {
            assert_eq!(tokens.plain(text), expected);
            assert_eq!(tokens.plain(expected), expected, "it is plain now");
        }
        for plain in ["", "the cinema of 1975", "<file_sepa> < unk>", "▁ \n\n", "[1] Jaws", "END OF TEXT", "1 < 2"] {
            assert!(matches!(tokens.plain(plain), Cow::Borrowed(_)), "{plain:?}");
        }
        assert_eq!(AddedTokens::default().plain("<unk>"), "<unk>");
    }
}
