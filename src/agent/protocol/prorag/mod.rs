//! ProRAG (arXiv 2601.21912): one transcript of steps, sub-queries, passages and sub-answers.
//!
//! ```text
//! begin_reasoning ─┬─ <step> <subquery> ─► <retrieval> k passages </retrieval> evidence_extraction ─ <step> <subanswer> ─► reasoning ─► ...
//!                  └─ <step> <answer> ─► end                                   as begin_reasoning ◄───────────────────────┘
//! ```
//!
//! With S, Q, R, A and F for the five blocks, a well-formed trajectory is `(S Q R S A)* S F`. The prompt of a step is that of the step
//! before it, the response, and what is appended: the passages and an opening `<step>`, in which the policy goes on. Nothing is taken
//! back, so that a cache of prefixes serves every step and the appended parts can be masked in training.
//!
//! A response that is none of the three blocks stays in the transcript, and the next step begins. The last step is told so, in its
//! `<step>`, after it was shown what the step before it found.

mod prompts;
#[cfg(test)]
mod tests;

use super::format::queries_read_then_answer;
use super::markup::{blocks, stop_of_open_tag, tagged};
use super::quoting::Quoting;
use super::{
    Action, Context, MAX_ANSWER_CHARS, MAX_EVIDENCE_CHARS, MAX_QUERY_CHARS, Parsed, Protocol, State, Transition, action_of, ending,
    unless_last,
};
use crate::agent::prompt_check::Placeholders;
use crate::agent::prompts::{PromptRow, PromptSet, PromptValues};
use crate::error::Result;

/// The protocol `prorag`.
#[derive(Clone, Copy, Debug)]
pub struct ProRag;

const TAGS: &[&str] = &["step", "subquery", "retrieval", "subanswer", "answer"];
const QUOTING: Quoting = Quoting::tags(TAGS);

/// With what every prompt ends, so that a response begins inside.
const OPEN_STEP: &str = "<step>";
const CLOSED_STEP: &str = "</step>";

impl Protocol for ProRag {
    fn name(&self) -> &'static str {
        "prorag"
    }

    fn states(&self) -> &'static [State] {
        &[State::BeginReasoning, State::Reasoning, State::EvidenceExtraction, State::AnswerGeneration]
    }

    fn placeholders(&self, state: State) -> Placeholders {
        match state {
            State::BeginReasoning => Placeholders { known: &["question"], needed: &["question"] },
            State::EvidenceExtraction => Placeholders { known: &["question", "passages"], needed: &["passages"] },
            _ => Placeholders { known: &["question", "passages"], needed: &[] },
        }
    }

    fn builtin_prompts(&self) -> Vec<PromptRow> {
        prompts::builtin()
    }

    fn initial_state(&self, max_steps: usize) -> State {
        unless_last(State::BeginReasoning, max_steps)
    }

    fn stop(&self, _: State) -> &'static [&'static str] {
        &["</subquery>", "</subanswer>", "</answer>"]
    }

    fn cut_by_stop(&self, state: State, text: &str) -> Option<&'static str> {
        stop_of_open_tag(text, TAGS, self.stop(state))
    }

    fn is_transcript(&self) -> bool {
        true
    }

    /// The step that the prompt opens, as published: a model of conversations begins its answer with it.
    fn turn_start(&self, prompt: &str) -> usize {
        prompt.rfind(OPEN_STEP).filter(|start| !prompt[*start..].contains(CLOSED_STEP)).unwrap_or(prompt.len())
    }

    /// `begin_reasoning` is the beginning of the transcript; the templates of the other states are what is appended. That of
    /// `answer_generation` comes after the opening of a step.
    fn prompt(&self, prompts: &PromptSet, context: &Context) -> Result<String> {
        let question = QUOTING.question(context);
        let passages = context.latest_retrieval().map(|found| QUOTING.passages(&*found.passages));
        let values = PromptValues { question: &question, passages: passages.as_deref().unwrap_or_default(), ..PromptValues::default() };
        let mut prompt = match context.transcript() {
            Some(transcript) if passages.is_some() => transcript + &prompts.render(State::EvidenceExtraction, &values)?,
            Some(transcript) => transcript + &prompts.render(State::Reasoning, &values)?,
            None => prompts.render(State::BeginReasoning, &values)?,
        };
        if context.state == State::AnswerGeneration {
            prompt += &prompts.render(State::AnswerGeneration, &values)?;
        }
        Ok(prompt)
    }

    /// The first complete sub-query, sub-answer or answer is the action, in whatever state.
    fn parse(&self, _: State, response: &str) -> Parsed {
        let found = tagged(response, TAGS).find(|tagged| matches!(tagged.name, "subquery" | "subanswer" | "answer"));
        found.map_or_else(
            || Parsed::malformed(response),
            |tagged| {
                let action = match tagged.name {
                    "subquery" => action_of(tagged.content, MAX_QUERY_CHARS, Action::Query),
                    "subanswer" => action_of(tagged.content, MAX_EVIDENCE_CHARS, Action::SubAnswer),
                    _ => action_of(tagged.content, MAX_ANSWER_CHARS, Action::Answer),
                };
                Parsed { action, end: tagged.end }
            },
        )
    }

    fn transition(&self, context: &Context, action: &Action, steps_left: usize) -> Transition {
        if let Some(reason) = ending(context.state, action, steps_left) {
            return Transition::End(reason);
        }
        match action {
            Action::Query(query) => Transition::Retrieve { query: query.clone(), next: unless_last(State::EvidenceExtraction, steps_left) },
            _ => Transition::To(unless_last(State::Reasoning, steps_left)),
        }
    }

    /// `(S Q R S A)* S F`; the environment writes R, and [`Protocol::is_well_formed_response`] looks for S.
    fn is_well_formed(&self, actions: &[Action]) -> bool {
        queries_read_then_answer(actions, |action| matches!(action, Action::SubAnswer(_)), false)
    }

    /// The rest of the open step, then the block that is due: a sub-query or an answer, or, after a retrieval, a sub-answer. A policy whose turn cannot be
    /// begun for it, as one of a server, opens the step itself.
    fn is_well_formed_response(&self, state: State, response: &str) -> bool {
        let opening = if response.trim_start().starts_with(OPEN_STEP) { "" } else { OPEN_STEP };
        let blocks = blocks(&[opening, response].concat(), TAGS).unwrap_or_default();
        let is_due = match (state, &blocks[..]) {
            (State::EvidenceExtraction, ["step", block]) => *block == "subanswer",
            (State::AnswerGeneration, ["step", block]) => *block == "answer",
            (_, ["step", block]) => matches!(*block, "subquery" | "answer"),
            _ => false,
        };
        is_due && self.parse(state, response).action != Action::Malformed
    }
}
