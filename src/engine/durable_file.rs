//! Small files of the data directory that hold one JSON value: written whole beside the old one, synced, and renamed into its place.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Who may do what is nobody's business but the server's.
pub const MODE: u32 = 0o600;

/// `None`: there is no such file.
///
/// # Errors
/// [`Error::Io`]; [`Error::Damaged`] with the place of what does not fit, not with what stands there.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Io { path: path.to_owned(), source }),
    };
    let damaged = |error: serde_json::Error| Error::Damaged {
        path: path.to_owned(),
        reason: format!("it does not fit at line {}, column {}", error.line(), error.column()),
    };
    serde_json::from_str(&text).map(Some).map_err(damaged)
}

/// When this returns, the value is on the disk; a crash before leaves the old one. One writer at a time.
///
/// # Errors
/// [`Error::Io`].
pub fn write<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::Internal(format!("writing {}: {error}", path.display())))?;
    replace(path, format!("{text}\n").as_bytes())
}

/// As [`write`], for a file of another form.
///
/// # Errors
/// [`Error::Io`].
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let io_error = |source| Error::Io { path: path.to_owned(), source };
    // What a crash leaves of this name is overwritten by the next write.
    let unfinished = path.with_extension("json.unfinished");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&unfinished).map_err(io_error)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io_error)?;
    std::fs::rename(&unfinished, path).map_err(io_error)?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_only_by_the_server() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("value.json");
        assert_eq!(read::<Vec<u8>>(&path).expect("nothing is no error"), None);
        write(&path, &vec![1, 2]).expect("it is written");
        write(&path, &vec![3]).expect("it is replaced");
        assert_eq!(read::<Vec<u8>>(&path).expect("it is read"), Some(vec![3]));
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        assert_eq!(std::fs::read_dir(directory.path()).expect("it is readable").count(), 1, "nothing is left beside it");
        std::fs::write(&path, "[\"a secret\"]").expect("a temporary file is writable");
        let error = read::<Vec<u8>>(&path).expect_err("not numbers").to_string();
        assert!(error.contains("line 1") && !error.contains("secret"), "{error}");
    }
}
