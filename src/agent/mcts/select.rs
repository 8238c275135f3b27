//! Selection: down the tree by UCT or PUCT.

use std::cmp::Ordering;

use crate::agent::search_options::{SearchOptions, Selection};
use crate::agent::search_tree::{ROOT, SearchTree};

/// The leaves of one round, at most `limit` and at least one, chosen one after the other.
///
/// Each that is chosen counts as a visit that found the least until the round is over, at it and above it, so that the next one is another
/// (virtual loss; Chaslot, Winands and van den Herik 2008, "Parallel Monte-Carlo Tree Search"). A round ends early where a leaf would be
/// chosen twice: what it becomes is not known yet. So a round is a function of the tree, and of no clock.
pub fn select_round(tree: &mut SearchTree, options: &SearchOptions, limit: usize) -> Vec<usize> {
    let mut leaves = Vec::new();
    while leaves.len() < limit {
        let leaf = select(tree, options);
        if leaves.contains(&leaf) {
            break;
        }
        leaves.push(leaf);
        for_path(tree, leaf, |virtual_count| *virtual_count += 1);
    }
    for leaf in &leaves {
        for_path(tree, *leaf, |virtual_count| *virtual_count -= 1);
    }
    leaves
}

/// The leaf to look at next: from the root, the child of the largest score until a node has no children.
///
/// Ties go to the smaller node id, so that a run repeats.
fn select(tree: &SearchTree, options: &SearchOptions) -> usize {
    let mut node = ROOT;
    while let Some(child) = best_child(tree, node, options) {
        node = child;
    }
    node
}

/// Whether a selected leaf grows: it goes on, is above the depth limit, and has been valued itself before (the root excepted).
pub fn can_expand(tree: &SearchTree, leaf: usize, max_depth: usize) -> bool {
    let is_valued = leaf == ROOT || tree.visit_count[leaf] > 0;
    !tree.is_terminal(leaf) && tree.depth[leaf] < max_depth && is_valued
}

fn for_path(tree: &mut SearchTree, leaf: usize, change: impl Fn(&mut u64)) {
    let mut next = Some(leaf);
    while let Some(node) = next {
        change(&mut tree.virtual_count[node]);
        next = tree.parent_id[node];
    }
}

fn best_child(tree: &SearchTree, node: usize, options: &SearchOptions) -> Option<usize> {
    tree.children[node].iter().copied().reduce(|best, child| {
        match selection_score(tree, child, options).total_cmp(&selection_score(tree, best, options)) {
            Ordering::Greater => child,
            Ordering::Less | Ordering::Equal => best,
        }
    })
}

/// The functions that SQL has too. UCT: infinite for a node without visits, so that each child is tried once. PUCT: such a node has the
/// mean 0, and its prior decides.
fn selection_score(tree: &SearchTree, node: usize, options: &SearchOptions) -> f64 {
    let visits_of = |node: usize| tree.visit_count[node] + tree.virtual_count[node];
    let visits = visits_of(node);
    let parent_visits = tree.parent_id[node].map_or(1, |parent| visits_of(parent).max(1));
    // Visits stay far below 2^53.
    let (q_value, visits, parent_visits) = (mean_with_losses(tree, node), visits as f64, parent_visits as f64);
    match options.selection {
        Selection::Uct if visits == 0.0 => f64::INFINITY,
        Selection::Uct => rolloutdb_udfs::search::uct_score(q_value, visits, parent_visits, options.exploration),
        Selection::Puct => rolloutdb_udfs::search::puct_score(q_value, tree.prior[node], visits, parent_visits, options.exploration),
    }
}

