//! What comes back: completions, each with its part of what the request took.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::complaint::told;
use super::content;
use super::failure::{Fault, FaultKind};
use super::options::{Api, RemoteOptions};
use crate::models::calls::Calls;
use crate::price::Price;

/// Ends of a choice that its server gave up: vLLM and SGLang, gateways.
const GIVEN_UP: [&str; 2] = ["error", "abort"];

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
    /// Whether the server told the tokens that the request took, and they are no guess.
    #[serde(default)]
    pub is_usage_told: bool,
    /// Whether the server says that this is all: false for an empty text without an end of its own, or with thoughts beside it. Only answers are kept.
    #[serde(default)]
    pub is_answer: bool,
    /// The tokens of the prompt; empty if the server does not tell.
    #[serde(default)]
    pub prompt_ids: Vec<u32>,
    /// Of its part of the request, at the prices of the model, which are not kept with the answer.
    #[serde(skip)]
    pub cost: Price,
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
    /// Of all of them.
    pub tokens: TokenCounts,
}

/// What is paid for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TokenCounts {
    pub prompt: u64,
    pub cached: u64,
    pub generated: u64,
    /// Whether the server told them.
    pub is_told: bool,
}

impl TokenCounts {
    /// As the server tells them, or else, of a stream, as many as there were pieces.
    fn read(body: &Json) -> Self {
        let count = |path: &str| body.pointer(path).and_then(Json::as_u64);
        let (prompt, generated) = (count("/usage/prompt_tokens"), count("/usage/completion_tokens"));
        Self {
            prompt: prompt.unwrap_or(0),
            cached: count("/usage/prompt_tokens_details/cached_tokens").unwrap_or(0),
            generated: generated.or_else(|| count("/pieces")).unwrap_or(0),
            // No prompt has no token: there are servers that say 0 of what they have not counted.
            is_told: prompt.is_some_and(|prompt| prompt > 0) && generated.is_some(),
        }
    }

    /// With what they cost, for those that count what a statement takes.
    pub fn paid(self, options: &RemoteOptions) -> Calls {
        let Self { prompt, cached, generated, is_told: _ } = self;
        let cost = options.price(self);
        Calls { prompt_tokens: prompt, cached_tokens: cached, generated_tokens: generated, cost, ..Calls::default() }
    }
}

impl RemoteCompletion {
    /// As it was kept; None for an empty text of an earlier version, which kept what was no answer too.
    pub fn kept(mut self) -> Option<Self> {
        if !self.is_answer {
            if self.text.trim().is_empty() {
                return None;
            }
            self.is_answer = true;
            self.is_usage_told = self.prompt_tokens > 0;
        }
        Some(self)
    }
}

impl Answer {
    /// Reads the body of an answer with a status of success.
    ///
    /// # Errors
    /// [`FaultKind::Malformed`], [`FaultKind::Cut`], or what the body says has gone wrong.
    pub fn read(body: &Json, wanted: Wanted<'_>) -> Result<Self, Fault> {
        if let Some(fault) = told(body) {
            return Err(fault);
        }
        let mut choices: Vec<&Json> = body.get("choices").and_then(Json::as_array).into_iter().flatten().collect();
        if choices.is_empty() {
            return Err(malformed(&format!("it has no choices: {body}")));
        }
        choices.sort_by_key(|choice| choice.get("index").and_then(Json::as_u64).unwrap_or(0));
        choices.truncate(wanted.num_samples);
        let mut completions = choices.iter().map(|choice| completion(choice, wanted)).collect::<Result<Vec<_>, _>>()?;
        for (choice, completion) in choices.iter().zip(&mut completions) {
            let ids = body.get("prompt_token_ids").or_else(|| choice.get("prompt_token_ids")).and_then(Json::as_array);
            completion.prompt_ids = ids.and_then(|ids| ids.iter().map(id).collect()).unwrap_or_default();
        }
        let tokens = TokenCounts::read(body);
        share(tokens, &mut completions);
        Ok(Self { completions, tokens })
    }

    /// Completions that are no answers.
    pub fn num_unanswered(&self) -> usize {
        self.completions.iter().filter(|completion| !completion.is_answer).count()
    }
}

pub(super) fn malformed(what: &str) -> Fault {
    Fault::new(FaultKind::Malformed, what)
}

/// One choice, without the tokens that it has cost.
fn completion(choice: &Json, wanted: Wanted<'_>) -> Result<RemoteCompletion, Fault> {
    if let Some(fault) = told(choice).filter(|_| choice.get("error").is_some_and(content::is_said)) {
        return Err(fault);
    }
    let (message, said) = message(choice, wanted.api)?;
    let text = content::text(said)?.unwrap_or_default();
    let is_blank = text.trim().is_empty();
    let end = choice.get("finish_reason").and_then(Json::as_str).filter(|end| !end.is_empty());
    let is_given_up = end.is_some_and(|end| GIVEN_UP.contains(&end));
    if is_given_up && !is_blank {
        return Err(Fault::new(FaultKind::Cut, format!("finish_reason \"{}\" in the middle of its text", end.unwrap_or_default())));
    }
    let is_answer = !is_blank || end.is_some() && !is_given_up && content::reasoning(message).is_none();
    let (text, is_cut) = cut(text, wanted.stop);
    let (token_ids, token_logprobs) = tokens(choice);
    let stopped = is_cut || is_stopped(choice, wanted.stop);
    Ok(RemoteCompletion { text, stopped, token_ids, token_logprobs, is_answer, ..RemoteCompletion::default() })
}

/// Where the words of a choice stand, and its field of them.
fn message(choice: &Json, api: Api) -> Result<(&Json, Option<&Json>), Fault> {
    match api {
        Api::Chat => match choice.get("message").filter(|message| message.is_object()) {
            Some(message) => Ok((message, message.get("content"))),
            None => Err(malformed(&format!("its choice has no message: {choice}"))),
        },
        Api::Completions if choice.is_object() && (choice.get("text").is_some() || choice.get("message").is_none()) => {
            Ok((choice, choice.get("text")))
        }
        Api::Completions => Err(malformed(&format!("its choice has no text: {choice}"))),
    }
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
        completion.is_usage_told = tokens.is_told;
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
    // vLLM's, of both; llama.cpp's; vLLM's and SGLang's names of tokens that are their ids.
    let beside = || list("/logprobs/content")?.iter().map(|token| id(token.get("id")?)).collect::<Option<Vec<u32>>>();
    let named = || names.iter().map(|name| name.as_str()?.strip_prefix("token_id:")?.parse().ok()).collect();
    let ids: Option<Vec<u32>> = match list("/token_ids") {
        Some(ids) => ids.iter().map(id).collect(),
        None => beside().or_else(named),
    };
    let logprobs: Option<Vec<f32>> = logprobs.iter().map(|logprob| logprob.as_f64().map(|logprob| logprob as f32)).collect();
    (ids.unwrap_or_default(), logprobs.unwrap_or_default())
}

fn id(id: &Json) -> Option<u32> {
    u32::try_from(id.as_u64()?).ok()
}
