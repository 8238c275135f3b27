//! The search tree as arrays: statistics in columns addressed by node id, so that a tree *is* a record batch.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, BooleanArray, Float64Array, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};

use super::answer_batch::{internal, passage_ids};
use super::columns::{float4_list, int4, int4_list, int8, list_of, schema, text, text_list};
use super::environment::{Agent, Next, Sampled, StepRecord};
use super::protocol::{Context, State, StopReason};
use super::sampling::SeedPath;
use crate::error::Result;
use crate::price::Price;

/// Node id of the question itself.
pub const ROOT: usize = 0;

/// The tree of one question. All columns have one entry per node; a child's id is larger than its parent's.
#[derive(Clone, Debug)]
pub struct SearchTree {
    pub question_id: String,
    pub question: Arc<str>,
    pub initial_state: State,
    pub policy: String,
    pub policy_version: u32,
    pub corpus_version: u64,

    /// None for the root.
    pub parent_id: Vec<Option<usize>>,
    /// Steps from the root.
    pub depth: Vec<usize>,
    /// Ids of the children, ascending; empty until the node is expanded.
    pub children: Vec<Vec<usize>>,
    /// The step that led here; None for the root.
    pub step: Vec<Option<StepRecord>>,
    /// Where the next step starts; None at a terminal node.
    pub context: Vec<Option<Context>>,
    /// Simulations that passed through the node (N).
    pub visit_count: Vec<u64>,
    /// Those of them that gave a value: all, but for verdicts that could not be read and steps too long for a reward model.
    pub value_count: Vec<u64>,
    /// Sum of the values (W).
    pub value_sum: Vec<f64>,
    /// Simulations that are under way; 0 between rounds.
    pub virtual_count: Vec<u64>,
    /// The least value that a simulation found, at most 0: what one is taken to find that is under way.
    pub least_value: f64,
    /// Share of the parent's samples that were this response (P): siblings add up to 1.
    pub prior: Vec<f64>,
    /// Distinct completions simulated through the node (or values of a model below it), and the sum of their rewards.
    pub completion_count: Vec<u64>,
    pub completion_reward_sum: Vec<f64>,
    /// What the trajectory earns that ends at the node; None at one that is not terminal.
    pub outcome_reward: Vec<Option<f64>>,
    /// All that was spent at the node: its own step, samples equal to it, completions simulated from it, verdicts on it.
    pub cost: Vec<Cost>,
    /// Where the node's random choices come from.
    pub seeds: Vec<SeedPath>,
    /// Whether the node is on the way to the best of n trajectories; None where none was chosen.
    pub is_best: Vec<Option<bool>>,
}

/// Tokens, price and time of policy calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub generated_tokens: usize,
    pub price: Price,
    pub latency_ms: f64,
}

impl SearchTree {
    /// A tree that is only its root. A blank question has a root without a context: nothing can be done with it.
    pub(super) fn new(agent: &Agent, question_id: &str, question: &str, seeds: SeedPath) -> Self {
        let (policy, policy_version) = agent.policy.reference();
        let context = agent.begin(question);
        Self {
            question_id: question_id.to_owned(),
            question: question.into(),
            initial_state: context.state,
            policy,
            policy_version,
            corpus_version: agent.retriever.corpus_version(),
            parent_id: vec![None],
            depth: vec![0],
            children: vec![Vec::new()],
            step: vec![None],
            context: vec![(!question.trim().is_empty()).then_some(context)],
            visit_count: vec![0],
            value_count: vec![0],
            value_sum: vec![0.0],
            virtual_count: vec![0],
            least_value: 0.0,
            prior: vec![1.0],
            completion_count: vec![0],
            completion_reward_sum: vec![0.0],
            outcome_reward: vec![None],
            cost: vec![Cost::default()],
            seeds: vec![seeds],
            is_best: vec![None],
        }
    }

    /// Adds a child and returns its id. `outcome_reward`: of a step that ends the trajectory.
    pub(super) fn push(
        &mut self,
        parent: usize,
        step: StepRecord,
        prior: f64,
        outcome_reward: Option<f64>,
        cost: Cost,
        seeds: SeedPath,
    ) -> usize {
        let node = self.len();
        self.parent_id.push(Some(parent));
        self.depth.push(self.depth[parent] + 1);
        self.children.push(Vec::new());
        self.context.push(match &step.next {
            Next::Step(context) => Some(context.clone()),
            Next::End(_) => None,
        });
        self.step.push(Some(step));
        self.visit_count.push(0);
        self.value_count.push(0);
        self.value_sum.push(0.0);
        self.virtual_count.push(0);
        self.prior.push(prior);
        self.completion_count.push(0);
        self.completion_reward_sum.push(0.0);
        self.outcome_reward.push(outcome_reward);
        self.cost.push(cost);
        self.seeds.push(seeds);
        self.is_best.push(None);
        self.children[parent].push(node);
        node
    }

