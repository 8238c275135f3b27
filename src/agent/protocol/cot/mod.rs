//! Chain of thought (Wei et al. 2022, arXiv 2201.11903) without retrieval: `... So the answer is: ...` in one response.
//!
//! A response without that ending leads to `answer_generation`, which is shown the thoughts and asked for the answer alone.

mod prompts;
#[cfg(test)]
mod tests;

use super::format::steps_then_answer;
use super::lines::{ANSWER_IS, read_announced_answer, read_answer};
use super::quoting::Quoting;
use super::{Action, Context, Parsed, Protocol, State, Transition, ending};
use crate::agent::prompt_check::Placeholders;
use crate::agent::prompts::{PromptRow, PromptSet, PromptValues};
use crate::error::Result;

/// The protocol `cot`.
#[derive(Clone, Copy, Debug)]
pub struct Cot;

const QUOTING: Quoting = Quoting::phrases(&[ANSWER_IS]);

impl Protocol for Cot {
    fn name(&self) -> &'static str {
        "cot"
    }

    fn states(&self) -> &'static [State] {
        &[State::BeginReasoning, State::AnswerGeneration]
    }

    fn placeholders(&self, state: State) -> Placeholders {
        match state {
            State::AnswerGeneration => Placeholders { known: &["question", "thoughts"], needed: &["question"] },
            _ => Placeholders { known: &["question"], needed: &["question"] },
        }
    }

    fn builtin_prompts(&self) -> Vec<PromptRow> {
        prompts::builtin()
    }

    /// One step is enough to think and to answer.
    fn initial_state(&self, _: usize) -> State {
        State::BeginReasoning
    }

    fn stop(&self, _: State) -> &'static [&'static str] {
        &["\nQuestion:"]
    }

    fn cut_by_stop(&self, _: State, _: &str) -> Option<&'static str> {
        None
    }

    fn prompt(&self, prompts: &PromptSet, context: &Context) -> Result<String> {
        let question = QUOTING.question(context);
        let thoughts = context.thoughts.join("\n");
        prompts.render(context.state, &PromptValues { question: &question, thoughts: &thoughts, ..PromptValues::default() })
    }

    fn parse(&self, state: State, response: &str) -> Parsed {
        match state {
            State::AnswerGeneration => read_answer(response),
            _ => read_announced_answer(response),
        }
    }

    fn transition(&self, context: &Context, action: &Action, steps_left: usize) -> Transition {
        match ending(context.state, action, steps_left) {
            Some(reason) => Transition::End(reason),
            None => Transition::To(State::AnswerGeneration),
        }
    }

    fn is_well_formed(&self, actions: &[Action]) -> bool {
        steps_then_answer(actions, |_| false)
    }
}
