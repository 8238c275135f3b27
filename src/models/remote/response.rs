//! What comes back: a completion, or what a server says instead of one.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::failure::{Fault, FaultKind};
use super::options::Api;

/// Of what a server says, as much as a message shows.
const DETAIL_CHARS: usize = 300;

/// A completion by a server, as it is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RemoteCompletion {
    /// Cut before the stop text.
    pub text: String,
    /// Whether a stop text ended it. Where the server does not tell stop texts from end-of-text, this is true for both.
    pub stopped: bool,
    /// Empty if the server does not tell.
    pub token_ids: Vec<u32>,
    /// Natural logarithms; empty if the server does not tell.
    pub token_logprobs: Vec<f32>,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub generated_tokens: u64,
}

impl RemoteCompletion {
    /// Reads the body of an answer with status 200. `stop`: what the request named.
    ///
    /// # Errors
    /// [`FaultKind::Malformed`]; some servers answer 200 with an error.
    pub(super) fn read(api: Api, body: &[u8], stop: &[String]) -> Result<Self, Fault> {
        let malformed = |what: &str| Fault::new(FaultKind::Malformed, what);
        let body: Json = serde_json::from_slice(body).map_err(|_| malformed("its body is not whole JSON"))?;
        let choice = body.pointer("/choices/0").ok_or_else(|| malformed("it has no choices"))?;
        let content = match api {
            Api::Chat => choice.pointer("/message/content"),
            Api::Completions => choice.get("text"),
        };
        let text = match content {
            Some(Json::String(text)) => text.clone(),
            // A refusal, or a filter.
            Some(Json::Null) => String::new(),
            _ => return Err(malformed("its choice has no text")),
        };
        let (text, is_cut) = cut(text, stop);
        let (token_ids, token_logprobs) = tokens(choice);
        let count = |path: &str| body.pointer(path).and_then(Json::as_u64).unwrap_or(0);
        Ok(Self {
            text,
            stopped: is_cut || is_stopped(choice, stop),
            token_ids,
            token_logprobs,
            prompt_tokens: count("/usage/prompt_tokens"),
            cached_tokens: count("/usage/prompt_tokens_details/cached_tokens"),
            generated_tokens: count("/usage/completion_tokens"),
        })
    }
}

/// Without the first stop text and what follows it: there are servers that keep it, and some that know none.
fn cut(mut text: String, stop: &[String]) -> (String, bool) {
    let first = stop.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| text.find(stop.as_str())).min();
    if let Some(first) = first {
        text.truncate(first);
    }
    (text, first.is_some())
}

/// Whether a stop text ended it. OpenAI's `finish_reason` is `stop` at end-of-text too; vLLM's `stop_reason` and SGLang's `matched_stop` are the text
/// then, and null or the number of a token at end-of-text.
fn is_stopped(choice: &Json, stop: &[String]) -> bool {
    let is_finished = choice.get("finish_reason").and_then(Json::as_str) == Some("stop");
    let told = ["stop_reason", "matched_stop"].into_iter().find_map(|name| choice.get(name));
    is_finished && stop.iter().any(|stop| !stop.is_empty()) && told.is_none_or(Json::is_string)
}

/// Ids and log-probabilities of the sampled tokens, each empty unless all are there.
fn tokens(choice: &Json) -> (Vec<u32>, Vec<f32>) {
    let list = |path: &str| choice.pointer(path).and_then(Json::as_array);
    let (names, logprobs): (Vec<&Json>, Vec<&Json>) = match (list("/logprobs/content"), list("/logprobs/token_logprobs")) {
        (Some(content), _) => content.iter().map(|token| (&token["token"], &token["logprob"])).unzip(),
        (None, Some(logprobs)) => (list("/logprobs/tokens").into_iter().flatten().collect(), logprobs.iter().collect()),
        (None, None) => (Vec::new(), Vec::new()),
    };
    let id = |id: &Json| id.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids: Option<Vec<u32>> = match list("/token_ids") {
        Some(ids) => ids.iter().map(id).collect(),
        None => names.iter().map(|name| name.as_str()?.strip_prefix("token_id:")?.parse().ok()).collect(),
    };
    let logprobs: Option<Vec<f32>> = logprobs.iter().map(|logprob| logprob.as_f64().map(|logprob| logprob as f32)).collect();
    (ids.unwrap_or_default(), logprobs.unwrap_or_default())
}

/// What a server says with a status that is none of success: its own words, and whether the account has nothing left.
pub(super) fn complaint(body: &[u8]) -> (String, bool) {
    let Ok(json) = serde_json::from_slice::<Json>(body) else { return (String::from_utf8_lossy(body).into_owned(), false) };
    let is_empty =
        ["/error/code", "/error/type"].iter().any(|path| json.pointer(path).and_then(Json::as_str) == Some("insufficient_quota"));
    let words = ["/error/message", "/message", "/detail", "/error"].iter().find_map(|path| json.pointer(path).and_then(Json::as_str));
    (words.map_or_else(|| json.to_string(), str::to_owned), is_empty)
}

/// On one line, and not too long.
pub(super) fn shown(text: &str) -> String {
    let line: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    let line = line.join(" ");
    match line.char_indices().nth(DETAIL_CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
