//! Old versions that something names by number: which a vacuum would remove, and what they take on the disk.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use lance::index::DatasetIndexExt;
use lance_table::io::deletion::relative_deletion_file_path;

use crate::retention::time_before;
use crate::{Error, Result, Table};

const DATA: &str = "data";
const INDICES: &str = "_indices";

/// Versions that would go if nothing named them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldVersions {
    pub versions: BTreeSet<u64>,
    /// Of the files that only they name.
    pub bytes: u64,
}

impl Table {
    /// Those of `named` that are older than `keep`, that are not the newest one, and that have no tag.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub async fn held_versions(&self, keep: Duration, named: &HashSet<u64>) -> Result<HeldVersions> {
        if named.is_empty() {
            return Ok(HeldVersions::default());
        }
        let table = self.latest().await?;
        let tagged: HashSet<u64> = table.tags().await?.into_iter().map(|tag| tag.version).collect();
        let before = time_before(keep).timestamp_micros();
        let (mut held, mut others) = (BTreeSet::new(), Vec::new());
        for found in table.versions().await? {
            let goes = found.committed_micros < before && found.version != table.version() && !tagged.contains(&found.version);
            match (goes, named.contains(&found.version)) {
                (true, true) => {
                    held.insert(found.version);
                }
                (true, false) => {}
                (false, _) => others.push(found.version),
            }
        }
        let mut files = HashMap::new();
        for version in &held {
            files.extend(table.files_of(*version).await?);
        }
        if !files.is_empty() {
            for version in others {
                for file in table.files_of(version).await?.keys() {
                    files.remove(file);
                }
            }
        }
        Ok(HeldVersions { versions: held, bytes: files.values().sum() })
    }

    /// The files and folders that a version names, with their bytes.
    async fn files_of(&self, version: u64) -> Result<HashMap<String, u64>> {
        let failed = |source| Error::storage(self.name(), source);
        let dataset = self.dataset.checkout_version(version).await.map_err(failed)?;
        let mut names = Vec::new();
        for fragment in dataset.fragments().iter() {
            names.extend(fragment.files.iter().map(|file| format!("{DATA}/{}", file.path)));
            names.extend(fragment.deletion_file.as_ref().map(|file| relative_deletion_file_path(fragment.id, file)));
        }
        let indexes = dataset.load_indices().await.map_err(failed)?;
        names.extend(indexes.iter().map(|index| format!("{INDICES}/{}", index.uuid)));
        let directory = &self.state.directory;
        Ok(names.into_iter().map(|name| (size(&directory.join(&name)), name)).map(|(bytes, name)| (name, bytes)).collect())
    }
}

/// Of a file, or of the files in a folder. What cannot be read takes nothing.
fn size(path: &Path) -> u64 {
    match std::fs::read_dir(path) {
        Ok(files) => files.flatten().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum(),
        Err(_) => std::fs::metadata(path).map_or(0, |file| file.len()),
    }
}
