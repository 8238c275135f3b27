//! Iter-RetGen (Shao et al. 2023, arXiv 2305.15294): what was generated in one round is part of the next round's query.
//!
//! ```text
//! (retrieve with the question) reasoning ─ a draft ─► (retrieve with draft and question) reasoning ─ a draft ─► ... answer_generation ─► end
//! ```
//!
//! Three rounds, as in the paper, or fewer if the step limit says so; each is shown the passages of its own retrieval only.

mod prompts;
#[cfg(test)]
mod tests;

use super::format::steps_then_answer;
use super::lines::read_answer;
use super::quoting::Quoting;
use super::{Action, Context, MAX_QUERY_CHARS, Parsed, Protocol, State, Transition, action_of, ending};
use crate::agent::prompt_check::Placeholders;
use crate::agent::prompts::{PromptRow, PromptSet, PromptValues};
use crate::error::Result;

/// The protocol `iter_retgen`.
#[derive(Clone, Copy, Debug)]
pub struct IterRetGen;

/// Retrievals, each followed by a generation.
const ROUNDS: usize = 3;

const QUOTING: Quoting = Quoting::phrases(&[]);

impl Protocol for IterRetGen {
    fn name(&self) -> &'static str {
        "iter_retgen"
    }

    fn states(&self) -> &'static [State] {
        &[State::Reasoning, State::AnswerGeneration]
    }

    fn placeholders(&self, _: State) -> Placeholders {
        Placeholders { known: &["question", "passages"], needed: &["question", "passages"] }
    }

    fn builtin_prompts(&self) -> Vec<PromptRow> {
        prompts::builtin()
    }

    fn initial_state(&self, max_steps: usize) -> State {
        round_state(0, max_steps)
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
        let (question, passages) = (QUOTING.question(context), QUOTING.passages(&*context.passages));
        prompts.render(context.state, &PromptValues { question: &question, passages: &passages, ..PromptValues::default() })
    }

    /// A draft is the whole response.
    fn parse(&self, state: State, response: &str) -> Parsed {
        match state {
            State::AnswerGeneration => read_answer(response),
            _ => Parsed { action: action_of(response, MAX_QUERY_CHARS, Action::Thought), end: response.len() },
        }
    }

    fn transition(&self, context: &Context, action: &Action, steps_left: usize) -> Transition {
        if let Some(reason) = ending(context.state, action, steps_left) {
            return Transition::End(reason);
        }
        match action {
            Action::Thought(draft) => Transition::Retrieve {
                query: format!("{draft} {}", context.question.trim()),
                next: round_state(context.steps + 1, steps_left),
            },
            _ => Transition::To(State::AnswerGeneration),
        }
    }

    fn is_well_formed(&self, actions: &[Action]) -> bool {
        steps_then_answer(actions, |action| matches!(action, Action::Thought(_)))
    }
}

/// State of the round after `rounds_done` when `steps_left` policy calls are allowed.
fn round_state(rounds_done: usize, steps_left: usize) -> State {
    if steps_left <= 1 || rounds_done + 1 >= ROUNDS { State::AnswerGeneration } else { State::Reasoning }
}
