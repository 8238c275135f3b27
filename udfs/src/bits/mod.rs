//! Strings of bits, `bit(n)` and `varbit(n)`: their text forms, their casts, and pgvector's distances between them.
//!
//! A column of bits is a column of texts of the digits 0 and 1, see [`crate::TextType`]. Texts of these digits are equal and ordered as the bits are.

mod distances;
mod integers;
mod operators;

pub use operators::BitOperatorPlanner;

use crate::Error;
use crate::function::Function;

pub(crate) const FUNCTIONS: &[&Function] = &[
    &distances::HAMMING,
    &distances::JACCARD,
    &integers::FROM_INTEGER,
    &integers::TO_INTEGER,
    &operators::AND,
    &operators::OR,
    &operators::XOR,
    &operators::COUNT,
];

const SECTION: &str = "Bits";

/// The digits of a string of bits from PostgreSQL's text forms: `101`, `b101`, and `x5f` with four bits a digit.
///
/// # Errors
/// [`Error::BitDigit`].
pub(crate) fn parse(text: &str) -> Result<String, Error> {
    match text.as_bytes().first() {
        Some(b'x' | b'X') => of_hexadecimal(&text[1..]),
        Some(b'b' | b'B') => checked(&text[1..]),
        _ => checked(text),
    }
}

fn checked(text: &str) -> Result<String, Error> {
    match text.chars().find(|digit| !matches!(digit, '0' | '1')) {
        Some(found) => Err(Error::BitDigit { found, kind: "binary" }),
        None => Ok(text.to_owned()),
    }
}

fn of_hexadecimal(text: &str) -> Result<String, Error> {
    let four = |digit: char| match digit.to_digit(16) {
        Some(value) => Ok(format!("{value:04b}")),
        None => Err(Error::BitDigit { found: digit, kind: "hexadecimal" }),
    };
    text.chars().map(four).collect()
}

/// A string of bits with each of them turned.
///
/// # Errors
/// [`Error::BitDigit`].
pub(crate) fn turned(text: &str) -> Result<String, Error> {
    Ok(parse(text)?.bytes().map(|bit| if bit == b'1' { '0' } else { '1' }).collect())
}

/// A string of bits as a value of `bit(length)`, which is cut, or filled with zeros, at its end.
pub(crate) fn fitted(mut bits: String, length: u32) -> String {
    let length = length as usize;
    bits.truncate(length);
    let missing = length - bits.len();
    bits.extend(std::iter::repeat_n('0', missing));
    bits
}
