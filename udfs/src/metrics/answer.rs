//! A prediction against its gold answers: what the answer metrics share.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};
use datafusion::error::Result;

use super::variant::{ALL, Variant};
use crate::arguments::{Arguments, TextsColumn};
use crate::function::{Kind, Parameter};

/// Score in [0, 1] of a normalised prediction against one normalised gold answer.
pub(super) type Score = fn(Variant, &str, &str) -> f64;

pub(super) const PREDICTION: Parameter =
    Parameter { name: "prediction", kind: Kind::Text, description: "The answer to score; NULL, an unanswered question, scores 0." };

pub(super) const GOLDS: Parameter =
    Parameter { name: "golds", kind: Kind::Texts, description: "The gold answer, or an array of them; NULL or an empty array gives NULL." };

pub(super) const VARIANT: Parameter = Parameter {
    name: "variant",
    kind: Kind::Text,
    description: "Whose definition: 'squad' (the default), 'flashrag' (the same), 'prorag', 'r3rag' or 'reasonrag'; see Evaluation.",
};

pub(super) const PARAMETERS: &[Parameter] = &[PREDICTION, GOLDS, VARIANT];

/// The best of `score` over `golds`, by the default's definition; 0 if there are none.
pub(super) fn best(prediction: &str, golds: &[&str], score: Score) -> f64 {
    best_of(Variant::Squad, prediction, golds, score)
}

/// The best of `score` over `golds`; 0 if there are none.
pub(super) fn best_of(variant: Variant, prediction: &str, golds: &[&str], score: Score) -> f64 {
    best_normalized(variant, &variant.normalize(prediction), &normalized(variant, golds), score)
}

/// The kernel of the metrics that all variants have: arguments `prediction`, `golds`, `variant`.
pub(super) fn score_column(arguments: &Arguments, score: Score) -> Result<ArrayRef> {
    score_column_of(Variant::of(arguments, 2, ALL)?, arguments, score)
}

/// The kernel of all answer metrics: arguments `prediction`, `golds`.
///
/// A NULL prediction is a wrong answer (0), not a missing one: else an average would reward a policy that stays silent.
/// Questions without a gold answer give NULL, which averages leave out.
pub(super) fn score_column_of(variant: Variant, arguments: &Arguments, score: Score) -> Result<ArrayRef> {
    let (predictions, golds) = (arguments.text(0)?, arguments.texts(1)?);
    let shared = golds.is_constant().then(|| normalized_row(variant, &golds, 0));
    let rows = (0..arguments.num_rows()).map(|row| {
        let own = if shared.is_none() { normalized_row(variant, &golds, row) } else { None };
        let golds = shared.as_ref().unwrap_or(&own).as_ref()?;
        let prediction = predictions.get(row).map(|prediction| variant.normalize(prediction));
        Some(prediction.map_or(0.0, |prediction| best_normalized(variant, &prediction, golds, score)))
    });
    Ok(Arc::new(rows.collect::<Float64Array>()))
}

fn normalized_row(variant: Variant, golds: &TextsColumn, row: usize) -> Option<Vec<String>> {
    golds.get(row).filter(|golds| !golds.is_empty()).map(|golds| normalized(variant, &golds))
}

fn normalized(variant: Variant, golds: &[&str]) -> Vec<String> {
    golds.iter().map(|gold| variant.normalize(gold)).collect()
}

fn best_normalized(variant: Variant, prediction: &str, golds: &[String], score: Score) -> f64 {
    golds.iter().map(|gold| score(variant, prediction, gold)).fold(0.0, f64::max)
}
