//! A protocol is the grammar of a trajectory: its states, what the policy is asked in each, how its response is read, and
//! what follows. Protocols are pure; calling the policy and the retriever is the environment's work.

mod markup;
mod reasonrag;

use std::sync::Arc;

pub use reasonrag::ReasonRag;

use super::client::Passage;
use super::prompts::{PromptRow, PromptSet};
use crate::error::{Error, Result};

/// The grammar of a trajectory.
pub trait Protocol: Send + Sync {
    fn name(&self) -> &'static str;

    /// All states; a prompt set has one template for each.
    fn states(&self) -> &'static [State];

    /// The prompt sets that come with the protocol.
    fn builtin_prompts(&self) -> Vec<PromptRow>;

    /// State of the first step of a trajectory of at most `max_steps` (at least 1) steps.
    fn initial_state(&self, max_steps: usize) -> State;

    /// Strings that end a response in `state`.
    fn stop(&self, state: State) -> &'static [&'static str];

    /// The stop string that must have ended `text`, a response in `state`; None if none of them fits.
    fn cut_by_stop(&self, state: State, text: &str) -> Option<&'static str>;

    /// What the policy is asked in this context.
    ///
    /// # Errors
    /// [`Error::UnknownObject`] if `prompts` has no template for the state.
    fn prompt(&self, prompts: &PromptSet, context: &Context) -> Result<String>;

    /// Reads the response to the prompt of `state`. Total: what cannot be read is [`Action::Malformed`].
    fn parse(&self, state: State, response: &str) -> Parsed;

    /// What follows an action taken in `state` when `steps_left` more policy calls are allowed.
    fn transition(&self, state: State, action: &Action, steps_left: usize) -> Transition;
}

/// The protocol of that name.
///
/// # Errors
/// [`Error::UnknownObject`], with the names there are.
pub fn protocol(name: &str) -> Result<Arc<dyn Protocol>> {
    all_protocols().into_iter().find(|protocol| protocol.name() == name).ok_or_else(|| Error::UnknownObject {
        kind: "protocol",
        name: name.to_owned(),
        known: all_protocols().iter().map(|protocol| protocol.name().to_owned()).collect(),
    })
}

pub(super) fn all_protocols() -> Vec<Arc<dyn Protocol>> {
    vec![Arc::new(ReasonRag)]
}

/// What the policy is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The first thought about the question.
    BeginReasoning,
    /// A thought about the question and all earlier thoughts.
    Reasoning,
    /// Reading the retrieved passages.
    EvidenceExtraction,
    /// Answering now, whatever is known.
    AnswerGeneration,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeginReasoning => "begin_reasoning",
            Self::Reasoning => "reasoning",
            Self::EvidenceExtraction => "evidence_extraction",
            Self::AnswerGeneration => "answer_generation",
        }
    }
}

/// What the policy did in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `query_generation`: asks the retriever. Not empty.
    Query(String),
    /// `evidence_extraction`: what the passages say; None if nothing of use.
    Evidence(Option<String>),
    /// `answer_generation`: ends the trajectory. Not empty.
    Answer(String),
    /// `malformed`: the response does not follow the protocol.
    Malformed,
}

impl Action {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Query(_) => "query_generation",
            Self::Evidence(_) => "evidence_extraction",
            Self::Answer(_) => "answer_generation",
            Self::Malformed => "malformed",
        }
    }

    pub fn query(&self) -> Option<&str> {
        if let Self::Query(query) = self { Some(query) } else { None }
    }

    pub fn evidence(&self) -> Option<&str> {
        if let Self::Evidence(evidence) = self { evidence.as_deref() } else { None }
    }

    pub fn answer(&self) -> Option<&str> {
        if let Self::Answer(answer) = self { Some(answer) } else { None }
    }
}

/// A response as the protocol reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    pub action: Action,
    /// Bytes of the response that count; what the policy wrote after them is dropped.
    pub end: usize,
}

/// What follows an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    To(State),
    End(StopReason),
}

/// Why a trajectory ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The policy answered.
    Answered,
    /// All steps are used and the policy still asked for more.
    MaxSteps,
    /// The policy was asked for its answer and wrote none.
    Malformed,
    /// The question is NULL or blank: the policy was not called.
    EmptyQuestion,
}

impl StopReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::MaxSteps => "max_steps",
            Self::Malformed => "malformed",
            Self::EmptyQuestion => "empty_question",
        }
    }
}

/// All that the next step depends on. Texts are shared, so that cloning a context costs no copy of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    pub question: Arc<str>,
    pub state: State,
    /// Policy calls made so far.
    pub steps: usize,
    /// Earlier responses, oldest first, white space trimmed.
    pub thoughts: Vec<Arc<str>>,
    /// The latest query.
    pub query: Option<Arc<str>>,
    /// What the latest query found.
    pub passages: Arc<[Passage]>,
}
