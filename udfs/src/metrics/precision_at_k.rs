use arrow::datatypes::DataType;

use super::ranking::{PARAMETERS, hits, score_column};
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "precision_at_k",
        section: super::SECTION,
        description: "Share of the first k places that have a gold passage, 0 to 1. Where fewer than k were retrieved, the other places \
            are misses (trec_eval's P_k). NULL if there are no gold passages.",
        parameters: PARAMETERS,
        required: 3,
        example: ("SELECT precision_at_k(ARRAY['p7', 'p2', 'p9'], ARRAY['p2', 'p9'], 4)", "0.5"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| score_column(arguments, precision_at_k),
};

/// Gold ids among the first `k` (1 or more) of `passage_ids` (best first), divided by `k`, in [0, 1].
pub fn precision_at_k(passage_ids: &[&str], gold_ids: &[&str], k: usize) -> f64 {
    hits(passage_ids, gold_ids, k).count() as f64 / k as f64
}

#[cfg(test)]
mod tests {
    use super::precision_at_k;

    #[test]
    fn divides_by_k() {
        assert_eq!(precision_at_k(&["a", "x", "b"], &["a", "b"], 2), 0.5);
        assert_eq!(precision_at_k(&["a"], &["a"], 4), 0.25, "places without a passage are misses");
        assert_eq!(precision_at_k(&["a", "a"], &["a"], 2), 0.5, "a repeat finds nothing");
    }
}
