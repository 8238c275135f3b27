//! Prompt sets: templates as rows, one per protocol state, which users read and override in SQL.
//!
//! A template is text with the placeholders `{question}`, `{thoughts}`, `{query}` and `{passages}`; other braces are text. What
//! `{thoughts}` are (earlier responses, steps, sentences) is the protocol's; one that writes a transcript has none.
//! Rendering is one pass, so that nothing inside an inserted text is taken for a placeholder. A line that holds a placeholder
//! without a value (the thoughts of a first step) is dropped with its newline.

use std::collections::BTreeMap;

use super::judging;
use super::protocol::{Protocol, State, all_protocols};
use crate::error::{Error, Result};

/// A row of `rollout.prompts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptRow {
    pub prompt_set: String,
    pub protocol: String,
    pub state: String,
    pub template: String,
}

impl PromptRow {
    /// The two sets that every protocol comes with: `default` for instruction-tuned policies, `short` for small ones trained on it.
    pub(super) fn sets(protocol: &str, default: &[(State, &str)], short: &[(State, &str)]) -> Vec<Self> {
        let row = |prompt_set: &str, (state, template): &(State, &str)| Self {
            prompt_set: prompt_set.to_owned(),
            protocol: protocol.to_owned(),
            state: state.as_str().to_owned(),
            template: (*template).to_owned(),
        };
        default.iter().map(|of_state| row("default", of_state)).chain(short.iter().map(|of_state| row("short", of_state))).collect()
    }
}

/// The rows that come with RolloutDB, of all protocols and of judges.
pub fn builtin_prompts() -> Vec<PromptRow> {
    let of_protocols = all_protocols().into_iter().flat_map(|protocol| protocol.builtin_prompts());
    of_protocols.chain(judging::builtin_prompts()).collect()
}

/// The templates of one prompt set for one protocol, read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptSet {
    name: String,
    templates: BTreeMap<State, Template>,
    texts: BTreeMap<State, String>,
}

/// What the placeholders stand for in one step.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromptValues<'a> {
    pub question: &'a str,
    pub thoughts: &'a str,
    pub query: &'a str,
    pub passages: &'a str,
}

impl PromptSet {
    /// Reads the set `name` for `protocol` from rows that may hold other sets too.
    ///
    /// # Errors
    /// [`Error::UnknownObject`] if there is no such set, or a row's state is not one of the protocol's;
    /// [`Error::NotReady`] if a state has no template or two; [`Error::UnknownOption`] for an unknown placeholder.
    pub fn from_rows(name: &str, protocol: &dyn Protocol, rows: &[PromptRow]) -> Result<Self> {
        let of_protocol = || rows.iter().filter(|row| row.protocol == protocol.name());
        let (mut templates, mut texts) = (BTreeMap::new(), BTreeMap::new());
        for row in of_protocol().filter(|row| row.prompt_set == name) {
            let state = state_named(&row.state, protocol)?;
            let template = Template::parse(&row.template, &format!("prompt {name}.{}", row.state))?;
            if templates.insert(state, template).is_some() {
                return Err(Error::NotReady(format!("prompt set \"{name}\" has two templates for state {}", row.state)));
            }
            texts.insert(state, row.template.clone());
        }
        if templates.is_empty() {
            return Err(unknown_set(name, of_protocol()));
        }
        if let Some(state) = protocol.states().iter().find(|state| !templates.contains_key(state)) {
            let (protocol, state) = (protocol.name(), state.as_str());
            let advice = "insert it into rollout.prompts; what came with the program is in rollout.builtin_prompts";
            return Err(Error::NotReady(format!(
                "prompt set \"{name}\" has no template for state {state} of protocol {protocol}; {advice}"
            )));
        }
        Ok(Self { name: name.to_owned(), templates, texts })
    }

    /// The set of that name among those that come with RolloutDB.
    ///
    /// # Errors
    /// [`Error::UnknownObject`].
    pub fn builtin(name: &str, protocol: &dyn Protocol) -> Result<Self> {
        Self::from_rows(name, protocol, &protocol.builtin_prompts())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The templates as they were written, in the order of the states.
    pub fn texts(&self) -> impl Iterator<Item = (State, &str)> {
        self.texts.iter().map(|(state, text)| (*state, text.as_str()))
    }

    /// The prompt of `state`.
    ///
    /// # Errors
    /// [`Error::UnknownObject`] if the set was made for a protocol without this state.
    pub fn render(&self, state: State, values: &PromptValues<'_>) -> Result<String> {
        let template = self.templates.get(&state).ok_or_else(|| Error::UnknownObject {
            kind: "prompt state",
            name: state.as_str().to_owned(),
            known: self.templates.keys().map(|state| state.as_str().to_owned()).collect(),
        })?;
        Ok(template.render(values))
    }
}

pub(super) fn state_named(name: &str, protocol: &dyn Protocol) -> Result<State> {
    let states = protocol.states();
    states.iter().copied().find(|state| state.as_str() == name).ok_or_else(|| Error::UnknownObject {
        kind: "prompt state",
        name: name.to_owned(),
        known: states.iter().map(|state| state.as_str().to_owned()).collect(),
    })
}

fn unknown_set<'a>(name: &str, rows: impl Iterator<Item = &'a PromptRow>) -> Error {
    let mut known: Vec<String> = rows.map(|row| row.prompt_set.clone()).collect();
    known.sort();
    known.dedup();
    Error::UnknownObject { kind: "prompt set", name: name.to_owned(), known }
}

/// Lines of pieces, so that a line can be dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Template(Vec<Vec<Piece>>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Placeholder(Placeholder),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    Question,
    Thoughts,
    Query,
    Passages,
}

