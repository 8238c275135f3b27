//! What is sent: the body of a request, and the key under which its answer is kept.

use bytes::Bytes;
use ring::digest::{Context, SHA256};
use serde_json::{Map, Value as Json, json};

use super::options::{Api, RemoteOptions};

/// The host that calls the limit by its newer name, and whose newest models refuse the older one.
const OPENAI_HOST: &str = "://api.openai.com/";

/// One prompt to complete.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RemoteRequest<'a> {
    pub prompt: &'a str,
    /// At least 1.
    pub max_tokens: usize,
    pub temperature: f64,
    pub top_p: f64,
    pub seed: u64,
    /// Texts that end a completion; an empty one is ignored.
    pub stop: &'a [String],
}

/// SHA-256 of what an answer depends on: two requests with one key have one answer.
pub(super) type Key = [u8; 32];

impl RemoteOptions {
    /// Below the base URL.
    pub(super) fn path(&self) -> &'static str {
        match self.api {
            Api::Chat => "chat/completions",
            Api::Completions => "completions",
        }
    }

    /// The body of a request, as JSON.
    pub(super) fn body(&self, request: &RemoteRequest<'_>) -> Bytes {
        let mut body = Map::new();
        let mut put = |name: &str, value: Json| body.insert(name.to_owned(), value);
        put("model", json!(self.model));
        match self.api {
            Api::Chat => put("messages", json!([{ "role": "user", "content": request.prompt }])),
            Api::Completions => put("prompt", json!(request.prompt)),
        };
        put(self.limit_field(), json!(request.max_tokens));
        put("temperature", json!(request.temperature));
        put("seed", json!(short_seed(request.seed)));
        // One of the servers that we know streams unless it is told.
        put("stream", json!(false));
        if request.top_p < 1.0 {
            put("top_p", json!(request.top_p));
        }
        let stop: Vec<&String> = request.stop.iter().filter(|stop| !stop.is_empty()).collect();
        if !stop.is_empty() {
            put("stop", json!(stop));
        }
        if self.logprobs {
            put("logprobs", if self.api == Api::Chat { json!(true) } else { json!(1) });
        }
        for (name, value) in &self.extra {
            if value.is_null() {
                body.remove(name);
            } else {
                body.insert(name.clone(), value.clone());
            }
        }
        Json::Object(body).to_string().into()
    }

    /// The servers are part of it, since two of them may have different models by one name, and so is the name of the secret.
    pub(super) fn key(&self, body: &[u8]) -> Key {
        let mut urls: Vec<&str> = self.base_urls.iter().map(String::as_str).collect();
        urls.sort_unstable();
        let mut context = Context::new(&SHA256);
        // Who may use one key may not read what another one paid for.
        let secret = self.secret.as_deref().unwrap_or_default();
        for part in ["2", self.path(), &urls.join(" "), secret] {
            context.update(part.as_bytes());
            context.update(b"\n");
        }
        context.update(body);
        let mut key = Key::default();
        key.copy_from_slice(context.finish().as_ref());
        key
    }

    fn limit_field(&self) -> &'static str {
        let is_openai = self.base_urls.iter().all(|url| url.contains(OPENAI_HOST));
        if is_openai && self.api == Api::Chat { "max_completion_tokens" } else { "max_tokens" }
    }
}

/// 31 bits of a seed, small ones as they are: some servers keep no more, and some refuse more.
fn short_seed(seed: u64) -> u64 {
    (seed ^ (seed >> 31) ^ (seed >> 62)) & 0x7fff_ffff
}
