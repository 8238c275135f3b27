//! Quotes round the items of arrays and the values of records.

/// What has to be quoted, and how a quote within is written.
pub(super) struct Quoting {
    special: fn(u8) -> bool,
    /// An item that is this word without quotes is none.
    null: &'static str,
    /// Before a quote: a backslash in arrays, another quote in records. A backslash is doubled in records, and has one before it in arrays: the same.
    before_quote: u8,
}

pub(super) const ARRAY: Quoting =
    Quoting { special: |byte| matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\') || is_blank(byte), null: "NULL", before_quote: b'\\' };

pub(super) const RECORD: Quoting =
    Quoting { special: |byte| matches!(byte, b'(' | b')' | b',' | b'"' | b'\\') || is_blank(byte), null: "", before_quote: b'"' };

impl Quoting {
    /// Whether a text needs quotes.
    fn is_needed(&self, text: &[u8]) -> bool {
        text.is_empty() || text.eq_ignore_ascii_case(self.null.as_bytes()) || self.has_special(text)
    }

    pub(super) fn has_special(&self, text: &[u8]) -> bool {
        text.iter().any(|byte| (self.special)(*byte))
    }

    /// Puts quotes round what stands from `start` on, if it needs them.
    pub(super) fn quote(&self, out: &mut Vec<u8>, start: usize) {
        if !self.is_needed(&out[start..]) {
            return;
        }
        let text = out.split_off(start);
        out.reserve(text.len() + 2);
        out.push(b'"');
        for byte in text {
            match byte {
                b'"' => out.push(self.before_quote),
                b'\\' => out.push(b'\\'),
                _ => {}
            }
            out.push(byte);
        }
        out.push(b'"');
    }
}

/// PostgreSQL's blanks: those of ASCII, with the vertical tab.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(quoting: &Quoting, text: &str) -> String {
        let mut out = b"before".to_vec();
        out.extend_from_slice(text.as_bytes());
        quoting.quote(&mut out, 6);
        String::from_utf8(out.split_off(6)).expect("text")
    }

    /// From PostgreSQL 15: `SELECT ARRAY[text]` and `SELECT ROW(text)`.
    #[test]
    fn quotes_stand_where_postgres_puts_them() {
        for (text, in_array, in_record) in [
            ("a", "a", "a"),
            ("", "\"\"", "\"\""),
            ("null", "\"null\"", "null"),
            ("a b", "\"a b\"", "\"a b\""),
            ("a,b", "\"a,b\"", "\"a,b\""),
            ("{a}", "\"{a}\"", "{a}"),
            ("(a)", "(a)", "\"(a)\""),
            ("a\"b", "\"a\\\"b\"", "\"a\"\"b\""),
            ("a\\b", "\"a\\\\b\"", "\"a\\\\b\""),
            ("\u{b}", "\"\u{b}\"", "\"\u{b}\""),
            ("grüß", "grüß", "grüß"),
        ] {
            assert_eq!((quoted(&ARRAY, text).as_str(), quoted(&RECORD, text).as_str()), (in_array, in_record), "{text}");
        }
    }
}
