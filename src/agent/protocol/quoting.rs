//! Text from outside (a question, a query, a passage) as it stands in prompts: it can neither end nor steer a trajectory.

use super::lines::{break_phrases, break_words};
use super::markup::quote;
use super::{Context, MAX_PASSAGE_CHARS, MAX_QUERY_CHARS, MAX_QUESTION_CHARS};
use crate::agent::client::Passage;

/// What of a protocol's grammar such text must not look like, besides the markup of chat templates.
#[derive(Clone, Copy, Debug)]
pub struct Quoting {
    /// Names of tags.
    tags: &'static [&'static str],
    /// Words with a space or a hyphen between them, as of header lines.
    phrases: &'static [&'static str],
    /// Single words that are headers where a colon or an equals sign follows.
    headers: &'static [&'static str],
}

impl Quoting {
    pub const fn tags(tags: &'static [&'static str]) -> Self {
        Self { tags, phrases: &[], headers: &[] }
    }

    pub const fn phrases(phrases: &'static [&'static str]) -> Self {
        Self { tags: &[], phrases, headers: &[] }
    }

    #[must_use]
    pub const fn with_headers(self, headers: &'static [&'static str]) -> Self {
        Self { headers, ..self }
    }

    pub fn question(&self, context: &Context) -> String {
        self.text(&context.question, MAX_QUESTION_CHARS)
    }

    /// The latest query; empty if there is none.
    pub fn query(&self, context: &Context) -> String {
        self.text(context.query.as_deref().unwrap_or_default(), MAX_QUERY_CHARS)
    }

    /// Passages as the policy reads them: `[1] title: contents`, one per line, in order.
    pub fn passages<'a>(&self, passages: impl IntoIterator<Item = &'a Passage>) -> String {
        let lines: Vec<String> = (1..).zip(passages).map(|(number, passage)| self.passage(number, passage)).collect();
        lines.join("\n")
    }

    /// One line of at most `max_chars` characters.
    pub fn text(&self, text: &str, max_chars: usize) -> String {
        break_words(break_phrases(quote(text, self.tags, max_chars), self.phrases), self.headers)
    }

    fn passage(&self, number: usize, passage: &Passage) -> String {
        let text = match passage.title.as_deref().map(str::trim).filter(|title| !title.is_empty()) {
            Some(title) => format!("{title}: {}", passage.contents.trim()),
            None => passage.contents.clone(),
        };
        format!("[{number}] {}", self.text(&text, MAX_PASSAGE_CHARS))
    }
}
