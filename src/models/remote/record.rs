//! The header of a kept answer: how long it is, whose it is, and checksums of both.

use ring::digest::{SHA256, digest};

use super::request::Key;

pub(super) const HEADER_BYTES: usize = 4 + 32 + 8 + 8;

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

/// The beginning of SHA-256.
pub(super) fn sum(bytes: &[u8]) -> [u8; 8] {
    let whole = digest(&SHA256, bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&whole.as_ref()[..8]);
    first
}
