//! What a node is worth: by letting the policy run to the end from it, or by asking a model about the steps so far.

use super::returns::{reward, score};
use super::value::Valuer;
use super::{Question, Search};
use crate::agent::environment::StepRecord;
use crate::agent::protocol::Context;
use crate::agent::sampling::SeedPath;
use crate::agent::search_options::SearchOptions;
use crate::agent::search_tree::{Cost, SearchTree};
use crate::error::Result;

/// What a simulation found out about a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evaluation {
    /// Mean reward of the completions, or a model's value of the steps so far, which is in [0, 1]; None if the model gave none that could be read.
    pub value: Option<f64>,
    /// Completions (or values of a model) that were not known before, and the sum of their rewards.
    pub completion_count: u64,
    pub completion_reward_sum: f64,
    /// What the calls cost.
    pub cost: Cost,
}

/// A node that goes on and is to be expanded or valued, in the tree or about to be.
pub struct Place<'a> {
    pub depth: usize,
    pub context: &'a Context,
    pub seeds: SeedPath,
    /// The steps that lead to it, its own last.
    pub steps: Vec<&'a StepRecord>,
    /// Completions that were simulated from it before.
    pub completion_count: u64,
}

/// Values a node that does not end a trajectory. The steps of completions are no nodes of the tree; their result and their cost count. None if only the
/// asking tells that the policy cannot read the node's prompt, which ends the trajectory.
pub async fn evaluate(search: &Search, place: &Place<'_>, question: &Question) -> Result<Option<Evaluation>> {
    match by_model(search, question, &place.steps, place.seeds).await? {
        Some(evaluation) => Ok(Some(evaluation)),
        None => complete(search, place, question).await,
    }
}

/// What a judge or a reward model says of the last of these steps; None if none of them values nodes.
pub async fn by_model(search: &Search, question: &Question, steps: &[&StepRecord], seeds: SeedPath) -> Result<Option<Evaluation>> {
    let (value, cost) = match (&search.valuer, steps.last()) {
        (Valuer::Judge(judge), Some(_)) => judge.value(question, steps, seeds).await?,
        (Valuer::Prm(model), Some(step)) => (model.value(&step.prompt, &step.response).await?, Cost::default()),
        // Of a question without a step nothing can be judged: it is at the root of a tree that has no depth.
        (Valuer::Policy, _) | (_, None) => return Ok(None),
    };
    search.counters.add_verdict(value.is_some());
    Ok(Some(Evaluation { value, completion_count: u64::from(value.is_some()), completion_reward_sum: value.unwrap_or(0.0), cost }))
}

/// `options.rollouts_per_node` completions, sampled together.
async fn complete(search: &Search, place: &Place<'_>, question: &Question) -> Result<Option<Evaluation>> {
    let (agent, options) = (search.completing_agent(), &search.options);
    // A node that is valued has no children, so all completions through it started at it: their count is the next index.
    let rollouts = (place.completion_count..).take(options.rollouts_per_node);
    let rollouts: Vec<SeedPath> = rollouts.map(|index| place.seeds.rollout(index)).collect();
    let completions = agent.run_all(place.context, &rollouts).await?;
    if completions.iter().all(Vec::is_empty) {
        return Ok(None);
    }

    let mut evaluation = Evaluation::default();
    for steps in &completions {
        let all: Vec<&StepRecord> = place.steps.iter().copied().chain(steps).collect();
        let score = score(options, agent.protocol.as_ref(), &all, question);
        evaluation.completion_count += 1;
        evaluation.completion_reward_sum += reward(options, score, all.len(), place.depth);
        evaluation.cost.add(cost_of(steps));
    }
    evaluation.value = Some(evaluation.completion_reward_sum / completions.len().max(1) as f64);
    Ok(Some(evaluation))
}

/// The trajectory that ends here is one completion: a new one at the first visit only, so that selecting an answer again and
/// again, as UCT does with a good one, does not weigh in the process rewards of the steps before it. No policy call is needed.
pub fn terminal(tree: &SearchTree, node: usize, options: &SearchOptions) -> Evaluation {
    let depth = tree.depth[node];
    let value = reward(options, tree.outcome_reward[node].unwrap_or(0.0), depth, depth);
    let is_new = tree.visit_count[node] == 0;
    Evaluation {
        value: Some(value),
        completion_count: u64::from(is_new),
        completion_reward_sum: if is_new { value } else { 0.0 },
        cost: Cost::default(),
    }
}

impl Evaluation {
    /// A model says of the same steps what it said before: the value is known, and nothing is new.
    pub fn known(tree: &SearchTree, node: usize) -> Self {
        Self { value: tree.q_value(node), ..Self::default() }
    }
}

fn cost_of(steps: &[StepRecord]) -> Cost {
    steps.iter().map(Cost::from).fold(Cost::default(), |mut sum, cost| {
        sum.add(cost);
        sum
    })
}
