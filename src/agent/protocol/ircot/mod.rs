//! IRCoT (Trivedi et al. 2023, arXiv 2212.10509): one sentence of thought, and a retrieval with it, in turns.
//!
//! ```text
//! (retrieve with the question) begin_reasoning ─┬─ a sentence ─► (retrieve with it) reasoning ─┬─ a sentence ─► ...
//!                                               └─ .. answer is .. ─► end                      └─ .. answer is .. ─► end
//! ```
//!
//! Every prompt holds the passages found so far, each once where it was found first, then the question and the sentences.
//! The last step is asked for the answer alone, and so is one after a blank response.

mod prompts;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use super::format::steps_then_answer;
use super::lines::{ANSWER_IS, first_line, first_sentence, has_phrase, read_announced_answer, read_answer};
use super::quoting::Quoting;
use super::{Action, Context, MAX_QUERY_CHARS, Parsed, Protocol, State, Transition, action_of, ending, unless_last};
use crate::agent::client::Passage;
use crate::agent::prompt_check::Placeholders;
use crate::agent::prompts::{PromptRow, PromptSet, PromptValues};
use crate::error::Result;

/// The protocol `ircot`.
#[derive(Clone, Copy, Debug)]
pub struct IrCot;

const QUOTING: Quoting = Quoting::phrases(&[ANSWER_IS]);

/// As in the paper. Retrievals are shown whole, the newest first to be chosen, until there are so many passages.
const MAX_PASSAGES: usize = 15;

impl Protocol for IrCot {
    fn name(&self) -> &'static str {
        "ircot"
    }

    fn states(&self) -> &'static [State] {
        &[State::BeginReasoning, State::Reasoning, State::AnswerGeneration]
    }

    fn placeholders(&self, state: State) -> Placeholders {
        match state {
            State::BeginReasoning => Placeholders { known: &["question", "passages"], needed: &["question", "passages"] },
            _ => Placeholders { known: &["question", "passages", "thoughts"], needed: &["question", "passages"] },
        }
    }

    fn builtin_prompts(&self) -> Vec<PromptRow> {
        prompts::builtin()
    }

    fn initial_state(&self, max_steps: usize) -> State {
        unless_last(State::BeginReasoning, max_steps)
    }

    fn opening_query(&self, question: &str) -> Option<String> {
        Some(question.to_owned())
    }

    fn stop(&self, _: State) -> &'static [&'static str] {
        &["\nQuestion:"]
    }

    fn cut_by_stop(&self, _: State, _: &str) -> Option<&'static str> {
        None
    }

    fn prompt(&self, prompts: &PromptSet, context: &Context) -> Result<String> {
        let (question, passages) = (QUOTING.question(context), QUOTING.passages(found_so_far(context)));
        let thoughts = context.thoughts.join(" ");
        let values = PromptValues { question: &question, thoughts: &thoughts, passages: &passages, ..PromptValues::default() };
        prompts.render(context.state, &values)
    }

    /// The first sentence is the thought, unless it says what the answer is; then the answer is the rest of its line.
    fn parse(&self, state: State, response: &str) -> Parsed {
        if state == State::AnswerGeneration {
            return read_answer(response);
        }
        let Some(line) = first_line(response, 0) else { return Parsed::malformed(response) };
        let (sentence, rest) = line.text.split_at(first_sentence(line.text));
        if has_phrase(sentence, ANSWER_IS) {
            return read_announced_answer(&response[..line.end]);
        }
        Parsed { action: action_of(sentence, MAX_QUERY_CHARS, Action::Thought), end: line.end - rest.len() }
    }

    fn transition(&self, context: &Context, action: &Action, steps_left: usize) -> Transition {
        if let Some(reason) = ending(context.state, action, steps_left) {
            return Transition::End(reason);
        }
        match action {
            Action::Thought(sentence) => Transition::Retrieve { query: sentence.clone(), next: unless_last(State::Reasoning, steps_left) },
            _ => Transition::To(State::AnswerGeneration),
        }
    }

    fn is_well_formed(&self, actions: &[Action]) -> bool {
        steps_then_answer(actions, |action| matches!(action, Action::Thought(_)))
    }
}

/// The passages of the newest retrievals, each once, in the order in which they were found first: so the passages of a step stand
/// in front of those of the next one, whose prompt begins as that of the step before it.
fn found_so_far(context: &Context) -> Vec<&Passage> {
    let mut shown = HashSet::new();
    for found in context.retrievals().rev() {
        if shown.len() >= MAX_PASSAGES {
            break;
        }
        shown.extend(found.passages.iter().map(|passage| &passage.id));
    }
    context.retrievals().flat_map(|found| found.passages.iter()).filter(|passage| shown.remove(&passage.id)).collect()
}
