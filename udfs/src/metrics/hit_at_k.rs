use arrow::datatypes::DataType;

use super::ranking::{PARAMETERS, hits, score_column};
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "hit_at_k",
        section: super::SECTION,
        description: "1 if a gold passage is among the first k retrieved ones, else 0; its average is the hit rate (trec_eval's success_k). \
            NULL if there are no gold passages.",
        parameters: PARAMETERS,
        required: 3,
        example: ("SELECT hit_at_k(ARRAY['p7', 'p2', 'p9'], ARRAY['p2', 'p9'], 2)", "1.0"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| score_column(arguments, hit_at_k),
};

/// 1.0 if one of `gold_ids` is among the first `k` of `passage_ids` (best first), else 0.0.
pub fn hit_at_k(passage_ids: &[&str], gold_ids: &[&str], k: usize) -> f64 {
    f64::from(hits(passage_ids, gold_ids, k).next().is_some())
}

#[cfg(test)]
mod tests {
    use super::hit_at_k;

    #[test]
    fn one_is_enough() {
        assert_eq!(hit_at_k(&["x", "b"], &["a", "b"], 2), 1.0);
        assert_eq!(hit_at_k(&["x", "b"], &["a", "b"], 1), 0.0);
    }
}
