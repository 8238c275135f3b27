//! The files that a name stands for.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The file of that name; or, if there is none, the files that match it as a pattern (`data/*.jsonl`, `**` for folders in folders), in name order.
///
/// # Errors
/// [`Error::Io`] (58P01) if there is no such file, [`Error::InvalidParameter`] for a directory or a pattern that is none.
pub fn expand(name: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(name);
    if path.is_dir() {
        return Err(invalid(format!("'{name}', a directory"), format!("files, as in '{}'", path.join("*.jsonl").display())));
    }
    if path.exists() || !name.contains(['*', '?', '[']) {
        std::fs::metadata(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        return Ok(vec![path.to_owned()]);
    }
    let matches = glob::glob(name).map_err(|error| invalid(format!("'{name}'"), format!("a pattern: {}", error.msg)))?;
    let mut paths = Vec::new();
    for found in matches {
        let found = found.map_err(|error| Error::Io { path: error.path().to_owned(), source: error.into() })?;
        if found.is_file() {
            paths.push(found);
        }
    }
    if paths.is_empty() {
        let source = std::io::Error::new(ErrorKind::NotFound, "no file matches this pattern");
        return Err(Error::Io { path: path.to_owned(), source });
    }
    paths.sort();
    Ok(paths)
}

fn invalid(found: String, expected: String) -> Error {
    Error::InvalidParameter { name: "file".to_owned(), found, expected }
}
