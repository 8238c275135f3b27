//! One request over HTTP.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::Value as Json;
use url::Url;

use super::connections::{Credential, refusal, root_cause};
use super::events::Events;
use super::failure::{Fault, FaultKind};
use super::response::{Wanted, complaint};
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
    /// Of a pause in the middle of a text; None: the answer is not asked for in events.
    pub idle_timeout: Option<Duration>,
}

impl Attempt {
    /// The body of an answer with status 200; one that comes in events is put together. Dropping the future closes the connection.
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
        if response.status() != StatusCode::OK {
            return Err(refused(response, self.credential.as_ref()).await);
        }
        let body = match self.idle_timeout {
            Some(idle_timeout) if !is_json(&response) => gathered(response, wanted, idle_timeout).await,
            _ => whole(response).await,
        };
        body.map_err(|fault| self.shown(fault))
    }

    /// A fault whose words may be the server's: without the key, and as many as a line holds.
    pub fn shown(&self, fault: Fault) -> Fault {
        Fault { detail: without_key(&fault.detail, self.credential.as_ref()), ..fault }
    }
}

/// Whether an answer comes in one piece although it was asked for in events: there are servers that know none.
fn is_json(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|content_type| content_type.to_ascii_lowercase().contains("json"))
}

async fn whole(response: Response) -> Result<Json, Fault> {
    match read(response, BODY_BYTES_MAX).await? {
        (body, true) => serde_json::from_slice(&body).map_err(|_| Fault::new(FaultKind::Malformed, "its body is not whole JSON")),
        (_, false) => Err(too_long(BODY_BYTES_MAX)),
    }
}

/// Reads events as they come, up to the last one that is wanted.
async fn gathered(mut response: Response, wanted: Wanted<'_>, idle_timeout: Duration) -> Result<Json, Fault> {
    let (mut events, mut gathered, mut num_bytes) = (Events::default(), Gathered::new(wanted), 0);
    let idle = |_| Fault::new(FaultKind::Timeout, format!("nothing more for {} s in the middle of its text", idle_timeout.as_secs_f64()));
    loop {
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
        while let Some(event) = events.next_event() {
            if gathered.take(&event)? {
                return gathered.finish();
            }
        }
    }
    if let Some(event) = events.last_event() {
        gathered.take(&event)?;
    }
    gathered.finish()
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
pub(in crate::models) async fn read(mut response: Response, bytes_max: usize) -> Result<(Bytes, bool), Fault> {
    let mut body = BytesMut::new();
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
