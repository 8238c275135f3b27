//! Models of a hub that speaks Hugging Face's API (huggingface.co, its mirrors): from `hf://org/name@revision` to files on this disk.
//!
//! A revision is a commit first (`listing`); which of its files are a model's is decided here (`choice`), and what a name may be too (`names`). A file
//! comes in pieces: what a cut connection or a kill has left is taken up (`part`), as long as the disk has room for the rest (`room`), and a file counts when
//! it has the digest that the hub tells. Which hosts may be asked, on the way too, [`Connections`] says. The files are kept by commit (`cache`); a new version
//! is made of them elsewhere ([`Registry::create_staged`](super::Registry::create_staged)).

mod cache;
mod choice;
mod digest;
mod download;
mod failure;
mod listing;
mod names;
mod options;
mod part;
mod repository;
mod requests;
mod room;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use cache::Removed;
pub use download::Snapshot;
pub use options::{DEFAULT_ENDPOINT, HubOptions, SCHEME, endpoint};
pub use room::CheckRoom;

use super::remote::connections::client;
use super::remote::{Connections, Credential};
use crate::error::Result;
use cache::Cache;
use repository::Repository;
use requests::Requests;
use room::Room;

/// What the downloads of a database share: connections, the files that are here already, and the room for others.
pub struct Hub {
    cache: Cache,
    connections: Arc<dyn Connections>,
    client: OnceLock<reqwest::Client>,
    room: Arc<Room>,
}

impl Hub {
    /// `folder`: where files are kept; made with the first one.
    pub fn new(folder: &Path, connections: Arc<dyn Connections>, check_room: CheckRoom) -> Self {
        Self { cache: Cache::new(folder), connections, client: OnceLock::new(), room: Arc::new(Room::new(check_room)) }
    }

    /// Asks which commit a revision is and what it has, and whether that is a model that could run: its weights are still to come. Others who want files of
    /// this commit wait until the snapshot is dropped. `endpoint`: who is asked; `credential`: sent to it alone.
    ///
    /// # Errors
    /// [`Error::InsufficientPrivilege`](crate::Error::InsufficientPrivilege) for a host that may not be asked;
    /// [`Error::RemoteUnreachable`](crate::Error::RemoteUnreachable), [`Error::RemoteRefused`](crate::Error::RemoteRefused);
    /// [`Error::NotSupported`](crate::Error::NotSupported) for a model without weights that we read, or of an architecture that we do not have;
    /// [`Error::Damaged`](crate::Error::Damaged), [`Error::Io`](crate::Error::Io).
    pub async fn find(&self, options: &HubOptions, endpoint: &str, credential: Option<Credential>) -> Result<Snapshot> {
        let endpoint = self.connections.check(endpoint)?;
        let is_keyed = credential.is_some();
        let timeout = Duration::from_secs_f64(options.timeout);
        let requests = Requests::new(self.client()?, Arc::clone(&self.connections), endpoint, credential, timeout)?;
        let repository = Repository::new(options.clone(), requests);
        let listing = repository.listing().await?;
        let kept = self.cache.open(&repository, &listing.commit, is_keyed).await?;
        Snapshot::find(repository, listing, kept, Arc::clone(&self.room)).await
    }

    /// Removes what came longer ago than that and is in no model, parts of files too; nothing that a statement is at. Reads the folder.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn remove_unused(&self, older_than: Duration) -> Result<Removed> {
        self.cache.remove_unused(older_than)
    }

    /// Made once: it reads the system's certificates.
    fn client(&self) -> Result<reqwest::Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = client(&self.connections)?;
        Ok(self.client.get_or_init(|| client).clone())
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("cache", &self.cache).finish_non_exhaustive()
    }
}
