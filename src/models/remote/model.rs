//! A remote model: from a prompt to a completion, from the disk, from a request in flight or from a server.

use std::fmt;
use std::io::{Error as IoError, Result as IoResult};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;
use tokio::sync::Semaphore;

use super::answers::Answers;
use super::attempt::Attempt;
use super::connections::Connections;
use super::endpoints::Endpoints;
use super::failure::{Failure, Fault, FaultKind};
use super::options::RemoteOptions;
use super::pace::Pace;
use super::request::{Key, RemoteRequest};
use super::response::{Answer, RemoteCompletion, Wanted};
use super::retry::{Backoff, RETRY_AFTER_MAX};
use super::usage::{Usage, UsageRow, count};
use crate::error::{Error, Result};
use crate::flights::{Flights, Joined};
use crate::models::calls::{self, Calls};
use crate::models::registry::ModelInfo;

/// More bytes than any text has for a token, on the average: English has four or five.
const TOKEN_BYTES_MAX: usize = 8;

/// Requests in flight, with what becomes of them.
pub(super) type Requests = Flights<Asked, Result<Completions, Failure>>;
/// The samples of one request, at least one.
type Completions = Arc<[RemoteCompletion]>;

/// A request in flight. Who keeps answers needs one that is kept, and who does not wants none that others have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    key: Key,
    is_kept: bool,
}

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
    pub flights: Requests,
}

impl RemoteModel {
    pub(super) fn new(served: Arc<Served>) -> Self {
        Self(served)
    }

    /// The version that this handle asks.
    pub fn info(&self) -> &ModelInfo {
        &self.0.info
    }

    /// Whether what it has answered is known after a kill too.
    pub fn keeps_answers(&self) -> bool {
        self.0.answers.is_some()
    }

    /// How many samples of a prompt may go out as one request.
    pub fn samples_per_request(&self) -> usize {
        self.0.options.samples_per_request
    }

    /// Whether the prompt may be short enough for the model. Without the option `context_length` only the server knows.
    pub fn fits(&self, prompt: &str) -> bool {
        self.0.options.context_length.is_none_or(|tokens| prompt.len() <= tokens.saturating_mul(TOKEN_BYTES_MAX))
    }

    /// Completes a prompt. The same request has the same answer as long as it is kept. Dropping the future gives the request up, unless others wait for
    /// the same one.
    ///
    /// # Errors
    /// [`Error::RemoteUnreachable`], [`Error::RemoteRefused`] when the retries are used up or would not help; [`Error::ContextFull`] if the model cannot
    /// read so long a prompt; [`Error::InsufficientPrivilege`] if the name of the server leads to an address that is not allowed; [`Error::NotReady`] for
    /// the secret; [`Error::Io`] if the answer cannot be kept.
    pub async fn complete(&self, request: &RemoteRequest<'_>) -> Result<RemoteCompletion> {
        let completions = self.0.options.priced(&self.ask(request, 1).await?);
        completions.into_iter().next().ok_or_else(|| Error::Internal("an answer without a completion was kept".to_owned()))
    }

    /// Completes a prompt once for each seed, by requests for as many samples as the model's options say. A request is made with the first of its seeds,
    /// and what the server makes of it, in its order, stands for the others: a completion depends on the seeds before it too.
    ///
    /// # Errors
    /// As [`Self::complete`].
    pub async fn complete_all(&self, request: &RemoteRequest<'_>, seeds: &[u64]) -> Result<Vec<RemoteCompletion>> {
        // Greedy, the samples would be the same, and vLLM refuses them.
        let at_once = if request.temperature > 0.0 { self.samples_per_request() } else { 1 };
        let groups = seeds.chunks(at_once.max(1)).map(|seeds| self.complete_group(request, seeds));
        Ok(try_join_all(groups).await?.concat())
    }

