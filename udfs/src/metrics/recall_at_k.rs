use arrow::datatypes::DataType;

use super::ranking::{PARAMETERS, hits, num_golds, score_column};
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "recall_at_k",
        section: super::SECTION,
        description: "Share of the gold passages that are among the first k retrieved ones, 0 to 1. Repeated ids count once. \
            NULL if there are no gold passages.",
        parameters: PARAMETERS,
        required: 3,
        example: ("SELECT recall_at_k(ARRAY['p7', 'p2', 'p9'], ARRAY['p2', 'p9'], 2)", "0.5"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| score_column(arguments, recall_at_k),
};

/// Share of the distinct `gold_ids` among the first `k` of `passage_ids` (best first), in [0, 1]; 0.0 without gold ids.
pub fn recall_at_k(passage_ids: &[&str], gold_ids: &[&str], k: usize) -> f64 {
    hits(passage_ids, gold_ids, k).count() as f64 / num_golds(gold_ids).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::recall_at_k;

    #[test]
    fn counts_distinct_gold_ids_in_the_first_k() {
        assert_eq!(recall_at_k(&["a", "b", "c"], &["c", "a"], 2), 0.5);
        assert_eq!(recall_at_k(&["a", "b", "c"], &["c", "a"], 10), 1.0);
        assert_eq!(recall_at_k(&["a", "a"], &["a", "a", "b"], 5), 0.5, "repeats count once on both sides");
        assert_eq!(recall_at_k(&[], &["a"], 3), 0.0);
    }
}
