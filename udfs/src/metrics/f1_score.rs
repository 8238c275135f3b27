use arrow::datatypes::DataType;

use super::Variant;
use super::answer::{PARAMETERS, best, best_of, score_column};
use super::overlap::{Overlap, overlap};
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "f1_score",
        section: super::SECTION,
        description: "Harmonic mean of word precision and recall after `normalize_answer`, the best over the gold answers, 0 to 1. \
            `yes`, `no` and `noanswer` must match exactly. An answer without words scores 0.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT f1_score('Barack Hussein Obama', ARRAY['Barack Obama'])", "0.8"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| score_column(arguments, score),
};

/// Word F1 of the normalised `prediction`, the best over `golds` (Rajpurkar et al. 2016, arXiv:1606.05250), in [0, 1].
///
/// `yes`, `no` and `noanswer` on either side must match exactly; 0.0 if there are no gold answers.
pub fn f1_score(prediction: &str, golds: &[&str]) -> f64 {
    best(prediction, golds, score)
}

/// As [`f1_score`], by the definition of another system.
pub fn f1_score_of(variant: Variant, prediction: &str, golds: &[&str]) -> f64 {
    best_of(variant, prediction, golds, score)
}

pub(super) fn score(variant: Variant, prediction: &str, gold: &str) -> f64 {
    let Overlap { precision, recall } = overlap(variant, prediction, gold);
    if precision + recall == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) }
}

#[cfg(test)]
mod tests {
    use super::f1_score;

    #[test]
    fn takes_the_best_gold() {
        assert_eq!(f1_score("Barack Hussein Obama", &["Obama", "Barack Obama"]), 0.8);
        assert_eq!(f1_score("no idea", &["no"]), 0.0);
        assert_eq!(f1_score("No!", &["no"]), 1.0);
        assert_eq!(f1_score("the", &["a"]), 0.0, "no words on either side");
    }
}