/// Mean value, visits under way counted as 0, or as the least that was found where rewards are negative. A node whose value nobody could tell is taken for what its parent is.
fn mean_with_losses(tree: &SearchTree, node: usize) -> f64 {
    let count = tree.value_count[node] + tree.virtual_count[node];
    if count > 0 {
        return (tree.value_sum[node] + tree.virtual_count[node] as f64 * tree.least_value) / count as f64;
    }
    let parent = tree.parent_id[node].filter(|_| tree.visit_count[node] > 0);
    parent.and_then(|parent| tree.q_value(parent)).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::sampling::SeedPath;
    use crate::agent::search_tree::Cost;
    use crate::agent::testing::{Parrot, agent};

    /// A root with one child per `(visit_count, value_sum, prior)`; no child was expanded.
    async fn tree(children: &[(u64, f64, f64)]) -> SearchTree {
        let agent = agent(Parrot("<query>Jaws</query>"));
        let seeds = SeedPath::question(0, "q");
        let mut tree = SearchTree::new(&agent, "q", "Who?", seeds);
        for (visit_count, value_sum, prior) in children {
            let step = agent.step(&agent.begin("Who?"), 0).await.unwrap();
            let node = tree.push(ROOT, step, *prior, None, Cost::default(), seeds);
            (tree.visit_count[node], tree.value_count[node], tree.value_sum[node]) = (*visit_count, *visit_count, *value_sum);
            tree.visit_count[ROOT] += visit_count;
            tree.value_count[ROOT] += visit_count;
            tree.value_sum[ROOT] += value_sum;
        }
        tree
    }

    fn uct(exploration: f64) -> SearchOptions {
        SearchOptions { exploration, ..SearchOptions::default() }
    }

    fn puct(exploration: f64) -> SearchOptions {
        SearchOptions { selection: Selection::Puct, exploration, ..SearchOptions::default() }
    }

    #[tokio::test]
    async fn scores_by_uct() {
        let tree = tree(&[(4, 2.0, 0.5), (12, 9.0, 0.5)]).await;
        // q + c * sqrt(ln(parent visits) / visits): 0.5 + 1 * sqrt(ln 16 / 4) and 0.75 + 1 * sqrt(ln 16 / 12).
        assert!((selection_score(&tree, 1, &uct(1.0)) - 1.332_554_6).abs() < 1e-7);
        assert!((selection_score(&tree, 2, &uct(1.0)) - 1.230_675_6).abs() < 1e-7);
        assert_eq!(select(&tree, &uct(1.0)), 1, "few visits");
        assert_eq!(select(&tree, &uct(0.0)), 2, "large mean");
    }

    #[tokio::test]
    async fn scores_by_puct() {
        let tree = tree(&[(3, 1.5, 0.2), (6, 4.5, 0.2), (0, 0.0, 0.6)]).await;
        // q + c * P * sqrt(parent visits) / (1 + visits), with c = 2.5 and 9 visits of the parent.
        assert!((selection_score(&tree, 1, &puct(2.5)) - (0.5 + 2.5 * 0.2 * 3.0 / 4.0)).abs() < 1e-12);
        assert!((selection_score(&tree, 2, &puct(2.5)) - (0.75 + 2.5 * 0.2 * 3.0 / 7.0)).abs() < 1e-12);
        assert!((selection_score(&tree, 3, &puct(2.5)) - 4.5).abs() < 1e-12, "not visited: the prior alone");
        assert_eq!((select(&tree, &puct(2.5)), select(&tree, &puct(0.1))), (3, 2));
    }

    /// A visit under way makes a node worse whatever the sign of its rewards is.
    #[tokio::test]
    async fn a_round_takes_other_leaves_where_all_rewards_are_negative() {
        let mut tree = tree(&[(4, -3.6, 0.5), (4, -3.8, 0.5)]).await;
        tree.least_value = -2.0;
        let options = SearchOptions { parallel: 2, ..uct(0.1) };
        let before = tree.clone();
        assert_eq!(select_round(&mut tree, &options, 2), [1, 2]);
        assert_eq!(select(&tree, &options), 1);
        assert_eq!((tree.virtual_count, tree.value_sum), (before.virtual_count, before.value_sum), "a round leaves no trace");
    }

    #[tokio::test]
    async fn unvisited_nodes_come_first_and_ties_go_to_the_smaller_id() {
        assert_eq!(select(&tree(&[(9, 9.0, 0.4), (0, 0.0, 0.3), (0, 0.0, 0.3)]).await, &uct(0.0)), 2);
        assert_eq!(select(&tree(&[(2, 1.0, 0.5), (2, 1.0, 0.5)]).await, &uct(1.4)), 1);
        assert_eq!(select(&tree(&[]).await, &uct(1.4)), ROOT);
    }

    #[tokio::test]
    async fn a_leaf_grows_once_it_was_valued() {
        let tree = tree(&[(1, 0.0, 0.5), (0, 0.0, 0.5)]).await;
        assert!(can_expand(&tree, ROOT, 1) && can_expand(&tree, 1, 2));
        assert!(!can_expand(&tree, 1, 1), "depth limit");
        assert!(!can_expand(&tree, 2, 2), "not valued yet");
    }

    #[tokio::test]
    async fn a_round_takes_other_leaves_and_leaves_no_trace() {
        let mut tree = tree(&[(4, 3.6, 0.4), (4, 3.0, 0.3), (4, 1.0, 0.3)]).await;
        // Without exploration the best child stays the best until a loss weighs on it: 3.6 / 4, then 3.6 / 5 < 3.0 / 4.
        assert_eq!(select_round(&mut tree, &uct(0.0), 2), [1, 2]);
        // 3.6 / 5 > 3.0 / 5: the first leaf would be taken again, so the round ends with two of three.
        assert_eq!(select_round(&mut tree, &uct(0.0), 3), [1, 2]);
        assert_eq!(tree.virtual_count, [0; 4]);
        assert_eq!(select_round(&mut tree, &uct(0.0), 1), [1], "one at a time: the best");
        let mut new = self::tree(&[(0, 0.0, 0.5), (0, 0.0, 0.5)]).await;
        assert_eq!(select_round(&mut new, &uct(1.4), 8), [1, 2]);
        assert_eq!(select_round(&mut new, &puct(1.4), 8), [1, 2]);
    }

    #[tokio::test]
    async fn a_node_that_nobody_could_value_is_like_its_parent() {
        let mut tree = tree(&[(4, 2.0, 0.5), (1, 0.0, 0.5)]).await;
        (tree.value_count[2], tree.value_count[ROOT]) = (0, 4);
        assert!((mean_with_losses(&tree, 2) - 0.5).abs() < 1e-12);
    }
}
