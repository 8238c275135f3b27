//! Selection: down the tree by UCT.

use std::cmp::Ordering;

use crate::agent::search_tree::{ROOT, SearchTree};

/// The leaf to look at next: from the root, the child of the largest [`uct_score`] until a node has no children.
///
/// Ties go to the smaller node id, so that a run repeats.
pub fn select(tree: &SearchTree, exploration: f64) -> usize {
    let mut node = ROOT;
    while let Some(child) = best_child(tree, node, exploration) {
        node = child;
    }
    node
}

/// Whether a selected leaf grows: it goes on, is above the depth limit, and has been valued itself before (the root excepted).
pub fn can_expand(tree: &SearchTree, leaf: usize, max_depth: usize) -> bool {
    let is_valued = leaf == ROOT || tree.visit_count[leaf] > 0;
    !tree.is_terminal(leaf) && tree.depth[leaf] < max_depth && is_valued
}

/// Upper confidence bound for trees, the function that SQL has too; infinite for a node without visits.
fn uct_score(tree: &SearchTree, node: usize, exploration: f64) -> f64 {
    let Some(q_value) = tree.q_value(node) else { return f64::INFINITY };
    let parent_visits = tree.parent_id[node].map_or(1, |parent| tree.visit_count[parent].max(1));
    rolloutdb_udfs::search::uct_score(q_value, tree.visit_count[node] as f64, parent_visits as f64, exploration)
}

fn best_child(tree: &SearchTree, node: usize, exploration: f64) -> Option<usize> {
    tree.children[node].iter().copied().reduce(|best, child| {
        match uct_score(tree, child, exploration).total_cmp(&uct_score(tree, best, exploration)) {
            Ordering::Greater => child,
            Ordering::Less | Ordering::Equal => best,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::sampling::SeedPath;
    use crate::agent::search_tree::Cost;
    use crate::agent::testing::{Parrot, agent};

    /// A root with one child per `(visit_count, value_sum)`; no child was expanded.
    async fn tree(children: &[(u64, f64)]) -> SearchTree {
        let agent = agent(Parrot("<query>Jaws</query>"));
        let seeds = SeedPath::question(0, "q");
        let mut tree = SearchTree::new(&agent, "q", "Who?", seeds);
        for (visit_count, value_sum) in children {
            let step = agent.step(&agent.begin("Who?"), 0).await.unwrap();
            let node = tree.push(ROOT, step, 0.5, None, Cost::default(), seeds);
            tree.visit_count[node] = *visit_count;
            tree.value_sum[node] = *value_sum;
            tree.visit_count[ROOT] += visit_count;
        }
        tree
    }

    #[tokio::test]
    async fn uct() {
        let tree = tree(&[(4, 2.0), (12, 9.0)]).await;
        // q + c * sqrt(ln(parent visits) / visits): 0.5 + 1 * sqrt(ln 16 / 4) and 0.75 + 1 * sqrt(ln 16 / 12).
        assert!((uct_score(&tree, 1, 1.0) - 1.332_554_6).abs() < 1e-7);
        assert!((uct_score(&tree, 2, 1.0) - 1.230_675_6).abs() < 1e-7);
        assert_eq!(select(&tree, 1.0), 1, "few visits");
        assert_eq!(select(&tree, 0.0), 2, "large mean");
    }

    #[tokio::test]
    async fn unvisited_nodes_come_first_and_ties_go_to_the_smaller_id() {
        assert_eq!(select(&tree(&[(9, 9.0), (0, 0.0), (0, 0.0)]).await, 0.0), 2);
        assert_eq!(select(&tree(&[(2, 1.0), (2, 1.0)]).await, 1.4), 1);
        assert_eq!(select(&tree(&[]).await, 1.4), ROOT);
    }

    #[tokio::test]
    async fn a_leaf_grows_once_it_was_valued() {
        let tree = tree(&[(1, 0.0), (0, 0.0)]).await;
        assert!(can_expand(&tree, ROOT, 1) && can_expand(&tree, 1, 2));
        assert!(!can_expand(&tree, 1, 1), "depth limit");
        assert!(!can_expand(&tree, 2, 2), "not valued yet");
    }
}
