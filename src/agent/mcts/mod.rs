//! Monte Carlo tree search over trajectories, with rewards for every step; plain sampling beside it.
//!
//! A simulation selects a leaf by UCT (Kocsis and Szepesvári 2006) or PUCT, expands it with sampled actions, values one node and backs the
//! value up. By default the value is the shortest-path reward estimate (SPRE; ReasonRAG, arXiv 2505.14069): the policy runs to the end, and
//! nothing but its answer and the golden answers is needed. A judge or a process reward model may value nodes instead, and returns may be
//! discounted, as in ProRAG (arXiv 2601.21912).
//!
//! ```text
//! select_round ─► up to `parallel` leaves ─► expand and evaluate, all at once ─► backpropagate in the order of selection ─► next round
//! ```
//!
//! A round selects all its leaves before any is looked at, and what they find is added in that order: a tree is a function of the seed and
//! the options, and not of what came back first. Batches for the model come from a node's children, sampled together, from the leaves of a
//! round, and from the many questions of [`Search::trees`].

mod backpropagate;
mod counters;
mod expand;
mod journal;
mod judge;
mod returns;
mod sample;
mod select;
mod simulate;
#[cfg(test)]
mod tests;
mod value;

use std::sync::Arc;

use futures::future::try_join_all;
use futures::{Stream, StreamExt};

pub use counters::{SearchCounters, SearchCounts};
pub use journal::Journal;
pub use judge::Judge;
pub use value::{ProcessRewardModel, Valuer};

use super::environment::{Agent, Next};
use super::in_work::growing;
use super::sampling::SeedPath;
use super::search_options::{Method, SearchOptions};
use super::search_tree::{Cost, ROOT, SearchTree};
use crate::error::{Error, Result};
use expand::Child;
use simulate::{Evaluation, Place};

/// A question to grow a tree from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// With the seed, decides all sampling.
    pub id: String,
    /// NULL or blank: the tree is its root, and the policy is not called.
    pub question: Option<String>,
    /// Accepted answers; the best match counts.
    pub golden_answers: Vec<String>,
}

/// An agent, how its trajectories are searched, and who values them. Clones count together.
#[derive(Clone)]
pub struct Search {
    /// Samples actions, and whole trajectories.
    agent: Agent,
    /// Runs completions.
    completing: Agent,
    options: SearchOptions,
    valuer: Valuer,
    counters: Arc<SearchCounters>,
    journal: Option<Arc<dyn Journal>>,
}

/// What a simulation makes of a leaf.
#[derive(Default)]
struct Visit {
    /// If it grows: the first of them is valued.
    children: Vec<Child>,
    /// None for a node that ends a trajectory, whose reward is known.
    evaluation: Option<Evaluation>,
    /// The trajectory ends there since the policy could not read its prompt.
    is_full: bool,
}

impl Search {
    /// `valuer`: as `options.value` says.
    pub fn new(agent: Agent, options: SearchOptions, valuer: Valuer) -> Self {
        let agent = Agent {
            temperature: options.temperature,
            top_p: options.top_p,
            top_k: options.top_k.unwrap_or(agent.top_k),
            min_p: options.min_p.unwrap_or(agent.min_p),
            repetition_penalty: options.repetition_penalty.unwrap_or(agent.repetition_penalty),
            ..agent
        };
        let completing = Agent { temperature: options.rollout_temperature.unwrap_or(options.temperature), ..agent.clone() };
        let counters = Arc::new(SearchCounters::new(agent.retriever.counters()));
        Self { agent, completing, options, valuer, counters, journal: None }
    }

    /// The same search, whose trees ask the models through a journal.
    pub fn journaled(self, journal: Option<Arc<dyn Journal>>) -> Self {
        Self { journal, ..self }
    }

    /// What has been done so far, kept up while trees grow.
    pub fn counters(&self) -> Arc<SearchCounters> {
        Arc::clone(&self.counters)
    }

    /// Grows the tree of one question. The same seed, options and models give the same tree, whatever else is in flight.
    ///
    /// Ends after `options.simulations`, or earlier when every leaf ends a trajectory and was visited.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a question without golden answers; those of the models and of the retriever. A tree that
    /// fails half-way is lost but for what a journal has; it is for the caller to go on with the other questions or not.
    pub async fn tree(&self, question: &Question) -> Result<SearchTree> {
        let mut tree = growing(self.of_question(&question.id).whole_tree(question)).await?;
        // A tree that is only its root too: its rows say that nothing was the best.
        if self.options.method == Method::BestOfN {
            tree.mark_best();
        }
        Ok(tree)
    }

    /// The search of one question.
    fn of_question(&self, question_id: &str) -> Self {
        let mut search = self.clone();
        if let Some(journal) = &self.journal {
            // Samples and completions differ in how the policy is asked, and not in the policy.
            let (policy, valuer) = journal.models(question_id, &self.agent.policy, &self.valuer);
            (search.agent.policy, search.completing.policy, search.valuer) = (Arc::clone(&policy), policy, valuer);
        }
        search
    }

