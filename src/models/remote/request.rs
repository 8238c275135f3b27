//! What is sent: the body of a request, and the key under which its answer is kept.

use bytes::Bytes;
use ring::digest::{Context, SHA256};
use rolloutdb_udfs::model::GenerateOptions;
use serde_json::{Map, Value as Json, json};

use super::options::{Api, RemoteOptions};

/// The host that calls the limit by its newer name, and whose newest models refuse the older one.
const OPENAI_HOST: &str = "://api.openai.com/";

/// One prompt to complete.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RemoteRequest<'a> {
    pub prompt: &'a str,
    /// Bytes of the prompt at which somebody else goes on: first the model, then the user, and so on in turn. A chat is asked by as many messages.
    pub turns: &'a [usize],
    /// At least 1.
    pub max_tokens: usize,
    pub temperature: f64,
    pub top_p: f64,
    /// vLLM and SGLang take it and the next two; they are sent if they are set.
    pub top_k: usize,
    pub min_p: f64,
    pub repetition_penalty: f64,
    pub seed: u64,
    /// Texts that end a completion; an empty one is ignored.
    pub stop: &'a [String],
}

impl<'a> RemoteRequest<'a> {
    /// As SQL's `generate` asks.
    pub fn new(prompt: &'a str, options: &'a GenerateOptions) -> Self {
        let GenerateOptions { max_tokens, temperature, top_p, seed, ref stop, top_k, min_p, repetition_penalty } = *options;
        Self { prompt, turns: &[], max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, seed, stop }
    }
}

/// What an answer depends on: eight bytes that tell its [`AnswerSource`], then of SHA-256 over source and request. Requests with one key have one answer.
pub(super) type Key = [u8; 32];

const SOURCE_BYTES: usize = 8;

/// Where answers come from: the models with the same servers, API, secret and name there have one, and so the same answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerSource([u8; SOURCE_BYTES]);

impl AnswerSource {
    /// Of the answer that is kept under a key.
    pub(super) fn of(key: &Key) -> Self {
        let mut source = [0; SOURCE_BYTES];
        source.copy_from_slice(&key[..SOURCE_BYTES]);
        Self(source)
    }
}

impl RemoteOptions {
    /// Below the base URL.
    pub(super) fn path(&self) -> &'static str {
        match self.api {
            Api::Chat => "chat/completions",
            Api::Completions => "completions",
        }
    }

    pub fn answer_source(&self) -> AnswerSource {
        AnswerSource::of(&self.source_digest())
    }

    /// The body of a request for so many samples, as JSON.
    pub(super) fn body(&self, request: &RemoteRequest<'_>, num_samples: usize) -> Bytes {
        let mut body = self.fields(request);
        // One of the servers that we know streams unless it is told.
        body.insert("stream".to_owned(), json!(self.stream));
        if self.stream && !self.extra.contains_key("stream_options") {
            body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
        }
        if num_samples > 1 {
            body.insert("n".to_owned(), json!(num_samples));
        }
        Json::Object(body).to_string().into()
    }

    /// How an answer travels is no part of its key. Seed and stop texts are, where they are not sent too: the samples of a server that knows no seed
    /// differ, and so does what is left of a text that is cut here.
    pub(super) fn key(&self, request: &RemoteRequest<'_>, num_samples: usize) -> Key {
        let source = self.source_digest();
        let rest = json!([short_seed(request.seed), stop_texts(request), num_samples]);
        let mut context = Context::new(&SHA256);
        context.update(&source);
        for part in [rest, Json::Object(self.fields(request))] {
            context.update(part.to_string().as_bytes());
            context.update(b"\n");
        }
        let mut key = Key::default();
        key[..SOURCE_BYTES].copy_from_slice(&source[..SOURCE_BYTES]);
        key[SOURCE_BYTES..].copy_from_slice(&context.finish().as_ref()[..32 - SOURCE_BYTES]);
        key
    }

    /// The servers are part of it, since two of them may have different models by one name, and so is the name of the secret.
    fn source_digest(&self) -> Key {
        let mut urls: Vec<&str> = self.base_urls.iter().map(String::as_str).collect();
        urls.sort_unstable();
        // Who may use one key may not read what another one paid for.
        let secret = self.secret.as_deref().unwrap_or_default();
        let mut context = Context::new(&SHA256);
        for part in ["3", self.path(), &urls.join(" "), secret, &self.model] {
            context.update(part.as_bytes());
            context.update(b"\n");
        }
        let mut digest = Key::default();
        digest.copy_from_slice(context.finish().as_ref());
        digest
    }

    /// What a request says of its one completion.
    fn fields(&self, request: &RemoteRequest<'_>) -> Map<String, Json> {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Json| fields.insert(name.to_owned(), value);
        put("model", json!(self.model));
        match self.api {
            Api::Chat => put("messages", messages(request)),
            Api::Completions => put("prompt", json!(request.prompt)),
        };
        put(self.limit_field(), json!(request.max_tokens));
        put("temperature", json!(request.temperature));
        put("seed", json!(short_seed(request.seed)));
        if request.top_p < 1.0 {
            put("top_p", json!(request.top_p));
        }
        if request.top_k > 0 {
            put("top_k", json!(request.top_k));
        }
        if request.min_p > 0.0 {
            put("min_p", json!(request.min_p));
        }
        if request.repetition_penalty != 1.0 {
            put("repetition_penalty", json!(request.repetition_penalty));
        }
        let stop = stop_texts(request);
        if !stop.is_empty() {
            put("stop", json!(stop));
        }
        if self.logprobs {
            put("logprobs", if self.api == Api::Chat { json!(true) } else { json!(1) });
        }
        for (name, value) in &self.extra {
            if value.is_null() {
                fields.remove(name);
            } else {
                fields.insert(name.clone(), value.clone());
            }
        }
        fields
    }

    fn limit_field(&self) -> &'static str {
        let is_openai = self.base_urls.iter().all(|url| url.contains(OPENAI_HOST));
        if is_openai && self.api == Api::Chat { "max_completion_tokens" } else { "max_tokens" }
    }
}

/// What the user and the model have said, the user last; the whole prompt as one message of the user's if that is not so.
fn messages(request: &RemoteRequest<'_>) -> Json {
    let ends = request.turns.iter().copied().chain([request.prompt.len()]);
    let mut turns: Vec<(&str, String)> = Vec::new();
    let mut start = 0;
    for (end, role) in ends.zip(["user", "assistant"].into_iter().cycle()) {
        // Servers refuse messages that say nothing.
        let content = request.prompt.get(start..end).unwrap_or_default().trim();
        start = end;
        match turns.last_mut() {
            _ if content.is_empty() => {}
            Some((last, text)) if *last == role => *text = [text, "\n", content].concat(),
            _ => turns.push((role, content.to_owned())),
        }
    }
    if turns.len() < 2 || turns.last().is_none_or(|(role, _)| *role != "user") {
        turns = vec![("user", request.prompt.to_owned())];
    }
    turns.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

fn stop_texts<'a>(request: &RemoteRequest<'a>) -> Vec<&'a String> {
    request.stop.iter().filter(|stop| !stop.is_empty()).collect()
}

/// 31 bits of a seed, small ones as they are: some servers keep no more, and some refuse more.
fn short_seed(seed: u64) -> u64 {
    (seed ^ (seed >> 31) ^ (seed >> 62)) & 0x7fff_ffff
}
