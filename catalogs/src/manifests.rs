//! The manifests of a table on disk: torn ones are set aside, and the last whole version is the newest again.
//!
//! A manifest gets its name when all of it is on the disk (see [`crate::durability`]), so a torn one is damage from outside: a disk that forgot, a
//! copy that was cut short. Such a file is renamed, never removed. Its number is not given to another version: whoever has noted it must not find
//! other rows under it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use chrono::Utc;
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_table::format::{MAGIC, pb};
use lance_table::io::commit::{CommitError, CommitHandler, ConditionalPutCommitHandler, ManifestNamingScheme, write_manifest_file_to_path};
use prost::Message;

use crate::durability::sync_directory;
use crate::{Error, Result, Table};

/// The folder of a dataset that holds its manifests.
pub(crate) const VERSIONS: &str = "_versions";
const SUFFIX: &str = ".manifest";
/// Lance looks at no name that does not end as a manifest's.
const TORN_SUFFIX: &str = ".manifest.torn";
/// Digits of the name of a manifest: `u64::MAX - version`.
const NAME_DIGITS: usize = 20;
/// Position of the manifest in its file (i64), version of the format (2 x i16), magic.
const FOOTER_BYTES: usize = 16;
/// A message is preceded by its length (u32).
const LENGTH_BYTES: usize = 4;

/// A version whose manifest was not readable; the file is kept under another name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornVersion {
    pub version: u64,
    pub file: PathBuf,
    pub bytes: u64,
}

/// Which manifests to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// From the newest down to the first whole one.
    Newest,
    All,
}

/// What [`set_torn_aside`] did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SetAside {
    /// With what is wrong with each.
    pub(crate) torn: Vec<(TornVersion, String)>,
    /// The newest whole version.
    pub(crate) newest: u64,
    /// The newest version of all, whole or torn, now or before.
    pub(crate) highest: u64,
}

/// Gives torn manifests of the dataset in `directory` another name. `None`, and nothing is touched, when no manifest is whole: there is no version
/// to fall back to.
pub(crate) fn set_torn_aside(directory: &Path, which: Which) -> io::Result<Option<SetAside>> {
    let versions = directory.join(VERSIONS);
    let mut manifests = named(&versions, SUFFIX)?;
    manifests.sort_unstable_by_key(|(version, _)| std::cmp::Reverse(*version));
    let mut torn = Vec::new();
    let mut newest = None;
    for (version, file) in manifests {
        match fault_of(&file)? {
            Some(fault) => torn.push((version, file, fault)),
            None => newest = Some(newest.unwrap_or(0).max(version)),
        }
        if which == Which::Newest && newest.is_some() {
            break;
        }
    }
    let Some(newest) = newest else { return Ok(None) };
    let torn = torn.into_iter().map(|(version, file, fault)| Ok((rename(version, &file)?, fault))).collect::<io::Result<Vec<_>>>()?;
    if !torn.is_empty() {
        sync_directory(&versions)?;
    }
    let highest = named(&versions, TORN_SUFFIX)?.into_iter().map(|(version, _)| version).fold(newest, u64::max);
    Ok(Some(SetAside { torn, newest, highest }))
}

fn rename(version: u64, file: &Path) -> io::Result<TornVersion> {
    let bytes = file.metadata()?.len();
    let kept = file.with_extension("manifest.torn");
    fs::rename(file, &kept)?;
    Ok(TornVersion { version, file: kept, bytes })
}

/// The files of a folder that are named `<20 digits><suffix>`, with their versions.
fn named(versions: &Path, suffix: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(versions) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_suffix(suffix)).filter(|digits| digits.len() == NAME_DIGITS);
        if let Some(inverted) = digits.and_then(|digits| digits.parse::<u64>().ok()) {
            found.push((u64::MAX - inverted, entry.path()));
        }
    }
    Ok(found)
}

/// The versions of the dataset in `directory`, and when each was written.
pub(crate) fn versions_with_times(directory: &Path) -> io::Result<Vec<(u64, SystemTime)>> {
    let manifests = named(&directory.join(VERSIONS), SUFFIX)?;
    manifests.into_iter().map(|(version, file)| Ok((version, fs::metadata(file)?.modified()?))).collect()
}

/// What is wrong with a manifest; `None` when every part of it can be read. What a newer program wrote may mean nothing to this one, but is whole.
fn fault_of(file: &Path) -> io::Result<Option<String>> {
    let bytes = fs::read(file)?;
    Ok(parts(&bytes).err())
}

