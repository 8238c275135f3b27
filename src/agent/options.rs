//! Options of agents: names, defaults, ranges, and setters that say what was wrong. Those of the tree search are in [`super::search_options`].
//!
//! `NAMES` lists what `WITH (name = value)` may say. Nothing here knows whether an agent is asked for by SQL or by a program.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, nearest};
use crate::value::Value;

/// More tokens than any vocabulary has.
const TOP_K_MAX: i64 = 1_000_000;

/// Which search of the corpus the agent's queries use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RetrieverKind {
    Text,
    Vector,
    Hybrid,
}

impl RetrieverKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Vector => "vector",
            Self::Hybrid => "hybrid",
        }
    }
}

/// An agent: what `CREATE AGENT ... WITH (...)` says, and what `answer(..., name => value)` overrides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentOptions {
    /// Model that acts, `name` or `name@version`. Has no default.
    pub policy: String,
    /// Table that is searched. Has no default.
    pub corpus: String,
    /// The version of that table, its number or a tag; the newest at the beginning of each statement unless set.
    pub corpus_version: Option<String>,
    pub retriever: RetrieverKind,
    /// Passages per query.
    pub k: usize,
    pub protocol: String,
    /// Prompt set.
    pub prompts: String,
    /// Policy calls per trajectory.
    pub max_steps: usize,
    /// Tokens per policy call.
    pub max_tokens: usize,
    /// 0 is greedy.
    pub temperature: f64,
    pub top_p: f64,
    /// The most probable tokens to sample from; 0 is all.
    pub top_k: usize,
    /// Least probability of a token beside the most probable one's, 0 to 1; 0 is any.
    pub min_p: f64,
    /// Above 0; 1 changes nothing.
    pub repetition_penalty: f64,
    pub seed: i64,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            policy: String::new(),
            corpus: String::new(),
            corpus_version: None,
            retriever: RetrieverKind::Hybrid,
            k: 3,
            protocol: "reasonrag".to_owned(),
            prompts: "default".to_owned(),
            max_steps: 8,
            max_tokens: 256,
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
        }
    }
}

impl AgentOptions {
    pub const NAMES: &'static [&'static str] = &[
        "policy",
        "corpus",
        "corpus_version",
        "retriever",
        "k",
        "protocol",
        "prompts",
        "max_steps",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "seed",
    ];

    /// # Errors
    /// [`Error::UnknownOption`], [`Error::WrongType`] or, out of range, [`Error::InvalidParameter`]; nothing changes then.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "policy" => self.policy = text(name, value)?,
            "corpus" => self.corpus = text(name, value)?,
            "corpus_version" => self.corpus_version = Some(version(name, value)?),
            "retriever" => self.retriever = retriever(name, value)?,
            "k" => self.k = count(name, value, 1..=1000)?,
            "protocol" => self.protocol = text(name, value)?,
            "prompts" => self.prompts = text(name, value)?,
            "max_steps" => self.max_steps = count(name, value, 1..=64)?,
            "max_tokens" => self.max_tokens = count(name, value, 1..=32_768)?,
            "temperature" => self.temperature = temperature(name, value)?,
            "top_p" => self.top_p = share(name, value)?,
            "top_k" => self.top_k = top_k(name, value)?,
            "min_p" => self.min_p = fraction(name, value)?,
            "repetition_penalty" => self.repetition_penalty = penalty(name, value)?,
            "seed" => self.seed = integer(name, value)?,
            _ => return Err(unknown_option(name, "an agent", Self::NAMES)),
        }
        Ok(())
    }

    /// Checks that all options without a default are set.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] naming the first that is not.
    pub fn check_complete(&self) -> Result<()> {
        for (name, value, expected) in [("policy", &self.policy, "the name of a model"), ("corpus", &self.corpus, "the name of a table")] {
            if value.is_empty() {
                return Err(out_of_range(name, "(not set)", expected));
            }
        }
        Ok(())
    }
}

pub(super) fn integer(name: &str, value: &Value) -> Result<i64> {
    match value {
        Value::Int(value) => Ok(*value),
        _ => Err(wrong_type(name, value, "an integer")),
    }
}

