//! Old versions go by themselves: every commit leaves one, with the files that later ones have replaced.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, TimeDelta, Utc};
use lance::dataset::cleanup::CleanupPolicyBuilder;

use crate::manifests::versions_with_times;
use crate::{Error, Removed, Result, Table};

/// Commits between two looks at what is old: a look reads the manifest of every version that is left.
const COMMITS_BETWEEN: u64 = 100;

impl Table {
    /// Whether many commits have been made since old versions were last looked for.
    ///
    /// # Errors
    /// [`Error::UnknownTable`] when the table was dropped, [`Error::Storage`].
    pub async fn removal_is_due(&self) -> Result<bool> {
        let newest = self.state.snapshot(&self.schema_state.storage).await?.version().version;
        Ok(newest >= self.state.last_removal.load(Ordering::Relaxed).saturating_add(COMMITS_BETWEEN))
    }

    /// Removes versions that are older than `keep`, and the files that only they name, when many commits have been made since it was last done. The newest
    /// version stays, and so do those that have a tag, that a statement reads, and `kept`.
    ///
    /// # Errors
    /// [`Error::Storage`], [`Error::Io`].
    pub async fn remove_old_versions(&self, keep: Duration, kept: &HashSet<u64>) -> Result<Removed> {
        let storage = &self.schema_state.storage;
        let last = &self.state.last_removal;
        if !self.removal_is_due().await? {
            return Ok(Removed::default());
        }
        let _writer = self.lock_writer().await;
        let dataset = self.state.snapshot(storage).await?;
        let newest = dataset.version().version;
        last.store(newest, Ordering::Relaxed);
        let in_use = self.state.versions_in_use();
        let stays = |version: &u64| *version == newest || in_use.contains(version) || kept.contains(version);
        let mut old = self.versions_unchanged_for(keep)?;
        old.retain(|version| !stays(version));
        if old.is_empty() {
            return Ok(Removed::default());
        }
        let failed = |source| Error::storage(self.name(), source);
        // Not files that no version names, however new: that is for VACUUM.
        let policy = CleanupPolicyBuilder::default().before_timestamp(time_before(keep)).error_if_tagged_old_versions(false);
        let policy = policy.versions(old).map_err(failed)?.build();
        let removed = dataset.cleanup_with_policy(policy).await.map_err(failed)?;
        let files = removed.data_files_removed + removed.index_files_removed + removed.deletion_files_removed;
        Ok(Removed { bytes: removed.bytes_removed, versions: removed.old_versions, files })
    }

    /// Versions whose manifests were written so long ago.
    fn versions_unchanged_for(&self, keep: Duration) -> Result<Vec<u64>> {
        let directory = &self.state.directory;
        let versions = versions_with_times(directory).map_err(|source| Error::io(directory, source))?;
        let now = SystemTime::now();
        let is_old = |written: &SystemTime| now.duration_since(*written).is_ok_and(|age| age >= keep);
        Ok(versions.into_iter().filter(|(_, written)| is_old(written)).map(|(version, _)| version).collect())
    }
}

/// So long ago, or the beginning of the calendar.
pub(crate) fn time_before(keep: Duration) -> DateTime<Utc> {
    let time = TimeDelta::from_std(keep).ok().and_then(|keep| Utc::now().checked_sub_signed(keep));
    time.unwrap_or(DateTime::<Utc>::MIN_UTC)
}
