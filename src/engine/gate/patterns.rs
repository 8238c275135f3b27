//! Names that stand for several files.

use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};

const SIGNS: [char; 3] = ['*', '?', '['];

/// Whether the name is a pattern: one that is a file's own name is none.
pub fn is_pattern(path: &Path) -> bool {
    has_sign(path) && !path.exists()
}

fn has_sign(path: &Path) -> bool {
    path.as_os_str().to_string_lossy().contains(SIGNS)
}

/// The folder before the first sign, and the pattern within it.
///
/// # Errors
/// [`Error::InvalidParameter`] for `..` behind a sign, which would lead out of what matched.
pub fn split(path: &Path) -> Result<(PathBuf, PathBuf)> {
    let num_before = path.components().take_while(|part| !has_sign(Path::new(part.as_os_str()))).count();
    let folder: PathBuf = path.components().take(num_before).collect();
    let pattern: PathBuf = path.components().skip(num_before).collect();
    if pattern.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(invalid(path, "a pattern without '..' behind its first sign"));
    }
    Ok((if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder }, pattern))
}

/// The regular files of a resolved folder that match, in name order.
///
/// # Errors
/// [`Error::InvalidParameter`] for what is no pattern, [`Error::Io`].
pub fn matches(folder: &Path, pattern: &Path) -> Result<Vec<PathBuf>> {
    // Of the folder, a bracket is a bracket.
    let whole = Path::new(&glob::Pattern::escape(&folder.to_string_lossy())).join(pattern);
    let found = glob::glob(&whole.to_string_lossy()).map_err(|error| invalid(pattern, &format!("a pattern: {}", error.msg)))?;
    let mut paths = Vec::new();
    for path in found {
        let path = path.map_err(|error| Error::Io { path: error.path().to_owned(), source: error.into() })?;
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn invalid(path: &Path, expected: &str) -> Error {
    Error::InvalidParameter { name: "file".to_owned(), found: format!("'{}'", path.display()), expected: expected.to_owned() }
}
