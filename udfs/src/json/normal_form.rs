//! The one form of a `jsonb` value.

use std::collections::BTreeMap;

use super::document::{Document, Kind};
use crate::Error;

/// The text that PostgreSQL prints for a `jsonb` value: keys once (the last value counts), ordered by length and then by bytes; one blank
/// behind each comma and colon; numbers without an exponent.
///
/// # Errors
/// [`Error::JsonText`] if the text is not one JSON value.
pub fn normalize(text: &str) -> Result<String, Error> {
    let mut out = String::with_capacity(text.len());
    write(Document::parse(text)?, &mut out);
    Ok(out)
}

fn write(value: Document<'_>, out: &mut String) {
    match value.kind() {
        Kind::Object => {
            let entries: BTreeMap<(usize, String), Document> = value.entries().map(|(key, value)| ((key.len(), key), value)).collect();
            enclosed('{', '}', entries, out, |((_, key), value), out| {
                out.push_str(&quoted(&key));
                out.push_str(": ");
                write(value, out);
            });
        }
        Kind::Array => enclosed('[', ']', value.items(), out, write),
        Kind::String => out.push_str(&quoted(&value.string())),
        Kind::Number => out.push_str(&number(value.as_str())),
        Kind::Boolean | Kind::Null => out.push_str(value.as_str()),
    }
}

fn enclosed<T>(open: char, close: char, items: impl IntoIterator<Item = T>, out: &mut String, each: impl Fn(T, &mut String)) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        each(item, out);
    }
    out.push(close);
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `1e5` is `100000`, `1.50E-1` is `0.150`: digits are kept, as PostgreSQL's numeric keeps them. An exponent so large that the digits would
/// fill pages stays.
fn number(text: &str) -> String {
    const EXPONENT_MAX: i32 = 400;
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let Some(exponent) = exponent.parse::<i32>().ok().filter(|exponent| exponent.abs() <= EXPONENT_MAX) else { return text.to_owned() };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // The point moves over the digits, which get zeros where it leaves them.
    let leading = "0".repeat(usize::try_from(-exponent).unwrap_or(0));
    let trailing = "0".repeat(usize::try_from(exponent).unwrap_or(0).saturating_sub(fraction.len()));
    let all = format!("{leading}{whole}{fraction}{trailing}");
    let (whole, fraction) = all.split_at((leading.len() + whole.len()).saturating_add_signed(exponent as isize));
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let is_zero = whole == "0" && fraction.bytes().all(|digit| digit == b'0');
    let sign = if is_zero { "" } else { sign };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::normalize;

    #[test]
    fn is_what_postgres_prints() {
        let cases = [
            (
                r#"{"bb":1,"a":[1,2 , {}],"c":{"z":null,"y":"\u00e9\n"}}"#,
                "{\"a\": [1, 2, {}], \"c\": {\"y\": \"é\\n\", \"z\": null}, \"bb\": 1}",
            ),
            (r#"{"a":1,"a":2}"#, r#"{"a": 2}"#),
            (" [ ] ", "[]"),
            ("1e5", "100000"),
            ("1.50E-1", "0.150"),
            ("-12.5e1", "-125"),
            ("1.25e1", "12.5"),
            ("0e3", "0"),
            ("0.05e1", "0.5"),
            ("-0.0", "0.0"),
            ("-0", "0"),
            ("1.0", "1.0"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ];
        for (text, expected) in cases {
            assert_eq!(normalize(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn is_stable() {
        for text in [r#"{"b": [1.5, true, null], "aa": "x\"y"}"#, "0.000001", "[[[]]]"] {
            let once = normalize(text).expect("it is JSON");
            assert_eq!(normalize(&once), Ok(once.clone()));
        }
    }
}
