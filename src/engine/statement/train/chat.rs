//! Conversations as examples: messages in the columns of a query, as TRL has them, written by the chat template of the base.
//!
//! A policy learns the prompt with the beginning of an answer, and what the template adds to that for the completion. A reward model reads the prompt so too, and
//! behind it what the assistant says without what a template puts round it: that is what rollouts and `rerank()` give it later.

use serde::Deserialize;

use crate::error::Error;
use crate::models::ModelInfo;
use crate::models::chat_template::{ChatMessage, ChatTemplate};

const ASSISTANT: &str = "assistant";
/// Said by no template: an answer that agrees with no beginning of one.
const UNLIKE: &str = "\u{fffc}";
/// Of a column of messages, as errors show it.
const FORM: &str = r#"a JSON array such as [{"role": "user", "content": "Who wrote Emma?"}], with role and content alone"#;

/// What a row has in a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Text(String),
    Messages(Vec<ChatMessage>),
}

/// Why a row cannot be read; the caller names the row.
#[derive(Debug, PartialEq)]
pub struct Problem {
    pub found: String,
    pub expected: String,
}

/// How the base wants conversations to be written.
pub struct Chat {
    /// As messages name it.
    model: String,
    /// Or why it cannot be read, which matters to those who want it.
    template: Result<Option<ChatTemplate>, String>,
}

/// A message, of which nothing is passed over.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    role: String,
    content: String,
}

impl Said {
    /// Messages if the text begins, blanks aside, as a JSON array of objects whose first field is `role` or `content`; any other text is one, whatever it
    /// begins with.
    ///
    /// # Errors
    /// If it begins as messages and is none.
    pub fn read(text: &str) -> Result<Self, Problem> {
        if !begins_as_messages(text) {
            return Ok(Self::Text(text.to_owned()));
        }
        let broken = |error: serde_json::Error| {
            let found = format!("a text that begins as messages and is none ({error})");
            Problem { found, expected: FORM.to_owned() }
        };
        let messages: Vec<Message> = serde_json::from_str(text).map_err(broken)?;
        Ok(Self::Messages(messages.into_iter().map(|Message { role, content }| ChatMessage::new(role, content)).collect()))
    }
}

fn begins_as_messages(text: &str) -> bool {
    let field = after(text, "[").and_then(|rest| after(rest, "{"));
    field.is_some_and(|field| {
        let names = [r#""role""#, r#""content""#];
        names.iter().filter_map(|name| after(field, name)).any(|rest| after(rest, ":").is_some())
    })
}

/// The text behind a sign, before which there may be blanks.
fn after<'a>(text: &'a str, sign: &str) -> Option<&'a str> {
    text.trim_start().strip_prefix(sign)
}

/// A prompt that somebody else than the assistant ends.
///
/// # Errors
/// If it is not.
pub fn check_prompt(messages: &[ChatMessage]) -> Result<(), Problem> {
    let found = match messages.last() {
        None => "no message",
        Some(last) if last.role == ASSISTANT => "messages of which the last one is the assistant's",
        Some(_) => return Ok(()),
    };
    Err(problem(found, "messages that end with what the assistant answers; its answer is the completion"))
}

/// What the assistant says: one message or more; of a step that is scored just one.
///
/// # Errors
/// If it is not.
pub fn check_completion(messages: &[ChatMessage], is_scored: bool) -> Result<(), Problem> {
    if messages.is_empty() {
        return Err(problem("no message", "messages of the assistant"));
    }
    if let Some(other) = messages.iter().find(|message| message.role != ASSISTANT) {
        let found = format!("a message of \"{}\"", other.role.chars().take(40).collect::<String>());
        let expected = "messages of the assistant alone; what others say in between is read and not learned as parts with a mask";
        return Err(problem(&found, expected));
    }
    if is_scored && messages.len() > 1 {
        return Err(problem(&format!("{} messages", messages.len()), "one message of the assistant, the step"));
    }
    Ok(())
}

fn problem(found: &str, expected: &str) -> Problem {
    Problem { found: found.to_owned(), expected: expected.to_owned() }
}

impl Chat {
    /// Of the base. A template that cannot be read is told when there are messages.
    pub fn of(base: &ModelInfo) -> Self {
        let template = ChatTemplate::of(base).map_err(|error| error.to_string());
        Self { model: base.reference(), template }
    }

    /// The base, `name@version`.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The text of a prompt, with the beginning of an answer.
    ///
    /// # Errors
    /// Without a template; what the template refuses.
    pub fn prompt(&self, prompt: &[ChatMessage]) -> Result<String, Problem> {
        self.render(prompt, true)
    }

    /// The texts of a prompt, with the beginning of an answer, and of each completion: what the template writes behind that for both together. Where it begins an
    /// answer with something that it does not write before this one, such as a thought, the prompt ends before that.
    ///
    /// # Errors
    /// As [`Self::prompt`]; for a template that writes the prompt otherwise where a completion follows.
    pub fn texts(&self, prompt: &[ChatMessage], completions: &[Vec<ChatMessage>]) -> Result<(String, Vec<String>), Problem> {
        let (mut asked, before) = (self.render(prompt, true)?, self.render(prompt, false)?);
        let whole = |completion: &[ChatMessage]| self.render(&[prompt, completion].concat(), false);
        // Where an answer begins, whatever it says: `<answer>` has the `<` of `<think>` by chance.
        let unlike = whole(&[ChatMessage::new(ASSISTANT, UNLIKE)])?;
        let mut whole = completions.iter().map(|completion| whole(completion)).collect::<Result<Vec<String>, Problem>>()?;
        let end = whole.iter().chain([&unlike]).map(|whole| num_common(&asked, whole)).min().unwrap_or(asked.len());
        if end < num_common(&asked, &before) {
            return Err(problem(
                "messages that the chat template of the model writes otherwise where an answer follows them",
                "a chat template that goes on where the prompt ends, or texts that are written already",
            ));
        }
        whole.iter_mut().for_each(|whole| drop(whole.drain(..end)));
        asked.truncate(end);
        Ok((asked, whole))
    }

