//! Whether a row of `rollout.prompts` can be used: whoever writes one is told at once, and not when an agent runs.

use std::sync::Arc;

use super::judging;
use super::options::out_of_range;
use super::prompts::{PromptRow, placeholders_of, state_named};
use super::protocol::{Protocol, all_protocols};
use crate::error::{Error, Result};

/// What may stand in braces in a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placeholders {
    /// Those that have a value in the state.
    pub known: &'static [&'static str],
    /// Those without which the policy would not see what it is asked.
    pub needed: &'static [&'static str],
}

impl PromptRow {
    /// Checks that the protocol and its state are there, and that the template has what the state shows and nothing else. Whether a set has all states is
    /// for who uses it: rows come one after the other.
    ///
    /// # Errors
    /// [`Error::UnknownOption`] for a protocol or a placeholder that is not known, [`Error::UnknownObject`] for such a state; [`Error::InvalidParameter`]
    /// without a name, or without a placeholder that is needed.
    pub fn check(&self) -> Result<()> {
        if self.prompt_set.trim().is_empty() {
            return Err(out_of_range("prompt_set", "an empty text", "a name, by which agents call the set"));
        }
        if self.protocol == judging::PROTOCOL {
            return judging::check_row(self);
        }
        let protocols = all_protocols();
        let protocol =
            protocols.iter().find(|protocol| protocol.name() == self.protocol).ok_or_else(|| self.unknown_protocol(&protocols))?;
        let placeholders = protocol.placeholders(state_named(&self.state, &**protocol)?);
        let (of, found) = (self.name(), placeholders_of(&self.template));
        if let Some(name) = found.iter().find(|name| !placeholders.known.contains(&name.as_str())) {
            let known = placeholders.known.iter().map(|&known| known.to_owned()).collect();
            return Err(Error::UnknownOption { kind: "placeholder", name: name.clone(), of, known });
        }
        match placeholders.needed.iter().find(|needed| !found.iter().any(|found| found == *needed)) {
            Some(missing) => Err(out_of_range(&of, format!("a text without {{{missing}}}"), &expected(placeholders.needed))),
            None => Ok(()),
        }
    }

    /// For messages.
    pub(super) fn name(&self) -> String {
        let Self { prompt_set, protocol, state, .. } = self;
        format!("prompt {protocol}.{prompt_set}.{state}")
    }

    fn unknown_protocol(&self, protocols: &[Arc<dyn Protocol>]) -> Error {
        let names = protocols.iter().map(|protocol| protocol.name()).chain([judging::PROTOCOL]);
        let (name, known) = (self.protocol.clone(), names.map(str::to_owned).collect());
        Error::UnknownOption { kind: "protocol", name, of: "rollout.prompts".to_owned(), known }
    }
}

fn expected(needed: &[&str]) -> String {
    let braced: Vec<String> = needed.iter().map(|name| format!("{{{name}}}")).collect();
    format!("a text with {}", braced.join(" and "))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::agent::prompts::builtin_prompts;

    fn row(prompt_set: &str, protocol: &str, state: &str, template: &str) -> PromptRow {
        let [prompt_set, protocol, state, template] = [prompt_set, protocol, state, template].map(str::to_owned);
        PromptRow { prompt_set, protocol, state, template }
    }

    fn error(row: &PromptRow, expected: Expect) {
        expected.assert_eq(&row.check().unwrap_err().to_string());
    }

    #[test]
    fn what_comes_with_the_program_can_be_used() {
        builtin_prompts().iter().for_each(|row| row.check().unwrap_or_else(|error| panic!("{}: {error}", row.name())));
    }

    #[test]
    fn what_is_needed_is_known() {
        for protocol in all_protocols() {
            for state in protocol.states() {
                let Placeholders { known, needed } = protocol.placeholders(*state);
                assert!(needed.iter().all(|name| known.contains(name)), "{} {}", protocol.name(), state.as_str());
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_row() {
        row("mine", "direct", "answer_generation", "Q: {question} {\"json\": {}}").check().unwrap();
        error(
            &row(" ", "direct", "answer_generation", "{question}"),
            expect!["prompt_set = an empty text: expected a name, by which agents call the set"],
        );
        error(
            &row("mine", "reasonrga", "reasoning", "{question}"),
            expect![[
                r#"unknown protocol "reasonrga" of rollout.prompts; did you mean "reasonrag"?; it has: reasonrag, search_r1, prorag, r3rag, direct, cot, naive_rag, ircot, self_ask, iter_retgen, judge"#
            ]],
        );
        error(
            &row("mine", "cot", "reasoning", "{question}"),
            expect![[r#"unknown prompt state "reasoning"; known: begin_reasoning, answer_generation"#]],
        );
        error(
            &row("mine", "cot", "begin_reasoning", "{question} {passages}"),
            expect![[r#"unknown placeholder "passages" of prompt cot.mine.begin_reasoning; it has: question"#]],
        );
        error(
            &row("mine", "naive_rag", "answer_generation", "{question}"),
            expect!["prompt naive_rag.mine.answer_generation = a text without {passages}: expected a text with {question} and {passages}"],
        );
        error(
            &row("mine", "judge", "steps", "Grade {steps}"),
            expect!["prompt judge.mine.steps = a text without {question}: expected a text with {question}, {golden_answers} and {steps}"],
        );
        error(&row("mine", "judge", "grade", "{steps}"), expect![[r#"unknown prompt state "grade"; known: steps, answer, relevance"#]]);
    }
}
