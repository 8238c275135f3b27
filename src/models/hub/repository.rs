//! One repository of a hub: its list of files, and when to ask again.

use ring::digest::{SHA256, digest};
use url::Url;

use super::failure::{Setback, other_commit};
use super::listing::Listing;
use super::options::HubOptions;
use super::requests::Requests;
use crate::error::Result;
use crate::models::remote::failure::FaultKind;
use crate::models::remote::retry::{Backoff, RETRY_AFTER_MAX};

const LISTING: &str = "the list of files";

/// What is asked of whom.
#[derive(Debug)]
pub(super) struct Repository {
    options: HubOptions,
    requests: Requests,
    backoff: Backoff,
}

impl Repository {
    pub fn new(options: HubOptions, requests: Requests) -> Self {
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, options.source().as_bytes()).as_ref());
        Self { options, requests, backoff: Backoff::new(&key) }
    }

    pub fn options(&self) -> &HubOptions {
        &self.options
    }

    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    pub fn endpoint(&self) -> &str {
        self.requests.endpoint()
    }

    /// Where a file of a commit is.
    pub fn file_url(&self, commit: &str, name: &str) -> Url {
        let path: Vec<&str> =
            [self.options.organisation.as_str(), &self.options.name, "resolve", commit].into_iter().chain(name.split('/')).collect();
        self.requests.url(&path)
    }

    /// The commit of the revision, and its files.
    ///
    /// # Errors
    /// As [`super::Hub::find`]; [`Error::RemoteRefused`](crate::Error::RemoteRefused) if the revision is a commit and the hub answers another.
    pub async fn listing(&self) -> Result<Listing> {
        let options = &self.options;
        let mut url = self.requests.url(&["api", "models", &options.organisation, &options.name, "revision", &options.revision]);
        // Without it sizes and digests are left out.
        url.set_query(Some("blobs=true"));
        let mut attempt = 0;
        loop {
            let setback = match self.requests.body(&url).await {
                Ok(body) => match Listing::read(&body) {
                    Ok(listing) if listing.is_other_than(&options.revision) => {
                        return Err(other_commit(options, url.host_str().unwrap_or_default(), &listing.commit));
                    }
                    Ok(listing) => return Ok(listing),
                    Err(wrong) => Setback::new(FaultKind::Malformed, wrong, url.host_str().unwrap_or_default()),
                },
                Err(setback) => setback,
            };
            self.pause(setback, LISTING, attempt).await?;
            attempt += 1;
        }
    }

    /// Waits before the next attempt; `attempt`: how many in a row brought nothing before this one.
    ///
    /// # Errors
    /// Of the setback, if there is to be no other attempt.
    pub async fn pause(&self, setback: Setback, what: &str, attempt: usize) -> Result<()> {
        let asked_for = setback.fault.retry_after.unwrap_or_default();
        if !setback.fault.is_passing() || asked_for > RETRY_AFTER_MAX || attempt >= self.options.retries {
            return Err(setback.into_error(&self.options, what, attempt + 1));
        }
        tokio::time::sleep(self.backoff.wait(attempt).max(asked_for)).await;
        Ok(())
    }
}
