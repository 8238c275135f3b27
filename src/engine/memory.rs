//! How much memory a database takes, and who gets which part of it.
//!
//! One limit covers what grows with the data: the buffers of queries, tables held in memory for search, caches of files. Models have a
//! limit of their own on top (`src/models/limits.rs`): they do not grow with a table, and a query can do nothing about them.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use rolloutdb_catalogs::MemoryLimits;

use crate::error::{Error, Result};

/// Without a limit of its own a database takes this share of the memory that the process may have.
const DEFAULT_SHARE: f64 = 0.7;
/// Less would not hold the buffers of one sort on a few cores.
const LIMIT_MIN: u64 = 64 << 20;
/// Parts of the limit; what is left is for caches of file metadata.
const QUERY_SHARE: f64 = 0.65;
const RESIDENT_SHARE: f64 = 0.25;
const INDEX_CACHE_SHARE: f64 = 0.07;
const RETRIEVAL_CACHE_SHARE: f64 = 0.01;
/// Of the limit: less than queries have together, so that one of them leaves something for the others.
const STATEMENT_SHARE: f64 = 0.5;
/// Less would not hold a few batches of rows.
pub const STATEMENT_MIN: u64 = 1 << 20;
/// Where the memory of the machine is not known: 4 GiB.
const UNKNOWN_MACHINE: u64 = 4 << 30;
/// A sort keeps this part of the memory of its statement free, in each partition, for merging what it has spilled.
const MERGE_SHARE: usize = 16;
/// A partition of a sort sorts this much at once, or this part of its share of the memory of its statement if that is less. Twice a piece is set aside for
/// it, and a piece holds several batches of rows that are not wide.
const SORT_PIECE_MAX: usize = 16 << 20;
const SORT_PIECES: usize = 16;
/// What a batch of rows should not exceed, as a part of the memory of a statement: spilled rows are merged a batch of each file at a time.
const BATCHES: usize = 64;
/// Of a wide row; what a batch holds is guessed from it.
const ROW_BYTES: usize = 1024;
const BATCH_ROWS_MIN: usize = 256;
/// In an error: the operators that hold most.
const CONSUMERS_SHOWN: NonZeroUsize = NonZeroUsize::new(3).expect("3 is not 0");

/// Memory in bytes, by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    pub limit: u64,
    /// Queries together. Sorts and aggregations that need more go to the disk; what can not fails with 53200.
    pub queries: usize,
    /// Of this, the statements of one session, see [`super::session_memory`].
    pub statement: usize,
    pub catalog: MemoryLimits,
    /// What queries of agents found.
    pub retrievals: usize,
}

impl MemoryBudget {
    /// In bytes. `limit`: `None`: 70 % of the machine's memory, or of what the process's control group may have. `statement`: `None`: half of the limit;
    /// more than queries have together is no bound.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a limit of less than 64 MB, or less than 1 MB for a statement.
    pub fn new(limit: Option<u64>, statement: Option<u64>) -> Result<Self> {
        let limit = limit.unwrap_or_else(|| (available_memory() as f64 * DEFAULT_SHARE) as u64);
        check_least("memory limit", limit, LIMIT_MIN)?;
        // In whole megabytes, as it is shown.
        let statement = statement.unwrap_or((limit as f64 * STATEMENT_SHARE) as u64 & !((1 << 20) - 1));
        check_least("memory of a statement", statement, STATEMENT_MIN)?;
        let part = |share: f64| (limit as f64 * share) as usize;
        let (queries, resident_bytes, index_cache_bytes) = (part(QUERY_SHARE), part(RESIDENT_SHARE), part(INDEX_CACHE_SHARE));
        let retrievals = part(RETRIEVAL_CACHE_SHARE);
        let statement = usize::try_from(statement).unwrap_or(usize::MAX).min(queries);
        let metadata_cache_bytes = limit as usize - queries - resident_bytes - index_cache_bytes - retrievals;
        let catalog = MemoryLimits { resident_bytes, index_cache_bytes, metadata_cache_bytes };
        Ok(Self { limit, queries, statement, catalog, retrievals })
    }

    /// What queries of all sessions run in. `spill_folder` is emptied: what is in it belonged to queries of a process that is gone.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn runtime_env(&self, spill_folder: &Path) -> Result<Arc<RuntimeEnv>> {
        let failed = |source| Error::Io { path: spill_folder.to_owned(), source };
        match std::fs::remove_dir_all(spill_folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => std::fs::create_dir_all(spill_folder).map_err(failed)?,
        }
        let pool = TrackConsumersPool::new(FairSpillPool::new(self.queries), CONSUMERS_SHOWN);
        let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![spill_folder.to_owned()]));
        let builder = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).with_disk_manager_builder(disk);
        Ok(builder.build_arc()?)
    }
}

/// An option in bytes that is too small.
fn check_least(name: &str, found: u64, least: u64) -> Result<()> {
    if found >= least {
        return Ok(());
    }
    let expected = format!("at least {}", bytes_text(least));
    Err(Error::InvalidParameter { name: name.to_owned(), found: format!("{found} bytes"), expected })
}

