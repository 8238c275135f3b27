//! A bound on how much a text says: sqlparser makes a token of two hundred bytes of every sign and every space before it looks at any.

use crate::error::{Error, Result};

/// Words, signs and spaces of one text; a string is one, however long.
const TOKENS_MAX: usize = 4_000_000;

/// Refuses a text of too many tokens, before any is made.
pub(crate) fn check_length(text: &str) -> Result<()> {
    // No text has more tokens than bytes.
    if text.len() <= TOKENS_MAX || num_tokens(text.as_bytes()) <= TOKENS_MAX {
        return Ok(());
    }
    Err(Error::TooDeep { limit: TOKENS_MAX, what: "words, signs and spaces in one text; COPY takes more" })
}

/// As many tokens as sqlparser makes, or somewhat more.
fn num_tokens(text: &[u8]) -> usize {
    let mut count = 0;
    let mut rest = text;
    while let Some(first) = rest.first() {
        let is_escaped = matches!(first, b'e' | b'E') && rest.get(1) == Some(&b'\'');
        let bytes = match first {
            _ if is_escaped => 1 + quoted(&rest[1..], true),
            b'\'' | b'"' => quoted(rest, false),
            b'$' => dollar_quoted(rest),
            b'-' if rest.starts_with(b"--") => memchr_or_end(rest, b'\n'),
            b'/' if rest.starts_with(b"/*") => commented(rest),
            first if is_word(*first) => rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len()),
            _ => 1,
        };
        rest = &rest[bytes..];
        count += 1;
    }
    count
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn memchr_or_end(text: &[u8], end: u8) -> usize {
    text.iter().position(|byte| *byte == end).unwrap_or(text.len())
}

/// Bytes of a string or name with its quotes; a doubled quote begins another one, which comes to the same.
fn quoted(text: &[u8], has_escapes: bool) -> usize {
    let mut position = 1;
    while let Some(byte) = text.get(position) {
        position += 1;
        if *byte == text[0] {
            break;
        }
        position += usize::from(has_escapes && *byte == b'\\');
    }
    position.min(text.len())
}

/// Bytes of `$tag$...$tag$`; 1 for any other dollar.
fn dollar_quoted(text: &[u8]) -> usize {
    let tag = 1 + text[1..].iter().take_while(|byte| is_word(**byte)).count();
    if text.get(tag) != Some(&b'$') || text[1].is_ascii_digit() {
        return 1;
    }
    let (tag, body) = text.split_at(tag + 1);
    body.windows(tag.len()).position(|end| end == tag).map_or(text.len(), |end| tag.len() + end + tag.len())
}

/// Bytes of a comment, with the comments in it.
fn commented(text: &[u8]) -> usize {
    let (mut depth, mut position) = (0_usize, 0);
    while position < text.len() {
        let step = match &text[position..] {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        position += step;
        if depth == 0 {
            break;
        }
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_is_one_token() {
        for (text, count) in [
            ("SELECT 1", 3),
            ("'it''s (( (('", 2),
            (r"E'it\'s (('", 1),
            ("\"((\" (", 3),
            ("$$((($$", 1),
            ("$a$ ($$( $a$ $1", 4),
            ("-- (((\n1", 3),
            ("/* (( /* (( */ (( */ 1", 3),
            ("'never closed ((", 1),
            ("/* never closed", 1),
            ("$a$ never closed", 1),
            ("E'\\", 1),
            ("é+ü", 3),
        ] {
            assert_eq!(num_tokens(text.as_bytes()), count, "{text}");
        }
    }

    #[test]
    fn a_long_string_is_no_long_text() {
        assert!(check_length(&format!("SELECT '{}'", "(".repeat(2 * TOKENS_MAX))).is_ok());
        assert!(matches!(check_length(&"(".repeat(2 * TOKENS_MAX)), Err(Error::TooDeep { .. })));
        assert!(matches!(crate::parse(&" ".repeat(2 * TOKENS_MAX)), Err(Error::TooDeep { .. })));
    }
}