    /// Ends the trajectory at a node whose prompt the policy cannot read; `outcome_reward`: what it earns.
    pub(super) fn close(&mut self, node: usize, outcome_reward: f64) {
        if let Some(step) = &mut self.step[node] {
            step.next = Next::End(StopReason::ContextFull);
        }
        self.context[node] = None;
        self.outcome_reward[node] = Some(outcome_reward);
    }

    /// Chooses the end of the largest mean value, the first one of equals, and marks the way to it. Without an end that has a value nothing is the
    /// best.
    pub(super) fn mark_best(&mut self) {
        let ends = (1..self.len()).filter(|node| self.is_terminal(*node));
        let valued = ends.filter_map(|end| self.q_value(end).map(|value| (end, value)));
        let best = valued.reduce(|best, end| if end.1 > best.1 { end } else { best });
        let path: Vec<usize> = std::iter::successors(best.map(|(end, _)| end), |node| self.parent_id[*node]).collect();
        self.is_best = (0..self.len()).map(|node| Some(path.contains(&node))).collect();
    }

    /// Number of nodes, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a tree has its root")]
    pub fn len(&self) -> usize {
        self.parent_id.len()
    }

    /// Whether the trajectory ends at the node.
    pub fn is_terminal(&self, node: usize) -> bool {
        self.context[node].is_none()
    }

    pub fn is_expanded(&self, node: usize) -> bool {
        !self.children[node].is_empty()
    }

    /// Whether every leaf is terminal and was visited: no simulation can find out anything more.
    pub fn is_exhausted(&self) -> bool {
        (0..self.len()).all(|node| self.is_expanded(node) || (self.is_terminal(node) && self.visit_count[node] > 0))
    }

    /// The steps from the root to the node, its own last.
    pub(super) fn steps_to(&self, node: usize) -> Vec<&StepRecord> {
        let path = std::iter::successors(Some(node), |node| self.parent_id[*node]);
        let mut steps: Vec<&StepRecord> = path.filter_map(|node| self.step[node].as_ref()).collect();
        steps.reverse();
        steps
    }

    /// Mean value Q, in [0, 1] where rewards are: W / N, where each of the visits gave a value; None before the first value.
    pub fn q_value(&self, node: usize) -> Option<f64> {
        mean(self.value_sum[node], self.value_count[node])
    }

    /// Mean reward of all distinct completions simulated through the node, in [0, 1] where rewards are; None if there is none.
    pub fn process_reward(&self, node: usize) -> Option<f64> {
        mean(self.completion_reward_sum[node], self.completion_count[node])
    }

    /// One row per node, `node_id` = row number; columns of [`node_schema`].
    ///
    /// # Errors
    /// None that can be caused: columns and schema stand side by side in this file.
    pub fn to_record_batch(&self, run: &str) -> Result<RecordBatch> {
        let mut columns = self.identity_columns(run);
        columns.extend(self.step_columns());
        columns.extend(self.statistics_columns());
        columns.extend(self.provenance_columns());
        RecordBatch::try_new(node_schema(), columns).map_err(internal)
    }

    fn identity_columns(&self, run: &str) -> Vec<ArrayRef> {
        vec![
            text((0..self.len()).map(|_| Some(run))),
            text((0..self.len()).map(|_| Some(self.question_id.as_str()))),
            int8((0..self.len()).map(|node| Some(node as u64))),
            int8(self.parent_id.iter().map(|parent| parent.map(|parent| parent as u64))),
            int4(self.depth.iter().copied()),
        ]
    }

    fn step_columns(&self) -> Vec<ArrayRef> {
        let steps = || self.step.iter().map(Option::as_ref);
        vec![
            text(steps().map(|step| Some(step.map_or(self.initial_state, |step| step.state).as_str()))),
            text(steps().map(|step| step.map(|step| step.action.as_str()))),
            text(steps().map(|step| Some(step.map_or(&*self.question, |step| &*step.prompt)))),
            text(steps().map(|step| step.map(|step| &*step.response))),
            text(steps().map(|step| step.and_then(StepRecord::query))),
            text(steps().map(|step| step.and_then(|step| step.action.evidence()))),
            text(steps().map(|step| step.and_then(|step| step.action.answer()))),
            text_list(steps().map(|step| step.and_then(passage_ids))),
        ]
    }

    fn statistics_columns(&self) -> Vec<ArrayRef> {
        let nodes = || 0..self.len();
        vec![
            int8(nodes().map(|node| Some(self.visit_count[node]))),
            Arc::new(Float64Array::from(self.value_sum.clone())),
            Arc::new(nodes().map(|node| self.q_value(node)).collect::<Float64Array>()),
            Arc::new(Float64Array::from(self.prior.clone())),
            Arc::new(nodes().map(|node| self.process_reward(node)).collect::<Float64Array>()),
            Arc::new(Float64Array::from(self.outcome_reward.clone())),
            Arc::new(nodes().map(|node| Some(self.is_terminal(node))).collect::<BooleanArray>()),
        ]
    }