pub(super) fn count(name: &str, value: &Value, range: RangeInclusive<i64>) -> Result<usize> {
    let value = integer(name, value)?;
    usize::try_from(value)
        .ok()
        .filter(|_| range.contains(&value))
        .ok_or_else(|| out_of_range(name, value, &format!("an integer from {} to {}", range.start(), range.end())))
}

/// Also as PostgreSQL reads them: `on`, `off`, `yes`, `no`, 1, 0.
pub(super) fn boolean(name: &str, value: &Value) -> Result<bool> {
    match value {
        Value::Bool(value) => Ok(*value),
        Value::Int(value @ (0 | 1)) => Ok(*value == 1),
        Value::Text(value) if matches!(value.as_str(), "on" | "yes") => Ok(true),
        Value::Text(value) if matches!(value.as_str(), "off" | "no") => Ok(false),
        _ => Err(wrong_type(name, value, "true or false")),
    }
}

fn number(name: &str, value: &Value, expected: &str, in_range: impl Fn(f64) -> bool) -> Result<f64> {
    let value = match value {
        // Exact up to 2^53, far beyond any range below.
        Value::Int(value) => *value as f64,
        Value::Float(value) => *value,
        _ => return Err(wrong_type(name, value, "a number")),
    };
    if value.is_finite() && in_range(value) { Ok(value) } else { Err(out_of_range(name, value, expected)) }
}

pub(super) fn temperature(name: &str, value: &Value) -> Result<f64> {
    number(name, value, "a number from 0 (greedy) to 100", |value| (0.0..=100.0).contains(&value))
}

pub(super) fn at_least_zero(name: &str, value: &Value) -> Result<f64> {
    number(name, value, "a number of at least 0", |value| value >= 0.0)
}

pub(super) fn share(name: &str, value: &Value) -> Result<f64> {
    number(name, value, "a number above 0 and at most 1", |value| value > 0.0 && value <= 1.0)
}

pub(super) fn fraction(name: &str, value: &Value) -> Result<f64> {
    number(name, value, "a number from 0 to 1", |value| (0.0..=1.0).contains(&value))
}

pub(super) fn top_k(name: &str, value: &Value) -> Result<usize> {
    count(name, value, 0..=TOP_K_MAX)
}

pub(super) fn penalty(name: &str, value: &Value) -> Result<f64> {
    // Logits have single precision: beyond it a number would be 0 or infinite.
    let in_range = |value: f64| value as f32 > 0.0 && (value as f32).is_finite();
    number(name, value, "a number above 0; 1 changes nothing", in_range)
}

pub(super) fn text(name: &str, value: &Value) -> Result<String> {
    match value {
        Value::Text(value) if value.trim().is_empty() => Err(out_of_range(name, "''", "a name")),
        Value::Text(value) => Ok(value.clone()),
        _ => Err(wrong_type(name, value, "a text")),
    }
}

/// One of several names.
pub(super) fn choice<T: Copy>(name: &str, value: &Value, choices: &[(&str, T)]) -> Result<T> {
    let found = text(name, value)?;
    if let Some((_, choice)) = choices.iter().find(|(known, _)| *known == found) {
        return Ok(*choice);
    }
    let known: Vec<String> = choices.iter().map(|(known, _)| (*known).to_owned()).collect();
    let quoted: Vec<String> = known.iter().map(|known| format!("'{known}'")).collect();
    let (last, first) = quoted.split_last().expect("an option has choices");
    let near = nearest(&found, &known).map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
    Err(out_of_range(name, format!("'{found}'"), &format!("{} or {last}{near}", first.join(", "))))
}

/// A number, or a text.
fn version(name: &str, value: &Value) -> Result<String> {
    match value {
        Value::Int(number) if *number > 0 => Ok(number.to_string()),
        Value::Int(number) => Err(out_of_range(name, number, "a version from 1, or a tag")),
        other => text(name, other),
    }
}

fn retriever(name: &str, value: &Value) -> Result<RetrieverKind> {
    let value = text(name, value)?;
    [RetrieverKind::Text, RetrieverKind::Vector, RetrieverKind::Hybrid]
        .into_iter()
        .find(|kind| kind.as_str() == value)
        .ok_or_else(|| out_of_range(name, format!("'{value}'"), "'text', 'vector' or 'hybrid'"))
}

