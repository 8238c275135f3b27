use arrow::datatypes::DataType;

use super::answer::{PARAMETERS, best, score_column};
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "accuracy",
        section: super::SECTION,
        description: "1 if a gold answer occurs in the prediction as a substring, both after `normalize_answer`, else 0. It forgives long \
            answers, and it finds `no` in `northern`. A gold answer that normalises to nothing counts only for a prediction \
            that does so too (FlashRAG counts it always).",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT accuracy('It was Barack Obama.', ARRAY['Barack Obama'])", "1.0"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| score_column(arguments, score),
};

/// 1.0 if a normalised gold answer is a substring of the normalised `prediction`, else 0.0: FlashRAG's `acc` (sub-EM).
///
/// Unlike there, a gold answer that normalises to nothing, say "A", matches only a prediction that does so too.
pub fn accuracy(prediction: &str, golds: &[&str]) -> f64 {
    best(prediction, golds, score)
}

fn score(prediction: &str, gold: &str) -> f64 {
    f64::from(if gold.is_empty() { prediction.is_empty() } else { prediction.contains(gold) })
}

#[cfg(test)]
mod tests {
    use super::accuracy;

    #[test]
    fn looks_for_the_gold_in_the_prediction() {
        assert_eq!(accuracy("It was Barack Obama.", &["Joe Biden", "Barack Obama"]), 1.0);
        assert_eq!(accuracy("Obama", &["Barack Obama"]), 0.0, "not the other way round");
        assert_eq!(accuracy("northern", &["no"]), 1.0, "characters, not words, as published");
        assert_eq!(accuracy("Paris", &["A"]), 0.0, "an empty gold is in every text");
    }
}
