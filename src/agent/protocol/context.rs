//! Where a trajectory stands.

use std::sync::Arc;

use super::{Action, State};
use crate::agent::client::Passage;

/// All that the next step depends on. Texts are shared, so that cloning a context costs no copy of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    pub question: Arc<str>,
    pub state: State,
    /// Policy calls made so far.
    pub steps: usize,
    /// Earlier responses, oldest first, white space trimmed, without empty ones.
    pub thoughts: Vec<Arc<str>>,
    /// The latest query.
    pub query: Option<Arc<str>>,
    /// What the latest query found.
    pub passages: Arc<[Passage]>,
    /// What was retrieved before the first step.
    pub opening: Option<Retrieved>,
    /// The earlier steps, oldest first.
    pub history: Vec<Arc<EarlierStep>>,
}

/// A step as later prompts show it.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlierStep {
    pub prompt: Arc<str>,
    /// As generated, up to and with what is the action.
    pub response: Arc<str>,
    pub action: Action,
    /// What followed it; None if there was no retrieval.
    pub retrieved: Option<Retrieved>,
}

/// A query and what it found.
#[derive(Clone, Debug, PartialEq)]
pub struct Retrieved {
    pub query: Arc<str>,
    /// Best first.
    pub passages: Arc<[Passage]>,
}

impl Context {
    /// A trajectory that has not begun.
    pub fn new(question: &str, state: State) -> Self {
        Self {
            question: question.into(),
            state,
            steps: 0,
            thoughts: Vec::new(),
            query: None,
            passages: Arc::new([]),
            opening: None,
            history: Vec::new(),
        }
    }

    /// The context after a retrieval before the first step.
    #[must_use]
    pub fn opened(mut self, retrieved: Retrieved) -> Self {
        self.show(&retrieved);
        self.opening = Some(retrieved);
        self
    }

    /// The context of the step in `state` that follows `step`.
    #[must_use]
    pub fn followed(&self, step: EarlierStep, state: State) -> Self {
        let mut next = self.clone();
        next.state = state;
        next.steps += 1;
        let thought = step.response.trim();
        if !thought.is_empty() {
            next.thoughts.push(thought.into());
        }
        if let Some(retrieved) = &step.retrieved {
            next.show(retrieved);
        }
        next.history.push(Arc::new(step));
        next
    }

    /// All that was retrieved, oldest first.
    pub fn retrievals(&self) -> impl DoubleEndedIterator<Item = &Retrieved> {
        self.opening.iter().chain(self.history.iter().filter_map(|step| step.retrieved.as_ref()))
    }

    /// The latest prompt and its response, as one text; None before the first step.
    pub(in crate::agent) fn transcript(&self) -> Option<String> {
        self.history.last().map(|latest| [&*latest.prompt, &*latest.response].concat())
    }

    /// Where the earlier responses begin and end in the prompt of a transcript, one after the other.
    pub(in crate::agent) fn turns(&self) -> Vec<usize> {
        self.history.iter().flat_map(|step| [step.prompt.len(), step.prompt.len() + step.response.len()]).collect()
    }

    /// What the latest step retrieved.
    pub(super) fn latest_retrieval(&self) -> Option<&Retrieved> {
        self.history.last().and_then(|latest| latest.retrieved.as_ref())
    }

    fn show(&mut self, retrieved: &Retrieved) {
        self.query = Some(Arc::clone(&retrieved.query));
        self.passages = Arc::clone(&retrieved.passages);
    }
}
