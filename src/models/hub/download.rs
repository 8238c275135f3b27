//! From a commit to its files on this disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures::{TryStreamExt, stream};
use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use tokio::time::timeout;

use super::cache::Kept;
use super::choice::{Weights, beside, bytes_max, shards, weights};
use super::failure::Setback;
use super::listing::{Listing, RepositoryFile};
use super::part::{Expected, Finished, Part, on_disk, unfinished};
use super::repository::Repository;
use super::requests::{Answer, Missing};
use super::room::{Claim, Room};
use crate::error::{Error, Result};
use crate::models::checkpoint::check_configuration;
use crate::models::config::{CONFIG_FILE, read_json};
use crate::models::gguf;
use crate::models::remote::attempt::fault;
use crate::models::remote::failure::FaultKind;
use crate::models::shown::shown;

/// A store gives one connection less than a line takes.
const FILES_AT_ONCE: usize = 4;
/// Bytes that are written at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// What has come is written after this, however little it is: a kill loses no more.
const BUFFER_TIME: Duration = Duration::from_millis(100);

/// Is told of bytes that have come.
type Tally<'a> = &'a (dyn Fn(u64) + Send + Sync);

/// A commit of a model, and which of its files are to be here.
#[derive(Debug)]
pub struct Snapshot {
    repository: Repository,
    commit: String,
    files: Vec<RepositoryFile>,
    /// The file among them that is a whole model.
    gguf: Option<String>,
    kept: Kept,
    room: Arc<Room>,
    /// Bytes that came when it was looked for.
    come: u64,
}

impl Snapshot {
    /// Fetches what says whether the rest is worth it: the configuration, and the index of the weights.
    pub(super) async fn find(repository: Repository, listing: Listing, kept: Kept, room: Arc<Room>) -> Result<Self> {
        let weights = weights(repository.options(), &listing)?;
        let files = beside(&weights, &listing);
        let mut snapshot = Self { repository, commit: listing.commit.clone(), files, gguf: None, kept, room, come: 0 };
        let come = AtomicU64::new(0);
        let tally = |bytes: u64| {
            come.fetch_add(bytes, Ordering::Relaxed);
        };
        if let Some(configuration) = snapshot.files.iter().find(|file| file.name == CONFIG_FILE) {
            snapshot.fetch_file(configuration, snapshot.nothing_claimed(), &tally).await?;
            let folder = snapshot.kept.folder.clone();
            on_disk(move || check_configuration(&folder)).await?;
        }
        match weights {
            Weights::One(file) => snapshot.files.push(file),
            Weights::Gguf(file) => {
                snapshot.gguf = Some(file.name.clone());
                snapshot.files.push(file);
            }
            Weights::Sharded { index } => {
                snapshot.fetch_file(&index, snapshot.nothing_claimed(), &tally).await?;
                let path = snapshot.path(&index);
                let read = path.clone();
                let map = on_disk(move || read_json(&read)).await?;
                let shards = shards(&map, &listing).map_err(|reason| Error::Damaged { path, reason })?;
                snapshot.files.push(index);
                snapshot.files.extend(shards);
            }
        }
        snapshot.come = come.into_inner();
        Ok(snapshot)
    }

    /// `hf://org/name@commit`.
    pub fn source(&self) -> String {
        self.repository.options().source_at(&self.commit)
    }

    /// Bytes of all files, if the hub tells.
    pub fn bytes_total(&self) -> Option<u64> {
        sum(self.files.iter().map(|file| file.size))
    }

    /// Bytes that were here before it was looked for, if the hub tells how many there are.
    pub fn bytes_here(&self) -> Option<u64> {
        Some(self.bytes_total()?.saturating_sub(self.bytes_left()?).saturating_sub(self.come))
    }

    /// Bytes that are still to come, if the hub tells.
    pub fn bytes_left(&self) -> Option<u64> {
        sum(self.files.iter().map(|file| self.bytes_left_of(file)))
    }

    fn bytes_left_of(&self, file: &RepositoryFile) -> Option<u64> {
        let path = self.path(file);
        let here = if is_here(&path, file) { file.size } else { len(&unfinished(&path)).filter(|_| file.digest.is_some()) };
        Some(file.size?.saturating_sub(here.unwrap_or(0)))
    }

    /// Whether there is room for what is still to come, if the hub tells how much. What it tells only with a file is compared when that comes.
    ///
    /// # Errors
    /// [`Error::Io`] of a full disk.
    pub fn check_room(&self) -> Result<()> {
        self.bytes_left().map_or(Ok(()), |left| self.room.check(&self.kept.folder, left))
    }

