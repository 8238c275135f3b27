use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::Float64Array;
use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "recall_at_k",
        section: super::SECTION,
        description: "Share of the gold passages that are among the first k retrieved ones, 0 to 1. Repeated ids count once. \
            NULL if there are no gold passages.",
        parameters: &[
            Parameter { name: "passage_ids", kind: Kind::Texts, description: "Retrieved ids, best first; NULL, no retrieval, scores 0." },
            Parameter {
                name: "gold_ids",
                kind: Kind::Texts,
                description: "Ids of the passages that should be found; NULL or empty gives NULL.",
            },
            Parameter { name: "k", kind: Kind::Integer, description: "How many of the retrieved ids count, 1 or more." },
        ],
        required: 3,
        example: ("SELECT recall_at_k(ARRAY['p7', 'p2', 'p9'], ARRAY['p2', 'p9'], 2)", "0.5"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        let (passages, golds, k) = (arguments.texts(0)?, arguments.texts(1)?, arguments.integer(2)?);
        let mut recalls = Float64Array::builder(arguments.num_rows());
        for row in 0..arguments.num_rows() {
            if let Some(k) = k.get(row).filter(|k| *k <= 0) {
                return Err(arguments.interface.argument_error(2, k, "1 or more").into());
            }
            let golds = golds.get(row).filter(|golds| !golds.is_empty());
            recalls.append_option(
                golds.zip(k.get(row)).map(|(golds, k)| {
                    recall_at_k(&passages.get(row).unwrap_or_default(), &golds, usize::try_from(k).unwrap_or(usize::MAX))
                }),
            );
        }
        Ok(Arc::new(recalls.finish()))
    },
};

/// Share of the distinct `gold_ids` among the first `k` of `passage_ids` (best first), in [0, 1]; 0.0 without gold ids.
pub fn recall_at_k(passage_ids: &[&str], gold_ids: &[&str], k: usize) -> f64 {
    let golds: HashSet<_> = gold_ids.iter().collect();
    if golds.is_empty() {
        return 0.0;
    }
    let found: HashSet<_> = passage_ids.iter().take(k).filter(|id| golds.contains(id)).collect();
    found.len() as f64 / golds.len() as f64
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
