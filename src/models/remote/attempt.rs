//! One request over HTTP.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use url::Url;

use super::connections::{Credential, refusal, root_cause};
use super::failure::{Fault, FaultKind};
use super::response::{complaint, shown};
use super::retry::retry_after;

/// Of an answer; log-probabilities of 100,000 tokens fit.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Of what a server says instead of one.
const COMPLAINT_BYTES_MAX: usize = 64 << 10;

/// What is asked, of whichever server.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub client: reqwest::Client,
    pub body: Bytes,
    pub credential: Option<Credential>,
    pub authorization: Option<HeaderValue>,
    pub timeout: Duration,
}

impl Attempt {
    /// The body of an answer with status 200. Dropping the future closes the connection.
    ///
    /// # Errors
    /// Anything else.
    pub async fn send(&self, url: &Url) -> Result<Bytes, Fault> {
        let late = |_| Fault::new(FaultKind::Timeout, format!("no answer within {} s", self.timeout.as_secs_f64()));
        tokio::time::timeout(self.timeout, self.exchange(url)).await.map_err(late)?
    }

    async fn exchange(&self, url: &Url) -> Result<Bytes, Fault> {
        let mut request = self.client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(self.body.clone());
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let response = request.send().await.map_err(|error| fault(&error))?;
        if response.status() != StatusCode::OK {
            return Err(self.complaint(response).await);
        }
        match read(response, BODY_BYTES_MAX).await? {
            (body, true) => Ok(body),
            (_, false) => Err(Fault::new(FaultKind::TooLong, format!("its answer has more than {} MiB", BODY_BYTES_MAX >> 20))),
        }
    }

    async fn complaint(&self, response: Response) -> Fault {
        let status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        // OpenAI's own, in milliseconds, is more exact.
        let exact = header("retry-after-ms").and_then(|value| value.trim().parse().ok()).map(Duration::from_millis);
        let retry_after = exact.or_else(|| header(RETRY_AFTER.as_str()).and_then(retry_after));
        let body = read(response, COMPLAINT_BYTES_MAX).await.map(|(body, _)| body).unwrap_or_default();
        let (words, is_quota) = complaint(&body);
        let words = self.credential.as_ref().map_or_else(|| words.clone(), |credential| credential.redact(&words));
        let kind = if is_quota { FaultKind::Quota } else { FaultKind::Status(status) };
        Fault { kind, detail: shown(&words), retry_after }
    }
}

/// A body, or as much of it as may be, and whether that is all.
async fn read(mut response: Response, bytes_max: usize) -> Result<(Bytes, bool), Fault> {
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

fn fault(error: &reqwest::Error) -> Fault {
    if let Some(refusal) = refusal(error) {
        return Fault::new(FaultKind::Denied, refusal.to_string());
    }
    let kind = if error.is_connect() { FaultKind::Connect } else { FaultKind::Cut };
    Fault::new(kind, shown(&root_cause(error)))
}
