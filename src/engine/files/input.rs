//! Where the bytes of records come from: files, one after the other, or a client.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::read_files::ClientDigest;
use super::{BLOCK_BYTES, bad_input, compression, open};
use crate::engine::progress::CopyPosition;
use crate::error::{Error, Result};

/// Files of one format; or what a client sends, which can be read once and has a name in place of a path.
#[derive(Debug)]
pub struct Input {
    /// In messages about a line.
    pub paths: Vec<PathBuf>,
    client: Option<Mutex<Option<ClientBytes>>>,
    /// Of what a client sends.
    pub digest: Arc<ClientDigest>,
    /// As they are on the disk, compressed or not.
    bytes_read: Arc<AtomicU64>,
    /// How far those who take its rows are.
    pub position: Arc<CopyPosition>,
}

struct ClientBytes(Box<dyn Read + Send>);

impl fmt::Debug for ClientBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientBytes")
    }
}

impl Input {
    pub fn files(paths: Vec<PathBuf>) -> Self {
        Self { paths, client: None, digest: Arc::default(), bytes_read: Arc::default(), position: Arc::default() }
    }

    /// `name`: as in `COPY films, line 3`.
    pub fn client(name: String, bytes: impl Read + Send + 'static) -> Self {
        let digest = Arc::<ClientDigest>::default();
        let client = Some(Mutex::new(Some(ClientBytes(Box::new(digest.watch(bytes))))));
        Self { paths: vec![PathBuf::from(name)], client, digest, bytes_read: Arc::default(), position: Arc::default() }
    }

    /// # Errors
    /// [`Error::Io`]; [`Error::Internal`] if a client's bytes are read twice.
    pub fn open(&self, path: &Path) -> Result<Box<dyn Read + Send>> {
        let Some(client) = &self.client else {
            let opened = compression::reader(self.counted(open(path)?));
            return opened.map_err(|source| Error::Io { path: path.to_owned(), source });
        };
        let bytes = client.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ClientBytes(bytes) = bytes.ok_or_else(|| Error::Internal(format!("{} is read twice", path.display())))?;
        Ok(Box::new(self.counted(bytes)))
    }

    /// Of all that was opened.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn counted<R: Read>(&self, source: R) -> Counted<R> {
        Counted { source, count: Arc::clone(&self.bytes_read) }
    }
}

/// Counts the bytes that are read through it.
struct Counted<R> {
    source: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let num_read = self.source.read(buffer)?;
        self.count.fetch_add(num_read as u64, Ordering::Relaxed);
        Ok(num_read)
    }
}

/// Bytes that are read a block at a time into a text that its reader takes records out of.
pub struct Bytes {
    pub path: PathBuf,
    source: Box<dyn Read + Send>,
    pub text: Vec<u8>,
    pub is_at_end: bool,
}

impl Bytes {
    pub fn new(path: &Path, source: Box<dyn Read + Send>) -> Self {
        Self { path: path.to_owned(), source, text: Vec::new(), is_at_end: false }
    }

    pub fn fill(&mut self) -> Result<()> {
        self.text.reserve(BLOCK_BYTES);
        let num_read = Read::by_ref(&mut self.source).take(BLOCK_BYTES as u64).read_to_end(&mut self.text);
        self.is_at_end = num_read.map_err(|error| bad_input(&self.path, None, error))? == 0;
        Ok(())
    }

    /// Reads to the end and forgets it: a client is answered when it has sent everything.
    pub fn skip_rest(&mut self) -> Result<()> {
        while !self.is_at_end {
            self.text.clear();
            self.fill()?;
        }
        self.text.clear();
        Ok(())
    }
}
