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

/// The patterns of the folders on the way to what a pattern matches: of `a*/**/b*`, `a*` and `a*/**`.
pub fn steps(pattern: &Path) -> Vec<PathBuf> {
    let parts: Vec<_> = pattern.components().collect();
    (1..parts.len()).map(|num_parts| parts[..num_parts].iter().collect()).collect()
}

/// The links of a resolved folder that match. What cannot be read behind one of them is no error here.
///
/// # Errors
/// [`Error::InvalidParameter`] for what is no pattern.
pub fn links(folder: &Path, pattern: &Path) -> Result<Vec<PathBuf>> {
    Ok(found(folder, pattern)?.filter_map(std::result::Result::ok).filter(|path| path.is_symlink()).collect())
}

/// What matches in a resolved folder, in name order: files, folders and links.
///
/// # Errors
/// [`Error::InvalidParameter`] for what is no pattern, [`Error::Io`].
pub fn matches(folder: &Path, pattern: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for path in found(folder, pattern)? {
        paths.push(path.map_err(|error| Error::Io { path: error.path().to_owned(), source: error.into() })?);
    }
    paths.sort();
    Ok(paths)
}

fn found(folder: &Path, pattern: &Path) -> Result<glob::Paths> {
    // Of the folder, a bracket is a bracket.
    let whole = Path::new(&glob::Pattern::escape(&folder.to_string_lossy())).join(pattern);
    glob::glob(&whole.to_string_lossy()).map_err(|error| invalid(pattern, &format!("a pattern: {}", error.msg)))
}

fn invalid(path: &Path, expected: &str) -> Error {
    Error::InvalidParameter { name: "file".to_owned(), found: format!("'{}'", path.display()), expected: expected.to_owned() }
}
