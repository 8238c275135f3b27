//! Search-R1 (Jin et al. 2025, arXiv 2503.09516): one transcript of thoughts, searches and what they found.
//!
//! ```text
//! begin_reasoning ─┬─ <search> ─► <information> k passages </information> ─► reasoning ─┬─ <search> ─► ...
//!                  ├─ <answer> ─► end                                                   └─ <answer> ─► end
//!                  └─ neither ──► a corrective sentence ─► correction ─► as after reasoning
//! ```
//!
//! The prompt of a step is that of the step before it, the response, and what is appended: nothing is taken back, so that a cache of
//! prefixes serves every step and the whole text can be trained on with the appended parts masked. The last step is told so, after it
//! was shown what the step before it found.
//!
//! Two differences from the published code: a response ends at its closing tag (there it is cut afterwards), and a transcript that
//! outgrows the policy's context ends (there it loses its beginning, the question with it).

mod prompts;
#[cfg(test)]
mod tests;

use super::format::steps_then_answer;
use super::markup::{blocks, stop_of_open_tag, tagged};
use super::quoting::Quoting;
use super::{Action, Context, MAX_ANSWER_CHARS, MAX_QUERY_CHARS, Parsed, Protocol, State, Transition, action_of, ending, unless_last};
use crate::agent::prompt_check::Placeholders;
use crate::agent::prompts::{PromptRow, PromptSet, PromptValues};
use crate::error::Result;

/// The protocol `search_r1`.
#[derive(Clone, Copy, Debug)]
pub struct SearchR1;

const TAGS: &[&str] = &["think", "search", "information", "answer"];
const QUOTING: Quoting = Quoting::tags(TAGS);

impl Protocol for SearchR1 {
    fn name(&self) -> &'static str {
        "search_r1"
    }

    fn states(&self) -> &'static [State] {
        &[State::BeginReasoning, State::Reasoning, State::Correction, State::AnswerGeneration]
    }

    fn placeholders(&self, state: State) -> Placeholders {
        match state {
            State::BeginReasoning => Placeholders { known: &["question"], needed: &["question"] },
            State::Reasoning => Placeholders { known: &["question", "passages"], needed: &["passages"] },
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
        &["</search>", "</answer>"]
    }

    fn cut_by_stop(&self, state: State, text: &str) -> Option<&'static str> {
        stop_of_open_tag(text, TAGS, self.stop(state))
    }

    fn is_transcript(&self) -> bool {
        true
    }

    /// `begin_reasoning` is the beginning of the transcript; the templates of the other states are what is appended.
    fn prompt(&self, prompts: &PromptSet, context: &Context) -> Result<String> {
        let question = QUOTING.question(context);
        let passages = context.latest_retrieval().map(|found| QUOTING.passages(&*found.passages));
        let values = PromptValues { question: &question, passages: passages.as_deref().unwrap_or_default(), ..PromptValues::default() };
        let mut prompt = match context.transcript() {
            Some(transcript) => transcript,
            None => prompts.render(State::BeginReasoning, &values)?,
        };
        if passages.is_some() {
            prompt += &prompts.render(State::Reasoning, &values)?;
        }
        if matches!(context.state, State::Correction | State::AnswerGeneration) {
            prompt += &prompts.render(context.state, &values)?;
        }
        Ok(prompt)
    }

    /// The first complete search or answer is the action.
    fn parse(&self, _: State, response: &str) -> Parsed {
        let found = tagged(response, TAGS).find(|tagged| matches!(tagged.name, "search" | "answer"));
        found.map_or_else(
            || Parsed::malformed(response),
            |tagged| {
                let action = match tagged.name {
                    "search" => action_of(tagged.content, MAX_QUERY_CHARS, Action::Query),
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
            Action::Query(query) => Transition::Retrieve { query: query.clone(), next: unless_last(State::Reasoning, steps_left) },
            _ => Transition::To(unless_last(State::Correction, steps_left)),
        }
    }

    fn is_well_formed(&self, actions: &[Action]) -> bool {
        steps_then_answer(actions, |action| matches!(action, Action::Query(_)))
    }

    /// A thought in its tags, then a search or an answer.
    fn is_well_formed_response(&self, state: State, response: &str) -> bool {
        let blocks = blocks(response, TAGS).unwrap_or_default();
        matches!(blocks[..], ["think", "search" | "answer"]) && self.parse(state, response).action != Action::Malformed
    }
}
