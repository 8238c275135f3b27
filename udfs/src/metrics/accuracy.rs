use arrow::datatypes::DataType;

use super::Variant;
use super::answer::{GOLDS, PREDICTION, best, score_column_of};
use crate::function::{Function, Interface, Kind, Parameter, Returns};

/// Those of the systems that have this score.
const VARIANTS: &[(&str, Variant)] = &[("squad", Variant::Squad), ("flashrag", Variant::FlashRag)];

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "accuracy",
        section: super::SECTION,
        description: "1 if a gold answer occurs in the prediction as a substring, both after `normalize_answer`, else 0. It forgives long \
            answers, and it finds `no` in `northern`. A gold answer that normalises to nothing counts only for a prediction \
            that does so too; with `variant => 'flashrag'` it counts always, as there.",
        parameters: &[
            PREDICTION,
            GOLDS,
            Parameter {
                name: "variant",
                kind: Kind::Text,
                description: "'squad' (the default) or 'flashrag': the others have no such score.",
            },
        ],
        required: 2,
        example: ("SELECT accuracy('It was Barack Obama.', ARRAY['Barack Obama'])", "1.0"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| score_column_of(Variant::of(arguments, 2, VARIANTS)?, arguments, score),
};

/// 1.0 if a normalised gold answer is a substring of the normalised `prediction`, else 0.0: FlashRAG's `acc` (sub-EM).
///
/// Unlike there, a gold answer that normalises to nothing, say "A", matches only a prediction that does so too.
pub fn accuracy(prediction: &str, golds: &[&str]) -> f64 {
    best(prediction, golds, score)
}

fn score(variant: Variant, prediction: &str, gold: &str) -> f64 {
    let counts_nothing = variant == Variant::Squad && gold.is_empty();
    f64::from(if counts_nothing { prediction.is_empty() } else { prediction.contains(gold) })
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