fn wrong_type(name: &str, value: &Value, expected: &str) -> Error {
    let found = match value {
        Value::Int(value) => format!("the integer {value}"),
        Value::Float(value) => format!("the number {value}"),
        Value::Text(value) => format!("the text '{value}'"),
        Value::Bool(value) => format!("the boolean {value}"),
    };
    Error::WrongType { what: format!("option {name}"), found, expected: expected.to_owned() }
}

pub(super) fn out_of_range(name: &str, found: impl ToString, expected: &str) -> Error {
    Error::InvalidParameter { name: name.to_owned(), found: found.to_string(), expected: expected.to_owned() }
}

pub(super) fn unknown_option(name: &str, of: &str, known: &[&str]) -> Error {
    let known = known.iter().map(|&known| known.to_owned()).collect();
    Error::UnknownOption { kind: "option", name: name.to_owned(), of: of.to_owned(), known }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn agent_error(name: &str, value: Value, expected: Expect) {
        let before = AgentOptions::default();
        let mut options = before.clone();
        expected.assert_eq(&options.set(name, &value).unwrap_err().to_string());
        assert_eq!(options, before, "a refused option changes nothing");
    }

    #[test]
    fn errors_say_what_would_be_right() {
        use Value::{Bool, Float, Int, Text};
        agent_error("k", Int(0), expect!["k = 0: expected an integer from 1 to 1000"]);
        agent_error("k", Int(i64::MIN), expect!["k = -9223372036854775808: expected an integer from 1 to 1000"]);
        agent_error("max_steps", Int(65), expect!["max_steps = 65: expected an integer from 1 to 64"]);
        agent_error("k", Text("3".into()), expect!["option k is the text '3', expected an integer"]);
        agent_error("temperature", Float(-0.1), expect!["temperature = -0.1: expected a number from 0 (greedy) to 100"]);
        agent_error("temperature", Float(f64::NAN), expect!["temperature = NaN: expected a number from 0 (greedy) to 100"]);
        agent_error("top_k", Int(-1), expect!["top_k = -1: expected an integer from 0 to 1000000"]);
        agent_error("min_p", Float(1.1), expect!["min_p = 1.1: expected a number from 0 to 1"]);
        agent_error("repetition_penalty", Int(0), expect!["repetition_penalty = 0: expected a number above 0; 1 changes nothing"]);
        agent_error(
            "repetition_penalty",
            Float(1e39),
            expect!["repetition_penalty = 1000000000000000000000000000000000000000: expected a number above 0; 1 changes nothing"],
        );
        agent_error("policy", Bool(true), expect!["option policy is the boolean true, expected a text"]);
        agent_error("policy", Text(" ".into()), expect!["policy = '': expected a name"]);
        agent_error("retriever", Text("bm25".into()), expect!["retriever = 'bm25': expected 'text', 'vector' or 'hybrid'"]);
        agent_error(
            "max_step",
            Int(1),
            expect![[
                r#"unknown option "max_step" of an agent; did you mean "max_steps"?; it has: policy, corpus, corpus_version, retriever, k, protocol, prompts, max_steps, max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, seed"#
            ]],
        );
    }

    #[test]
    fn every_listed_name_can_be_set() {
        let candidates = [Value::Int(1), Value::Text("hybrid".to_owned())];
        let mut agent = AgentOptions::default();
        for name in AgentOptions::NAMES {
            assert!(candidates.iter().any(|value| agent.set(name, value).is_ok()), "{name}");
        }
        agent.check_complete().unwrap();
    }

    #[test]
    fn an_agent_needs_a_policy_and_a_corpus() {
        let mut options = AgentOptions { policy: "tinyhop".to_owned(), ..AgentOptions::default() };
        expect!["corpus = (not set): expected the name of a table"].assert_eq(&options.check_complete().unwrap_err().to_string());
        options.corpus = "wiki".to_owned();
        options.check_complete().unwrap();
    }

    #[test]
    fn agents_are_stored_as_json() {
        let options = AgentOptions { policy: "tinyhop@2".to_owned(), ..AgentOptions::default() };
        let json = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<AgentOptions>(&json).unwrap(), options);
        let older: AgentOptions = serde_json::from_str(r#"{"policy":"p","retriever":"text"}"#).unwrap();
        assert_eq!(older.k, 3, "an option that an older version did not have gets its default");
    }
}
