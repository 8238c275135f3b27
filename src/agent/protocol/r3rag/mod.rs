//! R3-RAG (arXiv 2505.23794): steps in plain text, each an analysis and then a query or the answer.
//!
//! ```text
//! Step i:
//! The problem analysis: ...
//! The retrieval query: ...          ─► The retrieval documents: k passages ─► Step i + 1
//! The final answer: ...             ─► end
//! ```
//!
//! Every step is a prompt of its own: the question and all earlier steps, written anew from what was read of them. So no retrieved text
//! ever stands in a response. A document is shown once, at the step that found it first. Queries are taken to the end of their line (the
//! published code cuts them at the first question mark).
//!
//! A malformed response leads to `answer_generation`; the last step is always that. It is shown what the step before it found.

mod prompts;
mod read;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use super::format::steps_then_answer;
use super::lines::{answer_of, read_answer};
use super::quoting::Quoting;
use super::{
    Action, Context, EarlierStep, MAX_EVIDENCE_CHARS, MAX_QUERY_CHARS, Parsed, Protocol, State, Transition, action_of, ending, unless_last,
};
use crate::agent::prompt_check::Placeholders;
use crate::agent::prompts::{PromptRow, PromptSet, PromptValues};
use crate::error::Result;
use read::{Outcome, read};

/// The protocol `r3rag`.
#[derive(Clone, Copy, Debug)]
pub struct R3Rag;

const QUOTING: Quoting = Quoting::phrases(&[read::ANALYSIS, read::QUERY, read::DOCUMENTS, read::ANSWER]);

impl Protocol for R3Rag {
    fn name(&self) -> &'static str {
        "r3rag"
    }

    fn states(&self) -> &'static [State] {
        &[State::Reasoning, State::AnswerGeneration]
    }

    fn placeholders(&self, _: State) -> Placeholders {
        Placeholders { known: &["question", "thoughts"], needed: &["question"] }
    }

    fn builtin_prompts(&self) -> Vec<PromptRow> {
        prompts::builtin()
    }

    fn initial_state(&self, max_steps: usize) -> State {
        unless_last(State::Reasoning, max_steps)
    }

    /// What follows would be documents that nobody retrieved.
    fn stop(&self, _: State) -> &'static [&'static str] {
        &["The retrieval documents:"]
    }

    fn cut_by_stop(&self, _: State, _: &str) -> Option<&'static str> {
        None
    }

    fn prompt(&self, prompts: &PromptSet, context: &Context) -> Result<String> {
        let question = QUOTING.question(context);
        prompts.render(context.state, &PromptValues { question: &question, thoughts: &earlier_steps(context), ..PromptValues::default() })
    }

    fn parse(&self, state: State, response: &str) -> Parsed {
        // The prompt ends with the header: what begins without one is the answer, whatever follows it.
        if state == State::AnswerGeneration && !read::begins_with_header(response) {
            return read_answer(response);
        }
        match read(response).outcome {
            Some(Outcome { is_query: true, content, end }) => Parsed { action: action_of(content, MAX_QUERY_CHARS, Action::Query), end },
            Some(Outcome { is_query: false, content, end }) => Parsed { action: answer_of(content), end },
            None => Parsed::malformed(response),
        }
    }

    fn transition(&self, context: &Context, action: &Action, steps_left: usize) -> Transition {
        if let Some(reason) = ending(context.state, action, steps_left) {
            return Transition::End(reason);
        }
        match action {
            Action::Query(query) => Transition::Retrieve { query: query.clone(), next: unless_last(State::Reasoning, steps_left) },
            _ => Transition::To(State::AnswerGeneration),
        }
    }

    fn is_well_formed(&self, actions: &[Action]) -> bool {
        steps_then_answer(actions, |action| matches!(action, Action::Query(_)))
    }

    /// One step header, an analysis, and a query or an answer; where the answer was asked for, that alone will do.
    fn is_well_formed_response(&self, state: State, response: &str) -> bool {
        let reading = read(response);
        let is_whole = reading.num_steps == 1 && !reading.analysis.trim().is_empty();
        let is_answer_alone = state == State::AnswerGeneration && reading.outcome.is_none();
        (is_whole || is_answer_alone) && self.parse(state, response).action != Action::Malformed
    }
}

/// The steps so far, in the form in which the policy writes them, each followed by what it found.
fn earlier_steps(context: &Context) -> String {
    let mut shown = HashSet::new();
    let steps = context.history.iter().filter(|step| step.action.query().is_some());
    let steps: Vec<String> = (1..).zip(steps).map(|(number, step)| earlier_step(number, step, &mut shown)).collect();
    steps.join("\n")
}

/// `shown`: ids of the documents of earlier steps.
fn earlier_step<'a>(number: usize, step: &'a EarlierStep, shown: &mut HashSet<&'a str>) -> String {
    let analysis = QUOTING.text(&read(&step.response).analysis, MAX_EVIDENCE_CHARS);
    let query = QUOTING.text(step.action.query().unwrap_or_default(), MAX_QUERY_CHARS);
    let found = step.retrieved.iter().flat_map(|found| found.passages.iter());
    let documents = QUOTING.passages(found.filter(|passage| shown.insert(&passage.id)));
    let documents = if documents.is_empty() { " none that is new".to_owned() } else { format!("\n{documents}") };
    format!("Step {number}:\nThe problem analysis: {analysis}\nThe retrieval query: {query}\nThe retrieval documents:{documents}")
}