/// What is wrong with the bytes of a manifest, for tests that throw bytes at it.
#[doc(hidden)]
#[must_use]
pub fn manifest_fault(bytes: &[u8]) -> Option<String> {
    parts(bytes).err()
}

fn parts(bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    let footer = bytes.len().checked_sub(FOOTER_BYTES).filter(|_| bytes.ends_with(MAGIC));
    let footer = footer.ok_or_else(|| format!("it ends after {} bytes, before its end", bytes.len()))?;
    let position = bytes[footer..].first_chunk::<8>().map(|position| i64::from_le_bytes(*position));
    let position = position.and_then(|position| usize::try_from(position).ok());
    let body = position.and_then(|position| message(&bytes[..footer], position)).filter(|(_, end)| *end == footer);
    let (body, _) = body.ok_or("its parts are not where it says")?;
    let manifest = pb::Manifest::decode(body).map_err(|error| error.to_string())?;
    let section = |position: Option<u64>| -> Result<&[u8], String> {
        let Some(position) = position else { return Ok(&[]) };
        let section = usize::try_from(position).ok().and_then(|position| message(bytes, position));
        section.map(|(section, _)| section).ok_or_else(|| "a part of it is missing".to_owned())
    };
    pb::IndexSection::decode(section(manifest.index_section)?).map_err(|error| format!("its indexes: {error}"))?;
    pb::Transaction::decode(section(manifest.transaction_section)?).map_err(|error| format!("its transaction: {error}"))?;
    Ok(())
}

/// The message at a position, without its length, and where it ends.
fn message(bytes: &[u8], position: usize) -> Option<(&[u8], usize)> {
    let length = u32::from_le_bytes(*bytes.get(position..)?.first_chunk::<LENGTH_BYTES>()?);
    let start = position + LENGTH_BYTES;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    Some((bytes.get(start..end)?, end))
}

/// Writes the rows of `dataset` again as the version after `highest`, so that no version between gets new rows.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn skip_numbers(table: &str, dataset: &Dataset, highest: u64) -> Result<()> {
    let failed = |source| Error::storage(table, source);
    let mut manifest = dataset.manifest().clone();
    manifest.version = highest + 1;
    manifest.transaction_file = None;
    manifest.set_timestamp(u128::try_from(Utc::now().timestamp_nanos_opt().unwrap_or_default()).unwrap_or_default());
    let indexes = dataset.load_indices().await.map_err(failed)?;
    let store = dataset.object_store(None).await.map_err(failed)?;
    let base = dataset.branch_location().path;
    let write = ConditionalPutCommitHandler.commit(
        &mut manifest,
        Some(Vec::clone(&indexes)),
        &base,
        &store,
        write_manifest_file_to_path,
        ManifestNamingScheme::V2,
        None,
    );
    match write.await {
        Ok(_) => Ok(()),
        Err(CommitError::OtherError(source)) => Err(failed(source)),
        Err(CommitError::CommitConflict) => {
            Err(Error::Conflict { table: table.to_owned(), reason: format!("version {} was written meanwhile", highest + 1) })
        }
    }
}

/// For the person at the client.
pub(crate) fn warning(table: &str, torn: &TornVersion, fault: &str, newest: u64) -> String {
    let (version, file) = (torn.version, torn.file.display());
    match torn.version > newest {
        true => format!(
            "table \"{table}\": version {version} is lost, because its manifest is torn ({fault}); version {newest} is the newest again, and what \
             version {version} had changed has to be written again; the torn file is kept as {file}, and data files that only it named go with the \
             next VACUUM"
        ),
        false => format!(
            "table \"{table}\": version {version} can not be read again, because its manifest is torn ({fault}); later versions are whole; the torn \
             file is kept as {file}"
        ),
    }
}

impl Table {
    /// Versions whose manifests were torn and are kept aside, oldest first.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn torn_versions(&self) -> Result<Vec<TornVersion>> {
        let versions = self.state.directory.join(VERSIONS);
        let failed = |source| Error::io(&versions, source);
        let mut torn = Vec::new();
        for (version, file) in named(&versions, TORN_SUFFIX).map_err(failed)? {
            let bytes = file.metadata().map_err(failed)?.len();
            torn.push(TornVersion { version, file, bytes });
        }
        torn.sort_unstable_by_key(|torn| torn.version);
        Ok(torn)
    }
}

/// Messages for the next client that asks.
#[derive(Debug, Default, Clone)]
pub(crate) struct Warnings(Arc<std::sync::Mutex<Vec<String>>>);

impl Warnings {
    pub(crate) fn push(&self, warning: String) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(warning);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
