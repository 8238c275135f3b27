//! GET over HTTP: every host on the way is one that may be asked, and the token goes to the hub alone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LOCATION, RANGE};
use reqwest::{Response, StatusCode};
use url::Url;

use super::digest::ContentDigest;
use super::failure::Setback;
use crate::error::{Error, Result};
use crate::models::remote::attempt::{fault, read, refused};
use crate::models::remote::failure::{Fault, FaultKind};
use crate::models::remote::{Connections, Credential};
use crate::models::shown::shown;

/// The hub leads to a store, and from an old name to a new one.
const REDIRECTS_MAX: usize = 10;
/// Of a list of files: 50,000 of them.
const LISTING_BYTES_MAX: usize = 32 << 20;

/// How one hub is asked.
#[derive(Debug)]
pub(super) struct Requests {
    client: reqwest::Client,
    connections: Arc<dyn Connections>,
    endpoint: Url,
    credential: Option<Credential>,
    authorization: Option<HeaderValue>,
    /// Without a byte.
    pub timeout: Duration,
}

/// What is missing of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Missing {
    pub from: u64,
    /// Of the answer that what is here came with.
    pub etag: Option<HeaderValue>,
}

/// An answer with a body.
#[derive(Debug)]
pub(super) struct Answer {
    pub response: Response,
    /// Who gives it.
    pub host: String,
    pub told: Told,
}

/// What the headers on the way said of the file.
#[derive(Debug, Default, Clone)]
pub(super) struct Told {
    pub commit: Option<String>,
    pub size: Option<u64>,
    pub digest: Option<ContentDigest>,
}

impl Requests {
    /// # Errors
    /// [`Error::NotReady`] for a token that no header can hold.
    pub fn new(
        client: reqwest::Client,
        connections: Arc<dyn Connections>,
        endpoint: Url,
        credential: Option<Credential>,
        timeout: Duration,
    ) -> Result<Self> {
        let unusable = || {
            Error::NotReady("the token has characters that no HTTP header can hold; see the secret, or HF_TOKEN of the server".to_owned())
        };
        let authorization = credential.as_ref().map(|credential| credential.header().ok_or_else(unusable)).transpose()?;
        Ok(Self { client, connections, endpoint, credential, authorization, timeout })
    }

    /// A URL of the hub; a slash in a part of the path is no separator.
    pub fn url(&self, path: &[&str]) -> Url {
        let mut url = self.endpoint.clone();
        url.path_segments_mut().expect("an endpoint is http or https").pop_if_empty().extend(path);
        url
    }

    /// What tells the hub from others in the names of folders: host, port and path.
    pub fn endpoint(&self) -> &str {
        self.endpoint.as_str()
    }

    /// A whole body that is not long.
    ///
    /// # Errors
    /// Anything but an answer with status 200.
    pub async fn body(&self, url: &Url) -> Result<Bytes, Setback> {
        let Answer { response, host, .. } = self.get(url, None).await?;
        let late = || Setback::new(FaultKind::Timeout, "", &host);
        let read = tokio::time::timeout(self.timeout, read(response, LISTING_BYTES_MAX)).await.map_err(|_| late())?;
        match read.map_err(|fault| Setback { fault, host: host.clone(), code: None })? {
            (body, true) => Ok(body),
            (_, false) => Err(Setback::new(FaultKind::TooLong, format!("more than {} MiB", LISTING_BYTES_MAX >> 20), &host)),
        }
    }

    /// The answer at the end of the redirects. 416 is one: there is nothing after what is here.
    ///
    /// # Errors
    /// Any other status than 200, 206 and 416; no answer.
    pub async fn get(&self, url: &Url, missing: Option<&Missing>) -> Result<Answer, Setback> {
        let (mut url, mut told) = (url.clone(), Told::default());
        for number in 0..=REDIRECTS_MAX {
            let host = host_of(&url);
            let response = self.send(&url, missing, number > 0).await.map_err(|fault| Setback { fault, host: host.clone(), code: None })?;
            told.read(response.headers(), self.is_hub(&url));
            let status = response.status();
            if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE) {
                return Ok(Answer { response, host, told });
            }
            let target = response.headers().get(LOCATION).filter(|_| status.is_redirection());
            let Some(target) = target.and_then(|target| url.join(target.to_str().ok()?).ok()) else {
                return Err(self.refusal(response, host).await);
            };
            url = target;
        }
        Err(Setback::new(FaultKind::Status(302), format!("more than {REDIRECTS_MAX} redirects"), &host_of(&url)))
    }

    async fn send(&self, url: &Url, missing: Option<&Missing>, is_redirected: bool) -> Result<Response, Fault> {
        let denied = |refusal: Error| {
            let way = if is_redirected { "the hub leads to another host: " } else { "" };
            Fault::new(FaultKind::Denied, shown(&format!("{way}{refusal}")))
        };
        self.connections.check(url.as_str()).map_err(denied)?;
        // Packed, it would have another length, and the server may pack each range by itself.
        let mut request = self.client.get(url.clone()).header(ACCEPT_ENCODING, "identity");
        if let Some(authorization) = self.authorization.as_ref().filter(|_| self.is_hub(url)) {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(missing) = missing {
            request = request.header(RANGE, format!("bytes={}-", missing.from));
            if let Some(etag) = &missing.etag {
                request = request.header(IF_RANGE, etag.clone());
            }
        }
        let late = |_| Fault::new(FaultKind::Timeout, format!("no answer within {} s", self.timeout.as_secs_f64()));
        let sent = tokio::time::timeout(self.timeout, request.send()).await.map_err(late)?;
        sent.map_err(|error| fault(&error))
    }

    /// Whether it is the hub itself: scheme, host and port.
    fn is_hub(&self, url: &Url) -> bool {
        url.origin() == self.endpoint.origin()
    }

    async fn refusal(&self, response: Response, host: String) -> Setback {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(shown);
        let code = header("x-error-code");
        // Without the words of a server that does not finish them.
        let wordless = Fault::new(FaultKind::Status(response.status().as_u16()), "");
        let said = tokio::time::timeout(self.timeout, refused(response, self.credential.as_ref())).await;
        Setback { fault: said.unwrap_or(wordless), host, code }
    }
}

impl Answer {
    /// Where the body begins in the file, if the answer is a part of it.
    pub fn first_byte(&self) -> Option<u64> {
        let range = self.response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
        range.trim().strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
    }

    /// By which the rest can be asked for: a strong tag.
    pub fn etag(&self) -> Option<HeaderValue> {
        self.response.headers().get(ETAG).filter(|etag| etag.as_bytes().starts_with(b"\"")).cloned()
    }
}

impl Told {
    /// The hub's own headers come first, and those before a redirect.
    fn read(&mut self, headers: &HeaderMap, is_hub: bool) {
        if !is_hub {
            return;
        }
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let commit = header("x-repo-commit").map(str::to_owned);
        let size = header("x-linked-size").and_then(|size| size.trim().parse().ok());
        let digest = header("x-linked-etag").or_else(|| header(ETAG.as_str())).and_then(ContentDigest::of_etag);
        self.commit = self.commit.take().or(commit);
        self.size = self.size.or(size);
        self.digest = self.digest.or(digest);
    }
}

/// `host:port`, as messages name it.
fn host_of(url: &Url) -> String {
    let host = shown(url.host_str().unwrap_or_default());
    url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
}
