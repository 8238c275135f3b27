use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder};
use arrow::datatypes::DataType;

use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "bytea_in",
        section: "Text",
        description: "Reads bytes from PostgreSQL's forms, hexadecimal `\\\\xdead` or text with `\\\\` and octal numbers; `text::bytea` does the same.",
        parameters: &[Parameter { name: "text", kind: Kind::Text, description: "Bytes as text." }],
        required: 1,
        example: ("SELECT bytea_in('\\x01ff')", "01ff"),
    },
    returns: Returns::Always(DataType::Binary),
    kernel: |arguments| {
        let texts = arguments.text(0)?;
        let mut bytes = BinaryBuilder::new();
        for row in 0..arguments.num_rows() {
            bytes.append_option(texts.get(row).map(parse_bytea).transpose()?);
        }
        Ok(Arc::new(bytes.finish()) as ArrayRef)
    },
};

/// Bytes from PostgreSQL's text forms: `\x` and hexadecimal digits, or the older form with `\\` and octal numbers.
///
/// # Errors
/// [`Error::ByteaText`] if the text is neither.
pub fn parse_bytea(text: &str) -> Result<Vec<u8>, Error> {
    let bytes = match text.strip_prefix("\\x") {
        Some(digits) => from_hex(digits),
        None => from_escapes(text),
    };
    bytes.ok_or_else(|| Error::ByteaText { text: text.chars().take(60).collect() })
}

/// Bytes as PostgreSQL writes them: `\x` and two hexadecimal digits for each.
pub fn format_bytea(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(2 + 2 * bytes.len());
    write_bytea(bytes, &mut text);
    String::from_utf8(text).expect("hexadecimal digits are ASCII")
}

/// The same, behind what is there.
pub(crate) fn write_bytea(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + 2 * bytes.len());
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some((digit(*high)? * 16 + digit(*low)?) as u8),
        _ => None,
    };
    digits.chunks(2).map(byte).collect()
}

/// `\\` is a backslash, `\000` to `\377` one byte, everything else itself.
fn from_escapes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        (rest, _) = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => (after, bytes.push(b'\\')),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                (after, bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0')))
            }
            (b'\\', _) => return None,
            (other, after) => (after, bytes.push(*other)),
        };
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{format_bytea, parse_bytea};

    #[test]
    fn reads_both_forms() {
        assert_eq!(parse_bytea("\\xDEad 01"), Ok(vec![0xde, 0xad, 1]));
        assert_eq!(parse_bytea("a\\\\b\\377\\000"), Ok(vec![b'a', b'\\', b'b', 255, 0]));
        assert_eq!(parse_bytea(""), Ok(vec![]));
        assert_eq!(format_bytea(&[0, 0xde, 0xad]), "\\x00dead");
        for text in ["\\x0", "\\xzz", "\\", "\\9", "\\400"] {
            assert!(parse_bytea(text).is_err(), "{text}");
        }
    }
}
