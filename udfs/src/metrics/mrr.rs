use std::sync::Arc;

use arrow::array::Float64Array;
use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "mrr",
        section: super::SECTION,
        description: "Reciprocal rank of the first gold passage among the retrieved ones: 1, 1/2, 1/3, ..., or 0 if none was \
            found; its average over questions is the mean reciprocal rank. NULL if there are no gold passages.",
        parameters: &[
            Parameter {
                name: "passage_ids",
                kind: Kind::TextList,
                description: "Retrieved ids, best first; NULL, no retrieval, scores 0.",
            },
            Parameter {
                name: "gold_ids",
                kind: Kind::TextList,
                description: "Ids of the passages that should be found; NULL or empty gives NULL.",
            },
        ],
        required: 2,
        example: ("SELECT mrr(ARRAY['p7', 'p2', 'p9'], ARRAY['p2', 'p9'])", "0.5"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        let (passages, golds) = (arguments.texts(0)?, arguments.texts(1)?);
        let rows = (0..arguments.num_rows()).map(|row| {
            let golds = golds.get(row).filter(|golds| !golds.is_empty())?;
            Some(mrr(&passages.get(row).unwrap_or_default(), &golds))
        });
        Ok(Arc::new(rows.collect::<Float64Array>()))
    },
};

/// `1 / rank` of the first of `passage_ids` (best first, ranks from 1) that is in `gold_ids`, 0.0 if none is.
pub fn mrr(passage_ids: &[&str], gold_ids: &[&str]) -> f64 {
    let position = passage_ids.iter().position(|id| gold_ids.contains(id));
    position.map_or(0.0, |position| 1.0 / (position + 1) as f64)
}

#[cfg(test)]
mod tests {
    use super::mrr;

    #[test]
    fn takes_the_first_hit() {
        assert_eq!(mrr(&["x", "a", "b"], &["b", "a"]), 0.5);
        assert_eq!(mrr(&["a"], &["a"]), 1.0);
        assert_eq!(mrr(&["x"], &["a"]), 0.0);
    }
}