    async fn complete_group(&self, request: &RemoteRequest<'_>, seeds: &[u64]) -> Result<Vec<RemoteCompletion>> {
        let Some(first) = seeds.first() else { return Ok(Vec::new()) };
        let mut completions = self.0.options.priced(&self.ask(&RemoteRequest { seed: *first, ..*request }, seeds.len()).await?);
        completions.truncate(seeds.len());
        // There are servers that know of no further samples.
        let alone = |seed: u64| async move { self.complete(&RemoteRequest { seed, ..*request }).await };
        let missing: Vec<_> = seeds[completions.len()..].iter().copied().map(alone).collect();
        completions.extend(try_join_all(missing).await?);
        Ok(completions)
    }

    /// The samples of one request.
    async fn ask(&self, request: &RemoteRequest<'_>, num_samples: usize) -> Result<Completions> {
        let served = &self.0;
        if !self.fits(request.prompt) {
            return Err(served.too_long(request.prompt));
        }
        let (body, key) = (served.options.body(request, num_samples), served.options.key(request, num_samples));
        let num_calls = num_samples as u64;
        loop {
            let is_known = || served.answers.as_ref().is_some_and(|answers| answers.contains(&key));
            // Whoever waits for it, it is paid for by who asked.
            let ask = calls::counted_here(Arc::clone(served).ask(key, body.clone(), request.stop.to_vec(), num_samples));
            let outcome = match served.flights.join(Asked { key, is_kept: served.answers.is_some() }, is_known, ask) {
                Joined::New(flight) => {
                    calls::count(Calls { inputs: num_calls, ..Calls::default() });
                    let outcome = flight.outcome().await;
                    if matches!(outcome, Some(Ok(_))) {
                        calls::count_answers(num_samples);
                    }
                    outcome
                }
                Joined::Shared(flight) => {
                    count(&served.usage.shared);
                    let outcome = flight.outcome().await;
                    if matches!(outcome, Some(Ok(_))) {
                        calls::count(Calls { repeats: num_calls, ..Calls::default() });
                    }
                    outcome
                }
                Joined::Known => match served.kept(key).await? {
                    Some(completions) => {
                        calls::count(Calls { cache_hits: num_calls, ..Calls::default() });
                        return Ok(completions);
                    }
                    // It was damaged, and is not known any more.
                    None => continue,
                },
            };
            let panicked = || Error::Internal(format!("a request of model {} panicked", served.info.reference()));
            return outcome.ok_or_else(panicked)?.map_err(Error::from);
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
    async fn kept(&self, key: Key) -> Result<Option<Completions>> {
        let Some(answers) = self.answers.clone() else { return Ok(None) };
        let folder = answers.folder().to_owned();
        let read = move || -> IoResult<Option<Completions>> {
            let Some(bytes) = answers.get(&key)? else { return Ok(None) };
            let read = serde_json::from_slice::<Vec<RemoteCompletion>>(&bytes).ok();
            let completions = read.and_then(|kept| kept.into_iter().map(RemoteCompletion::kept).collect::<Option<Vec<_>>>());
            let completions = completions.filter(|completions| !completions.is_empty());
            if completions.is_none() {
                answers.forget(&key);
            }
            Ok(completions.map(Completions::from))
        };
        let found = tokio::task::spawn_blocking(read).await.map_err(|error| Error::Internal(error.to_string()))?;
        let found = found.map_err(|source| Error::Io { path: folder, source })?;
        if found.is_some() {
            count(&self.usage.cache_hits);
        }
        Ok(found)
    }

    /// Asks a server, and keeps its answer if it is one.
    async fn ask(self: Arc<Self>, key: Key, body: Bytes, stop: Vec<String>, num_samples: usize) -> Result<Completions, Failure> {
        let wanted = Wanted { api: self.options.api, stop: &stop, num_samples };
        let answer = self.fetch(&key, body, wanted).await.inspect_err(|failure| {
            // A prompt that is too long is the end of a trajectory, not of a request that might have gone well.
            if !matches!(failure, Failure::ContextFull(_)) {
                count(&self.usage.failures);
            }
        })?;
        let is_answered = answer.num_unanswered() == 0;
        let completions = Completions::from(answer.completions);
        if let Some(answers) = self.answers.clone().filter(|_| is_answered) {
            keep(answers, key, Arc::clone(&completions)).await?;
        }
        Ok(completions)
    }

    /// What a server answers within the attempts that there are. What is no answer is asked for again as what failed, and given out after the last attempt.
    async fn fetch(&self, key: &Key, body: Bytes, wanted: Wanted<'_>) -> Result<Answer, Failure> {
        let attempt = self.attempt(body)?;
        let backoff = Backoff::new(key);
        let mut number = 0;
        loop {
            let is_last = number >= self.options.retries;
            match self.send(&attempt, wanted).await {
                (_, Ok(answer)) => {
                    // Whatever it says, it is paid for.
                    self.usage.add(answer.tokens);
                    calls::count(answer.tokens.paid(&self.options));
                    let num_unanswered = answer.num_unanswered();
                    if num_unanswered == 0 || is_last {
                        self.usage.empty_answers.fetch_add(num_unanswered as u64, Ordering::Relaxed);
                        return Ok(answer);
                    }
                }
                (host, Err(fault)) => {
                    // Another server may answer meanwhile.
                    let is_asked_too_much = fault.retry_after.is_some_and(|wait| wait > RETRY_AFTER_MAX) && !self.endpoints.is_any_ready();
                    if !fault.is_passing() || is_asked_too_much || is_last {
                        return Err(self.failure(&fault, &host, number + 1));
                    }
                }
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
        let idle_timeout = Duration::from_secs_f64(self.options.idle_timeout);
        Ok(Attempt { client: self.client.clone(), body, credential, authorization, timeout, idle_timeout })
    }

    /// One request, as soon as the limits let it go; to whom, and what came of it.
    async fn send(&self, attempt: &Attempt, wanted: Wanted<'_>) -> (String, Result<Answer, Fault>) {
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
        calls::count(Calls { requests: 1, ..Calls::default() });
        let outcome =
            attempt.send(place.url(), wanted).await.and_then(|body| Answer::read(&body, wanted).map_err(|fault| attempt.shown(fault)));
        match &outcome {
            Ok(answer) if answer.num_unanswered() == 0 => place.succeeded(),
            Ok(_) => place.failed(None),
            Err(fault) if fault.is_passing() => place.failed(fault.retry_after),
            Err(_) => {}
        }
        (place.host(), outcome)
    }

    /// Of a prompt that is not sent.
    fn too_long(&self, prompt: &str) -> Error {
        let (model, tokens) = (self.info.reference(), self.options.context_length.unwrap_or_default());
        let found = prompt.len();
        Error::ContextFull(format!(
            "model {model}: a prompt of {found} bytes is longer than its context_length of {tokens} tokens; shorten the prompt"
        ))
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
            FaultKind::Complaint => Failure::Refused(message(
                "answered with an error",
                "see the server's log, and that the source and the options of the model are what it knows",
            )),
            FaultKind::TooLong => Failure::Refused(message("answered with too much", "lower max_tokens")),
            FaultKind::Quota => Failure::Refused(message("has nothing left for this account", "see the account's plan and bills")),
            FaultKind::Denied => Failure::Denied(fault.detail.clone()),
            FaultKind::ContextFull => Failure::ContextFull(message(
                "cannot read so long a prompt",
                "shorten the prompt, or lower max_tokens: both share the context",
            )),
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
                let several =
                    if self.options.samples_per_request > 1 { "; a server that knows no n takes samples_per_request = 1" } else { "" };
                let advice = format!("see the options of the model and of the call{several}");
                Failure::Refused(message(&format!("refused the request ({status})"), &advice))
            }
        }
    }
}

/// Writes an answer, whoever still waits for it: it is paid for.
async fn keep(answers: Arc<Answers>, key: Key, completions: Completions) -> Result<(), Failure> {
    let folder = answers.folder().to_owned();
    let write = move || -> IoResult<()> { answers.put(&key, &serde_json::to_vec(&*completions)?) };
    let written = tokio::task::spawn_blocking(write).await.unwrap_or_else(|error| Err(IoError::other(error)));
    written.map_err(|error| Failure::disk(folder, &error))
}
