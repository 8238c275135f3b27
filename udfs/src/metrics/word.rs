use datafusion::common::utils::datafusion_strsim::levenshtein;
use datafusion::error::Result;

use crate::Error;
use crate::arguments::Arguments;

/// What `known` has for the word that argument `index` says in every row; `None` if it is NULL or not given.
///
/// # Errors
/// [`Error::Argument`] for another word, which names the nearest; [`Error::NotConstant`] if rows differ.
pub(super) fn word<T: Copy>(arguments: &Arguments, index: usize, known: &[(&'static str, T)]) -> Result<Option<T>> {
    let given = if arguments.has(index) { arguments.constant_text(index)? } else { None };
    let Some(given) = given else { return Ok(None) };
    match known.iter().find(|(name, _)| *name == given) {
        Some((_, value)) => Ok(Some(*value)),
        None => Err(unknown(arguments, index, &given, known.iter().map(|(name, _)| *name)).into()),
    }
}

fn unknown(arguments: &Arguments, index: usize, given: &str, known: impl Iterator<Item = &'static str> + Clone) -> Error {
    let limit = (given.chars().count() / 3).max(2);
    let nearest = known.clone().map(|name| (levenshtein(given, name), name)).min();
    let nearest = nearest.filter(|(distance, _)| *distance <= limit).map(|(_, name)| format!("; did you mean '{name}'?"));
    let known = known.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    arguments.interface.argument_error(index, format!("'{given}'"), format!("one of {known}{}", nearest.unwrap_or_default()))
}
