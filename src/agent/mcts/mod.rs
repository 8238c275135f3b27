//! Monte Carlo tree search over trajectories, with SPRE rewards (ReasonRAG, arXiv 2505.14069).
//!
//! A simulation selects a leaf by UCT (Kocsis and Szepesvári 2006), expands it with sampled actions, values one node by
//! letting the policy run to the end, and backs the value up. The value is the shortest-path reward estimate: the mean over
//! the completions of [`reward`]. The published code asks a GPT-4o critic for the value instead; here nothing but the policy
//! and the golden answers is needed. The judge and the trained reward model are not part of this file.
//!
//! Simulations of one question follow each other, since each selects by what the last one found. Batches for the model come
//! from a node's children, sampled together, and from the many questions of [`search_many`].

mod backpropagate;
mod expand;
mod select;
mod simulate;
#[cfg(test)]
mod tests;

use futures::{Stream, StreamExt};
use rolloutdb_udfs::metrics::f1_score;

use super::environment::Agent;
use super::options::SearchOptions;
use super::sampling::SeedPath;
use super::search_tree::{ROOT, SearchTree};
use crate::error::{Error, Result};

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

/// Grows the tree of one question. The same seed and the same policy give the same tree, whatever else is in flight.
///
/// Ends after `options.simulations`, or earlier when every leaf ends a trajectory and was visited.
///
/// # Errors
/// [`Error::InvalidParameter`] for a question without golden answers; those of the policy and of the retriever. A tree that
/// fails half-way is lost; it is for the caller to go on with the other questions or not.
pub async fn search(agent: &Agent, question: &Question, options: &SearchOptions) -> Result<SearchTree> {
    let agent = &Agent { temperature: options.temperature, top_p: options.top_p, ..agent.clone() };
    let seeds = SeedPath::question(options.seed.cast_unsigned(), &question.id);
    let mut tree = SearchTree::new(agent, &question.id, question.question.as_deref().unwrap_or_default(), seeds);
    if tree.is_terminal(ROOT) {
        return Ok(tree);
    }
    if question.golden_answers.is_empty() {
        return Err(no_golden_answers(question));
    }
    for _ in 0..options.simulations {
        if tree.is_exhausted() {
            break;
        }
        let leaf = select::select(&tree, options.exploration);
        let node = if select::can_expand(&tree, leaf, options.max_depth) {
            expand::expand(agent, &mut tree, leaf, question, options.children).await?
        } else {
            leaf
        };
        let evaluation = simulate::simulate(agent, &tree, node, question, options).await?;
        backpropagate::backpropagate(&mut tree, node, evaluation);
    }
    Ok(tree)
}

/// Grows the trees of a stream of questions, `options.concurrency` at a time; they come in the order they are done.
///
/// A question that fails does not stop the others. Dropping the stream cancels all that is in flight.
pub fn search_many<S>(agent: Agent, questions: S, options: SearchOptions) -> impl Stream<Item = (Question, Result<SearchTree>)> + Send
where
    S: Stream<Item = Question> + Send,
{
    let concurrency = options.concurrency.max(1);
    questions
        .map(move |question| {
            let (agent, options) = (agent.clone(), options.clone());
            async move {
                let tree = search(&agent, &question, &options).await;
                (question, tree)
            }
        })
        .buffer_unordered(concurrency)
}

/// Score of an answer: token F1 against the best golden answer, in [0, 1]; 0 without an answer.
fn score(answer: Option<&str>, question: &Question) -> f64 {
    let golden_answers: Vec<&str> = question.golden_answers.iter().map(String::as_str).collect();
    answer.map_or(0.0, |answer| f1_score(answer, &golden_answers))
}

/// Reward of a completed trajectory: SPRE, the function that SQL has too: `score · alpha ^ steps`, in [0, 1].
///
/// `steps` counts every policy call from the question to the end: thoughts, evidence extractions and the answer, those before
/// the node that is valued too. So rewards of nodes at different depths can be compared, and of two trajectories with the same
/// answer the shorter one scores higher.
fn reward(score: f64, steps: usize, alpha: f64) -> f64 {
    rolloutdb_udfs::search::spre(score, steps as f64, alpha)
}

fn no_golden_answers(question: &Question) -> Error {
    Error::InvalidParameter {
        name: "golden_answers".to_owned(),
        found: format!("empty for question \"{}\"", question.id),
        expected: "at least one answer to score against".to_owned(),
    }
}
