//! Chat templates: how a model wants a conversation to be written, in Jinja, as transformers' `apply_chat_template` renders it.
//!
//! One thing is left out on purpose: `strftime_now` is not defined, because a prompt that holds the day's date would make a run differ from its
//! repetition. Published templates that ask for a date have a fixed one in its absence.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, Output, State, escape_formatter, filters};
use minijinja_contrib::pycompat::unknown_method_callback;
use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::config::{read_bounded, read_json};
use super::registry::ModelInfo;
use super::shown::shown;
use super::tokenizer::TOKENIZER_CONFIG_FILE;
use crate::error::{Error, Result};
use crate::value::Value as OptionValue;

/// File of a template beside `tokenizer_config.json`, where transformers 5 puts it.
pub const CHAT_TEMPLATE_FILE: &str = "chat_template.jinja";
const NAME: &str = "chat template";
/// A hundred times the longest that is published.
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;
/// Steps of one rendering; a template that takes more does not end, or is no template.
const STEPS_MAX: u64 = 10_000_000;
/// Of JSON: more would be an attack on the memory, which the number of steps does not bound.
const INDENT_MAX: usize = 16;
/// What transformers gives every template, as None unless somebody gives more.
const ABSENT: [&str; 2] = ["tools", "documents"];
/// Tokens that templates name.
const TOKENS: [&str; 4] = ["bos_token", "eos_token", "unk_token", "pad_token"];

/// What a conversation has by itself, and no variable says.
const OF_CONVERSATIONS: [&str; 2] = ["messages", "add_generation_prompt"];

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `user` or `assistant`; a template decides which there are.
    pub role: String,
    pub content: String,
    /// What else a template may look at, as `reasoning_content` and `tool_calls`.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// What a template may ask for beside the conversation, by name: `enable_thinking` of Qwen3. Objects within keep the order of their fields, in which a
/// template writes the tools that it is given.
pub type ChatVariables = BTreeMap<String, Value>;

/// The chat template of a model.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    tokens: BTreeMap<String, String>,
    variables: ChatVariables,
}

impl ChatMessage {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), others: BTreeMap::new() }
    }

    /// What the user says.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// A conversation as a JSON array of objects with `role` and `content`; what else they have is for the template.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn read_all(json: &str) -> Result<Vec<Self>> {
        serde_json::from_str(json).map_err(|error| Error::InvalidParameter {
            name: "messages".to_owned(),
            found: format!("a text that is none ({error})"),
            expected: r#"a JSON array such as [{"role": "user", "content": "Who wrote Emma?"}]"#.to_owned(),
        })
    }
}

/// The name of the option of `CREATE MODEL`, as vLLM, SGLang and TRL have it.
pub const CHAT_TEMPLATE_KWARGS: &str = "chat_template_kwargs";

/// Takes [`CHAT_TEMPLATE_KWARGS`] out of the options of a model, a JSON object; `None` if it is not there.
///
/// # Errors
/// [`Error::WrongType`] for no text; [`Error::InvalidParameter`] for another text, and for a variable that a conversation has by itself.
pub fn take_variables(options: &mut Vec<(String, OptionValue)>) -> Result<Option<ChatVariables>> {
    let expected = r#"a JSON object, as in '{"enable_thinking": false}'"#;
    let Some(position) = options.iter().position(|(name, _)| name == CHAT_TEMPLATE_KWARGS) else { return Ok(None) };
    let invalid = |found: String, expected: &str| {
        Err(Error::InvalidParameter { name: CHAT_TEMPLATE_KWARGS.to_owned(), found, expected: expected.to_owned() })
    };
    let text = match options.remove(position).1 {
        OptionValue::Text(text) => text,
        other => {
            let what = format!("option {CHAT_TEMPLATE_KWARGS}");
            return Err(Error::WrongType { what, found: other.to_string(), expected: expected.to_owned() });
        }
    };
    let Ok(variables) = serde_json::from_str::<ChatVariables>(&text) else { return invalid(format!("'{}'", shown(&text)), expected) };
    match OF_CONVERSATIONS.into_iter().chain(TOKENS).find(|name| variables.contains_key(*name)) {
        Some(name) => invalid(format!("a variable \"{name}\""), "variables that neither a conversation nor the tokenizer has by itself"),
        None => Ok(Some(variables)),
    }
}

