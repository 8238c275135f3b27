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

use super::markup::{open_at_end, quote};
use super::{Action, Context, Parsed, Protocol, State, StopReason, Transition};
use crate::agent::client::Passage;
use crate::agent::prompts::{PromptRow, PromptSet, PromptValues};
use crate::error::Result;

/// The protocol `reasonrag`.
#[derive(Clone, Copy, Debug)]
pub struct ReasonRag;

/// Names of the tags that the policy writes.
const TAGS: &[&str] = &["query", "evidence", "answer"];

/// A longer question is cut in prompts.
const MAX_QUESTION_CHARS: usize = 4096;
/// A longer passage is cut in prompts; 100 words of Wikipedia, the usual passage, have about 600.
const MAX_PASSAGE_CHARS: usize = 4096;

impl Protocol for ReasonRag {
    fn name(&self) -> &'static str {
        "reasonrag"
    }

    fn states(&self) -> &'static [State] {
        &[State::BeginReasoning, State::Reasoning, State::EvidenceExtraction, State::AnswerGeneration]
    }

    fn builtin_prompts(&self) -> Vec<PromptRow> {
        prompts::builtin()
    }

    fn initial_state(&self, max_steps: usize) -> State {
        if max_steps <= 1 { State::AnswerGeneration } else { State::BeginReasoning }
    }

    fn stop(&self, state: State) -> &'static [&'static str] {
        match state {
            State::BeginReasoning | State::Reasoning => &["</query>", "</answer>"],
            State::EvidenceExtraction => &["</evidence>"],
            State::AnswerGeneration => &["</answer>"],
        }
    }

    fn cut_by_stop(&self, state: State, text: &str) -> Option<&'static str> {
        let name = open_at_end(text, TAGS)?;
        self.stop(state).iter().copied().find(|stop| stop.trim_start_matches("</").trim_end_matches('>') == name)
    }

    fn prompt(&self, prompts: &PromptSet, context: &Context) -> Result<String> {
        let thoughts: Vec<&str> = context.thoughts.iter().map(|thought| &**thought).collect();
        prompts.render(
            context.state,
            &PromptValues {
                question: &quote(&context.question, TAGS, MAX_QUESTION_CHARS),
                thoughts: &thoughts.join("\n"),
                query: &quote(context.query.as_deref().unwrap_or_default(), TAGS, parse::MAX_QUERY_CHARS),
                passages: &show(&context.passages),
            },
        )
    }

    fn parse(&self, state: State, response: &str) -> Parsed {
        parse::parse(state, response)
    }

    fn transition(&self, state: State, action: &Action, steps_left: usize) -> Transition {
        match action {
            Action::Answer(_) => Transition::End(StopReason::Answered),
            Action::Malformed if state == State::AnswerGeneration || steps_left == 0 => Transition::End(StopReason::Malformed),
            Action::Malformed => Transition::To(State::AnswerGeneration),
            Action::Query(_) | Action::Evidence(_) => match steps_left {
                0 => Transition::End(StopReason::MaxSteps),
                1 => Transition::To(State::AnswerGeneration),
                _ if action.query().is_some() => Transition::To(State::EvidenceExtraction),
                _ => Transition::To(State::Reasoning),
            },
        }
    }
}

/// Passages as the policy reads them: `[1] title: contents`, one per line, best first.
fn show(passages: &[Passage]) -> String {
    let lines: Vec<String> = passages.iter().enumerate().map(|(index, passage)| show_one(index + 1, passage)).collect();
    lines.join("\n")
}

fn show_one(number: usize, passage: &Passage) -> String {
    let text = match passage.title.as_deref().map(str::trim).filter(|title| !title.is_empty()) {
        Some(title) => format!("{title}: {}", passage.contents.trim()),
        None => passage.contents.clone(),
    };
    format!("[{number}] {}", quote(&text, TAGS, MAX_PASSAGE_CHARS))
}
