//! Old versions of a table, and what gives their space back.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use lance::dataset::cleanup::CleanupPolicyBuilder;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance::index::DatasetIndexExt;
use lance_index::optimize::OptimizeOptions;

use crate::constraint::StoredKeys;
use crate::index::merge_small_parts;
use crate::manifests::Which;
use crate::resident::CompactedRows;
use crate::retention::time_before;
use crate::{Error, Result, Table};

/// Rows of a data file that OPTIMIZE aims at.
const ROWS_PER_FILE: usize = 1 << 20;
/// Small files since the last compaction at which a write compacts by itself.
const SMALL_FILES_MAX: usize = 100;
/// A file with fewer rows is small.
const SMALL_FILE_ROWS: usize = 10_000;

/// A version that can be read again.
#[derive(Debug, Clone, PartialEq)]
pub struct TableVersion {
    pub version: u64,
    /// Microseconds since 1970, UTC.
    pub committed_micros: i64,
}

/// What a vacuum removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub bytes: u64,
    pub versions: u64,
    pub files: u64,
}

impl Table {
    /// The versions that a vacuum has left, oldest first.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub async fn versions(&self) -> Result<Vec<TableVersion>> {
        self.schema_state.storage.set_torn_aside(self.name(), &self.state.directory, Which::All)?;
        let versions = self.dataset.versions().await.map_err(|source| Error::storage(self.name(), source))?;
        Ok(versions
            .iter()
            .map(|found| TableVersion { version: found.version, committed_micros: found.timestamp.timestamp_micros() })
            .collect())
    }

    /// The table as it was at a version.
    ///
    /// # Errors
    /// [`Error::UnknownVersion`], [`Error::Storage`].
    pub async fn at_version(&self, version: u64) -> Result<Self> {
        let versions = self.versions().await?;
        if !versions.iter().any(|known| known.version == version) {
            return Err(self.unknown_version(&version.to_string(), &versions));
        }
        let dataset = self.dataset.checkout_version(version).await.map_err(|source| Error::storage(self.name(), source))?;
        Self::of_dataset(&self.schema_state, &self.state, Arc::new(dataset))
    }

    /// The table as it was at a time, in microseconds since 1970, UTC: its newest version that is not younger.
    ///
    /// # Errors
    /// [`Error::UnknownVersion`] for a time before the oldest version left, [`Error::Storage`].
    pub async fn at_micros(&self, micros: i64) -> Result<Self> {
        let versions = self.versions().await?;
        match versions.iter().rev().find(|known| known.committed_micros <= micros) {
            Some(found) => self.at_version(found.version).await,
            None => Err(self.unknown_version(&format!("of {}", date(micros)), &versions)),
        }
    }

    fn unknown_version(&self, wanted: &str, known: &[TableVersion]) -> Error {
        let known = match (known.first(), known.last()) {
            (Some(first), Some(last)) => {
                let (from, to) = (date(first.committed_micros), date(last.committed_micros));
                format!("{} ({from}) to {} ({to})", first.version, last.version)
            }
            _ => "none".to_owned(),
        };
        Error::UnknownVersion { table: self.name().to_owned(), wanted: wanted.to_owned(), known }
    }

    /// Removes versions older than `keep`, but for those of `named`, and files that no version refers to: those of writes that were killed, among
    /// others. A statement that is reading a version that goes may fail.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub async fn vacuum(&self, keep: Duration, named: &HashSet<u64>) -> Result<Removed> {
        // Nobody writes now, so that a file of no version is abandoned and not of a write in flight.
        let _writer = self.lock_writer().await;
        self.schema_state.storage.set_torn_aside(self.name(), &self.state.directory, Which::All)?;
        let dataset = self.state.snapshot(&self.schema_state.storage).await?;
        let failed = |source| Error::storage(self.name(), source);
        let mut policy = CleanupPolicyBuilder::default().delete_unverified(true).error_if_tagged_old_versions(false);
        policy = policy.before_timestamp(time_before(keep));
        if !named.is_empty() {
            let mut versions: Vec<u64> = dataset.versions().await.map_err(failed)?.iter().map(|found| found.version).collect();
            versions.retain(|version| !named.contains(version));
            policy = match versions.is_empty() {
                true => policy.before_timestamp(DateTime::<Utc>::MIN_UTC),
                false => policy.versions(versions).map_err(failed)?,
            };
        }
        let removed = dataset.cleanup_with_policy(policy.build()).await.map_err(failed)?;
        {
            let _no_graph_files = self.state.graph_files.lock().await;
            self.latest().await?.remove_abandoned(keep)?;
        }
        self.remove_unfinished(keep)?;
        let files = removed.data_files_removed + removed.index_files_removed + removed.deletion_files_removed;
        Ok(Removed { bytes: removed.bytes_removed, versions: removed.old_versions, files })
    }

    /// Writes small files as large ones without the deleted rows, and brings all rows into the indexes and their graphs. Returns the files before and
    /// after. While a column is filled, files stay as they are: see [`Self::is_backfilling`].
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Storage`].
    pub async fn compact(&self) -> Result<(usize, usize)> {
        let Ok(_no_backfill) = self.state.backfill.try_lock() else {
            self.optimize_indexes().await?;
            let files = self.latest().await?.dataset.count_fragments();
            return Ok((files, files));
        };
        let mut keys = self.lock_writer().await;
        let table = self.latest().await?;
        let graphs = table.held_graphs().await?;
        let mut dataset = table.dataset.as_ref().clone();
        let failed = |source| Error::storage(self.name(), source);
        let before = dataset.count_fragments();
        let options = CompactionOptions {
            target_rows_per_fragment: ROWS_PER_FILE,
            materialize_deletions: true,
            materialize_deletions_threshold: 0.0,
            ..Default::default()
        };
        *keys = StoredKeys::default();
        let work = async {
            merge_small_parts(&mut dataset).await.map_err(failed)?;
            let unmoved = dataset.clone();
            compact_files(&mut dataset, options, None).await.map_err(failed)?;
            let moved = CompactedRows::read(self.name(), &unmoved, &dataset).await?;
            dataset.optimize_indices(&OptimizeOptions::default()).await.map_err(failed)?;
            Ok::<_, Error>(moved)
        };
        let moved = self.cleaned_up(work).await?;
        let after = dataset.count_fragments();
        self.state.publish(Arc::new(dataset)).await;
        self.latest().await?.move_graphs(graphs, &moved).await?;
        Ok((before, after))
    }

    /// Whether so many small commits have gathered that reads pay for them.
    #[must_use]
    pub fn needs_compaction(&self) -> bool {
        let is_small = |fragment: &&lance_table::format::Fragment| fragment.num_rows().is_some_and(|rows| rows < SMALL_FILE_ROWS);
        self.dataset.fragments().iter().filter(is_small).count() >= SMALL_FILES_MAX
    }
}

fn date(micros: i64) -> String {
    DateTime::<Utc>::from_timestamp_micros(micros)
        .map_or_else(|| micros.to_string(), |time| time.format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string())
}
