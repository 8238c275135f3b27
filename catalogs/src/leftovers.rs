//! What a statement that fails leaves on the disk, and how it goes away. The caller is the table's only writer.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use lance::Dataset;
use lance::index::DatasetIndexExt;

use crate::manifests::VERSIONS;
use crate::{Result, Table};

/// Of [`crate::durability::write_durably`] and of Lance's writers. The object store stages `name` as `name#1`.
const TEMPORARY_PREFIX: &str = ".tmp";
/// The folder of a table's rows.
pub(crate) const DATA: &str = "data";
const INDEXES: &str = "_indices";

impl Table {
    /// Runs work that commits inside Lance, where no guard can know whether it has. When it fails, the new files that the newest version does not name
    /// go away. A cancel leaves them to VACUUM: the commit may still be on its way.
    pub(crate) async fn cleaned_up<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let directory = self.state.directory.clone();
        let (data, indexes) = (file_names(&directory.join(DATA)), file_names(&directory.join(INDEXES)));
        let result = work.await;
        if result.is_err()
            && let Ok(newest) = self.state.snapshot(&self.schema_state.storage).await
            && let Some(used) = used_names(&newest).await
        {
            let is_left = |name: &OsString| name.to_str().is_some_and(|name| !used.contains(name));
            for name in file_names(&directory.join(DATA)).difference(&data).filter(|name| is_left(name)) {
                let _ = fs::remove_file(directory.join(DATA).join(name));
            }
            for name in file_names(&directory.join(INDEXES)).difference(&indexes).filter(|name| is_left(name)) {
                let _ = fs::remove_dir_all(directory.join(INDEXES).join(name));
            }
        }
        result
    }
}

/// What killed writers of a table have left under temporary names, and empty folders of indexes. Not while anybody writes.
pub(crate) fn remove_temporaries(table: &Path) -> io::Result<()> {
    for entry in fs::read_dir(table)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            remove_temporaries(&path)?;
            // Fails, as it should, when there is something in it.
            let _ = path.parent().filter(|parent| parent.ends_with(INDEXES)).map(|_| fs::remove_dir(&path));
        } else if name.starts_with(TEMPORARY_PREFIX)
            || (path.parent().is_some_and(|parent| parent.ends_with(VERSIONS)) && name.contains('#'))
        {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Data files and folders of indexes of a version.
async fn used_names(dataset: &Dataset) -> Option<HashSet<String>> {
    let files = dataset.fragments().iter().flat_map(|fragment| fragment.files.iter().map(|file| file.path.clone()));
    let mut used: HashSet<String> = files.collect();
    used.extend(dataset.load_indices().await.ok()?.iter().map(|index| index.uuid.to_string()));
    Some(used)
}

fn file_names(directory: &Path) -> HashSet<OsString> {
    fs::read_dir(directory).map(|entries| entries.flatten().map(|entry| entry.file_name()).collect()).unwrap_or_default()
}
