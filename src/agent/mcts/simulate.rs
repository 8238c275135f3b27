//! Simulation: what a node is worth, by letting the policy run to the end from it.

use futures::future::try_join_all;

use super::{Question, reward, score};
use crate::agent::environment::{Agent, StepRecord};
use crate::agent::options::SearchOptions;
use crate::agent::search_tree::{Cost, SearchTree};
use crate::error::Result;

/// What a simulation found out about a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evaluation {
    /// Mean reward of the completions, in [0, 1].
    pub value: f64,
    /// Completions that were not known before, and the sum of their rewards.
    pub completion_count: u64,
    pub completion_reward_sum: f64,
    /// What the policy calls cost.
    pub cost: Cost,
}

/// Values a node: a terminal one by its own reward, without a policy call; any other by `options.rollouts_per_node`
/// completions, sampled together. Their steps are no nodes of the tree; their result and their cost count.
pub async fn simulate(agent: &Agent, tree: &SearchTree, node: usize, question: &Question, options: &SearchOptions) -> Result<Evaluation> {
    let depth = tree.depth[node];
    let Some(context) = &tree.context[node] else {
        return Ok(terminal(tree, node, options.alpha));
    };
    // A node that is valued has no children, so all completions through it started at it: their count is the next index.
    let first = tree.completion_count[node];
    let rollouts = (first..).take(options.rollouts_per_node);
    let completions = rollouts.map(|index| agent.run(context.clone(), tree.seeds[node].rollout(index)));
    let completions = try_join_all(completions).await?;

    let mut evaluation = Evaluation::default();
    for steps in &completions {
        let answer = steps.last().and_then(|step| step.action.answer());
        evaluation.completion_count += 1;
        evaluation.completion_reward_sum += reward(score(answer, question), depth + steps.len(), options.alpha);
        evaluation.cost.add(cost_of(steps));
    }
    evaluation.value = evaluation.completion_reward_sum / completions.len().max(1) as f64;
    Ok(evaluation)
}

/// The trajectory that ends here is one completion: a new one at the first visit only, so that selecting an answer again and
/// again, as UCT does with a good one, does not weigh in the process rewards of the steps before it.
fn terminal(tree: &SearchTree, node: usize, alpha: f64) -> Evaluation {
    let value = reward(tree.outcome_reward[node].unwrap_or(0.0), tree.depth[node], alpha);
    let is_new = tree.visit_count[node] == 0;
    Evaluation {
        value,
        completion_count: u64::from(is_new),
        completion_reward_sum: if is_new { value } else { 0.0 },
        cost: Cost::default(),
    }
}

fn cost_of(steps: &[StepRecord]) -> Cost {
    steps.iter().map(Cost::from).fold(Cost::default(), |mut sum, cost| {
        sum.add(cost);
        sum
    })
}
