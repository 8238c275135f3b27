//! The file of roles: read when the data directory is opened, replaced as a whole with every change.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::State;
use crate::error::{Error, Result};

const NAME: &str = "roles.json";

/// It holds what passwords are checked against: nobody else's business.
const MODE: u32 = 0o600;

#[derive(Debug)]
pub(super) struct RoleFile {
    directory: PathBuf,
}

impl RoleFile {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// `None`: no statement has been about roles yet.
    pub(super) fn read(&self) -> Result<Option<State>> {
        let path = self.path();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Io { path, source }),
        };
        // Of the error its place is told, not what stands there.
        let damaged = |error: serde_json::Error| Error::Damaged {
            path: path.clone(),
            reason: format!("no list of roles at line {}, column {}", error.line(), error.column()),
        };
        let state: State = serde_json::from_str(&text).map_err(damaged)?;
        state.check().map_err(|reason| Error::Damaged { path, reason })?;
        Ok(Some(state))
    }

    /// When this returns, the new roles are on the disk; a crash before leaves the old ones.
    pub(super) fn write(&self, state: &State) -> Result<()> {
        let path = self.path();
        let io_error = |source| Error::Io { path: path.clone(), source };
        let mut file = tempfile::NamedTempFile::new_in(&self.directory).map_err(io_error)?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(MODE)).map_err(io_error)?;
        serde_json::to_writer_pretty(&mut file, state).map_err(|error| io_error(error.into()))?;
        file.as_file().sync_all().map_err(io_error)?;
        file.persist(&path).map_err(|error| io_error(error.error))?;
        std::fs::File::open(&self.directory).and_then(|folder| folder.sync_all()).map_err(io_error)
    }

    fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }
}
