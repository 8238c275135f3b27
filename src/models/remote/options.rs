//! Options of a remote model: names, defaults and ranges.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use url::Url;

use super::response::{RemoteCompletion, TokenCounts};
use crate::error::{Error, Result};
use crate::price::Price;
use crate::value::Value;

/// The scheme of the source.
pub const SCHEME: &str = "openai://";

const OPENAI_URL: &str = "https://api.openai.com/v1";
const URLS_MAX: usize = 64;
const MODEL_LEN_MAX: usize = 256;
const OF: &str = "CREATE MODEL from openai://";
/// What the rest of a request already says.
const OWN_FIELDS: [&str; 5] = ["model", "messages", "prompt", "stream", "n"];
/// One more of them, which may be taken away: there are servers that know no seed.
const SEED_FIELD: &str = "seed";
/// As many as OpenAI gives at once.
const SAMPLES_PER_REQUEST_MAX: i64 = 128;
const CONTEXT_LENGTH_MAX: i64 = 100_000_000;

/// Which of the two ways to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// `/chat/completions`: the prompt is one message of the user, and the server's chat template stands round it.
    Chat,
    /// `/completions`: the prompt as it is.
    Completions,
}

/// Where a remote model is and how it is asked; part of its version, which never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RemoteOptions {
    /// What its servers call it.
    pub model: String,
    /// At least one, without a slash at the end.
    pub base_urls: Vec<String>,
    /// The name of the secret that is the key; without one, none is sent.
    pub secret: Option<String>,
    pub api: Api,
    /// Requests in flight.
    pub concurrency: usize,
    pub requests_per_minute: Option<usize>,
    /// Seconds that one attempt may take.
    pub timeout: f64,
    /// Attempts after the first.
    pub retries: usize,
    /// Per million tokens.
    pub price_input: Option<f64>,
    /// Per million tokens of the prompt that the server had cached; as others if not given.
    pub price_cached: Option<f64>,
    /// Per million tokens.
    pub price_output: Option<f64>,
    /// Whether answers are kept on the disk.
    pub cache: bool,
    /// Whether servers are asked for log-probabilities.
    pub logprobs: bool,
    /// Whether answers are read as they are written.
    #[serde(default)]
    pub stream: bool,
    /// Seconds that a server may pause in the middle of a text that is read so.
    #[serde(default = "idle_timeout")]
    pub idle_timeout: f64,
    /// Samples of one prompt that go out as one request.
    #[serde(default = "samples_per_request")]
    pub samples_per_request: usize,
    /// Tokens that the model can read and write; None: only the server knows.
    #[serde(default)]
    pub context_length: Option<usize>,
    /// Further fields of every request; null takes one away.
    pub extra: Map<String, Json>,
}

