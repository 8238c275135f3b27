//! The arguments of search functions that say how words are looked for and how two rankings become one.

use rolloutdb_catalogs::{Edits, Operator};

use crate::engine::apply::arguments::Arguments;
use crate::engine::fusion::Fusion;
use crate::engine::retrieval::{RetrieverKind, TextMode, TextOptions};
use crate::error::{Error, Result};

const CANDIDATES_MAX: i64 = 100_000;
const SLOP_MAX: i64 = 1_000;
const FUZZINESS_MAX: i64 = 2;
const PREFIX_LENGTH_MAX: i64 = 100;
const DEFAULT_RRF_K: f64 = 60.0;
const DEFAULT_VECTOR_WEIGHT: f64 = 0.5;

/// `mode`, `operator`, `slop`, `fuzziness`, `prefix_length`.
///
/// # Errors
/// [`Error::InvalidParameter`] for an unknown mode or operator, a number out of its range, and one that the mode does not use.
pub fn text_options(arguments: &Arguments) -> Result<TextOptions> {
    let modes = [("words", TextMode::Words), ("phrase", TextMode::Phrase), ("boolean", TextMode::Boolean), ("fuzzy", TextMode::Fuzzy)];
    let mode = named(arguments, "mode", &modes)?.unwrap_or_default();
    let operator = named(arguments, "operator", &[("or", Operator::Or), ("and", Operator::And)])?.unwrap_or_default();
    only_for(arguments, "operator", mode != TextMode::Phrase, "mode 'words', 'boolean' or 'fuzzy'; the words of a phrase are all needed")?;
    only_for(arguments, "slop", mode == TextMode::Phrase, "mode 'phrase'; in mode 'boolean' write \"two words\"~1")?;
    only_for(arguments, "fuzziness", mode == TextMode::Fuzzy, "mode 'fuzzy'")?;
    only_for(arguments, "prefix_length", mode == TextMode::Fuzzy, "mode 'fuzzy'")?;
    let slop = arguments.integer_within("slop", 0, 0..=SLOP_MAX)?;
    let fuzziness = arguments.integer_within("fuzziness", 0, 0..=FUZZINESS_MAX)?;
    let prefix_length = arguments.integer_within("prefix_length", 0, 0..=PREFIX_LENGTH_MAX)?;
    let edits = Edits { max: arguments.has("fuzziness").then_some(fuzziness as usize), prefix_length: prefix_length as usize };
    Ok(TextOptions { mode, operator, slop: slop as u32, edits })
}

/// `fusion`, `rrf_k`, `vector_weight`.
///
/// # Errors
/// As [`text_options`].
pub fn fusion(arguments: &Arguments) -> Result<Option<Fusion>> {
    let is_weighted = named(arguments, "fusion", &[("rrf", false), ("weighted", true)])?.unwrap_or(false);
    only_for(arguments, "rrf_k", !is_weighted, "fusion 'rrf'")?;
    only_for(arguments, "vector_weight", is_weighted, "fusion 'weighted'")?;
    let vector_weight = number(arguments, "vector_weight", DEFAULT_VECTOR_WEIGHT, 0.0, 1.0)?;
    let constant = number(arguments, "rrf_k", DEFAULT_RRF_K, 0.0, f64::MAX)?;
    Ok(Some(if is_weighted { Fusion::Weighted { vector_weight } } else { Fusion::ReciprocalRank { constant } }))
}

/// `candidates`.
///
/// # Errors
/// [`Error::InvalidParameter`] out of its range, and where nothing makes a choice among candidates.
pub fn candidates(arguments: &Arguments, kind: RetrieverKind) -> Result<Option<usize>> {
    let is_used = kind == RetrieverKind::Hybrid || arguments.has("rerank");
    only_for(arguments, "candidates", is_used, "hybrid_search(), and for a search with rerank => 'model'")?;
    let candidates = arguments.integer_within("candidates", 1, 1..=CANDIDATES_MAX)?;
    Ok(arguments.has("candidates").then_some(candidates as usize))
}

/// `rerank_column`.
///
/// # Errors
/// [`Error::InvalidParameter`] without `rerank`.
pub fn rerank_column(arguments: &Arguments) -> Result<Option<&str>> {
    only_for(arguments, "rerank_column", arguments.has("rerank"), "rerank => 'model'")?;
    Ok(arguments.text("rerank_column"))
}

fn named<T: Copy>(arguments: &Arguments, name: &str, known: &[(&str, T)]) -> Result<Option<T>> {
    let Some(text) = arguments.text(name) else { return Ok(None) };
    match known.iter().find(|(known, _)| *known == text) {
        Some((_, value)) => Ok(Some(*value)),
        None => {
            let expected = known.iter().map(|(known, _)| format!("'{known}'")).collect::<Vec<_>>().join(", ");
            Err(invalid(name, format!("'{text}'"), &format!("one of {expected}")))
        }
    }
}

fn number(arguments: &Arguments, name: &str, default: f64, low: f64, high: f64) -> Result<f64> {
    let value = arguments.float(name).unwrap_or(default);
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    let expected = if high == f64::MAX { format!("{low} or more") } else { format!("{low} to {high}") };
    Err(invalid(name, value.to_string(), &expected))
}

/// An argument that would do nothing is a mistake.
fn only_for(arguments: &Arguments, name: &str, is_used: bool, by: &str) -> Result<()> {
    if is_used || !arguments.has(name) {
        return Ok(());
    }
    Err(invalid(name, "a value".to_owned(), &format!("none: it is for {by}")))
}

fn invalid(name: &str, found: String, expected: &str) -> Error {
    Error::InvalidParameter { name: name.to_owned(), found, expected: expected.to_owned() }
}
