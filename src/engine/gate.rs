//! The one gate for files of the server: every path that a statement names is resolved and allowed here before anything opens it.
//!
//! A path is resolved with its symbolic links; only what it leads to counts. It has to be a regular file inside the roots, and never the data
//! directory's own, the kernel's (`/proc`, `/sys`) or a device. What is opened is compared with what was allowed ([`open`]), so that nobody puts a
//! link in its place in between. URLs of other hosts go through [`super::outbound`].

mod patterns;

use std::fs::File;
use std::io::{Error as IoError, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use url::Url;

use super::outbound::Outbound;
use super::privileges::{Access, READ_FILES, WRITE_FILES, denied};
use crate::error::{Error, Result};

/// What the kernel shows as files: not the user's data, and some of it the server's memory and environment.
const KERNEL_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev"];
/// A folder for files among the devices.
const SHARED_MEMORY: &str = "/dev/shm";

/// The places that a database knows.
#[derive(Debug)]
pub struct Places {
    /// Files are inside one of these; `None`: a superuser's may be anywhere, those of others are below the working directory.
    roots: Option<Vec<PathBuf>>,
    working_directory: PathBuf,
    data: PathBuf,
    outbound: Outbound,
}

impl Places {
    /// `data`: the data directory, which exists.
    ///
    /// # Errors
    /// [`Error::Io`] for a root that is no directory.
    pub fn new(data: &Path, roots: Option<&[PathBuf]>, outbound: Outbound) -> Result<Self> {
        let roots = roots.map(|roots| roots.iter().map(|root| directory(root)).collect::<Result<Vec<_>>>()).transpose()?;
        Ok(Self { roots, working_directory: directory(Path::new("."))?, data: directory(data)?, outbound })
    }
}

fn directory(path: &Path) -> Result<PathBuf> {
    let io_error = |source| Error::Io { path: path.to_owned(), source };
    let real = path.canonicalize().map_err(io_error)?;
    if real.is_dir() { Ok(real) } else { Err(io_error(IoError::new(ErrorKind::NotADirectory, "it is not a directory"))) }
}

/// The gate as one role finds it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Gate {
    places: Arc<Places>,
    access: Access,
}

impl Gate {
    pub fn new(places: Arc<Places>, access: Access) -> Self {
        Self { places, access }
    }

    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The files that a name stands for: one, or those that match it as a pattern (`data/*.jsonl`, `**` for folders in folders), in name order.
    ///
    /// # Errors
    /// [`Error::InsufficientPrivilege`] (42501); [`Error::Io`] (58P01) if there is no such file; [`Error::InvalidParameter`] for a directory or
    /// device, and a name that is none; [`Error::NotSupported`] for a URL.
    pub fn read(&self, name: &str) -> Result<Vec<PathBuf>> {
        self.require_member(READ_FILES, "read")?;
        let path = self.local(name)?;
        if !patterns::is_pattern(&path) {
            return Ok(vec![self.readable(name, &path)?]);
        }
        let (folder, pattern) = patterns::split(&path)?;
        let folder = self.inside(name, &folder)?;
        // Step by step: behind a link that leads out, nothing is looked for, so that the answer is the same whatever is there.
        for step in patterns::steps(&pattern) {
            patterns::links(&folder, &step)?.iter().try_for_each(|link| self.matched(name, link).map(drop))?;
        }
        let mut files = Vec::new();
        for path in patterns::matches(&folder, &pattern)? {
            match self.matched(name, &path) {
                Ok(real) if real.is_file() => files.push(real),
                Err(error) if path.is_symlink() => return Err(error),
                // A folder, or in one whose files are never read, such as the data directory: it is as if it were not there.
                _ => {}
            }
        }
        if files.is_empty() {
            return Err(Error::Io { path, source: IoError::new(ErrorKind::NotFound, "no file matches this pattern") });
        }
        Ok(files)
    }

    /// Where something that matches a pattern leads. The error names the pattern alone: what it matches elsewhere is not told.
    fn matched(&self, name: &str, path: &Path) -> Result<PathBuf> {
        let advice = "a link that it matches leads out of the folders whose files may be read, or nowhere; name the files one by one";
        self.inside(name, path).map_err(|_| denied(format!("file '{name}'"), advice))
    }

    /// A file that is there, or can be made.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&self, name: &str) -> Result<PathBuf> {
        self.require_member(WRITE_FILES, "write")?;
        let real = self.inside(name, &self.local(name)?)?;
        match std::fs::metadata(&real) {
            Ok(metadata) if metadata.is_file() => Ok(real),
            Ok(_) => Err(not_a_file(name)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(real),
            Err(source) => Err(Error::Io { path: real, source }),
        }
    }

