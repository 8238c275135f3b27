//! Backpropagation: what a simulation found out, added to the node and to all above it.

use super::simulate::Evaluation;
use crate::agent::search_tree::SearchTree;

/// Adds one visit, the value and the completions to every node from `node` to the root; the cost stays at `node`.
///
/// The value is not decayed on the way: `alpha ^ steps` counts the whole trajectory already.
pub fn backpropagate(tree: &mut SearchTree, node: usize, evaluation: Evaluation) {
    tree.cost[node].add(evaluation.cost);
    let mut next = Some(node);
    while let Some(node) = next {
        tree.visit_count[node] += 1;
        tree.value_sum[node] += evaluation.value;
        tree.completion_count[node] += evaluation.completion_count;
        tree.completion_reward_sum[node] += evaluation.completion_reward_sum;
        next = tree.parent_id[node];
    }
}
