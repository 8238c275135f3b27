//! Retrieved passages against gold passages: what the metrics of the first k share.
//!
//! The definitions are trec_eval's for binary relevance. It takes no ranking with an id twice; here a repeat takes its place and counts as a miss.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};
use datafusion::error::Result;

use crate::arguments::Arguments;
use crate::function::{Kind, Parameter};

/// Score in [0, 1] of retrieved ids, best first, against at least one gold id, looking at the first `k` (1 or more).
pub(super) type ScoreAtK = fn(&[&str], &[&str], usize) -> f64;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter { name: "passage_ids", kind: Kind::TextList, description: "Retrieved ids, best first; NULL, no retrieval, scores 0." },
    Parameter {
        name: "gold_ids",
        kind: Kind::TextList,
        description: "Ids of the passages that should be found; NULL or empty gives NULL.",
    },
    Parameter { name: "k", kind: Kind::Integer, description: "How many of the retrieved ids count, 1 or more." },
];

/// The kernel of all of them: arguments `passage_ids`, `gold_ids`, `k`.
pub(super) fn score_column(arguments: &Arguments, score: ScoreAtK) -> Result<ArrayRef> {
    let (passages, golds, k) = (arguments.texts(0)?, arguments.texts(1)?, arguments.integer(2)?);
    let mut scores = Float64Array::builder(arguments.num_rows());
    for row in 0..arguments.num_rows() {
        let k = k.get(row).map(|k| arguments.interface.positive(2, k)).transpose()?;
        let golds = golds.get(row).filter(|golds| !golds.is_empty());
        scores.append_option(golds.zip(k).map(|(golds, k)| score(&passages.get(row).unwrap_or_default(), &golds, k)));
    }
    Ok(Arc::new(scores.finish()))
}

/// Places, from 0, of the gold ids among the first `k`; a repeated id is found at its first place alone.
pub(super) fn hits<'a>(passage_ids: &'a [&'a str], gold_ids: &[&'a str], k: usize) -> impl Iterator<Item = usize> + use<'a> {
    let mut missing: HashSet<&str> = gold_ids.iter().copied().collect();
    passage_ids.iter().take(k).enumerate().filter(move |(_, id)| missing.remove(**id)).map(|(place, _)| place)
}

/// Distinct gold ids.
pub(super) fn num_golds(gold_ids: &[&str]) -> usize {
    gold_ids.iter().collect::<HashSet<_>>().len()
}
