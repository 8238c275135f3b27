//! The file of one tree: records that are appended as answers come, and read back by their keys.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Result as IoResult;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Key;
use crate::engine::durable_file::MODE;
use crate::models::remote::record::{answer_at, record_of};
use crate::models::remote::records::{Record, Records};

/// The answers that the tree of a question has had.
///
/// The file is not held open: a run may have a thousand trees in flight, and a process may not have many more files.
#[derive(Debug)]
pub struct TreeJournal {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the answers that were there when the file was opened.
    places: HashMap<Key, Place>,
    /// Where the next record stands.
    bytes: u64,
    damaged_bytes: u64,
    /// Nothing is written any more: the tree is committed, or the disk refused.
    is_closed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u32,
    /// Of the answer.
    len: u32,
}

impl TreeJournal {
    /// Without answers; the file is made with the first one.
    pub fn new(path: PathBuf) -> Self {
        Self { path, state: Mutex::default() }
    }

    /// With the answers that a file has. A torn end is cut off: what is appended has to stand behind a record.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn open(path: PathBuf) -> IoResult<Self> {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let records = Records::read(&file)?;
        if !records.is_whole_at_end() {
            file.set_len(records.end())?;
        }
        let place = |record: &Record| (record.key, Place { offset: record.offset, len: record.len });
        let places = records.found.iter().map(place).collect();
        let (bytes, damaged_bytes) = (records.end(), records.damaged_bytes());
        Ok(Self { path, state: Mutex::new(State { places, bytes, damaged_bytes, is_closed: false }) })
    }

    /// The answer under a key, if the file had it when it was opened and it is whole.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let place = self.lock().places.get(key).copied()?;
        let answer = File::open(&self.path).ok().and_then(|file| answer_at(&file, place.offset, place.len, key));
        if answer.is_none() {
            // What is damaged is asked for again.
            self.lock().places.remove(key);
        }
        answer
    }

    /// Adds an answer, unless nothing is written any more. Returns the bytes that were written.
    ///
    /// # Errors
    /// Those of the disk; nothing is written after one.
    pub fn put(&self, key: &Key, answer: &[u8]) -> IoResult<u64> {
        let record = record_of(key, answer)?;
        let mut state = self.lock();
        if state.is_closed {
            return Ok(0);
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(state.bytes == 0).mode(MODE);
        let written = options.open(&self.path).and_then(|file| file.write_all_at(&record, state.bytes));
        // The rest of a record would hide those after it.
        state.is_closed = written.is_err();
        written?;
        state.bytes += record.len() as u64;
        Ok(record.len() as u64)
    }

    /// The tree is committed: its answers go. Returns the bytes that they took.
    pub fn remove(&self) -> u64 {
        let mut state = self.lock();
        if state.bytes > 0 {
            // What cannot be removed now goes with the folder.
            let _ = fs::remove_file(&self.path);
        }
        let bytes = state.bytes;
        *state = State { is_closed: true, ..State::default() };
        bytes
    }

    /// Answers that were there when the file was opened.
    pub fn num_known(&self) -> usize {
        self.lock().places.len()
    }

    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// What belonged to no record when the file was opened.
    pub fn damaged_bytes(&self) -> u64 {
        self.lock().damaged_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
