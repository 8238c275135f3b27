//! Returns: what the end of a trajectory is worth at the nodes on its way.

use super::Question;
use crate::agent::environment::StepRecord;
use crate::agent::protocol::Protocol;
use crate::agent::search_options::{Returns, SearchOptions};

/// What a trajectory of these steps, from the question to its end, earns by the option `reward` and those beside it.
pub fn score(options: &SearchOptions, protocol: &dyn Protocol, steps: &[&StepRecord], question: &Question) -> f64 {
    let golden_answers: Vec<&str> = question.golden_answers.iter().map(String::as_str).collect();
    options.reward.of(protocol, steps, &golden_answers)
}

/// Reward of a completed trajectory of `steps` policy calls at its node of this depth; in [0, 1] where scores are.
///
/// SPRE (the function that SQL has too): `score · alpha ^ steps`, whatever the node. Steps are thoughts, evidence extractions and the answer,
/// those before the node too. So rewards of nodes at different depths can be compared, and of two trajectories with the same answer the
/// shorter one scores higher.
///
/// Discounted: `score · gamma ^ (steps − depth)`. ProRAG (arXiv 2601.21912) discounts the levels of the tree only, so that a long completion
/// of a node is worth as much as a short one; here each step counts, whether it is a node or not.
pub fn reward(options: &SearchOptions, score: f64, steps: usize, depth: usize) -> f64 {
    match options.returns {
        Returns::Spre => rolloutdb_udfs::search::spre(score, steps as f64, options.alpha),
        Returns::Discounted => score * options.gamma.powf(steps.saturating_sub(depth) as f64),
    }
}

/// What is left of a node's value at its parent.
pub fn decay(options: &SearchOptions) -> f64 {
    match options.returns {
        Returns::Spre => 1.0,
        Returns::Discounted => options.gamma,
    }
}
