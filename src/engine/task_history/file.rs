//! The file of the history: a line of JSON for each time that an entry was written, of which the last one counts.
//!
//! It is not synced: after a power failure the last lines may be missing, after a kill they are there.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::KEPT_MAX;
use super::entry::Entry;
use crate::engine::durable_file;
use crate::error::{Error, Result};

/// With so many lines the file is written anew, with those that are kept.
const LINES_MAX: usize = 4 * KEPT_MAX;

#[derive(Debug)]
pub(super) struct HistoryFile {
    path: PathBuf,
    /// Opened with the first entry.
    file: Option<File>,
    /// Up to the end of the last whole line.
    bytes: u64,
    num_lines: usize,
}

impl HistoryFile {
    /// The file, and the entries in it by number. A line that is torn or no entry is passed over: nobody else loses by it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(path: &Path) -> Result<(Self, Vec<Entry>)> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(Error::Io { path: path.to_owned(), source }),
        };
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut entries = BTreeMap::new();
        let mut num_lines = 0;
        for line in text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            num_lines += 1;
            if let Ok(entry) = serde_json::from_slice::<Entry>(line) {
                entries.insert(entry.task_id, entry);
            }
        }
        let file = Self { path: path.to_owned(), file: None, bytes: whole as u64, num_lines };
        Ok((file, entries.into_values().collect()))
    }

    /// Adds a line for each. After an error the next one writes in the same place.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn append(&mut self, entries: &[Arc<Entry>]) -> Result<()> {
        let lines = lines(entries)?;
        let (path, bytes) = (self.path.clone(), self.bytes);
        let io_error = |source| Error::Io { path, source };
        let file = match self.file.take() {
            Some(file) => Ok(file),
            None => OpenOptions::new().write(true).create(true).truncate(false).mode(durable_file::MODE).open(&self.path),
        };
        let written = file.and_then(|file| {
            file.write_all_at(&lines, bytes)?;
            Ok(file)
        });
        self.file = Some(written.map_err(io_error)?);
        self.bytes += lines.len() as u64;
        self.num_lines += entries.len();
        Ok(())
    }

    pub fn is_full(&self) -> bool {
        self.num_lines > LINES_MAX
    }

    /// Only these are in it.
    ///
    /// # Errors
    /// [`Error::Io`]; then it is as it was.
    pub fn replace(&mut self, entries: &[Arc<Entry>]) -> Result<()> {
        let lines = lines(entries)?;
        durable_file::replace(&self.path, &lines)?;
        (self.file, self.bytes, self.num_lines) = (None, lines.len() as u64, entries.len());
        Ok(())
    }
}

fn lines(entries: &[Arc<Entry>]) -> Result<Vec<u8>> {
    let mut lines = Vec::new();
    for entry in entries {
        let written = serde_json::to_writer(&mut lines, entry.as_ref());
        written.map_err(|error| Error::Internal(format!("an entry is no JSON: {error}")))?;
        lines.push(b'\n');
    }
    Ok(lines)
}
