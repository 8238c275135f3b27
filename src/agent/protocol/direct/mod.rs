//! The question, and nothing else, is answered: what a policy knows by itself.

mod prompts;
#[cfg(test)]
mod tests;

use super::format::steps_then_answer;
use super::lines::read_answer;
use super::quoting::Quoting;
use super::{Action, Context, Parsed, Protocol, State, StopReason, Transition, ending};
use crate::agent::prompt_check::Placeholders;
use crate::agent::prompts::{PromptRow, PromptSet, PromptValues};
use crate::error::Result;

/// The protocol `direct`.
#[derive(Clone, Copy, Debug)]
pub struct Direct;

const QUOTING: Quoting = Quoting::phrases(&[]);

impl Protocol for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn states(&self) -> &'static [State] {
        &[State::AnswerGeneration]
    }

    fn placeholders(&self, _: State) -> Placeholders {
        Placeholders { known: &["question"], needed: &["question"] }
    }

    fn builtin_prompts(&self) -> Vec<PromptRow> {
        prompts::builtin()
    }

    fn initial_state(&self, _: usize) -> State {
        State::AnswerGeneration
    }

    fn stop(&self, _: State) -> &'static [&'static str] {
        &["\nQuestion:"]
    }

    fn cut_by_stop(&self, _: State, _: &str) -> Option<&'static str> {
        None
    }

    fn prompt(&self, prompts: &PromptSet, context: &Context) -> Result<String> {
        prompts.render(context.state, &PromptValues { question: &QUOTING.question(context), ..PromptValues::default() })
    }

    fn parse(&self, _: State, response: &str) -> Parsed {
        read_answer(response)
    }

    fn transition(&self, context: &Context, action: &Action, steps_left: usize) -> Transition {
        Transition::End(ending(context.state, action, steps_left).unwrap_or(StopReason::Malformed))
    }

    fn is_well_formed(&self, actions: &[Action]) -> bool {
        steps_then_answer(actions, |_| false)
    }
}
