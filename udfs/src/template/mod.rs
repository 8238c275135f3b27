//! `to_char`, `to_timestamp` and `to_date`: PostgreSQL's template patterns.
//!
//! What a pattern says is what PostgreSQL 15 reads in it (`formatting.c`): the same words in the same order, everything else for itself. A word that is not
//! done here is refused, so that nothing is shown or read otherwise.

mod calendar;
mod number;
mod pattern;
mod read;
mod to_char;
mod to_timestamp;
mod write;

pub use calendar::Fields;
pub use number::write_exact;
pub(crate) use to_char::FUNCTION as TO_CHAR;
pub use to_timestamp::with_patterns;
pub use write::write_fields;

use crate::Error;

/// What formatting and reading are told of a part that PostgreSQL has and this engine has not.
fn refused(function: &'static str, part: &str) -> Error {
    Error::PatternPart { function, part: part.to_owned() }
}

/// `TH` of a number: `1ST`, `12TH`, `23RD`.
fn ordinal(number: &str) -> &'static str {
    let digits = number.as_bytes();
    let is_teen = digits.len() > 1 && digits[digits.len() - 2] == b'1';
    match digits.last() {
        Some(b'1') if !is_teen => "ST",
        Some(b'2') if !is_teen => "ND",
        Some(b'3') if !is_teen => "RD",
        _ => "TH",
    }
}
