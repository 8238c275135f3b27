//! What the process around the models lends to remote ones, and the HTTP client that keeps to it.

use std::error::Error as StdError;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderValue;
use url::Url;

use crate::error::{Error, Result};

/// A host that does not take a connection within this is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A piece of a secret's value of so many characters is not shown either.
const PIECE_CHARS: usize = 6;

/// The rules for other hosts, and the values of secrets.
pub trait Connections: fmt::Debug + Send + Sync {
    /// The URL, if its host may be asked.
    ///
    /// # Errors
    /// [`Error::InsufficientPrivilege`], [`Error::InvalidParameter`].
    fn check(&self, url: &str) -> Result<Url>;

    /// Whether a host may be asked that its name leads to.
    ///
    /// # Errors
    /// [`Error::InsufficientPrivilege`].
    fn check_addresses(&self, host: &str, addresses: &[IpAddr]) -> Result<()>;

    /// The value of a secret as it is now.
    ///
    /// # Errors
    /// [`Error::UnknownObject`]; [`Error::NotReady`] if its place is empty.
    fn credential(&self, secret: &str) -> Result<Credential>;
}

/// The value of a secret: it prints as nothing.
#[derive(Clone)]
pub struct Credential(Arc<str>);

impl Credential {
    pub fn new(value: &str) -> Self {
        Self(value.into())
    }

    /// `Authorization: Bearer ...`; a value that no header can hold is none.
    pub(in crate::models) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// A text of the server without the value and without pieces of it: a server that refuses a key may say which.
    pub(super) fn redact(&self, text: &str) -> String {
        let piece_chars = PIECE_CHARS.min(self.0.chars().count());
        let chars: Vec<char> = text.chars().collect();
        let mut is_hidden = vec![false; chars.len()];
        for start in 0..=chars.len().saturating_sub(piece_chars) {
            let Some(piece) = chars.get(start..start + piece_chars).filter(|piece| !piece.is_empty()) else { continue };
            if self.0.contains(&piece.iter().collect::<String>()) {
                is_hidden[start..start + piece_chars].fill(true);
            }
        }
        // The rest of a word that has a piece of it is another piece, too short to be told from other words.
        let words: Vec<usize> = chars.chunk_by(|a, b| a.is_whitespace() == b.is_whitespace()).map(<[char]>::len).collect();
        let mut start = 0;
        for len in words {
            let range = start..start + len;
            if is_hidden[range.clone()].contains(&true) {
                is_hidden[range].fill(true);
            }
            start += len;
        }
        let mut shown = String::with_capacity(text.len());
        for (index, char) in chars.iter().enumerate() {
            match (is_hidden[index], index > 0 && is_hidden[index - 1]) {
                (false, _) => shown.push(*char),
                (true, false) => shown.push_str("***"),
                (true, true) => {}
            }
        }
        shown
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

/// A client that asks nobody but whom it is told to: no proxy of the environment, no redirect, no address that the rules refuse.
///
/// # Errors
/// [`Error::NotReady`] if the system's certificates cannot be read.
pub(in crate::models) fn client(connections: &Arc<dyn Connections>) -> Result<reqwest::Client> {
    let builder = reqwest::Client::builder()
        .no_proxy()
        // A small answer that unfolds to a large one is not read.
        .no_gzip()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .dns_resolver(Arc::new(CheckedResolver(Arc::clone(connections))))
        .user_agent(concat!("rolloutdb/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(|error| Error::NotReady(format!("no connection to other hosts can be made: {}", root_cause(&error))))
}

/// Resolves names as the system does, and lets nobody connect to what the rules refuse.
struct CheckedResolver(Arc<dyn Connections>);

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let connections = Arc::clone(&self.0);
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let addresses: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
            connections.check_addresses(name.as_str(), &addresses)?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The innermost message, which says most: those round it repeat the URL.
pub(super) fn root_cause(error: &(dyn StdError + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// An error of ours that the client carries: the rules refused an address.
pub(super) fn refusal<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(ours) = error.downcast_ref::<Error>() {
            return Some(ours);
        }
        next = error.source();
    }
    None
}
