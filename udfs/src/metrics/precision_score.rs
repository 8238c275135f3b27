use arrow::datatypes::DataType;

use super::Variant;
use super::answer::{PARAMETERS, best, score_column};
use super::overlap::overlap;
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "precision_score",
        section: super::SECTION,
        description: "Share of the prediction's words that the gold answer has, after `normalize_answer`, the best over the gold answers. \
            `yes`, `no` and `noanswer` must match exactly.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT precision_score('Barack Hussein Obama Obama', 'Barack Obama')", "0.5"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| score_column(arguments, score),
};

/// Share of the words of the normalised `prediction` that a gold answer has, the best over `golds`, in [0, 1].
///
/// The best is taken for this score alone: recall's may come from another gold answer.
pub fn precision_score(prediction: &str, golds: &[&str]) -> f64 {
    best(prediction, golds, score)
}

fn score(variant: Variant, prediction: &str, gold: &str) -> f64 {
    overlap(variant, prediction, gold).precision
}

#[cfg(test)]
mod tests {
    use super::precision_score;

    #[test]
    fn counts_the_predictions_words() {
        assert_eq!(precision_score("in Paris", &["Paris"]), 0.5);
        assert_eq!(precision_score("Paris", &["Paris in France"]), 1.0);
        assert_eq!(precision_score("yes indeed", &["yes"]), 0.0);
    }
}