impl ChatTemplate {
    /// That of a model, with the variables that it was made with.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn of(info: &ModelInfo) -> Result<Option<Self>> {
        let template = Self::load(&info.directory)?;
        Ok(template.map(|template| template.with_variables(info.chat_template_kwargs.clone().unwrap_or_default())))
    }

    /// The template of a model directory: `chat_template.jinja`, or the field `chat_template` of `tokenizer_config.json`; `None` if it has none.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] if a file cannot be read as what it is, or the template is none.
    pub fn load(directory: &Path) -> Result<Option<Self>> {
        let config_path = directory.join(TOKENIZER_CONFIG_FILE);
        let config = if config_path.exists() { read_json(&config_path)? } else { Json::Null };
        let path = directory.join(CHAT_TEMPLATE_FILE);
        let (path, source) = if path.exists() {
            let bytes = read_bounded(&path, TEMPLATE_BYTES_MAX)?;
            let text = String::from_utf8(bytes).map_err(|error| Error::Damaged { path: path.clone(), reason: error.to_string() })?;
            (path, Some(text))
        } else {
            (config_path, template_field(&config))
        };
        let new = |source| Self::new(source, token_texts(&config));
        let reason = |error: minijinja::Error| format!("its chat template does not parse: {}", shown(&format!("{error:#}")));
        source.map(new).transpose().map_err(|error| Error::Damaged { path, reason: reason(error) })
    }

    /// A template and the texts of the tokens that it may name.
    fn new(source: String, tokens: BTreeMap<String, String>) -> Result<Self, minijinja::Error> {
        let mut environment = Environment::new();
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.set_formatter(write_as_python);
        environment.set_fuel(Some(STEPS_MAX));
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", raise_exception);
        environment.add_template_owned(NAME, without_training_marks(&source))?;
        Ok(Self { environment, tokens, variables: ChatVariables::new() })
    }

    /// The same, in which these have a value.
    #[must_use]
    fn with_variables(self, variables: ChatVariables) -> Self {
        Self { variables, ..self }
    }

    /// The text of a conversation, with the beginning of an answer if `add_generation_prompt`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] with the words of the template, if it refuses the conversation or cannot be rendered.
    pub fn render(&self, messages: &[ChatMessage], add_generation_prompt: bool) -> Result<String> {
        let mut context: BTreeMap<&str, Value> = self.variables.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        context.extend(self.tokens.iter().map(|(name, text)| (name.as_str(), Value::from(text.as_str()))));
        for name in ABSENT {
            context.entry(name).or_insert_with(|| Value::from(()));
        }
        context.insert("messages", Value::from(Serde(messages)));
        context.insert("add_generation_prompt", Value::from(add_generation_prompt));
        let rendered = self.environment.get_template(NAME).and_then(|template| template.render(context));
        rendered.map_err(|error| Error::InvalidParameter {
            name: NAME.to_owned(),
            found: format!("the conversation fails in it: {}", shown(error.detail().unwrap_or("it cannot be rendered"))),
            expected: "a conversation that the model's chat template takes".to_owned(),
        })
    }
}

/// A text, or of several named templates the one named `default`.
fn template_field(config: &Json) -> Option<String> {
    let field = config.get("chat_template")?;
    let named =
        || field.as_array()?.iter().find(|entry| entry.get("name").and_then(Json::as_str) == Some("default"))?.get("template")?.as_str();
    field.as_str().or_else(named).map(str::to_owned)
}

/// The same template without its marks of what an assistant has said, which transformers learns by and writes as nothing.
fn without_training_marks(source: &str) -> String {
    // With the signs that take away the blanks beside them.
    static MARK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("a pattern of ours"));
    let tag = |found: &Captures<'_>| {
        let statement = if found.get(2).is_some() { "endif" } else { "if true" };
        format!("{{%{} {statement} {}%}}", &found[1], &found[3])
    };
    MARK.replace_all(source, tag).into_owned()
}

