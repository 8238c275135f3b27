use arrow::datatypes::DataType;

use super::Variant;
use super::answer::{PARAMETERS, best, best_of, score_column};
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "exact_match",
        section: super::SECTION,
        description: "1 if the prediction equals one of the gold answers after `normalize_answer`, else 0.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT exact_match('The Beatles!', ARRAY['Beatles', 'The Fab Four'])", "1.0"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| score_column(arguments, score),
};

/// 1.0 if the normalised `prediction` equals a normalised gold answer, else 0.0 (also if there are none).
pub fn exact_match(prediction: &str, golds: &[&str]) -> f64 {
    best(prediction, golds, score)
}

/// As [`exact_match`], by the definition of another system.
pub fn exact_match_of(variant: Variant, prediction: &str, golds: &[&str]) -> f64 {
    best_of(variant, prediction, golds, score)
}

pub(super) fn score(_: Variant, prediction: &str, gold: &str) -> f64 {
    f64::from(prediction == gold)
}

#[cfg(test)]
mod tests {
    use super::exact_match;

    #[test]
    fn compares_normalised_text() {
        assert_eq!(exact_match("the U.S.", &["USA", "us"]), 1.0);
        assert_eq!(exact_match("Paris, France", &["Paris"]), 0.0);
        assert_eq!(exact_match("anything", &[]), 0.0);
    }
}
