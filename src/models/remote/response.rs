//! What comes back: completions, or what a server says instead.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::failure::{Fault, FaultKind};
use super::options::{Api, RemoteOptions};
use crate::models::calls::Calls;

/// Statuses of a request that the server cannot take: with them the words decide what is wrong with it.
const REFUSALS: [u16; 3] = [400, 413, 422];

/// Codes and types of a prompt that is too long: OpenAI's and llama.cpp's.
const CONTEXT_CODES: [&str; 2] = ["context_length_exceeded", "exceed_context_size_error"];

/// The same in words: OpenAI, vLLM, DeepSeek, Mistral and llama-cpp-python; vLLM's engine; SGLang; llama.cpp; text-generation-inference; gateways.
const CONTEXT_WORDS: [&str; 9] = [
    "maximum context length",
    "longer than the maximum model length",
    "too long to fit into the model",
    "longer than the model's context length",
    "exceeds the available context size",
    "exceed context window",
    "`inputs` tokens + `max_new_tokens` must be",
    "prompt is too long",
    "exceeds the maximum number of tokens",
];

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
    /// Of the samples of one request, all but the first have read a prompt that was there.
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    /// Of its part of the request; None without prices, which are the model's and not kept with the answer.
    #[serde(skip)]
    pub cost: Option<f64>,
}

/// What of an answer is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub api: Api,
    /// What the request named.
    pub stop: &'a [String],
    /// At least 1.
    pub num_samples: usize,
}

/// An answer of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    /// At least one; fewer than were wanted if the server gives no more.
    pub completions: Vec<RemoteCompletion>,
    /// Of all of them, as the server counts.
    pub tokens: TokenCounts,
}

/// What is paid for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TokenCounts {
    pub prompt: u64,
    pub cached: u64,
    pub generated: u64,
}

impl TokenCounts {
    /// With what they cost, for those that count what a statement takes.
    pub fn paid(self, options: &RemoteOptions) -> Calls {
        let Self { prompt, cached, generated } = self;
        let cost = options.cost(prompt, cached, generated);
        Calls { prompt_tokens: prompt, cached_tokens: cached, generated_tokens: generated, cost, ..Calls::default() }
    }
}

impl Answer {
    /// Reads the body of an answer with status 200.
    ///
    /// # Errors
    /// [`FaultKind::Malformed`]; some servers answer 200 with an error.
    pub fn read(body: &Json, wanted: Wanted<'_>) -> Result<Self, Fault> {
        let mut choices: Vec<&Json> = body.get("choices").and_then(Json::as_array).into_iter().flatten().collect();
        if choices.is_empty() {
            return Err(no_choices(body));
        }
        choices.sort_by_key(|choice| choice.get("index").and_then(Json::as_u64).unwrap_or(0));
        choices.truncate(wanted.num_samples);
        let mut completions = choices.iter().map(|choice| completion(choice, wanted)).collect::<Result<Vec<_>, _>>()?;
        let count = |path: &str| body.pointer(path).and_then(Json::as_u64).unwrap_or(0);
        let tokens = TokenCounts {
            prompt: count("/usage/prompt_tokens"),
            cached: count("/usage/prompt_tokens_details/cached_tokens"),
            generated: count("/usage/completion_tokens"),
        };
        share(tokens, &mut completions);
        Ok(Self { completions, tokens })
    }
}

fn malformed(what: &str) -> Fault {
    Fault::new(FaultKind::Malformed, what)
}

fn no_choices(body: &Json) -> Fault {
    match complaint(None, body.to_string().as_bytes()) {
        (words, FaultKind::ContextFull) => Fault::new(FaultKind::ContextFull, words),
        _ => malformed("it has no choices"),
    }
}

