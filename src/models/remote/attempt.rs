//! One request over HTTP.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Response;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde_json::Value as Json;
use serde_json::error::Category;
use url::Url;

use super::complaint::{complaint, words_of_text};
use super::connections::{Credential, refusal, root_cause};
use super::events::{self, BYTE_ORDER_MARK, Events};
use super::failure::{Fault, FaultKind};
use super::response::{Wanted, malformed};
use super::retry::retry_after;
use super::stream::Gathered;
use crate::models::shown::shown;

/// Of an answer; log-probabilities of 100,000 tokens fit.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Of an answer in events, each of which says once more what it is an event of.
const STREAM_BYTES_MAX: usize = 8 * BODY_BYTES_MAX;
/// Of what a server says instead of one.
const COMPLAINT_BYTES_MAX: usize = 64 << 10;

/// What is asked, of whichever server.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub client: reqwest::Client,
    pub body: Bytes,
    pub credential: Option<Credential>,
    pub authorization: Option<HeaderValue>,
    /// Of the whole attempt.
    pub timeout: Duration,
    /// Of a pause in the middle of a text that comes in events.
    pub idle_timeout: Duration,
}

impl Attempt {
    /// The body of an answer with a status of success; one that comes in events is put together. Dropping the future closes the connection.
    ///
    /// # Errors
    /// Anything else.
    pub async fn send(&self, url: &Url, wanted: Wanted<'_>) -> Result<Json, Fault> {
        let late = |_| Fault::new(FaultKind::Timeout, format!("no answer within {} s", self.timeout.as_secs_f64()));
        tokio::time::timeout(self.timeout, self.exchange(url, wanted)).await.map_err(late)?
    }

    async fn exchange(&self, url: &Url, wanted: Wanted<'_>) -> Result<Json, Fault> {
        let mut request = self.client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(self.body.clone());
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let response = request.send().await.map_err(|error| fault(&error))?;
        if !response.status().is_success() {
            return Err(refused(response, self.credential.as_ref()).await);
        }
        self.body(response, wanted).await.map_err(|fault| self.shown(fault))
    }

    /// In events or in one piece, whichever way it was asked for: there are servers that know one way, and some that name a type which it is not.
    async fn body(&self, mut response: Response, wanted: Wanted<'_>) -> Result<Json, Fault> {
        let mut head = BytesMut::new();
        while events::is_stream(&head).is_none() {
            if head.len() > BODY_BYTES_MAX {
                return Err(too_long(BODY_BYTES_MAX));
            }
            match response.chunk().await.map_err(|error| fault(&error))? {
                Some(chunk) => head.extend_from_slice(&chunk),
                None => return whole(&head),
            }
        }
        match events::is_stream(&head) {
            Some(true) => gathered(response, &head, wanted, self.idle_timeout).await,
            _ => match rest(response, head, BODY_BYTES_MAX).await? {
                (body, true) => whole(&body),
                (_, false) => Err(too_long(BODY_BYTES_MAX)),
            },
        }
    }

    /// A fault whose words may be the server's: without the key, and as many as a line holds.
    pub fn shown(&self, fault: Fault) -> Fault {
        Fault { detail: without_key(&fault.detail, self.credential.as_ref()), ..fault }
    }
}

/// The JSON of a body. Anything else is the server's words: a page of a gateway, or half of an answer.
fn whole(body: &[u8]) -> Result<Json, Fault> {
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body).trim_ascii();
    if body.is_empty() {
        return Err(malformed("its body is empty"));
    }
    serde_json::from_slice(body).map_err(|error| {
        let words = words_of_text(&String::from_utf8_lossy(body));
        let what = match error.classify() {
            Category::Eof => "its body ends in the middle of JSON",
            _ if std::str::from_utf8(body).is_err() => "its body is not UTF-8",
            _ => "its body is not JSON",
        };
        malformed(&format!("{what}: {words}"))
    })
}

/// Reads events as they come, up to the last one that is wanted. `head`: what of them was read before.
async fn gathered(mut response: Response, head: &[u8], wanted: Wanted<'_>, idle_timeout: Duration) -> Result<Json, Fault> {
    let (mut events, mut gathered, mut num_bytes) = (Events::default(), Gathered::new(wanted), head.len());
    let idle = |_| Fault::new(FaultKind::Timeout, format!("nothing more for {} s in the middle of its text", idle_timeout.as_secs_f64()));
    events.push(head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head));
    loop {
        while let Some(event) = events.next_event() {
            if gathered.take(&event)? {
                return gathered.finish(&[]);
            }
        }
        let chunk = if gathered.has_text() {
            tokio::time::timeout(idle_timeout, response.chunk()).await.map_err(idle)?
        } else {
            // A request may stand in the server's queue for long; the whole attempt has its limit.
            response.chunk().await
        };
        let Some(chunk) = chunk.map_err(|error| fault(&error))? else { break };
        num_bytes += chunk.len();
        if num_bytes > STREAM_BYTES_MAX {
            return Err(too_long(STREAM_BYTES_MAX));
        }
        events.push(&chunk);
    }
    let (event, stray) = events.last_event();
    if let Some(event) = event {
        gathered.take(&event)?;
    }
    gathered.finish(&stray)
}

fn too_long(bytes_max: usize) -> Fault {
    Fault::new(FaultKind::TooLong, format!("its answer has more than {} MiB", bytes_max >> 20))
}

/// Words of a server as a message shows them.
fn without_key(words: &str, credential: Option<&Credential>) -> String {
    credential.map_or_else(|| shown(words), |credential| shown(&credential.redact(words)))
}

/// What a server says with a status that is none of success, without the key.
pub(in crate::models) async fn refused(response: Response, credential: Option<&Credential>) -> Fault {
    let status = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    // OpenAI's own, in milliseconds, is more exact.
    let exact = header("retry-after-ms").and_then(|value| value.trim().parse().ok()).map(Duration::from_millis);
    let retry_after = exact.or_else(|| header(RETRY_AFTER.as_str()).and_then(retry_after));
    let body = read(response, COMPLAINT_BYTES_MAX).await.map(|(body, _)| body).unwrap_or_default();
    let (words, kind) = complaint(Some(status), &body);
    Fault { kind, detail: without_key(&words, credential), retry_after }
}

/// A body, or as much of it as may be, and whether that is all.
///
/// # Errors
/// Of the connection.
pub(in crate::models) async fn read(response: Response, bytes_max: usize) -> Result<(Bytes, bool), Fault> {
    rest(response, BytesMut::new(), bytes_max).await
}

/// As [`read`], of a body that begins with what was read before.
async fn rest(mut response: Response, mut body: BytesMut, bytes_max: usize) -> Result<(Bytes, bool), Fault> {
    while let Some(chunk) = response.chunk().await.map_err(|error| fault(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > bytes_max {
            body.truncate(bytes_max);
            return Ok((body.freeze(), false));
        }
    }
    Ok((body.freeze(), true))
}

/// Of a request, or of the body of its answer.
pub(in crate::models) fn fault(error: &reqwest::Error) -> Fault {
    if let Some(refusal) = refusal(error) {
        return Fault::new(FaultKind::Denied, refusal.to_string());
    }
    let kind = if error.is_connect() { FaultKind::Connect } else { FaultKind::Cut };
    Fault::new(kind, shown(&root_cause(error)))
}