/// The special tokens of `tokenizer_config.json`: texts, or objects with a `content`.
fn token_texts(config: &Json) -> BTreeMap<String, String> {
    let text = |name: &str| {
        let token = config.get(name)?;
        Some((name.to_owned(), token.as_str().or_else(|| token.get("content")?.as_str())?.to_owned()))
    };
    TOKENS.into_iter().filter_map(text).collect()
}

/// Truth values and None as Python prints them.
fn write_as_python(out: &mut Output, state: &mut State, value: &Value) -> Result<(), minijinja::Error> {
    let text = match (bool::try_from(value.clone()).ok(), value.kind()) {
        (Some(flag), ValueKind::Bool) => {
            if flag {
                "True"
            } else {
                "False"
            }
        }
        (_, ValueKind::None) => "None",
        _ => return escape_formatter(out, state, value),
    };
    out.write_str(text).map_err(minijinja::Error::from)
}

/// JSON as Python writes it without `ensure_ascii`; the engine's own filter writes some letters as for HTML.
fn to_json(value: &Value, indent: Option<Value>, options: Kwargs) -> Result<String, minijinja::Error> {
    for name in ["ensure_ascii", "sort_keys"] {
        if options.get::<Option<bool>>(name)? == Some(true) {
            return Err(minijinja::Error::new(ErrorKind::InvalidOperation, format!("tojson does not know {name}")));
        }
    }
    let indent = match indent {
        Some(indent) => Some(indent),
        None => options.get("indent")?,
    };
    options.assert_all_used()?;
    if indent.as_ref().and_then(|indent| usize::try_from(indent.clone()).ok()).is_some_and(|indent| indent > INDENT_MAX) {
        return Err(minijinja::Error::new(ErrorKind::InvalidOperation, format!("tojson indents by at most {INDENT_MAX}")));
    }
    let escaped = filters::tojson(value, indent, Kwargs::from_iter(Vec::<(&str, Value)>::new()))?.to_string();
    let mut text = String::with_capacity(escaped.len());
    let mut rest = escaped.as_str();
    while let Some(position) = rest.find('\\') {
        text.push_str(&rest[..position]);
        let letter = match rest.get(position..position + 6) {
            Some("\\u003c") => Some('<'),
            Some("\\u003e") => Some('>'),
            Some("\\u0026") => Some('&'),
            Some("\\u0027") => Some('\''),
            _ => None,
        };
        match letter {
            Some(letter) => {
                text.push(letter);
                rest = &rest[position + 6..];
            }
            // Of an escaped backslash both, so that the second does not begin something.
            None => {
                text.push_str(&rest[position..position + 2]);
                rest = &rest[position + 2..];
            }
        }
    }
    text.push_str(rest);
    Ok(text)
}

