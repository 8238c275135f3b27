//! What the numbers of a vector may be, and how many there may be: one gate for all that makes vectors, whatever it makes them of.

use crate::Error;

use super::DIMENSIONS_MAX;

pub(super) const VECTOR: &str = "vector";
pub(super) const HALFVEC: &str = "halfvec";

/// What a number is that no vector holds, in pgvector's words; `None` for a number that one may hold.
#[must_use]
pub(super) fn unwanted(number: f32) -> Option<&'static str> {
    match number {
        number if number.is_nan() => Some("NaN"),
        number if number.is_infinite() => Some("infinite value"),
        _ => None,
    }
}

/// # Errors
/// [`Error::NotFinite`] for the first number that no vector holds.
pub fn check_elements(numbers: &[f32], type_name: &'static str) -> Result<(), Error> {
    // As a rule all are finite, which one pass without branches tells.
    if numbers.iter().all(|number| number.is_finite()) {
        return Ok(());
    }
    let found = numbers.iter().find_map(|number| unwanted(*number));
    found.map_or(Ok(()), |found| Err(Error::NotFinite { found, type_name }))
}

/// # Errors
/// [`Error::NoDimension`], [`Error::TooManyDimensions`].
pub(super) fn check_width(width: usize, type_name: &'static str) -> Result<(), Error> {
    match width {
        0 => Err(Error::NoDimension { type_name }),
        1..=DIMENSIONS_MAX => Ok(()),
        _ => Err(Error::TooManyDimensions { type_name, max: DIMENSIONS_MAX }),
    }
}
