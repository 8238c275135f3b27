//! A protocol is the grammar of a trajectory: its states, what the policy is asked in each, how its response is read, and
//! what follows. Protocols are pure; calling the policy and the retriever is the environment's work.
//!
//! Two kinds of prompts: those of most protocols are rendered anew for each step, from what came before; those of [`SearchR1`] and
//! [`ProRag`] are one transcript, to which responses and passages are appended byte for byte.
//!
//! Three ways to read: tags (`markup`), header lines and phrases (`lines`). What comes from outside is written so that none of
//! them finds anything in it (`quoting`).

mod context;
mod cot;
mod direct;
mod format;
mod ircot;
mod iter_retgen;
pub(in crate::agent) mod lines;
mod markup;
mod naive_rag;
mod prorag;
pub(in crate::agent) mod quoting;
mod r3rag;
mod reasonrag;
mod search_r1;
mod self_ask;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use context::{Context, EarlierStep, Retrieved};
pub use cot::Cot;
pub use direct::Direct;
pub use format::kept_format;
pub use ircot::IrCot;
pub use iter_retgen::IterRetGen;
pub use naive_rag::NaiveRag;
pub use prorag::ProRag;
pub use r3rag::R3Rag;
pub use reasonrag::ReasonRag;
pub use search_r1::SearchR1;
pub use self_ask::SelfAsk;

use super::prompt_check::Placeholders;
use super::prompts::{PromptRow, PromptSet};
use crate::error::{Error, Result};

/// A longer question is cut in prompts.
const MAX_QUESTION_CHARS: usize = 4096;
/// A longer passage is cut in prompts; 100 words of Wikipedia, the usual passage, have about 600.
const MAX_PASSAGE_CHARS: usize = 4096;
/// Longer queries are cut.
const MAX_QUERY_CHARS: usize = 512;
/// Longer answers are cut.
const MAX_ANSWER_CHARS: usize = 1024;
/// Longer evidence is cut, and longer thoughts where they are shown again.
const MAX_EVIDENCE_CHARS: usize = 4096;

/// The grammar of a trajectory.
pub trait Protocol: Send + Sync {
    fn name(&self) -> &'static str;

    /// All states; a prompt set has one template for each.
    fn states(&self) -> &'static [State];

    /// What a template of this state may show, and what it must.
    fn placeholders(&self, state: State) -> Placeholders;

    /// The prompt sets that come with the protocol.
    fn builtin_prompts(&self) -> Vec<PromptRow>;

    /// State of the first step of a trajectory of at most `max_steps` (at least 1) steps.
    fn initial_state(&self, max_steps: usize) -> State;

    /// What is retrieved with before the first step; None if the policy writes all queries.
    fn opening_query(&self, question: &str) -> Option<String> {
        let _ = question;
        None
    }

    /// Strings that end a response in `state`.
    fn stop(&self, state: State) -> &'static [&'static str];

    /// The stop string that must have ended `text`, a response in `state`; None if none of them fits.
    fn cut_by_stop(&self, state: State, text: &str) -> Option<&'static str>;

    /// Whether the prompt of a step is that of the step before it, the response, and what is appended.
    fn is_transcript(&self) -> bool {
        false
    }

    /// Byte of a first prompt at which the policy's turn begins: what follows is put into its mouth, and it goes on there.
    fn turn_start(&self, prompt: &str) -> usize {
        prompt.len()
    }

    /// What the policy is asked in this context.
    ///
    /// # Errors
    /// [`Error::UnknownObject`] if `prompts` has no template for the state.
    fn prompt(&self, prompts: &PromptSet, context: &Context) -> Result<String>;

    /// Reads the response to the prompt of `state`. Total: what cannot be read is [`Action::Malformed`].
    fn parse(&self, state: State, response: &str) -> Parsed;

    /// What follows an action taken in `context` when `steps_left` more policy calls are allowed.
    fn transition(&self, context: &Context, action: &Action, steps_left: usize) -> Transition;

    /// Whether a whole trajectory follows the grammar: its actions in an order that the protocol has, the last one an answer.
    fn is_well_formed(&self, actions: &[Action]) -> bool;

    /// Whether a response to the prompt of `state` is what the policy was asked for, nothing missing and nothing beside it.
    ///
    /// Stricter than [`Protocol::parse`], which takes what it can use.
    fn is_well_formed_response(&self, state: State, response: &str) -> bool {
        self.parse(state, response).action != Action::Malformed
    }
}

