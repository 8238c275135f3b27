//! The parts that an index is made of: each covers some files of the table, and a search reads all of them.

use std::collections::{BTreeMap, HashMap, HashSet};

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::optimize::OptimizeOptions;

use crate::{Error, Result, Table};

/// A part of an index over at most so many rows is merged with the next ones before a compaction; a larger one would cost too much to make anew.
const SMALL_PART_ROWS: u64 = 100_000;
/// A part of at most so many rows is made anew in the time that it takes to make any.
const TINY_PART_ROWS: u64 = 256;

/// Rows of the parts of one index.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    /// Of each part, oldest first.
    rows: Vec<u64>,
    /// Rows that no part has yet.
    rows_unindexed: u64,
}

/// How many of the newest parts are made anew together with the rows that no part has yet.
///
/// A part goes when those after it have as many rows together. So there are as many parts as the logarithm of the rows at most, and a row is written
/// about as often, however small the statements are that bring the rows (the logarithmic method, Bentley and Saxe 1980). The storage's own way is to
/// make the newest part anew each time: all of an index for one row.
fn num_parts_to_merge(parts: &Parts) -> usize {
    let mut num_rows = parts.rows_unindexed;
    let goes = |part: &&u64| {
        let goes = **part <= num_rows.max(TINY_PART_ROWS);
        num_rows += if goes { **part } else { 0 };
        goes
    };
    parts.rows.iter().rev().take_while(goes).count()
}

impl Table {
    /// Brings the rows of this version, the newest, that no index has into all of them, in a new version. The caller has the right to write.
    pub(super) async fn index_new_rows(&self) -> Result<Dataset> {
        let failed = |source| Error::storage(self.name(), source);
        let mut dataset = self.dataset.as_ref().clone();
        let mut together: BTreeMap<Option<usize>, Vec<String>> = BTreeMap::new();
        for (name, parts) in parts_by_index(&dataset).await.map_err(failed)? {
            let is_vector = self.index_kind(&name).is_some_and(super::IndexKind::is_vector);
            match parts.rows_unindexed {
                0 => {}
                // Parts whose clusters differ can not be merged: the storage decides.
                _ if is_vector => together.entry(None).or_default().push(name),
                _ => together.entry(Some(num_parts_to_merge(&parts))).or_default().push(name),
            }
        }
        // As a rule all have the same history, and this is one commit.
        for (num_parts, names) in together {
            let options = OptimizeOptions::default().num_indices_to_merge(num_parts).index_names(names);
            dataset.optimize_indices(&options).await.map_err(failed)?;
        }
        Ok(dataset)
    }
}

/// The parts of each index, by its name.
async fn parts_by_index(dataset: &Dataset) -> lance::Result<BTreeMap<String, Parts>> {
    let num_rows: HashMap<u64, u64> =
        dataset.fragments().iter().map(|fragment| (fragment.id, fragment.num_rows().unwrap_or_default() as u64)).collect();
    let mut indexes: BTreeMap<String, (Parts, HashSet<u64>)> = BTreeMap::new();
    for part in dataset.load_indices().await?.iter() {
        let (parts, covered) = indexes.entry(part.name.clone()).or_default();
        let fragments: Vec<u64> = part.fragment_bitmap.iter().flatten().map(u64::from).collect();
        parts.rows.push(fragments.iter().filter_map(|fragment| num_rows.get(fragment)).sum());
        covered.extend(fragments);
    }
    // Those that the storage keeps for itself are no user's.
    indexes.retain(|name, _| !name.starts_with("__"));
    let with_the_rest = |(name, (parts, covered)): (String, (Parts, HashSet<u64>))| {
        let rest = num_rows.iter().filter(|(fragment, _)| !covered.contains(*fragment));
        (name, Parts { rows_unindexed: rest.map(|(_, rows)| rows).sum(), ..parts })
    };
    Ok(indexes.into_iter().map(with_the_rest).collect())
}

/// Merges the parts that small commits have left of each index, so that the files of one part can become one file: a compaction only joins files that
/// the same parts know.
pub(crate) async fn merge_small_parts(dataset: &mut Dataset) -> lance::Result<()> {
    for (name, parts) in parts_by_index(dataset).await? {
        let num_small = parts.rows.iter().rev().take_while(|num_rows| **num_rows <= SMALL_PART_ROWS).count();
        if num_small > 1 {
            match dataset.optimize_indices(&OptimizeOptions::merge(num_small).index_names(vec![name])).await {
                // Parts whose clusters differ stay apart, and so do their files.
                Err(lance::Error::Index { .. }) => {}
                merged => merged?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn num_merged(rows: &[u64], rows_unindexed: u64) -> usize {
        num_parts_to_merge(&Parts { rows: rows.to_vec(), rows_unindexed })
    }

    #[test]
    fn parts_are_merged_with_as_many_rows_after_them() {
        assert_eq!(num_merged(&[1_000_000], 1), 0, "one row is no reason to write a million");
        assert_eq!(num_merged(&[1_000_000, 5], 1), 1);
        assert_eq!(num_merged(&[1_000_000, 300], 1), 0);
        assert_eq!(num_merged(&[1_000_000, 300, 200], 1), 1);
        assert_eq!(num_merged(&[1_000_000, 300, 200], 100), 2, "200 and 100 are as many as 300");
        assert_eq!(num_merged(&[1_000, 300, 200], 600), 3);
        assert_eq!(num_merged(&[1_000, 1_500], 1_000), 0);
        assert_eq!(num_merged(&[], 7), 0);
    }

    #[test]
    fn small_statements_cost_the_logarithm_of_their_rows_and_leave_few_parts() {
        let mut parts = Parts { rows: vec![1_000_000], rows_unindexed: 1 };
        let (mut rows_written, mut num_parts_max) = (0, 0);
        let num_statements = 100_000;
        for _ in 0..num_statements {
            let kept = parts.rows.len() - num_parts_to_merge(&parts);
            let merged = 1 + parts.rows.drain(kept..).sum::<u64>();
            parts.rows.push(merged);
            rows_written += merged;
            num_parts_max = num_parts_max.max(parts.rows.len());
        }
        assert_eq!(parts.rows[0], 1_000_000, "what was there is not written again");
        assert_eq!(parts.rows.iter().sum::<u64>(), 1_100_000);
        assert!(num_parts_max <= 11, "{num_parts_max} parts");
        assert!(rows_written / num_statements <= TINY_PART_ROWS, "{rows_written} rows written");
    }
}
