//! The remote models of a database.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{OnceCell, Semaphore};

use super::answers::{AnswerCounts, Answers, Cleared};
use super::connections::{Connections, client};
use super::endpoints::Endpoints;
use super::model::{RemoteModel, Requests, Served};
use super::options::RemoteOptions;
use super::pace::Pace;
use super::request::AnswerSource;
use super::usage::{Usage, UsageRow};
use crate::error::{Error, Result};
use crate::models::registry::ModelInfo;

/// What the remote models of a database share: connections, the answers on the disk, the requests in flight.
pub struct Remotes {
    /// Of the answers.
    folder: PathBuf,
    connections: Arc<dyn Connections>,
    client: OnceLock<reqwest::Client>,
    /// Read when the first model is asked.
    answers: OnceCell<Arc<Answers>>,
    flights: Requests,
    served: Mutex<AllServed>,
}

/// By name and version, with when it was made: the name of a dropped model may be taken again.
type AllServed = BTreeMap<(String, u32), (i64, Arc<Served>)>;

impl Remotes {
    /// `folder`: where answers are kept; made with the first one.
    pub fn new(folder: &Path, connections: Arc<dyn Connections>) -> Self {
        Self {
            folder: folder.to_owned(),
            connections,
            client: OnceLock::new(),
            answers: OnceCell::new(),
            flights: Requests::default(),
            served: Mutex::default(),
        }
    }

    /// A handle to a remote model. No server is asked.
    ///
    /// # Errors
    /// [`Error::InsufficientPrivilege`] if its servers may not be asked any more; [`Error::Io`] for the kept answers.
    pub(in crate::models) async fn open(&self, info: &ModelInfo, options: &RemoteOptions) -> Result<RemoteModel> {
        let key = (info.name.clone(), info.version);
        if let Some((_, served)) = self.lock().get(&key).filter(|(created_at_ms, _)| *created_at_ms == info.created_at_ms) {
            return Ok(RemoteModel::new(Arc::clone(served)));
        }
        let url = |base: &String| self.connections.check(&format!("{base}/{}", options.path()));
        let endpoints = Endpoints::new(options.base_urls.iter().map(url).collect::<Result<_>>()?);
        let answers = if options.cache { Some(self.answers().await?) } else { None };
        let served = Arc::new(Served {
            info: info.clone(),
            options: options.clone(),
            client: self.client()?,
            connections: Arc::clone(&self.connections),
            endpoints: Arc::new(endpoints),
            permits: Semaphore::new(options.concurrency),
            pace: Pace::new(options.requests_per_minute),
            usage: Usage::default(),
            answers,
            flights: self.flights.clone(),
        });
        let mut all = self.lock();
        // Another call may have been here first; a dropped model of this name is gone.
        let entry = all.entry(key).or_insert_with(|| (info.created_at_ms, Arc::clone(&served)));
        if entry.0 != info.created_at_ms {
            *entry = (info.created_at_ms, served);
        }
        Ok(RemoteModel::new(Arc::clone(&entry.1)))
    }

    /// The models that were asked since the database was opened, by name and version.
    pub fn usage(&self) -> Vec<UsageRow> {
        self.lock().values().map(|(_, served)| served.row()).collect()
    }

    /// How many answers are kept.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub async fn answer_counts(&self) -> Result<AnswerCounts> {
        Ok(self.answers().await?.counts())
    }

    /// Takes the kept answers of a source from the disk, or all. It goes on if nobody waits for it any more.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub async fn clear(&self, source: Option<AnswerSource>) -> Result<Cleared> {
        let answers = self.answers().await?;
        let cleared = tokio::task::spawn_blocking(move || answers.clear(source)).await;
        let cleared = cleared.map_err(|error| Error::Internal(error.to_string()))?;
        cleared.map_err(|source| Error::Io { path: self.folder.clone(), source })
    }

    async fn answers(&self) -> Result<Arc<Answers>> {
        let open = || async {
            let folder = self.folder.clone();
            let read = tokio::task::spawn_blocking(move || Answers::open(&folder)).await;
            let answers = read.map_err(|error| Error::Internal(error.to_string()))?;
            answers.map(Arc::new).map_err(|source| Error::Io { path: self.folder.clone(), source })
        };
        self.answers.get_or_try_init(open).await.cloned()
    }

    /// Made once: it reads the system's certificates.
    fn client(&self) -> Result<reqwest::Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = client(&self.connections)?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    fn lock(&self) -> MutexGuard<'_, AllServed> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Remotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remotes").field("folder", &self.folder).finish_non_exhaustive()
    }
}
