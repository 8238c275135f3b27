//! A file while it comes: `<name>.part`, to which bytes are appended until it is whole.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Result as IoResult, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ring::digest::{Context, Digest, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use super::cache::Kept;
use super::digest::ContentDigest;
use super::room::Claim;
use crate::error::{Error, Result};

const EXTENSION: &str = "part";
const BUFFER_BYTES: usize = 1 << 20;

/// What a whole file is, as far as the hub tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expected {
    pub size: Option<u64>,
    pub digest: Option<ContentDigest>,
}

/// The beginning of a file on the disk. One at a time for a file: it holds the folder of its commit.
pub(super) struct Part {
    path: PathBuf,
    unfinished: PathBuf,
    file: File,
    len: u64,
    /// Of these, so many were there before the statement.
    taken_up: u64,
    sha256: Context,
    claim: Claim,
    _kept: Kept,
}

/// What became of a file that all bytes have come of.
pub(super) enum Finished {
    /// It has its name.
    Whole,
    /// It is not what it should be, and began with bytes of an earlier statement: it is empty again.
    Restarted(Box<Part>),
    /// It is not what it should be, and was removed.
    Other(String),
}

/// Where the part of a file is.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(EXTENSION);
    PathBuf::from(name)
}

impl Part {
    /// Takes up what is there. If nothing tells what the whole must be, a wrong beginning would stay unseen: then it begins anew. `claim`: what is
    /// claimed for the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(kept: Kept, name: &str, expected: Expected, claim: Claim) -> Result<Self> {
        let path = kept.folder.join(name);
        let unfinished = unfinished(&path);
        let open = || -> IoResult<Self> {
            std::fs::create_dir_all(path.parent().unwrap_or(&kept.folder))?;
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&unfinished)?;
            let (path, unfinished, sha256) = (path.clone(), unfinished.clone(), Context::new(&SHA256));
            let mut part = Self { path, unfinished, file, len: 0, taken_up: 0, sha256, claim, _kept: kept.clone() };
            let len = part.file.metadata()?.len();
            if expected.digest.is_none() || expected.size.is_some_and(|size| len > size) {
                part.restart()?;
            } else {
                part.len = hash(&mut part.file, &mut part.sha256)?;
                part.taken_up = part.len;
            }
            Ok(part)
        };
        open().map_err(|source| Error::Io { path: unfinished.clone(), source })
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// Claims room for the rest of a file of this size.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn claim_rest(mut self, size: u64) -> Result<Self> {
        match self.claim.set(size.saturating_sub(self.len)) {
            Ok(()) => Ok(self),
            Err(full) => Err(self.give_up(full)),
        }
    }

    /// # Errors
    /// [`Error::Io`]; if the disk is full, or has no room for the rest, nothing is left of the file.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if let Err(full) = self.claim.check() {
            return Err(self.give_up(full));
        }
        if let Err(source) = self.file.write_all(bytes) {
            let is_full = matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge);
            // Whatever that gives, the first error is the one to tell.
            drop(if is_full { std::fs::remove_file(&self.unfinished) } else { self.file.set_len(self.len) });
            return Err(self.io(source));
        }
        self.sha256.update(bytes);
        self.len += bytes.len() as u64;
        self.claim.written(bytes.len() as u64);
        Ok(())
    }

    /// Removes the file. Whatever that gives, the first error is the one to tell.
    fn give_up(&self, full: Error) -> Error {
        drop(std::fs::remove_file(&self.unfinished));
        full
    }

    /// From the first byte.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn begin_anew(mut self) -> Result<Self> {
        match self.restart() {
            Ok(()) => Ok(self),
            Err(source) => Err(self.io(source)),
        }
    }

    fn restart(&mut self) -> IoResult<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        (self.len, self.taken_up, self.sha256) = (0, 0, Context::new(&SHA256));
        Ok(())
    }

    /// Gives the file its name, if it is what it should be.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(mut self, expected: Expected) -> Result<Finished> {
        let wrong = match self.mismatch(expected) {
            Ok(wrong) => wrong,
            Err(source) => return Err(self.io(source)),
        };
        let Some(wrong) = wrong else {
            // Before it has its name: a crash leaves a part or a whole file.
            return match self.file.sync_all().and_then(|()| std::fs::rename(&self.unfinished, &self.path)) {
                Ok(()) => Ok(Finished::Whole),
                Err(source) => Err(self.io(source)),
            };
        };
        if self.taken_up > 0 {
            return Ok(Finished::Restarted(Box::new(self.begin_anew()?)));
        }
        self.remove()?;
        Ok(Finished::Other(wrong))
    }

    /// # Errors
    /// [`Error::Io`].
    pub fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.unfinished).map_err(|source| self.io(source))
    }

    /// What it is instead.
    fn mismatch(&mut self, expected: Expected) -> IoResult<Option<String>> {
        if let Some(size) = expected.size.filter(|size| *size != self.len) {
            return Ok(Some(format!("it has {} bytes, the hub says {size}", self.len)));
        }
        let found = match expected.digest {
            None => return Ok(None),
            Some(ContentDigest::Sha256(_)) => ContentDigest::Sha256(bytes_of(&self.sha256.clone().finish())),
            Some(ContentDigest::GitBlob(_)) => ContentDigest::GitBlob(self.git_blob()?),
        };
        Ok(expected
            .digest
            .filter(|expected| *expected != found)
            .map(|expected| format!("it has the digest {found}, the hub says {expected}")))
    }

    /// Such files are small; the length, which comes first in it, is known at the end.
    fn git_blob(&mut self) -> IoResult<[u8; 20]> {
        let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        context.update(format!("blob {}\0", self.len).as_bytes());
        self.file.seek(SeekFrom::Start(0))?;
        hash(&mut self.file, &mut context)?;
        Ok(bytes_of(&context.finish()))
    }

    fn io(&self, source: std::io::Error) -> Error {
        Error::Io { path: self.unfinished.clone(), source }
    }
}

/// What touches the disk, away from the threads that serve connections. What it holds is let go when it is done, whether anybody waits for it or not.
///
/// # Errors
/// Of the work.
pub(super) async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.to_string()))?
}

/// Reads to the end; how many bytes there were.
fn hash(file: &mut File, context: &mut Context) -> IoResult<u64> {
    let (mut buffer, mut len) = (vec![0; BUFFER_BYTES], 0);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(len),
            Ok(num_bytes) => {
                context.update(&buffer[..num_bytes]);
                len += num_bytes as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn bytes_of<const N: usize>(digest: &Digest) -> [u8; N] {
    digest.as_ref().try_into().expect("an algorithm gives a digest of its length")
}
