//! pgvector's text form of a vector: `[1,2.5,-3e-2]`.

use crate::Error;

use super::elements::{VECTOR, check_width};

/// Reads pgvector's text form; blanks are allowed round brackets and numbers.
///
/// # Errors
/// [`Error::VectorText`] if a bracket is missing or an element is no number, [`Error::ValueRange`] for one beyond single precision,
/// [`Error::NotFinite`] for NaN and infinity, [`Error::NoDimension`], [`Error::TooManyDimensions`].
pub fn parse_vector(text: &str) -> Result<Vec<f32>, Error> {
    parse_vector_of(text, VECTOR)
}

/// The same of a text that stands for a value of type `type_name`.
pub(super) fn parse_vector_of(text: &str, type_name: &'static str) -> Result<Vec<f32>, Error> {
    let refuse = |reason: String| Error::VectorText { type_name, text: shortened(text), reason };
    let inner = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.ok_or_else(|| refuse("it does not start with [ and end with ]".into()))?;
    if inner.trim().is_empty() {
        return Err(Error::NoDimension { type_name });
    }
    let mut values = Vec::new();
    for item in inner.split(',').map(str::trim) {
        let value: f32 = item.parse().map_err(|_| refuse(format!("\"{}\" is not a number", shortened(item))))?;
        if value.is_infinite() && item.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err(Error::ValueRange { type_name, text: shortened(item) });
        }
        if let Some(found) = super::elements::unwanted(value) {
            return Err(Error::NotFinite { found, type_name });
        }
        values.push(value);
    }
    check_width(values.len(), type_name)?;
    Ok(values)
}

/// At most 40 characters, for messages: a vector may have thousands.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_vector;

    #[test]
    fn reads_numbers_and_blanks() {
        assert_eq!(parse_vector("[1,2.5,-3e-2]"), Ok(vec![1.0, 2.5, -0.03]));
        assert_eq!(parse_vector(" [ 1 , .5 ] "), Ok(vec![1.0, 0.5]));
        assert_eq!(parse_vector("[1e-46]"), Ok(vec![0.0]), "what is too near to zero is zero, as in pgvector");
    }

    #[test]
    fn says_what_is_wrong() {
        let cases = [
            ("", "does not start with ["),
            ("1,2", "does not start with ["),
            ("[1,2", "does not start with ["),
            ("]", "does not start with ["),
            ("[]", "at least 1 dimension"),
            ("[1,,2]", "\"\" is not a number"),
            ("[1,two]", "\"two\" is not a number"),
            ("[1,NaN]", "NaN not allowed in vector"),
            ("[-Infinity]", "infinite value not allowed in vector"),
            ("[inf]", "infinite value not allowed in vector"),
            ("[1e40]", "\"1e40\" is out of range for type vector"),
            ("[[1]]", "\"[1]\" is not a number"),
        ];
        for (text, reason) in cases {
            let message = parse_vector(text).expect_err(text).to_string();
            assert!(message.contains(reason), "{text}: {message}");
        }
        let wide = format!("[{}1]", "1,".repeat(16_000));
        assert!(parse_vector(&wide).expect_err("too wide").to_string().contains("more than 16000 dimensions"));
    }
}