impl RemoteOptions {
    pub const NAMES: &'static [&'static str] = &[
        "task",
        "base_url",
        "secret",
        "api",
        "concurrency",
        "requests_per_minute",
        "timeout",
        "retries",
        "price_input",
        "price_cached",
        "price_output",
        "cache",
        "logprobs",
        "stream",
        "idle_timeout",
        "samples_per_request",
        "context_length",
        "extra",
    ];

    /// The options of `CREATE MODEL ... FROM 'openai://...'`.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::WrongType`], [`Error::InvalidParameter`].
    pub fn read(source: &str, options: &[(String, Value)]) -> Result<Self> {
        let mut read = Self {
            model: model_name(source)?,
            base_urls: vec![OPENAI_URL.to_owned()],
            secret: None,
            api: Api::Chat,
            concurrency: 16,
            requests_per_minute: None,
            timeout: 120.0,
            retries: 5,
            price_input: None,
            price_cached: None,
            price_output: None,
            cache: true,
            logprobs: false,
            stream: false,
            idle_timeout: idle_timeout(),
            samples_per_request: samples_per_request(),
            context_length: None,
            extra: Map::new(),
        };
        for (name, value) in options {
            read.set(name, value)?;
        }
        Ok(read)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "base_url" => self.base_urls = base_urls(text(name, value)?)?,
            "secret" => self.secret = Some(text(name, value)?.to_owned()),
            "api" => self.api = api(text(name, value)?)?,
            "concurrency" => self.concurrency = count(name, value, 1..=1024)?,
            "requests_per_minute" => self.requests_per_minute = Some(count(name, value, 1..=1_000_000)?),
            "timeout" => self.timeout = seconds(name, value)?,
            "retries" => self.retries = count(name, value, 0..=100)?,
            "price_input" => self.price_input = Some(price(name, value)?),
            "price_cached" => self.price_cached = Some(price(name, value)?),
            "price_output" => self.price_output = Some(price(name, value)?),
            "cache" => self.cache = boolean(name, value)?,
            "logprobs" => self.logprobs = boolean(name, value)?,
            "stream" => self.stream = boolean(name, value)?,
            "idle_timeout" => self.idle_timeout = seconds(name, value)?,
            "samples_per_request" => self.samples_per_request = count(name, value, 1..=SAMPLES_PER_REQUEST_MAX)?,
            "context_length" => self.context_length = Some(count(name, value, 1..=CONTEXT_LENGTH_MAX)?),
            "extra" => self.extra = extra(text(name, value)?)?,
            _ => {
                let known = Self::NAMES.iter().map(|known| (*known).to_owned()).collect();
                return Err(Error::UnknownOption { kind: "option", name: name.to_owned(), of: OF.to_owned(), known });
            }
        }
        Ok(())
    }

    /// The samples of one request with what each costs: the prompt is paid for once, with the first of them.
    pub(super) fn priced(&self, completions: &[RemoteCompletion]) -> Vec<RemoteCompletion> {
        let mut priced = completions.to_vec();
        for (index, completion) in priced.iter_mut().enumerate() {
            let (prompt, cached) = if index == 0 { (completion.prompt_tokens, completion.cached_tokens) } else { (0, 0) };
            let (generated, is_told) = (completion.generated_tokens, completion.is_usage_told);
            completion.cost = self.price(TokenCounts { prompt, cached, generated, is_told });
        }
        priced
    }

    /// Of tokens that a server told, or did not.
    pub(super) fn price(&self, tokens: TokenCounts) -> Price {
        match self.cost(tokens.prompt, tokens.cached, tokens.generated) {
            Some(_) if !tokens.is_told => Price::Unknown,
            cost => cost.into(),
        }
    }

    /// Of these tokens; None without prices.
    pub fn cost(&self, prompt_tokens: u64, cached_tokens: u64, generated_tokens: u64) -> Option<f64> {
        if self.price_input.is_none() && self.price_output.is_none() {
            return None;
        }
        let price_input = self.price_input.unwrap_or(0.0);
        let read = prompt_tokens.saturating_sub(cached_tokens) as f64 * price_input;
        let cached = cached_tokens as f64 * self.price_cached.unwrap_or(price_input);
        let written = generated_tokens as f64 * self.price_output.unwrap_or(0.0);
        Some((read + cached + written) / 1e6)
    }
}

/// What stands after `openai://`: names of models have slashes, dots and colons in them.
fn model_name(source: &str) -> Result<String> {
    let name = source.strip_prefix(SCHEME).unwrap_or(source);
    let is_name = !name.is_empty() && name.len() <= MODEL_LEN_MAX && name.chars().all(|c| !c.is_control() && !c.is_whitespace());
    if is_name {
        return Ok(name.to_owned());
    }
    Err(invalid("source", &format!("'{source}'"), "openai:// and the name that the server gives the model, as in openai://gpt-4o"))
}

