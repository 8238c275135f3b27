use arrow::datatypes::DataType;

use super::Variant;
use super::answer::{PARAMETERS, best, score_column};
use super::overlap::overlap;
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "recall_score",
        section: super::SECTION,
        description: "Share of the gold answer's words that the prediction has, after `normalize_answer`, the best over the gold answers. \
            `yes`, `no` and `noanswer` must match exactly.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT recall_score('Obama', 'Barack Obama')", "0.5"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| score_column(arguments, score),
};

/// Share of the words of a gold answer that the normalised `prediction` has, the best over `golds`, in [0, 1].
///
/// The best is taken for this score alone: precision's may come from another gold answer.
pub fn recall_score(prediction: &str, golds: &[&str]) -> f64 {
    best(prediction, golds, score)
}

fn score(variant: Variant, prediction: &str, gold: &str) -> f64 {
    overlap(variant, prediction, gold).recall
}

#[cfg(test)]
mod tests {
    use super::recall_score;

    #[test]
    fn counts_the_golds_words() {
        assert_eq!(recall_score("Paris", &["Paris in France"]), 1.0 / 3.0);
        assert_eq!(recall_score("in Paris", &["Paris", "Lyon"]), 1.0);
        assert_eq!(recall_score("yes indeed", &["yes"]), 0.0);
    }
}
