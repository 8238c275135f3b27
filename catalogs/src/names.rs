//! Names of tables and schemas: what may be one, how it becomes a directory, and which known name is near a typo.

use datafusion::common::utils::datafusion_strsim::levenshtein;

use crate::{Error, Result};

/// A longer name would not fit a file name once it is escaped (255 bytes, three per escaped byte).
const NAME_BYTES_MAX: usize = 80;

/// The directory name of a table or schema: letters, digits, `_` and `-` stand for themselves, any other byte is `=XX`
/// (hexadecimal), so that no name can leave its folder, be hidden, or differ between file systems' encodings.
///
/// # Errors
/// [`Error::InvalidName`] for an empty name or one of more than 80 bytes.
pub(crate) fn to_directory(kind: &'static str, name: &str) -> Result<String> {
    let invalid = |reason: &str| Error::InvalidName { kind, name: name.to_owned(), reason: reason.to_owned() };
    if name.is_empty() {
        return Err(invalid("it is empty"));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(invalid("it is longer than 80 bytes"));
    }
    Ok(name.bytes().map(escape).collect())
}

fn escape(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => char::from(byte).to_string(),
        other => format!("={other:02X}"),
    }
}

/// The inverse of [`to_directory`]; `None` for a directory that it can not have made.
pub(crate) fn from_directory(directory: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(directory.len());
    let mut rest = directory.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'=' {
            let code = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&code).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    (to_directory("table", &name).ok()? == directory).then_some(name)
}

/// Up to three of `candidates` within an edit distance of a third of `name` (at least 2), nearest first.
pub(crate) fn nearest(name: &str, candidates: impl IntoIterator<Item = String>) -> Vec<String> {
    let limit = (name.chars().count() / 3).max(2);
    let mut near: Vec<(usize, String)> = candidates
        .into_iter()
        .map(|candidate| (levenshtein(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    near.sort();
    near.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

pub(crate) fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = near.iter().map(|name| format!("\"{name}\"")).collect();
    format!("; did you mean {}?", quoted.join(" or "))
}