/// One, or several between commas. What is no base URL is not repeated: it may hold a password.
fn base_urls(text: &str) -> Result<Vec<String>> {
    let expected = "https://host/v1, or several between commas, without user, password, query and fragment; CREATE SECRET keeps keys";
    let refuse = || invalid("base_url", "something else", expected);
    let mut urls = Vec::new();
    for text in text.split(',').map(str::trim) {
        let url = Url::parse(text).map_err(|_| refuse())?;
        let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
        // Line breaks are left out of a URL where it is read, so that it would not be the one that stands there.
        let is_one_line = !text.contains(char::is_control);
        if !matches!(url.scheme(), "http" | "https") || !is_bare || !is_one_line || url.host().is_none() {
            return Err(refuse());
        }
        let url = url.as_str().trim_end_matches('/').to_owned();
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
    if urls.len() > URLS_MAX {
        return Err(invalid("base_url", &format!("{} URLs", urls.len()), &format!("at most {URLS_MAX}")));
    }
    Ok(urls)
}

fn api(text: &str) -> Result<Api> {
    match text {
        "chat" => Ok(Api::Chat),
        "completions" => Ok(Api::Completions),
        other => Err(invalid("api", &format!("'{other}'"), "'chat' or 'completions'")),
    }
}

fn extra(text: &str) -> Result<Map<String, Json>> {
    let Ok(Json::Object(fields)) = serde_json::from_str(text) else {
        return Err(invalid("extra", "another text", "a JSON object, as in '{\"top_k\": 20}'"));
    };
    let is_own = |name: &str, value: &Json| OWN_FIELDS.contains(&name) || name == SEED_FIELD && !value.is_null();
    match fields.iter().find(|(name, value)| is_own(name, value)) {
        Some((name, _)) => Err(invalid("extra", &format!("a field \"{name}\""), "fields that a request does not have by itself")),
        None => Ok(fields),
    }
}

/// Of a version that was made before there was the option, too.
fn idle_timeout() -> f64 {
    30.0
}

/// As [`idle_timeout`].
fn samples_per_request() -> usize {
    1
}

fn seconds(name: &str, value: &Value) -> Result<f64> {
    number(name, value, "seconds from 0.001 to 86400", 0.001..=86_400.0)
}

fn price(name: &str, value: &Value) -> Result<f64> {
    number(name, value, "the price of a million tokens, at least 0", 0.0..=1e9)
}

pub(in crate::models) fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str> {
    match value {
        Value::Text(text) if !text.trim().is_empty() => Ok(text),
        Value::Text(_) => Err(invalid(name, "''", "a text")),
        other => Err(wrong_type(name, other, "a text")),
    }
}

fn boolean(name: &str, value: &Value) -> Result<bool> {
    match value {
        Value::Bool(boolean) => Ok(*boolean),
        other => Err(wrong_type(name, other, "true or false")),
    }
}

pub(in crate::models) fn count(name: &str, value: &Value, range: RangeInclusive<i64>) -> Result<usize> {
    let expected = format!("a whole number from {} to {}", range.start(), range.end());
    match value {
        Value::Int(count) if range.contains(count) => Ok(*count as usize),
        Value::Int(count) => Err(invalid(name, &count.to_string(), &expected)),
        other => Err(wrong_type(name, other, &expected)),
    }
}

pub(in crate::models) fn number(name: &str, value: &Value, expected: &str, range: RangeInclusive<f64>) -> Result<f64> {
    let number = match value {
        Value::Int(integer) => *integer as f64,
        Value::Float(float) => *float,
        other => return Err(wrong_type(name, other, expected)),
    };
    if range.contains(&number) { Ok(number) } else { Err(invalid(name, &number.to_string(), expected)) }
}

fn invalid(name: &str, found: &str, expected: &str) -> Error {
    Error::InvalidParameter { name: name.to_owned(), found: found.to_owned(), expected: expected.to_owned() }
}

fn wrong_type(name: &str, found: &Value, expected: &str) -> Error {
    Error::WrongType { what: format!("option {name}"), found: found.to_string(), expected: expected.to_owned() }
}
