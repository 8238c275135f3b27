//! Expansion: sampled actions become children.

use futures::future::try_join_all;

use super::returns::score;
use super::simulate::Place;
use super::{Question, Search};
use crate::agent::environment::{Sampled, StepRecord};
use crate::agent::sampling::SeedPath;
use crate::agent::search_tree::{Cost, SearchTree};
use crate::error::Result;

/// A child that was sampled and is not in the tree yet.
pub struct Child {
    pub step: StepRecord,
    /// Its share of the samples.
    pub prior: f64,
    /// What the trajectory earns that ends with it; None if it goes on.
    pub outcome_reward: Option<f64>,
    /// Of all samples that were this response.
    pub cost: Cost,
    pub seeds: SeedPath,
}

/// Samples `options.children` actions at a leaf that goes on and gives a child for each distinct response, at least one.
///
/// All samples are drawn at once, so that they share a batch and the node is fully expanded afterwards, however many of them
/// were equal. Equal responses are one child, whose `prior` is their share of the samples and whose cost is that of all.
///
/// # Errors
/// Those of the policy and of the retriever; [`crate::Error::ContextFull`] if only the asking tells that the policy cannot read the leaf's prompt.
pub async fn expand(search: &Search, leaf: &Place<'_>, question: &Question) -> Result<Vec<Child>> {
    let Search { agent, options, .. } = search;
    let (context, seeds) = (leaf.context, leaf.seeds);
    let num_children = options.children;
    let sample_seeds: Vec<u64> = (0..num_children as u64).map(|index| seeds.child(index).seed()).collect();
    let (distinct, shares) = deduplicate(agent.sample_all(context, &sample_seeds).await?);
    let steps = try_join_all(distinct.into_iter().map(|sampled| agent.act(context, sampled))).await?;
    let child = |(step, share): (StepRecord, Share)| {
        let mut cost = Cost::from(&step);
        cost.add(share.duplicates_cost);
        let earned = |_| {
            let steps: Vec<&StepRecord> = leaf.steps.iter().copied().chain([&step]).collect();
            score(options, agent.protocol.as_ref(), &steps, question)
        };
        Child {
            prior: share.count as f64 / num_children as f64,
            outcome_reward: step.stop_reason().map(earned),
            cost,
            seeds: seeds.child(share.index),
            step,
        }
    };
    Ok(steps.into_iter().zip(shares).map(child).collect())
}

/// Adds the children below `parent` and gives the id of the first.
pub fn add(tree: &mut SearchTree, parent: usize, children: Vec<Child>) -> usize {
    let first = tree.len();
    for Child { step, prior, outcome_reward, cost, seeds } in children {
        tree.push(parent, step, prior, outcome_reward, cost, seeds);
    }
    first
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
