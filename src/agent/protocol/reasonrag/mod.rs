//! ReasonRAG (Zhang et al. 2025, arXiv 2505.14069): reasoning, retrieval and reading in turns.
//!
//! ```text
//! begin_reasoning ─┬─ query ─► (retrieve k passages) evidence_extraction ─ evidence ─► reasoning ─ query ─► ...
//!                  └─ answer ─► end                                                      └─ answer ─► end
//! ```
//!
//! Every policy call is a step. The last allowed step is always `answer_generation`. A malformed response leads to
//! `answer_generation` too; a malformed response *there* ends the trajectory, since the policy would be asked the same again.

mod parse;
mod prompts;
#[cfg(test)]
mod tests;

use super::format::queries_read_then_answer;
use super::markup::stop_of_open_tag;
use super::quoting::Quoting;
use super::{Action, Context, Parsed, Protocol, State, Transition, ending, unless_last};
use crate::agent::prompt_check::Placeholders;
use crate::agent::prompts::{PromptRow, PromptSet, PromptValues};
use crate::error::Result;

/// The protocol `reasonrag`.
#[derive(Clone, Copy, Debug)]
pub struct ReasonRag;

/// Names of the tags that the policy writes.
const TAGS: &[&str] = &["query", "evidence", "answer"];

const QUOTING: Quoting = Quoting::tags(TAGS);

impl Protocol for ReasonRag {
    fn name(&self) -> &'static str {
        "reasonrag"
    }

    fn states(&self) -> &'static [State] {
        &[State::BeginReasoning, State::Reasoning, State::EvidenceExtraction, State::AnswerGeneration]
    }

    fn placeholders(&self, state: State) -> Placeholders {
        match state {
            State::BeginReasoning => Placeholders { known: &["question"], needed: &["question"] },
            State::EvidenceExtraction => {
                Placeholders { known: &["question", "thoughts", "query", "passages"], needed: &["question", "passages"] }
            }
            _ => Placeholders { known: &["question", "thoughts", "query", "passages"], needed: &["question"] },
        }
    }

    fn builtin_prompts(&self) -> Vec<PromptRow> {
        prompts::builtin()
    }

    fn initial_state(&self, max_steps: usize) -> State {
        if max_steps <= 1 { State::AnswerGeneration } else { State::BeginReasoning }
    }

    fn stop(&self, state: State) -> &'static [&'static str] {
        match state {
            State::EvidenceExtraction => &["</evidence>"],
            State::AnswerGeneration => &["</answer>"],
            _ => &["</query>", "</answer>"],
        }
    }

    fn cut_by_stop(&self, state: State, text: &str) -> Option<&'static str> {
        stop_of_open_tag(text, TAGS, self.stop(state))
    }

    fn prompt(&self, prompts: &PromptSet, context: &Context) -> Result<String> {
        let thoughts: Vec<&str> = context.thoughts.iter().map(|thought| &**thought).collect();
        prompts.render(
            context.state,
            &PromptValues {
                question: &QUOTING.question(context),
                thoughts: &thoughts.join("\n"),
                query: &QUOTING.query(context),
                passages: &QUOTING.passages(&*context.passages),
            },
        )
    }

    fn parse(&self, state: State, response: &str) -> Parsed {
        parse::parse(state, response)
    }

    fn transition(&self, context: &Context, action: &Action, steps_left: usize) -> Transition {
        if let Some(reason) = ending(context.state, action, steps_left) {
            return Transition::End(reason);
        }
        match action {
            // Passages are for evidence_extraction: at the last step nobody would read them.
            Action::Query(query) if steps_left > 1 => Transition::Retrieve { query: query.clone(), next: State::EvidenceExtraction },
            Action::Evidence(_) => Transition::To(unless_last(State::Reasoning, steps_left)),
            _ => Transition::To(State::AnswerGeneration),
        }
    }

    fn is_well_formed(&self, actions: &[Action]) -> bool {
        queries_read_then_answer(actions, |action| matches!(action, Action::Evidence(_)), true)
    }
}
