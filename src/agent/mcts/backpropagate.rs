//! Backpropagation: what a simulation found out, added to the node and to all above it.

use super::simulate::Evaluation;
use crate::agent::search_tree::SearchTree;

/// Adds one visit, the value and the completions to every node from `node` to the root; the cost stays at `node`.
///
/// `decay`: what is left of a value one level further up. 1 for SPRE, where `alpha ^ steps` counts the whole trajectory already; gamma for
/// discounted returns. An evaluation without a value leaves the means as they are.
pub fn backpropagate(tree: &mut SearchTree, node: usize, evaluation: Evaluation, decay: f64) {
    tree.cost[node].add(evaluation.cost);
    tree.least_value = evaluation.value.map_or(tree.least_value, |value| tree.least_value.min(value));
    let mut next = Some(node);
    let mut left = 1.0;
    while let Some(node) = next {
        tree.visit_count[node] += 1;
        if let Some(value) = evaluation.value {
            tree.value_count[node] += 1;
            tree.value_sum[node] += value * left;
        }
        tree.completion_count[node] += evaluation.completion_count;
        tree.completion_reward_sum[node] += evaluation.completion_reward_sum * left;
        left *= decay;
        next = tree.parent_id[node];
    }
}
