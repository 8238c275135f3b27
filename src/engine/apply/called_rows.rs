//! How far a plan is in the rows for which it calls models.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;

use super::ModelUse;
use super::call_metrics::NodeCalls;
use super::exec::ApplyExec;
use crate::engine::known_rows::known_rows;

/// The nodes of a plan that call models, as they run.
#[derive(Debug)]
pub struct CalledRows(Vec<Node>);

#[derive(Debug)]
struct Node {
    model_use: ModelUse,
    calls: Arc<NodeCalls>,
    /// Rows of its input, all of which it will see.
    total: Option<u64>,
}

impl CalledRows {
    /// `None`: the plan calls no model for its rows.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let mut nodes = Vec::new();
        collect(plan, true, &mut nodes);
        (!nodes.is_empty()).then_some(Self(nodes))
    }

    /// Rows whose calls have ended; one that two nodes call models for counts twice, as it does in the total.
    pub fn done(&self) -> u64 {
        self.0.iter().map(Node::done).sum()
    }

    /// `None`: it is not known before they have come.
    pub fn total(&self) -> Option<u64> {
        self.0.iter().map(|node| node.total).sum()
    }

    /// Whether each row takes one call.
    pub fn is_call_per_row(&self) -> bool {
        self.0.iter().all(|node| matches!(node.model_use, ModelUse::EachRow))
    }

    /// Calls that have ended.
    pub fn num_calls(&self) -> u64 {
        if self.is_call_per_row() { self.done() } else { self.0.iter().map(|node| node.calls.counts.answered()).sum() }
    }
}

impl Node {
    fn done(&self) -> u64 {
        let in_flight_too = match &self.model_use {
            ModelUse::Little => 0,
            ModelUse::EachRow => self.calls.counts.answered(),
            ModelUse::Often(rows) => rows.load(Ordering::Relaxed),
        };
        // NULL takes no call, and a verdict that nobody can read takes two.
        let done = in_flight_too.max(self.calls.rows.load(Ordering::Relaxed));
        self.total.map_or(done, |total| done.min(total))
    }
}

/// `takes_all`: whether what is above a plan takes all of its rows.
fn collect(plan: &Arc<dyn ExecutionPlan>, takes_all: bool, nodes: &mut Vec<Node>) {
    // Who wants a few rows does not wait for the others; a sort takes them all before it gives the first ones.
    let takes_all = plan.is::<SortExec>() || (takes_all && plan.fetch().is_none());
    if let Some(exec) = plan.downcast_ref::<ApplyExec>() {
        let model_use = exec.function().model_use();
        if !matches!(model_use, ModelUse::Little) {
            let total = if takes_all { known_rows(&exec.input) } else { None };
            nodes.push(Node { model_use, calls: Arc::clone(&exec.calls), total });
        }
    }
    for input in plan.children() {
        collect(input, takes_all, nodes);
    }
}
