//! A remote model: from a prompt to a completion, from the disk, from a request in flight or from a server.

use std::fmt;
use std::io::{Error as IoError, Result as IoResult};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::answers::Answers;
use super::attempt::Attempt;
use super::connections::Connections;
use super::endpoints::Endpoints;
use super::failure::{Failure, Fault, FaultKind};
use super::flights::{Flights, Joined};
use super::options::RemoteOptions;
use super::pace::Pace;
use super::request::{Key, RemoteRequest};
use super::response::RemoteCompletion;
use super::retry::{Backoff, RETRY_AFTER_MAX};
use super::usage::{Usage, UsageRow, count};
use crate::error::{Error, Result};
use crate::models::registry::ModelInfo;

/// A handle to a remote policy; cheap to clone. Handles of one version share its limits and tallies.
#[derive(Debug, Clone)]
pub struct RemoteModel(Arc<Served>);

/// One version of a remote model in this process.
pub(super) struct Served {
    pub info: ModelInfo,
    pub options: RemoteOptions,
    pub client: reqwest::Client,
    pub connections: Arc<dyn Connections>,
    pub endpoints: Arc<Endpoints>,
    pub permits: Semaphore,
    pub pace: Pace,
    pub usage: Usage,
    /// None: answers are not kept.
    pub answers: Option<Arc<Answers>>,
    pub flights: Flights,
}

impl RemoteModel {
    pub(super) fn new(served: Arc<Served>) -> Self {
        Self(served)
    }

    /// The version that this handle asks.
    pub fn info(&self) -> &ModelInfo {
        &self.0.info
    }

