//! The records of a file of answers: they are found behind damage too, and some of them are written anew.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Result as IoResult, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::record::{HEADER_BYTES, Header};
use super::request::Key;

/// Bytes that are looked through at once for the next record.
const WINDOW_BYTES: u64 = 1 << 20;

/// A record of a file. Its header is whole; of its answer that is not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub key: Key,
    pub offset: u32,
    /// Of the answer.
    pub len: u32,
}

/// What is in a file.
#[derive(Debug)]
pub(crate) struct Records {
    /// In the order of the file.
    pub found: Vec<Record>,
    /// Of the whole file.
    pub bytes: u64,
}

impl Record {
    /// On the disk.
    pub fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.len)
    }
}

impl Records {
    pub fn read(file: &File) -> IoResult<Self> {
        let bytes = file.metadata()?.len();
        let mut reader = BufReader::with_capacity(1 << 20, file);
        reader.rewind()?;
        let (mut found, mut at) = (Vec::new(), 0);
        while at + HEADER_BYTES as u64 <= bytes {
            let mut header = [0; HEADER_BYTES];
            reader.read_exact(&mut header)?;
            if let Some(record) = record_at(&header, at, bytes) {
                reader.seek_relative(i64::from(record.len))?;
                at += record.bytes();
                found.push(record);
            } else {
                let Some(next) = next_record(file, at + 1, bytes)? else { break };
                reader.seek(SeekFrom::Start(next))?;
                at = next;
            }
        }
        Ok(Self { found, bytes })
    }

    /// Where the last record ends.
    pub fn end(&self) -> u64 {
        self.found.last().map_or(0, |record| u64::from(record.offset) + record.bytes())
    }

    /// Whether the file ends where its last record does: what is appended stands behind a record, and not behind a torn one.
    pub fn is_whole_at_end(&self) -> bool {
        self.end() == self.bytes
    }

    /// What belongs to no record: its header is damaged, or its end is missing.
    pub fn damaged_bytes(&self) -> u64 {
        self.bytes - self.found.iter().map(Record::bytes).sum::<u64>()
    }
}

/// The record whose header this is, if the file holds all of it.
fn record_at(header: &[u8], offset: u64, file_bytes: u64) -> Option<Record> {
    let len = u32::from_le_bytes(*header.first_chunk()?);
    let fits = len > 0 && offset + HEADER_BYTES as u64 + u64::from(len) <= file_bytes;
    // Behind damage, few places need a checksum.
    let header = fits.then(|| Header::read(header)).flatten()?;
    Some(Record { key: header.key, offset: u32::try_from(offset).ok()?, len })
}

/// Where the next record begins, from this place on.
///
/// What a server wrote into an answer is never taken for one: the highest byte of a length is that of a control character, and JSON has none.
fn next_record(file: &File, from: u64, file_bytes: u64) -> IoResult<Option<u64>> {
    let (mut window, mut at) = (Vec::new(), from);
    while at + HEADER_BYTES as u64 <= file_bytes {
        let len = (file_bytes - at).min(WINDOW_BYTES) as usize;
        window.resize(len, 0);
        file.read_exact_at(&mut window, at)?;
        let found = (at..).zip(window.windows(HEADER_BYTES)).find(|(offset, header)| record_at(header, *offset, file_bytes).is_some());
        if let Some((offset, _)) = found {
            return Ok(Some(offset));
        }
        // A header may begin at the end of this window.
        at += (len - HEADER_BYTES + 1) as u64;
    }
    Ok(None)
}

/// A new file of these records, on the disk.
pub(super) fn copy(from: &File, records: &[Record], to: &Path) -> IoResult<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(to)?;
    let mut writer = BufWriter::with_capacity(1 << 20, &file);
    for record in records {
        let mut bytes = vec![0; record.bytes() as usize];
        from.read_exact_at(&mut bytes, u64::from(record.offset))?;
        writer.write_all(&bytes)?;
    }
    writer.flush()?;
    drop(writer);
    file.sync_all()?;
    Ok(file)
}
