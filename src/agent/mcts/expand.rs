//! Expansion: sampled actions become children.

use futures::future::try_join_all;

use super::{Question, score};
use crate::agent::environment::{Agent, Sampled};
use crate::agent::search_tree::{Cost, SearchTree};
use crate::error::Result;

/// Samples `num_children` actions at a leaf that goes on, adds a child for each distinct response and returns the first.
///
/// All samples are drawn at once, so that they share a batch and the node is fully expanded afterwards, however many of them
/// were equal. Equal responses are one child, whose `prior` is their share of the samples and whose cost is that of all.
pub async fn expand(agent: &Agent, tree: &mut SearchTree, leaf: usize, question: &Question, num_children: usize) -> Result<usize> {
    let Some(context) = tree.context[leaf].clone() else { return Ok(leaf) };
    let seeds = tree.seeds[leaf];
    let samples = (0..num_children as u64).map(|index| agent.sample(&context, seeds.child(index).seed()));
    let (distinct, shares) = deduplicate(try_join_all(samples).await?);
    let steps = try_join_all(distinct.into_iter().map(|sampled| agent.act(&context, sampled))).await?;

    let first = tree.len();
    for (step, share) in steps.into_iter().zip(shares) {
        let prior = share.count as f64 / num_children as f64;
        let outcome_reward = step.stop_reason().map(|_| score(step.action.answer(), question));
        let mut cost = Cost::from(&step);
        cost.add(share.duplicates_cost);
        tree.push(leaf, step, prior, outcome_reward, cost, seeds.child(share.index));
    }
    Ok(first)
}

/// What stands behind a distinct response.
struct Share {
    /// Index of its first sample.
    index: u64,
    /// How many samples were this response.
    count: usize,
    /// What the others than the first cost.
    duplicates_cost: Cost,
}

/// Keeps the first sample of each response text, in order.
fn deduplicate(samples: Vec<Sampled>) -> (Vec<Sampled>, Vec<Share>) {
    let (mut distinct, mut shares): (Vec<Sampled>, Vec<Share>) = (Vec::new(), Vec::new());
    for (index, sampled) in (0..).zip(samples) {
        match distinct.iter().position(|earlier| earlier.response == sampled.response) {
            Some(position) => {
                shares[position].count += 1;
                shares[position].duplicates_cost.add(Cost::from(&sampled));
            }
            None => {
                distinct.push(sampled);
                shares.push(Share { index, count: 1, duplicates_cost: Cost::default() });
            }
        }
    }
    (distinct, shares)
}
