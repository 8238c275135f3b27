//! Where a compaction puts rows.

use std::collections::HashMap;

use lance::Dataset;
use lance::dataset::transaction::Operation;
use lance_table::format::Fragment;

use crate::{Error, Result};

/// The new address of each row of the fragments that were rewritten, by fragment and place; `None` for deleted rows.
#[derive(Debug, Default)]
pub(crate) struct CompactedRows(HashMap<u64, Vec<Option<u64>>>);

impl CompactedRows {
    /// Of the compaction that `after` has committed, or that had nothing to do. A group of fragments is rewritten in their order, without the deleted rows.
    pub(crate) async fn read(table: &str, before: &Dataset, after: &Dataset) -> Result<Self> {
        let failed = |source| Error::storage(table, source);
        if after.version().version == before.version().version {
            return Ok(Self::default());
        }
        let Some(transaction) = after.read_transaction().await.map_err(failed)? else { return Ok(Self::default()) };
        let Operation::Rewrite { groups, .. } = transaction.operation else { return Ok(Self::default()) };
        let mut rows = HashMap::new();
        for group in groups {
            let mut new_addresses = group.new_fragments.iter().flat_map(addresses);
            for old in &group.old_fragments {
                let deleted = match before.get_fragment(old.id as usize) {
                    Some(fragment) => fragment.get_deletion_vector().await.map_err(failed)?,
                    None => None,
                };
                let is_deleted = |place: u64| deleted.as_ref().is_some_and(|deleted| deleted.contains(place as u32));
                let places = 0..old.physical_rows.unwrap_or(0) as u64;
                rows.insert(old.id, places.map(|place| if is_deleted(place) { None } else { new_addresses.next() }).collect());
            }
        }
        Ok(Self(rows))
    }

    /// Whether nothing was rewritten.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the row is now.
    pub(super) fn address(&self, fragment: u64, place: u64) -> Option<u64> {
        match self.0.get(&fragment) {
            Some(rows) => rows.get(place as usize).copied().flatten(),
            None => Some(fragment << 32 | place),
        }
    }
}

fn addresses(fragment: &Fragment) -> impl Iterator<Item = u64> + use<> {
    let id = fragment.id;
    (0..fragment.physical_rows.unwrap_or(0) as u64).map(move |place| id << 32 | place)
}