    /// Brings the files that are not here. `watch` is told how many bytes have come in all; dropping the future stops it, and what came is kept.
    ///
    /// # Errors
    /// As [`super::Hub::find`]; [`Error::Damaged`] for a file with another digest than the hub tells; [`Error::Io`] of a full disk, before it is full: what is
    /// still to come of all files is claimed at the beginning.
    pub async fn fetch(&self, watch: Tally<'_>) -> Result<()> {
        let come = AtomicU64::new(0);
        let tally = |bytes: u64| watch(come.fetch_add(bytes, Ordering::Relaxed) + bytes);
        let claims = self.files.iter().map(|file| self.claim(file)).collect::<Result<Vec<_>>>()?;
        let each = stream::iter(claims.into_iter().enumerate().map(Ok));
        each.try_for_each_concurrent(FILES_AT_ONCE, |(index, claim)| self.fetch_file(&self.files[index], claim, &tally)).await
    }

    /// Room for what is still to come of a file, also of one whose turn is later: others would take it meanwhile.
    fn claim(&self, file: &RepositoryFile) -> Result<Claim> {
        let mut claim = self.nothing_claimed();
        // What is here needs no room, however full the disk is.
        if let Some(left @ 1..) = self.bytes_left_of(file) {
            claim.set(left)?;
        }
        Ok(claim)
    }

    fn nothing_claimed(&self) -> Claim {
        Claim::new(Arc::clone(&self.room), &self.kept.folder)
    }

    /// Makes an empty directory that of a model: the files get further names in it, or, on another disk, are copied.
    ///
    /// # Errors
    /// [`Error::Io`]; those of [`gguf::complete`].
    pub fn place(&self, target: &Path) -> Result<()> {
        for file in &self.files {
            let from = self.path(file);
            let is_gguf = self.gguf.as_ref() == Some(&file.name);
            let to = target.join(if is_gguf { gguf::GGUF_FILE } else { &file.name });
            let parent = to.parent().unwrap_or(target);
            std::fs::create_dir_all(parent).map_err(|source| Error::Io { path: parent.to_owned(), source })?;
            if std::fs::hard_link(&from, &to).is_err() {
                std::fs::copy(&from, &to).map_err(|source| Error::Io { path: to, source })?;
            }
        }
        if self.gguf.is_some() { gguf::complete(target) } else { Ok(()) }
    }

    fn path(&self, file: &RepositoryFile) -> PathBuf {
        self.kept.folder.join(&file.name)
    }

    async fn fetch_file(&self, file: &RepositoryFile, claim: Claim, tally: Tally<'_>) -> Result<()> {
        let path = self.path(file);
        if is_here(&path, file) {
            return Ok(());
        }
        let (kept, name) = (self.kept.clone(), file.name.clone());
        let mut expected = Expected { size: file.size, digest: file.digest };
        let mut part = on_disk(move || Part::open(kept, &name, expected, claim)).await?;
        let (mut etag, mut furthest, mut attempt) = (None, part.len(), 0);
        loop {
            let outcome;
            (part, outcome) = if Some(part.len()) == expected.size {
                (part, Ok(()))
            } else {
                self.attempt(file, part, &mut expected, &mut etag, tally).await?
            };
            let Err(setback) = outcome else {
                let finished = on_disk(move || part.finish(expected)).await?;
                part = match finished {
                    Finished::Whole => return Ok(()),
                    Finished::Restarted(part) => *part,
                    Finished::Other(wrong) => {
                        let reason = format!("{wrong}; it was removed, run the statement again");
                        return Err(Error::Damaged { path, reason });
                    }
                };
                (etag, furthest) = (None, 0);
                continue;
            };
            if part.len() > furthest {
                (furthest, attempt) = (part.len(), 0);
            }
            self.repository.pause(setback, &file.name, attempt).await?;
            attempt += 1;
        }
    }

