//! Rows that a statement writes before it has the right to write their table, so that others may write while the rows are computed.
//!
//! Their files are made in a folder beside the tables that nobody sees, and moved to the table's own just before the commit that names them. Whatever
//! ends the statement before that takes the folder away; a kill leaves it to the next start.

use std::fs;
use std::path::Path;

use datafusion::execution::SendableRecordBatchStream;
use futures::FutureExt;
use lance::Dataset;
use lance::dataset::fragment::write::FragmentCreateBuilder;
use lance_table::format::Fragment;

use crate::append::CheckedWrite;
use crate::durability::EarlySync;
use crate::leftovers::DATA;
use crate::storage::Temporary;
use crate::{Error, Result, Table};

/// Rows in files of their own.
#[derive(Debug)]
pub(crate) struct StagedRows {
    folder: Temporary,
    fragments: Vec<Fragment>,
}

impl Table {
    /// Writes rows with the columns of `dataset`, a version of this table.
    ///
    /// # Errors
    /// Of `write` and of `rows` as they are; [`Error::Storage`]. Nothing is left after any of them.
    pub(crate) async fn stage(&self, dataset: &Dataset, write: &CheckedWrite, rows: SendableRecordBatchStream) -> Result<StagedRows> {
        let storage = &self.schema_state.storage;
        let folder = storage.temporary(self.schema_name())?;
        let (uri, params) = (folder.uri()?, storage.write_params_for(dataset));
        let builder = FragmentCreateBuilder::new(&uri).schema(dataset.schema()).write_params(&params);
        let _early_sync = EarlySync::of(folder.path().join(DATA));
        // Boxed: what it is made of is more than the compiler lays out.
        let written = builder.write_fragments(write.stream(rows)).boxed().await;
        let fragments = written.map_err(|source| write.error_of(source))?;
        Ok(StagedRows { folder, fragments })
    }
}

impl StagedRows {
    /// Moves the files to those of the table, where they are garbage unless a commit names the fragments: the caller has the right to write, and
    /// commits next.
    ///
    /// # Errors
    /// [`Error::Io`]; the table has none of the files then.
    pub(crate) fn place(self, table: &Table) -> Result<Vec<Fragment>> {
        let Self { folder, fragments } = self;
        let target = table.state.directory.join(DATA);
        fs::create_dir_all(&target).map_err(|source| Error::io(&target, source))?;
        let names: Vec<&str> = fragments.iter().flat_map(|fragment| &fragment.files).map(|file| file.path.as_str()).collect();
        for (number, name) in names.iter().enumerate() {
            let path = target.join(name);
            if let Err(source) = fs::rename(folder.path().join(DATA).join(name), &path) {
                remove(&target, &names[..number]);
                return Err(Error::io(path, source));
            }
        }
        folder.remove();
        Ok(fragments)
    }
}

/// A file that stays is never read: no version refers to it.
fn remove(directory: &Path, names: &[&str]) {
    for name in names {
        let _ = fs::remove_file(directory.join(name));
    }
}