/// Settings that must fit the memory of a statement, in bytes: rows in a batch, and what every partition of a sort sets aside, whether it spills or not.
pub fn fit(mut config: SessionConfig, statement: usize) -> SessionConfig {
    let partitions = config.target_partitions();
    let execution = &mut config.options_mut().execution;
    execution.batch_size = execution.batch_size.min((statement / (BATCHES * ROW_BYTES)).max(BATCH_ROWS_MIN));
    execution.sort_spill_reservation_bytes = execution.sort_spill_reservation_bytes.min(statement / (MERGE_SHARE * partitions.max(1)));
    // Sorts are given pieces, which they merge.
    execution.sort_in_place_threshold_bytes = 0;
    config
}

/// How much each partition of a sort sorts at once, of a statement with so much memory, both in bytes.
pub fn sort_piece(statement: usize, partitions: usize) -> usize {
    SORT_PIECE_MAX.min(statement / (SORT_PIECES * partitions.max(1)))
}

/// What models may take where nobody says how much: what [`MemoryBudget`] leaves by default.
pub fn default_model_memory() -> u64 {
    (available_memory() as f64 * (1.0 - DEFAULT_SHARE)) as u64
}

/// `4GB`, `512MB`, `65536kB`, or a number of bytes; units are powers of 1024, as in PostgreSQL.
///
/// # Errors
/// A sentence that says what is expected.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim().find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(text.trim().len());
    let (number, unit) = text.trim().split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1_u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(format!("\"{text}\" is not a size: expected a number with kB, MB, GB or TB, as 4GB")),
    };
    let number: f64 = number.parse().map_err(|_| format!("\"{text}\" is not a size: expected a number with kB, MB, GB or TB, as 4GB"))?;
    Ok((number * factor as f64) as u64)
}

/// As [`parse_bytes`] reads it: `64MB`.
pub fn bytes_text(bytes: u64) -> String {
    let units = [("TB", 1_u64 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)];
    match units.into_iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size)) {
        Some((unit, size)) => format!("{}{unit}", bytes / size),
        None => format!("{bytes}B"),
    }
}

/// In bytes: the machine's memory, or less where a control group of this process allows less. Reads Linux's accounts.
fn available_memory() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_memory(&text)).unwrap_or(UNKNOWN_MACHINE);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    limits.fold(machine, u64::min)
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// The files that may limit the groups of `/proc/self/cgroup`, of versions 1 and 2, with those of the groups above.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (root, name) = match controllers {
            "" => (Path::new("/sys/fs/cgroup"), "memory.max"),
            controllers if controllers.split(',').any(|controller| controller == "memory") => {
                (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            files.push(root.join(group).join(name));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_postgres_reads_them() {
        for (text, bytes) in
            [("4GB", 4 << 30), ("512MB", 512 << 20), ("64 kB", 64 << 10), ("1.5GB", 3 << 29), ("1000", 1000), ("2tib", 2 << 40)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
            assert_eq!(parse_bytes(&bytes_text(bytes)), Ok(bytes), "{text}");
        }
        assert_eq!(
            (bytes_text(64 << 20), bytes_text(3 << 29), bytes_text(1000)),
            ("64MB".to_owned(), "1536MB".to_owned(), "1000B".to_owned())
        );
        for text in ["", "GB", "4 potatoes", "-1GB", "1.2.3GB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_parts_are_the_limit() {
        let budget = MemoryBudget::new(Some(1 << 30), None).expect("a size");
        let MemoryLimits { resident_bytes, index_cache_bytes, metadata_cache_bytes } = budget.catalog;
        assert_eq!(budget.queries + resident_bytes + index_cache_bytes + metadata_cache_bytes + budget.retrievals, 1 << 30);
        assert!(budget.queries > resident_bytes && metadata_cache_bytes > 0);
        assert!(MemoryBudget::new(Some(1 << 20), None).is_err());
        assert!(MemoryBudget::new(None, None).expect("a machine has memory").limit > LIMIT_MIN);
    }

    #[test]
    fn a_statement_has_a_part_of_what_queries_have() {
        let statement = |bytes: Option<u64>| MemoryBudget::new(Some(1 << 30), bytes).map(|budget| budget.statement).ok();
        assert_eq!(statement(None), Some(512 << 20));
        assert_eq!(statement(Some(16 << 20)), Some(16 << 20));
        let queries = MemoryBudget::new(Some(1 << 30), None).expect("a size").queries;
        assert_eq!(statement(Some(1 << 40)), Some(queries), "more than there is bounds nothing");
        assert_eq!(statement(Some(1000)), None);
    }

    #[test]
    fn control_groups_are_found_in_both_versions() {
        let files = limit_files("0::/user.slice/job\n");
        assert_eq!(files[0], Path::new("/sys/fs/cgroup/user.slice/job/memory.max"));
        assert_eq!(files[2], Path::new("/sys/fs/cgroup/memory.max"));
        let files = limit_files("5:cpu,cpuacct:/a\n4:memory:/docker/x\n");
        assert_eq!(files[0], Path::new("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes"));
        assert_eq!(files.len(), 3);
        assert_eq!(total_memory("MemFree: 1 kB\nMemTotal:   2048 kB\n"), Some(2048 * 1024));
    }
}
