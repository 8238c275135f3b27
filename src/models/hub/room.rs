//! Whether the disk has room for what comes. A hub may tell how large a file is only when it is asked for it, several files come at once, and others write to
//! the disk meanwhile: so what is still to come is counted, and compared with what is free before bytes are written. A download claims room for all of its
//! files when it begins, and for those whose sizes are not known then when their answers tell them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;

/// Fails if the disk of a path has not so many bytes free.
pub type CheckRoom = fn(&Path, u64) -> Result<()>;

/// The bytes that all downloads of a database are still to write.
#[derive(Debug)]
pub(super) struct Room {
    check: CheckRoom,
    claimed: Mutex<u64>,
}

/// Those of one file; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    room: Arc<Room>,
    path: PathBuf,
    bytes: u64,
}

impl Room {
    pub fn new(check: CheckRoom) -> Self {
        Self { check, claimed: Mutex::default() }
    }

    /// Whether there is room for so many bytes beside those that are claimed.
    ///
    /// # Errors
    /// Of a full disk.
    pub fn check(&self, path: &Path, bytes: u64) -> Result<()> {
        (self.check)(path, self.claimed().saturating_add(bytes))
    }

    fn claimed(&self) -> MutexGuard<'_, u64> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// Nothing yet, on the disk of this path, which is there.
    pub fn new(room: Arc<Room>, path: &Path) -> Self {
        Self { room, path: path.to_owned(), bytes: 0 }
    }

    /// Claims so many bytes in the place of those before.
    ///
    /// # Errors
    /// Of a full disk; nothing is claimed then that was not before.
    pub fn set(&mut self, bytes: u64) -> Result<()> {
        let mut claimed = self.room.claimed();
        let all = claimed.saturating_sub(self.bytes).saturating_add(bytes);
        (self.room.check)(&self.path, all)?;
        (*claimed, self.bytes) = (all, bytes);
        Ok(())
    }

    /// Whether there is still room for all that is claimed.
    ///
    /// # Errors
    /// Of a full disk.
    pub fn check(&self) -> Result<()> {
        self.room.check(&self.path, 0)
    }

    /// So many bytes are on the disk.
    pub fn written(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        let mut claimed = self.room.claimed();
        *claimed = claimed.saturating_sub(bytes);
        self.bytes -= bytes;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.written(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error as IoError, ErrorKind};

    use super::*;
    use crate::error::Error;

    fn hundred_bytes(path: &Path, bytes: u64) -> Result<()> {
        let full = || Error::Io { path: path.to_owned(), source: IoError::from(ErrorKind::StorageFull) };
        if bytes <= 100 { Ok(()) } else { Err(full()) }
    }

    #[test]
    fn files_that_come_at_once_share_the_room() {
        let (room, path) = (Arc::new(Room::new(hundred_bytes)), Path::new("model.safetensors.part"));
        let claim = || Claim::new(Arc::clone(&room), path);
        let (mut one, mut other) = (claim(), claim());
        one.set(70).expect("there is room");
        other.set(31).expect_err("not for both");
        other.set(30).expect("exactly as much");
        other.check().expect("they still fit");
        room.check(path, 1).expect_err("nothing is left");
        // What was written is not free any more: only what is to come is counted.
        one.written(50);
        room.check(path, 50).expect("it has come");
        one.set(u64::MAX).expect_err("however much is claimed");
        one.set(70).expect("as an attempt that begins anew does");
        one.written(1000);
        drop(other);
        room.check(path, 100).expect("nobody writes");
        assert_eq!(*room.claimed(), 0);
    }
}