    /// One request for what is missing of a file. The error is one of the disk; what the network did comes back with the part.
    async fn attempt(
        &self,
        file: &RepositoryFile,
        mut part: Part,
        expected: &mut Expected,
        etag: &mut Option<HeaderValue>,
        tally: Tally<'_>,
    ) -> Result<(Part, Result<(), Setback>)> {
        let url = self.repository.file_url(&self.commit, &file.name);
        // Without a digest only the tag tells that the rest is of the same file.
        if part.len() > 0 && expected.digest.is_none() && etag.is_none() {
            part = on_disk(move || part.begin_anew()).await?;
        }
        let missing = (part.len() > 0).then(|| Missing { from: part.len(), etag: etag.clone() });
        let mut answer = match self.repository.requests().get(&url, missing.as_ref()).await {
            Ok(answer) => answer,
            Err(setback) => return Ok((part, Err(setback))),
        };
        let host = answer.host.clone();
        let malformed = |detail: String| Err(Setback::new(FaultKind::Malformed, detail, &host));
        if let Some(other) = answer.told.commit.as_deref().filter(|commit| *commit != self.commit) {
            return Ok((part, malformed(format!("it is of the commit {}", shown(other)))));
        }
        let is_same = expected.digest.is_some() || answer.etag() == *etag;
        let goes_on = is_same && answer.response.status() == StatusCode::PARTIAL_CONTENT && answer.first_byte() == Some(part.len());
        if !goes_on && part.len() > 0 {
            part = on_disk(move || part.begin_anew()).await?;
        }
        if !goes_on && answer.response.status() != StatusCode::OK {
            return Ok((part, malformed("it is another part of the file than the one that was asked for".to_owned())));
        }
        let announced = answer.response.content_length().map(|len| part.len().saturating_add(len));
        expected.size = expected.size.or(answer.told.size).or(announced);
        expected.digest = expected.digest.or(answer.told.digest);
        *etag = answer.etag();
        let Some(size) = expected.size else { return Ok((part, malformed("it does not say how large the file is".to_owned()))) };
        if let Some(announced) = announced.filter(|announced| *announced != size) {
            return Ok((part, malformed(format!("it has {announced} bytes, and should have {size}"))));
        }
        if size > bytes_max(&file.name) {
            let detail = format!("{size} bytes, where {} are the most", bytes_max(&file.name));
            return Ok((part, Err(Setback::new(FaultKind::TooLong, detail, &host))));
        }
        part = on_disk(move || part.claim_rest(size)).await?;
        self.receive(&mut answer, part, size, tally).await
    }

    /// The body of an answer, to the part.
    async fn receive(&self, answer: &mut Answer, mut part: Part, size: u64, tally: Tally<'_>) -> Result<(Part, Result<(), Setback>)> {
        let host = answer.host.clone();
        let (mut buffer, mut since) = (BytesMut::new(), Instant::now());
        let ended = loop {
            let patience = if buffer.is_empty() { self.repository.requests().timeout } else { BUFFER_TIME };
            let is_over = match timeout(patience, answer.response.chunk()).await {
                Err(_) if buffer.is_empty() => {
                    let detail = format!("no byte within {} s", patience.as_secs_f64());
                    Some(Err(Setback::new(FaultKind::Timeout, detail, &host)))
                }
                Err(_) => None,
                Ok(Ok(Some(chunk))) if part.len() + (buffer.len() + chunk.len()) as u64 > size => {
                    Some(Err(Setback::new(FaultKind::TooLong, format!("more than {size} bytes"), &host)))
                }
                Ok(Ok(Some(chunk))) => {
                    if buffer.is_empty() {
                        since = Instant::now();
                    }
                    buffer.extend_from_slice(&chunk);
                    if buffer.len() < BUFFER_BYTES && since.elapsed() < BUFFER_TIME {
                        continue;
                    }
                    None
                }
                Ok(Ok(None)) => Some(Ok(())),
                Ok(Err(error)) => Some(Err(Setback { fault: fault(&error), host: host.clone(), code: None })),
            };
            if !buffer.is_empty() {
                let bytes = buffer.split().freeze();
                let num_bytes = bytes.len() as u64;
                part = on_disk(move || part.append(&bytes).map(|()| part)).await?;
                tally(num_bytes);
            }
            if let Some(ended) = is_over {
                break ended;
            }
        };
        let is_cut = ended.is_ok() && part.len() < size;
        let cut = || Setback::new(FaultKind::Cut, format!("after {} of {size} bytes", part.len()), &host);
        let ended = if is_cut { Err(cut()) } else { ended };
        Ok((part, ended))
    }
}

/// Of sizes, if all are known; what a hub says of them may be any number.
fn sum(mut sizes: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    sizes.try_fold(0_u64, |sum, size| Some(sum.saturating_add(size?)))
}

/// Whether a whole file is there: it has its name only then.
fn is_here(path: &Path, file: &RepositoryFile) -> bool {
    len(path).is_some_and(|len| file.size.is_none_or(|size| size == len))
}

fn len(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}
