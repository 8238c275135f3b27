//! Sampling beside the tree search: independent trajectories, all kept with what they are worth.
//!
//! Their common beginnings are common nodes, as in a tree that was searched: siblings are steps that were taken in the same place, and
//! `visit_count` says how many trajectories went through a node. So pairs, groups and the best of n are read from the same columns.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};

use super::backpropagate::backpropagate;
use super::returns::{decay, reward, score};
use super::simulate::{Evaluation, by_model};
use super::{Question, Search};
use crate::agent::environment::{Agent, StepRecord};
use crate::agent::sampling::SeedPath;
use crate::agent::search_tree::{Cost, ROOT, SearchTree};
use crate::error::{Error, Result};

/// Trajectories of one question in flight; more would fill the policy's queue without filling its batch.
const AT_ONCE: usize = 64;

/// Adds `options.simulations` trajectories to a tree that is its root, the first one first. A trajectory depends on the seed and on its index.
pub async fn sample(search: &Search, tree: &mut SearchTree, question: &Question) -> Result<()> {
    let Some(context) = tree.context[ROOT].clone() else { return Ok(()) };
    let (seeds, count) = (tree.seeds[ROOT], search.options.simulations);
    // Those that share a call have one temperature.
    let together = if search.options.temperatures.len() > 1 { 1 } else { search.agent.samples_per_call() };
    let group = |first: usize| {
        let agent = Agent { temperature: search.options.sample_temperature(first), ..search.agent.clone() };
        let seeds: Vec<SeedPath> = (first..count.min(first + together)).map(|index| seeds.rollout(index as u64)).collect();
        let context = &context;
        async move { agent.run_all(context, &seeds).await.map(|trajectories| (trajectories, seeds)) }
    };
    let mut groups = stream::iter((0..count).step_by(together)).map(group).buffered(AT_ONCE.div_ceil(together));
    let mut ends = Vec::new();
    while let Some((trajectories, seeds)) = groups.try_next().await? {
        for (steps, seeds) in trajectories.into_iter().zip(seeds) {
            // Only the asking told that the policy cannot read the question's prompt: the tree is its root.
            if steps.is_empty() {
                return Ok(());
            }
            ends.push(search.counters.in_tree(|| add(search, tree, question, steps, seeds)));
        }
    }
    let mut values = value_ends(search, tree, question, &ends).await?;
    for end in ends {
        let Some(value) = values.get_mut(&end) else { continue };
        // Each trajectory is a draw of its own: one that comes again counts again, and costs nothing more.
        search.counters.in_tree(|| backpropagate(tree, end, *value, decay(&search.options)));
        value.cost = Cost::default();
    }
    for node in 1..tree.len() {
        let among = tree.parent_id[node].map_or(1, |parent| tree.visit_count[parent].max(1));
        tree.prior[node] = tree.visit_count[node] as f64 / among as f64;
    }
    Ok(())
}

/// Walks along the steps that the tree has, and adds the others; the node at the end.
fn add(search: &Search, tree: &mut SearchTree, question: &Question, steps: Vec<StepRecord>, seeds: SeedPath) -> usize {
    let earned = score(&search.options, search.agent.protocol.as_ref(), &steps.iter().collect::<Vec<_>>(), question);
    let mut node = ROOT;
    let mut spent = Cost::default();
    for (index, step) in (0..).zip(steps) {
        let cost = Cost::from(&step);
        spent.add(cost);
        let is_known = |child: &&usize| tree.step[**child].as_ref().is_some_and(|known| known.response == step.response);
        let known = tree.children[node].iter().find(is_known).copied();
        node = match known {
            Some(known) => {
                tree.cost[known].add(cost);
                known
            }
            None => {
                let outcome_reward = step.stop_reason().map(|_| earned);
                // Its share of the samples is known when all are.
                tree.push(node, step, 0.0, outcome_reward, cost, seeds.child(index))
            }
        };
    }
    search.counters.add_simulation(spent);
    node
}

/// What each end is worth: by the score of its answer, or by a model, which is asked once about equal trajectories.
async fn value_ends(search: &Search, tree: &SearchTree, question: &Question, ends: &[usize]) -> Result<BTreeMap<usize, Evaluation>> {
    let distinct: BTreeSet<usize> = ends.iter().copied().collect();
    let value = |end: usize| async move {
        let evaluation = by_model(search, question, &tree.steps_to(end), tree.seeds[end]).await?;
        Ok::<_, Error>((end, evaluation.unwrap_or_else(|| scored(search, tree, end))))
    };
    let values: BTreeMap<usize, Evaluation> = stream::iter(distinct).map(value).buffered(AT_ONCE).try_collect().await?;
    values.values().for_each(|value| search.counters.add_cost(value.cost));
    Ok(values)
}

fn scored(search: &Search, tree: &SearchTree, end: usize) -> Evaluation {
    let depth = tree.depth[end];
    let value = reward(&search.options, tree.outcome_reward[end].unwrap_or(0.0), depth, depth);
    Evaluation { value: Some(value), completion_count: 1, completion_reward_sum: value, cost: Cost::default() }
}
