use arrow::datatypes::DataType;

use super::ranking::{PARAMETERS, hits, num_golds, score_column};
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "ndcg_at_k",
        section: super::SECTION,
        description: "Normalised discounted cumulative gain of the first k, 0 to 1: each gold passage at rank r counts 1 / log2(r + 1), \
            divided by what the best ranking would reach (trec_eval's ndcg_cut_k with binary relevance). NULL if there are no gold passages.",
        parameters: PARAMETERS,
        required: 3,
        example: ("SELECT round(ndcg_at_k(ARRAY['p7', 'p2', 'p9'], ARRAY['p2', 'p9'], 3), 4)", "0.6934"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| score_column(arguments, ndcg_at_k),
};

/// Discounted cumulative gain of the first `k` of `passage_ids` (best first) over that of the best ranking (Järvelin and
/// Kekäläinen 2002), a gold id gaining 1, in [0, 1]; 0.0 without gold ids.
pub fn ndcg_at_k(passage_ids: &[&str], gold_ids: &[&str], k: usize) -> f64 {
    let best: f64 = (0..num_golds(gold_ids).min(k)).map(gain).sum();
    if best == 0.0 { 0.0 } else { hits(passage_ids, gold_ids, k).map(gain).fold(0.0, |sum, gain| sum + gain) / best }
}

/// Of a gold id at a place, counted from 0.
fn gain(place: usize) -> f64 {
    1.0 / (place as f64 + 2.0).log2()
}

#[cfg(test)]
mod tests {
    use super::ndcg_at_k;

    #[test]
    fn early_hits_gain_more() {
        assert_eq!(ndcg_at_k(&["a", "b"], &["b", "a"], 2), 1.0);
        assert_eq!(ndcg_at_k(&["a"], &["a", "b"], 1), 1.0, "the best ranking has k places too");
        assert!(ndcg_at_k(&["a", "x"], &["a"], 2) > ndcg_at_k(&["x", "a"], &["a"], 2));
        assert_eq!(ndcg_at_k(&["x", "a"], &["a"], 1), 0.0);
    }
}
