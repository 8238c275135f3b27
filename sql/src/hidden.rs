//! Texts without the passwords in them, for those who show what others run.

use std::borrow::Cow;

/// What stands in the place of a password.
const HIDDEN: &str = "'***'";

/// The text with every literal after the word PASSWORD hidden: `ALTER ROLE ann PASSWORD '***'`.
///
/// It needs no text that parses: one with an error, or with half a literal, hides what it has of a password too.
pub fn without_passwords(text: &str) -> Cow<'_, str> {
    const WORD: &str = "password";
    // Nearly all texts have no such word.
    let lower = text.to_ascii_lowercase();
    if !lower.contains(WORD) {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), 0);
    while let Some(found) = lower[rest..].find(WORD) {
        let after_word = rest + found + WORD.len();
        let start = after_word + gap(&text[after_word..]);
        shown.push_str(&text[rest..start]);
        let length = literal_length(&text[start..]);
        if length > 0 {
            shown.push_str(HIDDEN);
        }
        rest = start + length;
    }
    shown.push_str(&text[rest..]);
    Cow::Owned(shown)
}

/// Blanks, comments and an equals sign, which may stand between the word and the literal.
fn gap(text: &str) -> usize {
    let mut rest = text;
    loop {
        let before = rest.len();
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '=');
        if let Some(comment) = rest.strip_prefix("--") {
            rest = &comment[comment.find('\n').unwrap_or(comment.len())..];
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.find("*/").map_or("", |end| &comment[end + 2..]);
        }
        if rest.len() == before {
            return text.len() - rest.len();
        }
    }
}

/// The bytes of the literal that a text starts with: `'a''b'`, `E'a\'b'`, `$$a$$`; all of one that has no end, 0 if there is none.
fn literal_length(text: &str) -> usize {
    let has_prefix = text.starts_with(['e', 'E', 'u', 'U', 'n', 'N', 'b', 'B', 'x', 'X']);
    let prefix = if has_prefix { text[1..].strip_prefix('&').map_or(1, |_| 2) } else { 0 };
    if text[prefix..].starts_with('\'') {
        return prefix + 1 + quoted_length(&text[prefix + 1..], text.starts_with(['e', 'E']));
    }
    if let Some(tag) = dollar_tag(text) {
        return text[tag.len()..].find(tag).map_or(text.len(), |end| end + 2 * tag.len());
    }
    0
}

/// Up to the quote that ends the literal, and with it.
fn quoted_length(text: &str, has_escapes: bool) -> usize {
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' if has_escapes => i += 2,
            b'\'' if bytes.get(i + 1) == Some(&b'\'') => i += 2,
            b'\'' => return i + 1,
            _ => i += 1,
        }
    }
    text.len()
}

/// `$$` or `$tag$` at the start of a text.
fn dollar_tag(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('$')?;
    let end = inner.find('$')?;
    inner[..end].chars().all(|c| c.is_alphanumeric() || c == '_').then(|| &text[..end + 2])
}

#[cfg(test)]
mod tests {
    use super::without_passwords;

    #[test]
    fn passwords_are_hidden_and_nothing_else() {
        for (text, shown) in [
            ("SELECT 'text' FROM t", "SELECT 'text' FROM t"),
            ("SELECT password FROM t WHERE a = 'x'", "SELECT password FROM t WHERE a = 'x'"),
            (
                "CREATE ROLE a LOGIN PASSWORD 'it''s' VALID UNTIL '2030-01-01'",
                "CREATE ROLE a LOGIN PASSWORD '***' VALID UNTIL '2030-01-01'",
            ),
            ("alter user a encrypted password\n /* now */ E'a\\'b' login", "alter user a encrypted password\n /* now */ '***' login"),
            ("ALTER ROLE a PASSWORD $x$secret$x$; SELECT 1", "ALTER ROLE a PASSWORD '***'; SELECT 1"),
            ("ALTER ROLE a PASSWORD 'no end", "ALTER ROLE a PASSWORD '***'"),
            ("ALTER ROLE a PASSWORD NULL", "ALTER ROLE a PASSWORD NULL"),
            ("SET password_encryption = 'md5'", "SET password_encryption = 'md5'"),
            ("ALTER ROLE ä PASSWORD 'ü'", "ALTER ROLE ä PASSWORD '***'"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }
}
