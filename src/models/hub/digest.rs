//! What the content of a file has to be.

use std::fmt;

/// By which a hub names a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentDigest {
    /// Of a large file, which is stored beside the repository (LFS).
    Sha256([u8; 32]),
    /// Of one in the repository: the SHA-1 of `blob <length>\0` and the content.
    GitBlob([u8; 20]),
}

impl ContentDigest {
    /// 64 hexadecimal digits.
    pub fn sha256(hex: &str) -> Option<Self> {
        from_hex(hex).map(Self::Sha256)
    }

    /// 40 hexadecimal digits.
    pub fn git_blob(hex: &str) -> Option<Self> {
        from_hex(hex).map(Self::GitBlob)
    }

    /// Of an entity tag that is a digest, as the hub's are.
    pub fn of_etag(etag: &str) -> Option<Self> {
        let hex = etag.trim().trim_start_matches("W/").trim_matches('"');
        Self::sha256(hex).or_else(|| Self::git_blob(hex))
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, bytes) = match self {
            Self::Sha256(bytes) => ("sha256", bytes.as_slice()),
            Self::GitBlob(bytes) => ("git blob", bytes.as_slice()),
        };
        write!(f, "{name} ")?;
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn from_hex<const N: usize>(hex: &str) -> Option<[u8; N]> {
    if hex.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(bytes)
}