    fn provenance_columns(&self) -> Vec<ArrayRef> {
        let steps = || self.step.iter().map(Option::as_ref);
        let costs = || self.cost.iter();
        vec![
            int4_list(steps().map(|step| step.map(|step| step.token_ids.as_slice()))),
            float4_list(steps().map(|step| step.map(|step| step.token_logprobs.as_slice()))),
            text(steps().map(|_| Some(self.policy.as_str()))),
            int4(steps().map(|_| self.policy_version as usize)),
            int8(steps().map(|_| Some(self.corpus_version))),
            int8(steps().map(|step| step.map(|step| step.seed))),
            int4(costs().map(|cost| cost.prompt_tokens)),
            int4(costs().map(|cost| cost.cached_tokens)),
            int4(costs().map(|cost| cost.generated_tokens)),
            Arc::new(costs().map(|cost| Some(cost.latency_ms)).collect::<Float64Array>()),
            Arc::new(costs().map(|cost| cost.price.known()).collect::<Float64Array>()),
            Arc::new(self.is_best.iter().copied().collect::<BooleanArray>()),
            int4_list(steps().map(|step| step.and_then(StepRecord::known_prompt_ids))),
            int4_list(steps().map(|step| step.and_then(StepRecord::token_mask))),
        ]
    }
}

impl Cost {
    pub(super) fn add(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.generated_tokens += other.generated_tokens;
        self.price += other.price;
        self.latency_ms += other.latency_ms;
    }
}

impl From<&StepRecord> for Cost {
    fn from(step: &StepRecord) -> Self {
        Self {
            prompt_tokens: step.prompt_tokens,
            cached_tokens: step.cached_tokens,
            generated_tokens: step.generated_tokens,
            price: step.cost,
            latency_ms: step.latency_ms,
        }
    }
}

impl From<&Sampled> for Cost {
    fn from(sampled: &Sampled) -> Self {
        Self {
            prompt_tokens: sampled.generated.prompt_tokens,
            cached_tokens: sampled.generated.cached_tokens,
            generated_tokens: sampled.generated.generated_tokens,
            price: sampled.generated.cost,
            latency_ms: sampled.latency_ms,
        }
    }
}

/// Columns of a table of rollouts: one row per node.
///
/// The root (`node_id` 0) is the question: its `prompt` is the question, and it has no action and no response. `prompt` of any
/// other node is what the policy was asked, so siblings share it. `prompt_tokens`, `cached_tokens`, `generated_tokens`,
/// `latency_ms` and `cost` hold all that was spent at the node (samples equal to it, simulated completions and verdicts too), so that their sum is
/// the cost of the tree; `token_ids` are those of the node's own response, `token_mask` says which of them it is of, and `prompt_ids` are the tokens that it
/// was sampled after.
pub fn node_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        schema(&[
            ("run", DataType::Utf8),
            ("question_id", DataType::Utf8),
            ("node_id", DataType::Int64),
            ("parent_id", DataType::Int64),
            ("depth", DataType::Int32),
            ("state", DataType::Utf8),
            ("action", DataType::Utf8),
            ("prompt", DataType::Utf8),
            ("response", DataType::Utf8),
            ("query", DataType::Utf8),
            ("evidence", DataType::Utf8),
            ("answer", DataType::Utf8),
            ("passage_ids", list_of(DataType::Utf8)),
            ("visit_count", DataType::Int64),
            ("value_sum", DataType::Float64),
            ("q_value", DataType::Float64),
            ("prior", DataType::Float64),
            ("process_reward", DataType::Float64),
            ("outcome_reward", DataType::Float64),
            ("is_terminal", DataType::Boolean),
            ("token_ids", list_of(DataType::Int32)),
            ("token_logprobs", list_of(DataType::Float32)),
            ("policy", DataType::Utf8),
            ("policy_version", DataType::Int32),
            ("corpus_version", DataType::Int64),
            ("seed", DataType::Int64),
            ("prompt_tokens", DataType::Int32),
            ("cached_tokens", DataType::Int32),
            ("generated_tokens", DataType::Int32),
            ("latency_ms", DataType::Float64),
            ("cost", DataType::Float64),
            ("is_best", DataType::Boolean),
            ("prompt_ids", list_of(DataType::Int32)),
            ("token_mask", list_of(DataType::Int32)),
        ])
    });
    Arc::clone(&SCHEMA)
}

fn mean(sum: f64, count: u64) -> Option<f64> {
    // A tally of visits stays far below 2^53.
    (count > 0).then(|| sum / count as f64)
}