/// The protocol of that name.
///
/// # Errors
/// [`Error::UnknownOption`], with the nearest name and all that there are.
pub fn protocol(name: &str) -> Result<Arc<dyn Protocol>> {
    all_protocols().into_iter().find(|protocol| protocol.name() == name).ok_or_else(|| Error::UnknownOption {
        kind: "protocol",
        name: name.to_owned(),
        of: "an agent".to_owned(),
        known: all_protocols().iter().map(|protocol| protocol.name().to_owned()).collect(),
    })
}

pub(super) fn all_protocols() -> Vec<Arc<dyn Protocol>> {
    vec![
        Arc::new(ReasonRag),
        Arc::new(SearchR1),
        Arc::new(ProRag),
        Arc::new(R3Rag),
        Arc::new(Direct),
        Arc::new(Cot),
        Arc::new(NaiveRag),
        Arc::new(IrCot),
        Arc::new(SelfAsk),
        Arc::new(IterRetGen),
    ]
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
    /// A thought after a response that could not be read and was said to be wrong.
    Correction,
    /// Answering now, whatever is known.
    AnswerGeneration,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeginReasoning => "begin_reasoning",
            Self::Reasoning => "reasoning",
            Self::EvidenceExtraction => "evidence_extraction",
            Self::Correction => "correction",
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
    /// `sub_answer`: the answer to the latest query. Not empty.
    SubAnswer(String),
    /// `thought`: a sentence or a draft, with which the protocol retrieves. Not empty.
    Thought(String),
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
            Self::SubAnswer(_) => "sub_answer",
            Self::Thought(_) => "thought",
            Self::Answer(_) => "answer_generation",
            Self::Malformed => "malformed",
        }
    }

    pub fn query(&self) -> Option<&str> {
        if let Self::Query(query) = self { Some(query) } else { None }
    }

    /// What the step found out from passages: evidence, or the answer to a query.
    pub fn evidence(&self) -> Option<&str> {
        match self {
            Self::Evidence(evidence) => evidence.as_deref(),
            Self::SubAnswer(answer) => Some(answer),
            Self::Query(_) | Self::Thought(_) | Self::Answer(_) | Self::Malformed => None,
        }
    }

    pub fn answer(&self) -> Option<&str> {
        if let Self::Answer(answer) = self { Some(answer) } else { None }
    }
}

/// The first `max_chars` characters of `content`, trimmed, as an action; blank content is [`Action::Malformed`].
fn action_of(content: &str, max_chars: usize, action: fn(String) -> Action) -> Action {
    match markup::bounded(content, max_chars) {
        "" => Action::Malformed,
        content => action(content.to_owned()),
    }
}

/// A response as the protocol reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    pub action: Action,
    /// Bytes of the response that count; what the policy wrote after them is dropped.
    pub end: usize,
}

impl Parsed {
    /// A response that cannot be read is kept whole.
    fn malformed(response: &str) -> Self {
        Self { action: Action::Malformed, end: response.len() }
    }
}

/// What follows an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    To(State),
    /// Retrieval with this query, then the next step, which reads what was found.
    Retrieve {
        query: String,
        next: State,
    },
    End(StopReason),
}

/// The end that all protocols have: an answer, the step limit, and no answer where one was asked for. None if the trajectory goes on.
fn ending(state: State, action: &Action, steps_left: usize) -> Option<StopReason> {
    match action {
        Action::Answer(_) => Some(StopReason::Answered),
        Action::Malformed if state == State::AnswerGeneration || steps_left == 0 => Some(StopReason::Malformed),
        _ if steps_left == 0 => Some(StopReason::MaxSteps),
        _ => None,
    }
}

/// `state`, or `answer_generation` if the next step is the last.
fn unless_last(state: State, steps_left: usize) -> State {
    if steps_left <= 1 { State::AnswerGeneration } else { state }
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
    /// What the policy would have to read next is longer than its context.
    ContextFull,
    /// The question is NULL or blank: the policy was not called.
    EmptyQuestion,
}

impl StopReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::MaxSteps => "max_steps",
            Self::Malformed => "malformed",
            Self::ContextFull => "context_full",
            Self::EmptyQuestion => "empty_question",
        }
    }
}
