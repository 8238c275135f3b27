//! Where the bytes of records come from: files, one after the other, or a client.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{BLOCK_BYTES, bad_input, open_text};
use crate::error::{Error, Result};

/// Files of one format; or what a client sends, which can be read once and has a name in place of a path.
#[derive(Debug)]
pub struct Input {
    /// In messages about a line.
    pub paths: Vec<PathBuf>,
    client: Option<Mutex<Option<ClientBytes>>>,
}

struct ClientBytes(Box<dyn Read + Send>);

impl fmt::Debug for ClientBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientBytes")
    }
}

impl Input {
    pub fn files(paths: Vec<PathBuf>) -> Self {
        Self { paths, client: None }
    }

    /// `name`: as in `COPY films, line 3`.
    pub fn client(name: String, bytes: impl Read + Send + 'static) -> Self {
        Self { paths: vec![PathBuf::from(name)], client: Some(Mutex::new(Some(ClientBytes(Box::new(bytes))))) }
    }

    /// # Errors
    /// [`Error::Io`]; [`Error::Internal`] if a client's bytes are read twice.
    pub fn open(&self, path: &Path) -> Result<Box<dyn Read + Send>> {
        let Some(client) = &self.client else { return open_text(path) };
        let bytes = client.lock().unwrap_or_else(PoisonError::into_inner).take();
        bytes.map(|ClientBytes(bytes)| bytes).ok_or_else(|| Error::Internal(format!("{} is read twice", path.display())))
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