/// One choice, without the tokens that it has cost.
fn completion(choice: &Json, wanted: Wanted<'_>) -> Result<RemoteCompletion, Fault> {
    let content = match wanted.api {
        Api::Chat => choice.pointer("/message/content"),
        Api::Completions => choice.get("text"),
    };
    let text = match content {
        Some(Json::String(text)) => text.clone(),
        // A refusal, or a filter.
        Some(Json::Null) => String::new(),
        _ => return Err(malformed("its choice has no text")),
    };
    let (text, is_cut) = cut(text, wanted.stop);
    let (token_ids, token_logprobs) = tokens(choice);
    let stopped = is_cut || is_stopped(choice, wanted.stop);
    Ok(RemoteCompletion { text, stopped, token_ids, token_logprobs, ..RemoteCompletion::default() })
}

/// Gives each completion its part of what the request has cost. The prompt was read once; what was written is told as a sum, and is shared out by the
/// tokens that are known, or else by the lengths of the texts.
fn share(tokens: TokenCounts, completions: &mut [RemoteCompletion]) {
    let known = |completion: &RemoteCompletion| completion.token_ids.len().max(completion.token_logprobs.len()) as u64;
    let is_known = completions.iter().all(|completion| known(completion) > 0);
    let weight = |completion: &RemoteCompletion| if is_known { known(completion) } else { completion.text.chars().count() as u64 + 1 };
    let whole: u64 = completions.iter().map(weight).sum();
    let up_to = |weight: u64| (u128::from(tokens.generated) * u128::from(weight) / u128::from(whole.max(1))) as u64;
    let mut before = 0;
    for (index, completion) in completions.iter_mut().enumerate() {
        let after = before + weight(completion);
        completion.prompt_tokens = tokens.prompt;
        completion.cached_tokens = if index == 0 { tokens.cached } else { tokens.prompt };
        completion.generated_tokens = up_to(after) - up_to(before);
        before = after;
    }
}

/// Where the stop text begins that is whole first: a server that knows it writes no further, whatever else has begun there.
pub(super) fn first_stop(text: &str, stop: &[String]) -> Option<usize> {
    let found = stop.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| Some((text.find(stop.as_str())?, stop.len())));
    found.min_by_key(|(start, len)| (start + len, *start)).map(|(start, _)| start)
}

/// Without the first stop text and what follows it: there are servers that keep it, and some that know none.
fn cut(mut text: String, stop: &[String]) -> (String, bool) {
    let first = first_stop(&text, stop);
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

/// What a server says instead of an answer: its own words, and what kind of fault that is. `status`: None if it says so with status 200.
pub(super) fn complaint(status: Option<u16>, body: &[u8]) -> (String, FaultKind) {
    let Ok(json) = serde_json::from_slice::<Json>(body) else {
        let words = String::from_utf8_lossy(body).into_owned();
        let kind = complaint_kind(status, &Json::Null, &words);
        return (words, kind);
    };
    let words = ["/error/message", "/message", "/detail", "/error"].iter().find_map(|path| json.pointer(path).and_then(Json::as_str));
    let words = words.map_or_else(|| json.to_string(), str::to_owned);
    let kind = complaint_kind(status, &json, &words);
    (words, kind)
}

fn complaint_kind(status: Option<u16>, json: &Json, words: &str) -> FaultKind {
    let codes: Vec<&Json> = ["/error/code", "/error/type", "/code", "/type"].iter().filter_map(|path| json.pointer(path)).collect();
    let has_code = |wanted: &str| codes.iter().any(|code| code.as_str() == Some(wanted));
    if has_code("insufficient_quota") {
        return FaultKind::Quota;
    }
    let told = codes.iter().find_map(|code| u16::try_from(code.as_u64()?).ok()).filter(|code| (400..600).contains(code));
    let status = status.or(told);
    let lower = words.to_lowercase();
    let is_refusal = status.is_none_or(|status| REFUSALS.contains(&status));
    if CONTEXT_CODES.iter().any(|code| has_code(code)) || is_refusal && CONTEXT_WORDS.iter().any(|words| lower.contains(words)) {
        return FaultKind::ContextFull;
    }
    // In the middle of a stream, a server that says no more has failed.
    FaultKind::Status(status.unwrap_or(500))
}