    async fn whole_tree(&self, question: &Question) -> Result<SearchTree> {
        let seeds = SeedPath::question(self.options.seed.cast_unsigned(), &question.id);
        let mut tree = SearchTree::new(&self.agent, &question.id, question.question.as_deref().unwrap_or_default(), seeds);
        if tree.is_terminal(ROOT) {
            return Ok(tree);
        }
        if question.golden_answers.is_empty() {
            return Err(no_golden_answers(question));
        }
        let opened = self.agent.open(&tree.question).await?;
        if !self.agent.can_read(&opened)? {
            return Ok(tree);
        }
        tree.context[ROOT] = Some(opened);
        match self.options.method {
            Method::Mcts => self.grow(&mut tree, question).await?,
            Method::Sample | Method::BestOfN => sample::sample(self, &mut tree, question).await?,
        }
        Ok(tree)
    }

    /// Grows the trees of a stream of questions, `options.concurrency` at a time; they come in the order they are done.
    ///
    /// A question that fails does not stop the others. Dropping the stream cancels all that is in flight.
    pub fn trees<S>(self, questions: S) -> impl Stream<Item = (Question, Result<SearchTree>)> + Send
    where
        S: Stream<Item = Question> + Send,
    {
        let concurrency = self.options.concurrency.max(1);
        let search = Arc::new(self);
        questions
            .map(move |question| {
                let search = Arc::clone(&search);
                async move {
                    let tree = search.tree(&question).await;
                    (question, tree)
                }
            })
            .buffer_unordered(concurrency)
    }

    async fn grow(&self, tree: &mut SearchTree, question: &Question) -> Result<()> {
        let mut left = self.options.simulations;
        while left > 0 && !tree.is_exhausted() {
            let limit = self.options.parallel.clamp(1, left);
            let leaves = self.counters.in_tree(|| select::select_round(tree, &self.options, limit));
            left -= leaves.len();
            let grown = &*tree;
            let visits = try_join_all(leaves.iter().copied().map(|leaf| self.visit(grown, leaf, question))).await?;
            for (leaf, visit) in leaves.into_iter().zip(visits) {
                // As that of a question whose prompt is known to be too long, the tree is its root.
                if leaf == ROOT && visit.is_full && visit.children.is_empty() {
                    return Ok(());
                }
                self.counters.in_tree(|| self.record(tree, leaf, visit, question));
            }
        }
        Ok(())
    }

    async fn visit(&self, tree: &SearchTree, leaf: usize, question: &Question) -> Result<Visit> {
        let Some(context) = tree.context[leaf].as_ref() else { return Ok(Visit::default()) };
        let (depth, completion_count) = (tree.depth[leaf], tree.completion_count[leaf]);
        let place = Place { depth, context, seeds: tree.seeds[leaf], steps: tree.steps_to(leaf), completion_count };
        if !select::can_expand(tree, leaf, self.options.max_depth) {
            if !matches!(self.valuer, Valuer::Policy) && tree.visit_count[leaf] > 0 {
                return Ok(Visit { evaluation: Some(Evaluation::known(tree, leaf)), ..Visit::default() });
            }
            let evaluation = simulate::evaluate(self, &place, question).await?;
            return Ok(Visit { is_full: evaluation.is_none(), evaluation, ..Visit::default() });
        }
        let children = match expand::expand(self, &place, question).await {
            Err(Error::ContextFull(_)) => return Ok(Visit { is_full: true, ..Visit::default() }),
            children => children?,
        };
        let first = children.first().expect("a node has at least one sample");
        let (evaluation, is_full) = match &first.step.next {
            Next::Step(context) => {
                let steps = place.steps.into_iter().chain([&first.step]).collect();
                let place = Place { depth: depth + 1, context, seeds: first.seeds, steps, completion_count: 0 };
                let evaluation = simulate::evaluate(self, &place, question).await?;
                (evaluation, evaluation.is_none())
            }
            Next::End(_) => (None, false),
        };
        Ok(Visit { children, evaluation, is_full })
    }

    fn record(&self, tree: &mut SearchTree, leaf: usize, visit: Visit, question: &Question) {
        let mut spent = Cost::default();
        visit.children.iter().for_each(|child| spent.add(child.cost));
        let node = if visit.children.is_empty() { leaf } else { expand::add(tree, leaf, visit.children) };
        if visit.is_full {
            // Whoever answers has no next prompt: it earns what a trajectory without an answer does.
            tree.close(node, returns::score(&self.options, self.agent.protocol.as_ref(), &tree.steps_to(node), question));
        }
        let evaluation = visit.evaluation.unwrap_or_else(|| simulate::terminal(tree, node, &self.options));
        spent.add(evaluation.cost);
        self.counters.add_simulation(spent);
        backpropagate::backpropagate(tree, node, evaluation, returns::decay(&self.options));
    }

    fn completing_agent(&self) -> &Agent {
        &self.completing
    }
}

fn no_golden_answers(question: &Question) -> Error {
    Error::InvalidParameter {
        name: "golden_answers".to_owned(),
        found: format!("empty for question \"{}\"", question.id),
        expected: "at least one answer to score against".to_owned(),
    }
}