fn raise_exception(message: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::fixtures::fixture;

    #[derive(Deserialize)]
    struct Case {
        template: String,
        messages: Vec<ChatMessage>,
        add_generation_prompt: bool,
        variables: ChatVariables,
        text: Option<String>,
        error: Option<String>,
    }

    fn template(source: &str) -> ChatTemplate {
        let tokens = [("bos_token", "<s>"), ("eos_token", "</s>")].map(|(name, text)| (name.to_owned(), text.to_owned()));
        ChatTemplate::new(source.to_owned(), tokens.into()).unwrap()
    }

    /// `tests/fixtures/make_chat_template_goldens.py` made them.
    #[test]
    fn prompts_equal_transformers() {
        let directory = fixture("chat_templates");
        let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(directory.join("goldens.json")).unwrap()).unwrap();
        assert!(cases.len() > 200);
        for case in cases {
            let source = std::fs::read_to_string(directory.join(&case.template).with_extension("jinja")).unwrap();
            match template(&source).with_variables(case.variables).render(&case.messages, case.add_generation_prompt) {
                Ok(text) => assert_eq!(Some(text), case.text, "{} of {:?}", case.template, case.messages),
                Err(error) => {
                    let expected = case.error.unwrap_or_else(|| panic!("{} of {:?}: {error}", case.template, case.messages));
                    assert!(error.to_string().contains(&expected), "{error} instead of {expected}");
                }
            }
        }
    }

    #[test]
    fn json_keeps_backslashes_and_letters() {
        let rendered = template("{{ messages[0].content | tojson }}").render(&[ChatMessage::user("\\u003c <a href='x'>&\\")], false);
        assert_eq!(rendered.unwrap(), r#""\\u003c <a href='x'>&\\""#);
    }

    #[test]
    fn tools_keep_the_order_of_their_fields() {
        let tools = r#"[{"type": "function", "function": {"name": "search", "description": "Finds.", "a": 1}}]"#;
        let variables: ChatVariables = serde_json::from_str(&format!(r#"{{"tools": {tools}}}"#)).unwrap();
        let kept: ChatVariables = serde_json::from_str(&serde_json::to_string(&variables).unwrap()).unwrap();
        for variables in [variables, kept] {
            assert_eq!(template("{{ tools | tojson }}").with_variables(variables).render(&[ChatMessage::user("a")], false).unwrap(), tools);
        }
    }

    #[test]
    fn marks_for_training_write_nothing() {
        let source = "{% for m in messages %}a\n{% generation %}\n{{ m.content }} {%- endgeneration -%}  b{% endfor %}";
        assert_eq!(template(source).render(&[ChatMessage::user("x")], false).unwrap(), "a\nxb");
    }

    #[test]
    fn messages_are_json() {
        assert_eq!(ChatMessage::read_all(r#"[{"role": "user", "content": "a"}]"#).unwrap(), [ChatMessage::user("a")]);
        for wrong in ["Who?", "{}", r#"[{"role": "user"}]"#] {
            assert!(matches!(ChatMessage::read_all(wrong), Err(Error::InvalidParameter { .. })), "{wrong}");
        }
    }

    #[test]
    fn variables_are_an_object_of_other_names() {
        let take = |text: &str| take_variables(&mut vec![(CHAT_TEMPLATE_KWARGS.to_owned(), OptionValue::Text(text.to_owned()))]);
        assert_eq!(take(r#"{"enable_thinking": false}"#).unwrap().unwrap()["enable_thinking"], Value::from(false));
        for wrong in ["", "[]", "{", r#"{"messages": []}"#, r#"{"eos_token": "x"}"#] {
            assert!(matches!(take(wrong), Err(Error::InvalidParameter { .. })), "{wrong}");
        }
        assert!(take_variables(&mut vec![]).unwrap().is_none());
        let mut number = vec![(CHAT_TEMPLATE_KWARGS.to_owned(), OptionValue::Int(1))];
        assert!(matches!(take_variables(&mut number), Err(Error::WrongType { .. })));
    }

    #[test]
    fn there_are_no_tools_and_no_wide_indents() {
        let render = |source: &str| template(source).render(&[ChatMessage::user("a")], false);
        assert_eq!(render("{% if tools is not none or documents %}tools{% endif %}.").unwrap(), ".");
        assert!(matches!(render("{{ messages | tojson(indent=1000000000) }}"), Err(Error::InvalidParameter { .. })));
        assert!(matches!(render("{{ messages | tojson(sort_keys=true) }}"), Err(Error::InvalidParameter { .. })));
    }

    #[test]
    fn a_template_without_an_end_is_stopped() {
        let endless = template("{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}");
        let error = endless.render(&[ChatMessage::user("")], true).unwrap_err();
        assert!(matches!(error, Error::InvalidParameter { .. }), "{error}");
    }

    #[test]
    fn a_model_has_its_template_in_one_of_two_places() {
        let directory = tempfile::tempdir().unwrap();
        assert!(ChatTemplate::load(directory.path()).unwrap().is_none());
        let config = r#"{"bos_token": {"content": "<b>"}, "chat_template": [{"name": "tools", "template": "no"}, {"name": "default", "template": "{{ bos_token }}"}]}"#;
        std::fs::write(directory.path().join(TOKENIZER_CONFIG_FILE), config).unwrap();
        let render = || ChatTemplate::load(directory.path()).unwrap().unwrap().render(&[], false).unwrap();
        assert_eq!(render(), "<b>");
        std::fs::write(directory.path().join(CHAT_TEMPLATE_FILE), "file {{ bos_token }}").unwrap();
        assert_eq!(render(), "file <b>");
        std::fs::write(directory.path().join(CHAT_TEMPLATE_FILE), "{% if %}").unwrap();
        assert!(matches!(ChatTemplate::load(directory.path()).unwrap_err(), Error::Damaged { .. }));
    }
}
