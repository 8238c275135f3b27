//! Self-Ask with search (Press et al. 2023, arXiv 2210.03350): the question is answered by way of simpler ones.
//!
//! ```text
//! reasoning ─┬─ Follow up: a question ─► (retrieve with it) evidence_extraction ─ Intermediate answer: a sentence ─► reasoning ─► ...
//!            └─ So the final answer is: ... ─► end
//! ```
//!
//! Prompts are written anew for each step, from the follow-up questions and their answers; passages are shown to the step that reads them
//! only. The last step is asked for the final answer alone, and so is one after a malformed response.

mod prompts;
#[cfg(test)]
mod tests;

use super::format::queries_read_then_answer;
use super::lines::{ANSWER_IS, Line, after_announcement, after_header, answer_of, first_line, lines, read_answer};
use super::quoting::Quoting;
use super::{Action, Context, MAX_EVIDENCE_CHARS, MAX_QUERY_CHARS, Parsed, Protocol, State, Transition, action_of, ending, unless_last};
use crate::agent::prompt_check::Placeholders;
use crate::agent::prompts::{PromptRow, PromptSet, PromptValues};
use crate::error::Result;

/// The protocol `self_ask`.
#[derive(Clone, Copy, Debug)]
pub struct SelfAsk;

const FOLLOW_UP: &str = "follow up";
const HYPHENATED: &str = "follow-up";
const INTERMEDIATE: &str = "intermediate answer";
const QUOTING: Quoting = Quoting::phrases(&[FOLLOW_UP, HYPHENATED, INTERMEDIATE, "final answer", ANSWER_IS]);

impl Protocol for SelfAsk {
    fn name(&self) -> &'static str {
        "self_ask"
    }

    fn states(&self) -> &'static [State] {
        &[State::Reasoning, State::EvidenceExtraction, State::AnswerGeneration]
    }

    fn placeholders(&self, state: State) -> Placeholders {
        match state {
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
        unless_last(State::Reasoning, max_steps)
    }

    /// What follows would be an answer that nobody looked up, or the next step.
    fn stop(&self, state: State) -> &'static [&'static str] {
        match state {
            State::EvidenceExtraction => &["\nFollow up:", "\nSo the final answer", "\nQuestion:"],
            State::AnswerGeneration => &["\nQuestion:"],
            _ => &["Intermediate answer:", "\nQuestion:"],
        }
    }

    fn cut_by_stop(&self, _: State, _: &str) -> Option<&'static str> {
        None
    }

    fn prompt(&self, prompts: &PromptSet, context: &Context) -> Result<String> {
        prompts.render(
            context.state,
            &PromptValues {
                question: &QUOTING.question(context),
                thoughts: &earlier_lines(context),
                query: &QUOTING.query(context),
                passages: &QUOTING.passages(&*context.passages),
            },
        )
    }

    fn parse(&self, state: State, response: &str) -> Parsed {
        match state {
            State::EvidenceExtraction => read_intermediate_answer(response),
            // The prompt ends with the header: the first line is the answer, whatever follows it, unless it has a header of its own.
            State::AnswerGeneration => match first_line(response, 0).map(|line| read_reasoning(&response[..line.end])) {
                Some(parsed) if parsed.action != Action::Malformed => parsed,
                _ => read_answer(response),
            },
            _ => read_reasoning(response),
        }
    }

    fn transition(&self, context: &Context, action: &Action, steps_left: usize) -> Transition {
        if let Some(reason) = ending(context.state, action, steps_left) {
            return Transition::End(reason);
        }
        match action {
            // Passages are for evidence_extraction: at the last step nobody would read them.
            Action::Query(query) if steps_left > 1 => Transition::Retrieve { query: query.clone(), next: State::EvidenceExtraction },
            Action::SubAnswer(_) => Transition::To(unless_last(State::Reasoning, steps_left)),
            _ => Transition::To(State::AnswerGeneration),
        }
    }

    fn is_well_formed(&self, actions: &[Action]) -> bool {
        queries_read_then_answer(actions, |action| matches!(action, Action::SubAnswer(_)), true)
    }
}

/// The first line that asks a follow-up question or says what the final answer is.
fn read_reasoning(response: &str) -> Parsed {
    let read = |line: Line<'_>| {
        let follow_up = after_header(line.text, FOLLOW_UP).or_else(|| after_header(line.text, HYPHENATED));
        let query = follow_up.map(|rest| action_of(rest, MAX_QUERY_CHARS, Action::Query));
        let action = query.or_else(|| after_announcement(line.text).map(answer_of))?;
        (action != Action::Malformed).then_some(Parsed { action, end: line.end })
    };
    lines(response, 0).find_map(read).unwrap_or_else(|| Parsed::malformed(response))
}

/// The first line that holds something, with or without the header repeated.
fn read_intermediate_answer(response: &str) -> Parsed {
    let Some(line) = first_line(response, 0) else { return Parsed::malformed(response) };
    let text = after_header(line.text, INTERMEDIATE).unwrap_or(line.text);
    Parsed { action: action_of(text, MAX_EVIDENCE_CHARS, Action::SubAnswer), end: line.end }
}

/// The follow-up questions and their answers, as the policy writes them.
fn earlier_lines(context: &Context) -> String {
    let line = |action: &Action| match action {
        Action::Query(query) => Some(format!("Follow up: {}", QUOTING.text(query, MAX_QUERY_CHARS))),
        Action::SubAnswer(answer) => Some(format!("Intermediate answer: {}", QUOTING.text(answer, MAX_EVIDENCE_CHARS))),
        _ => None,
    };
    let lines: Vec<String> = context.history.iter().filter_map(|step| line(&step.action)).collect();
    lines.join("\n")
}