    fn render(&self, messages: &[ChatMessage], add_generation_prompt: bool) -> Result<String, Problem> {
        let template = match &self.template {
            Ok(Some(template)) => template,
            Ok(None) => {
                let expected = format!("texts, because model {} has no chat template among its files", self.model);
                return Err(problem("messages", &expected));
            }
            Err(reason) => return Err(problem("messages", &format!("a chat template of model {} that can be read: {reason}", self.model))),
        };
        template.render(messages, add_generation_prompt).map_err(|error| match error {
            Error::InvalidParameter { found, expected, .. } => Problem { found, expected },
            other => problem("messages", &other.to_string()),
        })
    }
}

/// Bytes that two texts have in common at their beginnings, in whole characters.
fn num_common(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(turns: &[(&str, &str)]) -> Vec<ChatMessage> {
        turns.iter().map(|(role, content)| ChatMessage::new(*role, *content)).collect()
    }

    fn chat(template: Option<&str>) -> Chat {
        let directory = tempfile::tempdir().expect("a temporary directory");
        if let Some(template) = template {
            std::fs::write(directory.path().join("chat_template.jinja"), template).expect("it can be written");
        }
        let template = ChatTemplate::load(directory.path()).map_err(|error| error.to_string());
        Chat { model: "policy@1".to_owned(), template }
    }

    const PLAIN: &str = concat!(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}",
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    );
    /// Begins an answer with a thought, and leaves the thought out of one that is there.
    const THINKING: &str = concat!(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
        "{% if add_generation_prompt %}<assistant><think>{% endif %}"
    );
    /// Writes other prompts where an answer follows.
    const REWRITING: &str = "{{ messages | length }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

    #[test]
    fn only_what_begins_as_messages_is_read_as_messages() {
        let lists = ["", "[]", "[1] a footnote", "[{}]", " [{role: 1}]"];
        let json = [r#"[{"name": 1}]"#, r#"["role"]"#, r#"[{"role"}]"#, r#"{"role": "user"}"#];
        for text in lists.into_iter().chain(json) {
            assert_eq!(Said::read(text), Ok(Said::Text(text.to_owned())));
        }
        let one = Said::Messages(messages(&[("user", "[Who]?")]));
        for text in [
            r#"[{"role": "user", "content": "[Who]?"}]"#,
            " [ {\n\"content\" : \"[Who]?\", \"role\": \"user\" } ]\n",
            r#"[{"role":"user","content":"\u005bWho]?"}]"#,
        ] {
            assert_eq!(Said::read(text), Ok(one.clone()), "{text}");
        }
        for broken in [
            r#"[{"role": "user", "content": "a""#,
            r#"[{"role": "user"}]"#,
            r#"[{"role": "user", "content": null}]"#,
            r#"[{"role": "user", "content": "a", "tool_calls": []}]"#,
            r#"[{"role": "user", "content": "a"}] and more"#,
            r#"[{"role": "user", "content": ["a"]}]"#,
        ] {
            assert!(Said::read(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_completion_is_what_the_template_adds() {
        let prompt = messages(&[("system", "Be brief."), ("user", "Who?")]);
        let answers = ["He.", "She."].map(|answer| messages(&[("assistant", answer)]));
        let texts = |template: &str| chat(Some(template)).texts(&prompt, &answers);
        let plain = "<system>Be brief.</system><user>Who?</user><assistant>";
        assert_eq!(texts(PLAIN), Ok((plain.to_owned(), vec!["He.</assistant>".to_owned(), "She.</assistant>".to_owned()])));
        let thinking = "<system>Be brief.<user>Who?<assistant>";
        assert_eq!(texts(THINKING), Ok((thinking.to_owned(), vec!["He.".to_owned(), "She.".to_owned()])));
        let tagged = [messages(&[("assistant", "<tool>He")])];
        assert_eq!(chat(Some(THINKING)).texts(&prompt, &tagged), Ok((thinking.to_owned(), vec!["<tool>He".to_owned()])));
        assert!(texts(REWRITING).is_err());
        assert_eq!(chat(Some(PLAIN)).prompt(&prompt), Ok(plain.to_owned()));
        let missing = chat(None).texts(&prompt, &answers).expect_err("there is no template");
        assert!(missing.expected.contains("policy@1"), "{missing:?}");
        assert!(chat(Some("{{ raise_exception('no') }}")).texts(&prompt, &answers).is_err());
        assert!(chat(Some("{% if %}")).prompt(&prompt).is_err());
    }

    #[test]
    fn turns_have_their_order() {
        assert_eq!(check_prompt(&messages(&[("assistant", "Hello"), ("user", "Who?")])), Ok(()));
        assert!(check_prompt(&[]).is_err());
        assert!(check_prompt(&messages(&[("user", "Who?"), ("assistant", "He")])).is_err());
        let two = messages(&[("assistant", "He."), ("assistant", "Or she.")]);
        assert_eq!((check_completion(&two, false), check_completion(&two[..1], true)), (Ok(()), Ok(())));
        assert!(check_completion(&two, true).is_err() && check_completion(&[], false).is_err());
        assert!(check_completion(&messages(&[("assistant", "He."), ("tool", "a passage")]), false).is_err());
    }
}
