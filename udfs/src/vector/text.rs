//! pgvector's text form of a vector: `[1,2.5,-3e-2]`.

use crate::Error;

use super::DIMENSIONS_MAX;

/// Reads pgvector's text form; blanks are allowed round brackets and numbers.
///
/// # Errors
/// [`Error::VectorText`] if a bracket is missing, an element is not a finite number in single precision, or there are none
/// or more than [`DIMENSIONS_MAX`].
pub fn parse_vector(text: &str) -> Result<Vec<f32>, Error> {
    let refuse = |reason: String| Error::VectorText { text: shortened(text), reason };
    let inner = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.ok_or_else(|| refuse("it does not start with [ and end with ]".into()))?;
    if inner.trim().is_empty() {
        return Err(refuse("a vector has at least 1 dimension".into()));
    }
    let values = inner.split(',').map(|item| number(item.trim())).collect::<Result<Vec<_>, _>>().map_err(refuse)?;
    if values.len() > DIMENSIONS_MAX {
        return Err(refuse(format!("{} dimensions, at most {DIMENSIONS_MAX} are possible", values.len())));
    }
    Ok(values)
}

/// Rust's grammar of numbers is pgvector's but for the words `nan` and `inf`, which neither stores.
fn number(item: &str) -> Result<f32, String> {
    let value: f32 = item.parse().map_err(|_| format!("\"{}\" is not a number", shortened(item)))?;
    if !value.is_finite() {
        return Err(format!("\"{}\" is not a finite number in single precision", shortened(item)));
    }
    Ok(value)
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
            ("[1,NaN]", "not a finite number"),
            ("[1e40]", "not a finite number"),
            ("[[1]]", "\"[1]\" is not a number"),
        ];
        for (text, reason) in cases {
            let message = parse_vector(text).expect_err(text).to_string();
            assert!(message.contains(reason), "{text}: {message}");
        }
        let wide = format!("[{}1]", "1,".repeat(16_000));
        assert!(parse_vector(&wide).expect_err("too wide").to_string().contains("16001 dimensions"));
    }
}
