//! The Unix socket where libpq looks for it: `DIR/.s.PGSQL.PORT`.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::error::{Error, Result};

/// Everybody may connect: who it is, is asked then.
const MODE: u32 = 0o777;

/// A bound socket; its file is gone when this is dropped.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Locked as long as this process has the socket. Its file stays: to remove it would let two servers lock two files of one name.
    _lock: File,
}

impl UnixSocket {
    /// # Errors
    /// [`Error::InUse`] if another server has this socket; [`Error::Io`] for a directory that does not exist or a path that is too long.
    pub fn bind(directory: &Path, port: u16) -> Result<Self> {
        let path = directory.join(format!(".s.PGSQL.{port}"));
        let io_error = |source| Error::Io { path: path.clone(), source };
        let lock = lock(&path)?;
        // Nobody else has the lock: what lies there is left from a server that was killed.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(io_error)?;
        std::fs::set_permissions(&path, Permissions::from_mode(MODE)).map_err(io_error)?;
        Ok(Self { listener, path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // One that cannot be removed is in the way of nobody: the next server removes it.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn lock(socket: &Path) -> Result<File> {
    let path = socket.with_added_extension("lock");
    let io_error = |source| Error::Io { path: path.clone(), source };
    let file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&path).map_err(io_error)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Error::InUse(format!("another server has the socket {}; choose another port or --socket-dir", socket.display())))
        }
        Err(TryLockError::Error(source)) => Err(io_error(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_has_one_server_and_is_removed_with_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = UnixSocket::bind(directory.path(), 5433).expect("a free socket");
        let path = directory.path().join(".s.PGSQL.5433");
        assert!(path.exists() && socket.path() == path);
        assert!(matches!(UnixSocket::bind(directory.path(), 5433), Err(Error::InUse(_))));
        drop(socket);
        assert!(!path.exists());
        // As a server that was killed leaves it.
        std::fs::write(&path, "").expect("a file");
        let again = UnixSocket::bind(directory.path(), 5433).expect("it is free again");
        let client = UnixStream::connect(again.path()).await.expect("it listens");
        again.accept().await.expect("a client");
        drop(client);
    }
}
