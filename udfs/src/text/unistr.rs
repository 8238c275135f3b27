use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::DataType;

use super::{SECTION, TEXT};
use crate::Error;
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "unistr",
        section: SECTION,
        description: "The text with characters in the place of `\\XXXX`, `\\+XXXXXX`, `\\uXXXX` and `\\UXXXXXXXX`, their numbers in Unicode; two backslashes are one.",
        parameters: &[TEXT],
        required: 1,
        example: ("SELECT unistr('d\\0061t\\+000061')", "data"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let texts = arguments.text(0)?;
        let read = |text: &str| {
            unescaped(text).ok_or_else(|| {
                let found: String = text.chars().take(60).collect();
                FUNCTION.interface.argument_error(
                    0,
                    format!("\"{found}\""),
                    "\\XXXX, \\+XXXXXX, \\uXXXX, \\UXXXXXXXX or \\\\ for each backslash",
                )
            })
        };
        let read = (0..arguments.num_rows()).map(|row| texts.get(row).map(read).transpose());
        Ok(Arc::new(read.collect::<Result<StringArray, Error>>()?) as ArrayRef)
    },
};

/// The text with its escapes read; `None` for one that is no character.
#[must_use]
pub fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        out.push_str(before);
        if let Some(behind) = escape.strip_prefix('\\') {
            out.push('\\');
            rest = behind;
            continue;
        }
        let (mut number, mut behind) = code(escape)?;
        // Two halves of a character beyond the first plane.
        if (0xd800..0xdc00).contains(&number) {
            let (low, after) = code(behind.strip_prefix('\\')?)?;
            let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
            (number, behind) = (0x10000 + ((number - 0xd800) << 10) + low, after);
        }
        out.push(char::from_u32(number).filter(|character| *character != '\0')?);
        rest = behind;
    }
    out.push_str(rest);
    Some(out)
}

/// The number behind a backslash, and what follows it.
fn code(escape: &str) -> Option<(u32, &str)> {
    let (digits, count) = match escape.as_bytes().first()? {
        b'+' => (&escape[1..], 6),
        b'u' => (&escape[1..], 4),
        b'U' => (&escape[1..], 8),
        _ => (escape, 4),
    };
    let number = digits.get(..count).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    Some((u32::from_str_radix(number, 16).ok()?, &digits[count..]))
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn escapes_are_characters() {
        for (text, expected) in [
            ("d\\0061t\\+000061", Some("data")),
            ("\\u0441\\\\", Some("с\\")),
            ("\\d83d\\de00", Some("\u{1f600}")),
            ("\\U0001f600", Some("\u{1f600}")),
            ("\\d83d", None),
            ("\\de00", None),
            ("\\00", None),
            ("\\0000", None),
        ] {
            assert_eq!(unescaped(text).as_deref(), expected, "{text}");
        }
    }
}