    /// A directory to read files from, each of which goes through [`Self::open`]. Of a file it is the directory that the file is in, and its name there.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_directory(&self, name: &str) -> Result<(PathBuf, Option<String>)> {
        self.require_member(READ_FILES, "read")?;
        let path = self.local(name)?;
        let real = self.inside(name, &path)?;
        if real.is_dir() {
            return Ok((real, None));
        }
        // The file's own name, and not that of what a link leads to.
        match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
            (Some(parent), Some(file)) if real.is_file() => {
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                Ok((self.inside(name, parent)?, Some(file.to_owned())))
            }
            _ => Err(Error::Io { path: real, source: IoError::new(ErrorKind::NotFound, "no such directory or file") }),
        }
    }

    /// A directory to make files in, each of which is compared with [`is_still`]. It is there, or can be made.
    ///
    /// # Errors
    /// As [`Self::read`]; [`Error::InvalidParameter`] for a file.
    pub fn write_directory(&self, name: &str) -> Result<PathBuf> {
        self.require_member(WRITE_FILES, "write")?;
        let real = self.inside(name, &self.local(name)?)?;
        match std::fs::metadata(&real) {
            Ok(metadata) if metadata.is_dir() => Ok(real),
            Ok(_) => Err(invalid(name, "a directory, which is made if it is not there")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(real),
            Err(source) => Err(Error::Io { path: real, source }),
        }
    }

    /// A file of a directory that was allowed: a link in it may lead elsewhere.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn open(&self, path: &Path) -> Result<File> {
        let real = self.readable(&path.display().to_string(), path)?;
        open(&real).map_err(|source| Error::Io { path: real, source })
    }

    /// Which other hosts may be asked.
    pub fn outbound(&self) -> &Outbound {
        &self.places.outbound
    }

    fn require_member(&self, role: &str, verb: &str) -> Result<()> {
        if self.access.is_member(role) {
            return Ok(());
        }
        let what = format!("files of the server, to {verb} them");
        Err(denied(
            what,
            format!("a superuser can GRANT {role} TO {}; COPY ... FROM STDIN and TO STDOUT need no right to files", self.access.role()),
        ))
    }

    /// The path that a name stands for: itself, or what `file://` says.
    fn local(&self, name: &str) -> Result<PathBuf> {
        if name.is_empty() || name.contains('\0') {
            return Err(invalid(name, "the path of a file, without a zero byte"));
        }
        let Some((scheme, _)) = name.split_once("://") else { return Ok(PathBuf::from(name)) };
        if !scheme.eq_ignore_ascii_case("file") {
            self.places.outbound.check(name)?;
            return Err(Error::NotSupported(format!("reading or writing {scheme}:// is not supported yet; copy the file to the server")));
        }
        // A host in it names another machine, or a device of some systems.
        let path = Url::parse(name).ok().filter(|url| url.host().is_none()).and_then(|url| url.to_file_path().ok());
        match path {
            Some(path) if !path.as_os_str().as_encoded_bytes().contains(&0) => Ok(path),
            _ => Err(invalid(name, "file:///path, without a host")),
        }
    }

    fn readable(&self, name: &str, path: &Path) -> Result<PathBuf> {
        let real = self.inside(name, path)?;
        let metadata = std::fs::metadata(&real).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        if metadata.is_dir() {
            return Err(invalid(name, &format!("files, as in '{}'; it is a directory", path.join("*.jsonl").display())));
        }
        if metadata.is_file() { Ok(real) } else { Err(not_a_file(name)) }
    }

    /// Where a path leads, if that is a place for files. Whether anything is there is not told of other places.
    fn inside(&self, name: &str, path: &Path) -> Result<PathBuf> {
        let real = resolve(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let refused = |reason: &str| Err(denied(format!("file '{name}'"), reason));
        if real.starts_with(&self.places.data) {
            return refused("it is in the data directory, whose tables are read and written by statements alone");
        }
        if KERNEL_FOLDERS.iter().any(|folder| real.starts_with(folder)) && !real.starts_with(SHARED_MEMORY) {
            return refused("it is the kernel's or a device, and no file");
        }
        match &self.places.roots {
            Some(roots) if roots.iter().any(|root| real.starts_with(root)) => Ok(real),
            Some(_) => refused("it is in none of the folders that the server was started with by --file-root"),
            None if self.access.is_superuser() || real.starts_with(&self.places.working_directory) => Ok(real),
            None => refused("it is not below the folder that the server was started in; --file-root names others"),
        }
    }
}

/// The path without links: of what exists by the file system, and what is to be made behind that.
fn resolve(path: &Path) -> std::io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let mut missing = Vec::new();
    let mut existing = absolute.as_path();
    loop {
        match existing.canonicalize() {
            Ok(real) => return Ok(missing.iter().rev().fold(real, |path: PathBuf, part| path.join(part))),
            // Whatever is wrong with it, that is told by who opens it, once it is known to be in a place for files.
            Err(error) => {
                // A link that leads nowhere is there, and what is made through it would be made elsewhere.
                let is_link = std::fs::symlink_metadata(existing).is_ok_and(|metadata| metadata.is_symlink());
                let (Some(Component::Normal(name)), Some(parent), false) = (existing.components().next_back(), existing.parent(), is_link)
                else {
                    return Err(error);
                };
                missing.push(name.to_owned());
                existing = parent;
            }
        }
    }
}

/// Opens a file whose path was resolved, if that is still where the path leads.
///
/// # Errors
/// If it was replaced by a link, or is no regular file.
pub fn open(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    // A pipe in its place would let who opens it wait for a writer; of files it says nothing.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    is_still(&file, path)?;
    Ok(file)
}

/// That an open file is the one that a resolved path names.
///
/// # Errors
/// If there is a link in the path, or the file is no regular one.
pub fn is_still(file: &File, path: &Path) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;

    if !file.metadata()?.is_file() {
        return Err(IoError::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    // Other systems than Linux do not tell the name of what is open; there the path is resolved once more.
    let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).or_else(|_| path.canonicalize())?;
    if path.is_absolute() && real != path {
        return Err(IoError::new(ErrorKind::PermissionDenied, "it was replaced by a link while it was opened"));
    }
    Ok(())
}

fn not_a_file(name: &str) -> Error {
    invalid(name, "a regular file, not a device, a socket or a pipe")
}

fn invalid(name: &str, expected: &str) -> Error {
    Error::InvalidParameter { name: "file".to_owned(), found: format!("'{}'", name.replace('\0', "\\0")), expected: expected.to_owned() }
}

#[cfg(test)]
mod tests;
