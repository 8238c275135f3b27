//! A kept answer as a file has it: a header, which says how long it is, whose it is, and has checksums of both, and the answer.

use std::fs::File;
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::os::unix::fs::FileExt;

use ring::digest::{SHA256, digest};

use super::request::Key;

pub(crate) const HEADER_BYTES: usize = 4 + 32 + 8 + 8;

/// What stands before an answer.
pub(super) struct Header {
    /// Bytes of the answer.
    pub len: u32,
    pub key: Key,
    /// Of the answer.
    pub sum: [u8; 8],
}

impl Header {
    /// With room for the answer.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.len as usize);
        bytes.extend_from_slice(&self.len.to_le_bytes());
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&self.sum);
        let own = sum(&bytes);
        bytes.extend_from_slice(&own);
        bytes
    }

    /// None if it is torn.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (fields, own) = bytes.split_last_chunk::<8>()?;
        let (len, rest) = fields.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_first_chunk::<32>()?;
        let header = Self { len: u32::from_le_bytes(*len), key: *key, sum: rest.try_into().ok()? };
        (sum(fields) == *own).then_some(header)
    }
}

/// The whole record of an answer.
///
/// # Errors
/// For an answer of more than 4 GB.
pub(crate) fn record_of(key: &Key, answer: &[u8]) -> IoResult<Vec<u8>> {
    let too_long = || IoError::new(ErrorKind::InvalidInput, "an answer of more than 4 GB");
    let len = u32::try_from(answer.len()).map_err(|_| too_long())?;
    let mut record = Header { len, key: *key, sum: sum(answer) }.write();
    record.extend_from_slice(answer);
    Ok(record)
}

/// The answer of the record at this place, which has so many bytes. None if it is damaged, or that of another key.
pub(crate) fn answer_at(file: &File, offset: u32, len: u32, key: &Key) -> Option<Vec<u8>> {
    let mut record = vec![0; HEADER_BYTES + len as usize];
    file.read_exact_at(&mut record, u64::from(offset)).ok()?;
    let (header, answer) = record.split_at(HEADER_BYTES);
    let is_whole = Header::read(header).is_some_and(|header| header.key == *key && header.sum == sum(answer));
    is_whole.then(|| answer.to_vec())
}

/// The beginning of SHA-256.
fn sum(bytes: &[u8]) -> [u8; 8] {
    let whole = digest(&SHA256, bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&whole.as_ref()[..8]);
    first
}