    /// Completes a prompt. The same request has the same answer as long as it is kept. Dropping the future gives the request up, unless others wait for
    /// the same one.
    ///
    /// # Errors
    /// [`Error::RemoteUnreachable`], [`Error::RemoteRefused`] when the retries are used up or would not help; [`Error::InsufficientPrivilege`] if the
    /// name of the server leads to an address that is not allowed; [`Error::NotReady`] for the secret; [`Error::Io`] if the answer cannot be kept.
    pub async fn complete(&self, request: &RemoteRequest<'_>) -> Result<Arc<RemoteCompletion>> {
        let served = &self.0;
        let body = served.options.body(request);
        let key = served.options.key(&body);
        loop {
            let is_known = || served.answers.as_ref().is_some_and(|answers| answers.contains(&key));
            let ask = Arc::clone(served).ask(key, body.clone(), request.stop.to_vec());
            let outcome = match served.flights.join(key, is_known, ask) {
                Joined::New(flight) => flight.await,
                Joined::Shared(flight) => {
                    count(&served.usage.shared);
                    flight.await
                }
                Joined::Known => match served.kept(key).await? {
                    Some(completion) => return Ok(Arc::new(completion)),
                    // It was damaged, and is not known any more.
                    None => continue,
                },
            };
            return outcome.map_err(Error::from);
        }
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Served {
    pub fn row(&self) -> UsageRow {
        self.usage.row(&self.info.name, self.info.version, &self.options, self.endpoints.in_flight())
    }

    /// The answer on the disk; None if it is damaged.
    async fn kept(&self, key: Key) -> Result<Option<RemoteCompletion>> {
        let Some(answers) = self.answers.clone() else { return Ok(None) };
        let folder = answers.folder().to_owned();
        let read = move || -> IoResult<Option<RemoteCompletion>> {
            let Some(bytes) = answers.get(&key)? else { return Ok(None) };
            let completion = serde_json::from_slice(&bytes).ok();
            if completion.is_none() {
                answers.forget(&key);
            }
            Ok(completion)
        };
        let found = tokio::task::spawn_blocking(read).await.map_err(|error| Error::Internal(error.to_string()))?;
        let found = found.map_err(|source| Error::Io { path: folder, source })?;
        if found.is_some() {
            count(&self.usage.cache_hits);
        }
        Ok(found)
    }

    /// Asks a server, and keeps its answer.
    async fn ask(self: Arc<Self>, key: Key, body: Bytes, stop: Vec<String>) -> Result<Arc<RemoteCompletion>, Failure> {
        let fetched = self.fetch(&key, body, &stop).await.inspect_err(|_| count(&self.usage.failures))?;
        self.usage.add(&fetched);
        let completion = Arc::new(fetched);
        if let Some(answers) = self.answers.clone() {
            keep(answers, key, Arc::clone(&completion)).await?;
        }
        Ok(completion)
    }

    async fn fetch(&self, key: &Key, body: Bytes, stop: &[String]) -> Result<RemoteCompletion, Failure> {
        let attempt = self.attempt(body)?;
        let backoff = Backoff::new(key);
        let mut number = 0;
        loop {
            let (host, outcome) = self.send(&attempt, stop).await;
            let fault = match outcome {
                Ok(completion) => return Ok(completion),
                Err(fault) => fault,
            };
            // Another server may answer meanwhile.
            let is_asked_too_much = fault.retry_after.is_some_and(|wait| wait > RETRY_AFTER_MAX) && !self.endpoints.is_any_ready();
            if !fault.is_passing() || is_asked_too_much || number >= self.options.retries {
                return Err(self.failure(&fault, &host, number + 1));
            }
            // A pause that the server asked for is kept before the next request to it.
            if !self.endpoints.is_any_ready() {
                tokio::time::sleep(backoff.wait(number)).await;
            }
            number += 1;
            count(&self.usage.retries);
        }
    }

    fn attempt(&self, body: Bytes) -> Result<Attempt, Failure> {
        let not_ready = |error: Error| Failure::NotReady(error.to_string());
        let secret = self.options.secret.as_deref();
        let credential = secret.map(|secret| self.connections.credential(secret)).transpose().map_err(not_ready)?;
        let authorization = match &credential {
            None => None,
            Some(credential) => Some(credential.header().ok_or_else(|| {
                let secret = secret.unwrap_or_default();
                Failure::NotReady(format!("secret \"{secret}\" is no key: it has characters that no HTTP header can hold"))
            })?),
        };
        let timeout = Duration::from_secs_f64(self.options.timeout);
        Ok(Attempt { client: self.client.clone(), body, credential, authorization, timeout })
    }

    /// One request, as soon as the limits let it go; to whom, and what came of it.
    async fn send(&self, attempt: &Attempt, stop: &[String]) -> (String, Result<RemoteCompletion, Fault>) {
        let _permit = self.permits.acquire().await.expect("nobody closes it");
        self.pace.wait().await;
        let place = self.endpoints.choose();
        if place.wait > RETRY_AFTER_MAX {
            let seconds = place.wait.as_secs();
            let detail = format!("it asked to be left alone for {seconds} s more");
            return (place.host(), Err(Fault { retry_after: Some(place.wait), ..Fault::new(FaultKind::Status(429), detail) }));
        }
        if !place.wait.is_zero() {
            tokio::time::sleep(place.wait).await;
        }
        count(&self.usage.requests);
        let answer = attempt.send(place.url()).await;
        let outcome = answer.and_then(|body| RemoteCompletion::read(self.options.api, &body, stop));
        match &outcome {
            Ok(_) => place.succeeded(),
            Err(fault) if fault.is_passing() => place.failed(fault.retry_after),
            Err(_) => {}
        }
        (place.host(), outcome)
    }

    /// What the user reads: who failed how, and what can be done.
    fn failure(&self, fault: &Fault, host: &str, attempts: usize) -> Failure {
        let (model, detail) = (self.info.reference(), &fault.detail);
        let times = if attempts > 1 { format!(", tried {attempts} times") } else { String::new() };
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        let message = |what: &str, advice: &str| format!("model {model}: {host} {what}{times}{detail}; {advice}");
        let key_advice = match &self.options.secret {
            Some(secret) => format!("see what the secret \"{secret}\" holds"),
            None => "make the model with secret = 'name' of a secret that holds the key (CREATE SECRET)".to_owned(),
        };
        match fault.kind {
            FaultKind::Connect => Failure::Unreachable(message("cannot be reached", "see that the server runs and that base_url is right")),
            FaultKind::Timeout => Failure::Unreachable(message("did not finish", "raise the option timeout, or lower concurrency")),
            FaultKind::Cut => Failure::Unreachable(message("broke off its answer", "see the server's log")),
            FaultKind::Malformed => Failure::Refused(message(
                "answered with what is no completion",
                "base_url has to be that of an OpenAI-compatible API, and usually ends in /v1",
            )),
            FaultKind::TooLong => Failure::Refused(message("answered with too much", "lower max_tokens")),
            FaultKind::Quota => Failure::Refused(message("has nothing left for this account", "see the account's plan and bills")),
            FaultKind::Denied => Failure::Denied(fault.detail.clone()),
            FaultKind::Status(status @ (401 | 403)) => Failure::Refused(message(&format!("refused the key ({status})"), &key_advice)),
            FaultKind::Status(404) => Failure::Refused(message(
                "knows no such model or path (404)",
                "base_url usually ends in /v1, and the source has the server's name of the model: openai://NAME",
            )),
            FaultKind::Status(429) => {
                Failure::Refused(message("asks for fewer requests (429)", "lower concurrency, or set requests_per_minute"))
            }
            FaultKind::Status(status @ 300..=399) => {
                Failure::Refused(message(&format!("redirects ({status})"), "redirects are not followed: make base_url what it leads to"))
            }
            FaultKind::Status(status @ 500..=599) => {
                Failure::Refused(message(&format!("failed ({status})"), "see the server's log, or try again later"))
            }
            FaultKind::Status(status) => {
                Failure::Refused(message(&format!("refused the request ({status})"), "see the options of the model and of the call"))
            }
        }
    }
}

/// Writes an answer, whoever still waits for it: it is paid for.
async fn keep(answers: Arc<Answers>, key: Key, completion: Arc<RemoteCompletion>) -> Result<(), Failure> {
    let folder = answers.folder().to_owned();
    let write = move || -> IoResult<()> { answers.put(&key, &serde_json::to_vec(&*completion)?) };
    let written = tokio::task::spawn_blocking(write).await.unwrap_or_else(|error| Err(IoError::other(error)));
    written.map_err(|error| Failure::disk(folder, &error))
}