const PLACEHOLDERS: [(&str, Placeholder); 4] = [
    ("question", Placeholder::Question),
    ("thoughts", Placeholder::Thoughts),
    ("query", Placeholder::Query),
    ("passages", Placeholder::Passages),
];

impl Template {
    /// `of`: what the template belongs to, for the error.
    fn parse(template: &str, of: &str) -> Result<Self> {
        template.split('\n').map(|line| parse_line(line, of)).collect::<Result<_>>().map(Self)
    }

    fn render(&self, values: &PromptValues<'_>) -> String {
        let lines: Vec<String> = self.0.iter().filter_map(|line| render_line(line, values)).collect();
        lines.join("\n")
    }
}

fn parse_line(mut line: &str, of: &str) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    while let Some((before, name, after)) = split_at_placeholder(line) {
        pieces.push(Piece::Text(before.to_owned()));
        pieces.push(Piece::Placeholder(placeholder_named(name, of)?));
        line = after;
    }
    pieces.push(Piece::Text(line.to_owned()));
    Ok(pieces)
}

/// Splits round the first `{name}` whose name is a word in lower case; braces round anything else are text.
pub(super) fn split_at_placeholder(line: &str) -> Option<(&str, &str, &str)> {
    line.match_indices('{').find_map(|(start, _)| {
        let (name, after) = line[start + 1..].split_once('}')?;
        let is_word = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
        is_word.then(|| (&line[..start], name, after))
    })
}

/// The names in braces of a template, each as often as it stands there.
pub(super) fn placeholders_of(template: &str) -> Vec<String> {
    let (mut names, mut rest) = (Vec::new(), template);
    while let Some((_, name, after)) = split_at_placeholder(rest) {
        names.push(name.to_owned());
        rest = after;
    }
    names
}

fn placeholder_named(name: &str, of: &str) -> Result<Placeholder> {
    PLACEHOLDERS.iter().find(|(known, _)| *known == name).map(|(_, placeholder)| *placeholder).ok_or_else(|| Error::UnknownOption {
        kind: "placeholder",
        name: name.to_owned(),
        of: of.to_owned(),
        known: PLACEHOLDERS.iter().map(|(known, _)| (*known).to_owned()).collect(),
    })
}

/// None if a placeholder of the line has no value.
fn render_line(line: &[Piece], values: &PromptValues<'_>) -> Option<String> {
    let mut rendered = String::new();
    for piece in line {
        match piece {
            Piece::Text(text) => rendered.push_str(text),
            Piece::Placeholder(placeholder) => {
                let value = match placeholder {
                    Placeholder::Question => values.question,
                    Placeholder::Thoughts => values.thoughts,
                    Placeholder::Query => values.query,
                    Placeholder::Passages => values.passages,
                };
                if value.is_empty() {
                    return None;
                }
                rendered.push_str(value);
            }
        }
    }
    Some(rendered)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::agent::protocol::ReasonRag;

    fn rows_with(change: impl FnOnce(&mut Vec<PromptRow>)) -> Result<PromptSet> {
        let mut rows = builtin_prompts();
        change(&mut rows);
        PromptSet::from_rows("short", &ReasonRag, &rows)
    }

    fn check_error(change: impl FnOnce(&mut Vec<PromptRow>), expected: Expect) {
        expected.assert_eq(&rows_with(change).unwrap_err().to_string());
    }

    #[test]
    fn builtin_sets_are_complete() {
        for protocol in all_protocols() {
            for set in ["default", "short"] {
                assert_eq!(PromptSet::builtin(set, &*protocol).unwrap().name(), set, "{}", protocol.name());
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_set() {
        check_error(
            |rows| rows.retain(|row| row.state != "reasoning"),
            expect![[
                r#"prompt set "short" has no template for state reasoning of protocol reasonrag; insert it into rollout.prompts; what came with the program is in rollout.builtin_prompts"#
            ]],
        );
        check_error(|rows| rows.retain(|row| row.prompt_set != "short"), expect![[r#"unknown prompt set "short"; known: default"#]]);
        check_error(|rows| rows.push(rows[4].clone()), expect![[r#"prompt set "short" has two templates for state begin_reasoning"#]]);
        check_error(
            |rows| rows[4].state = "thinking".to_owned(),
            expect![[r#"unknown prompt state "thinking"; known: begin_reasoning, reasoning, evidence_extraction, answer_generation"#]],
        );
        check_error(
            |rows| rows[4].template = "{qestion}".to_owned(),
            expect![[
                r#"unknown placeholder "qestion" of prompt short.begin_reasoning; did you mean "question"?; it has: question, thoughts, query, passages"#
            ]],
        );
        rows_with(|rows| rows[4].template = r#"{question} {"json": {}} {Upper}"#.to_owned()).unwrap();
    }

    #[test]
    fn rendering_is_one_pass_and_drops_empty_lines() {
        let render = |template: &str, values| Template::parse(template, "test").unwrap().render(&values);
        let values = PromptValues { question: "{thoughts} {query}?", thoughts: "{question}", ..PromptValues::default() };
        assert_eq!(render("Q: {question}\n{thoughts}\nA:", values), "Q: {thoughts} {query}?\n{question}\nA:");
        let empty = PromptValues { question: "q", ..PromptValues::default() };
        assert_eq!(render("Q: {question}\nSo far: {thoughts}\nA:", empty), "Q: q\nA:");
        assert_eq!(render("{question}\n\n{thoughts}", empty), "q\n");
        assert_eq!(render("{{question}}", empty), "{q}");
    }
}
