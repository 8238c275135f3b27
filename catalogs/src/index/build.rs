//! Indexes are made, made anew, brought up to date and removed, each in a commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::optimize::OptimizeOptions;

use super::progress::{Stages, Unwatched};
use super::{BuildProgress, INDEX_CONFIG, IndexDefinition, IndexKind, describe, lance_params, names};
use crate::names::nearest;
use crate::{Error, Result, Table};

/// A part of an index over at most so many rows is merged with the next ones before a compaction; a larger one would cost too much to make anew.
const SMALL_PART_ROWS: u64 = 100_000;

impl Table {
    /// As [`Self::create_index_watched`], without progress.
    ///
    /// # Errors
    /// The same.
    pub async fn create_index(&self, index: &IndexDefinition, if_not_exists: bool) -> Result<bool> {
        self.create_index_watched(index, if_not_exists, &unwatched()).await
    }

    /// Builds an index over the newest version of the table. Returns false when the index exists and `if_not_exists`. Dropping the future stops the
    /// build, and there is no index.
    ///
    /// # Errors
    /// [`Error::DuplicateIndex`], [`Error::UnknownColumn`], [`Error::WrongType`] when the kind does not fit the column,
    /// [`Error::InvalidOption`], [`Error::Storage`].
    pub async fn create_index_watched(
        &self,
        index: &IndexDefinition,
        if_not_exists: bool,
        progress: &Arc<dyn BuildProgress>,
    ) -> Result<bool> {
        self.check_index_column(index)?;
        let _ddl = self.schema_state.index_ddl.lock().await;
        if let Some(table) = self.table_of_index(&index.name).await? {
            let duplicate = Error::DuplicateIndex { name: index.name.clone(), table };
            return if if_not_exists { Ok(false) } else { Err(duplicate) };
        }
        let _writer = self.lock_writer().await;
        self.latest().await?.build_index(index, progress).await?;
        Ok(true)
    }

    /// As [`Self::rebuild_index_watched`], without progress.
    ///
    /// # Errors
    /// The same.
    pub async fn rebuild_index(&self, name: &str) -> Result<()> {
        self.rebuild_index_watched(name, &unwatched()).await
    }

    /// Builds an index anew over the newest version, as it was asked for. Dropping the future stops the build, and the old index stays.
    ///
    /// # Errors
    /// [`Error::UnknownIndex`], [`Error::Storage`].
    pub async fn rebuild_index_watched(&self, name: &str, progress: &Arc<dyn BuildProgress>) -> Result<()> {
        let _writer = self.lock_writer().await;
        let table = self.latest().await?;
        let known = table.index_names().await?;
        match table.asked_for(name).filter(|_| known.iter().any(|known| known == name)) {
            Some(index) => table.build_index(&index, progress).await,
            None => Err(Error::UnknownIndex { name: name.to_owned(), known: nearest(name, known) }),
        }
    }

    /// Builds an index over this version, the newest; the caller has the right to write. The graph first, which nobody sees, and last the index.
    async fn build_index(&self, index: &IndexDefinition, progress: &Arc<dyn BuildProgress>) -> Result<()> {
        let failed = |source| Error::storage(self.name(), source);
        let num_rows = self.row_count().await?;
        let params = lance_params(index, self.column_type(&index.column)?, num_rows)?;
        let graph = match index.kind {
            IndexKind::Hnsw => self.build_graph(&self.graph_of(index)?, progress).await?,
            _ => None,
        };
        let mut dataset = self.dataset.as_ref().clone();
        // The description before the index: a crash in between leaves one without an index, which nothing shows.
        let description = [(format!("{INDEX_CONFIG}{}", index.name), Some(describe(index, &self.dataset)))];
        dataset.update_config(description).await.map_err(failed)?;
        let columns = [index.column.as_str()];
        let builder = dataset.create_index_builder(&columns, index.kind.lance_type(), params.as_ref());
        let builder = builder.name(index.name.clone()).replace(true).progress(Arc::new(Stages(Arc::clone(progress))));
        self.cleaned_up(async { builder.await.map_err(failed) }).await?;
        self.state.publish(Arc::new(dataset)).await;
        match graph {
            Some(graph) => self.keep_graph(graph).await,
            None => Ok(()),
        }
    }

    /// Removes an index.
    ///
    /// # Errors
    /// [`Error::UnknownIndex`] with the table's indexes nearest to `name`.
    pub async fn drop_index(&self, name: &str) -> Result<()> {
        let _writer = self.lock_writer().await;
        let mut dataset = self.state.snapshot(&self.schema_state.storage).await?.as_ref().clone();
        let known = names(self.name(), &dataset).await?;
        if !known.iter().any(|known| known == name) {
            return Err(Error::UnknownIndex { name: name.to_owned(), known: nearest(name, known) });
        }
        let failed = |source| Error::storage(self.name(), source);
        dataset.drop_index(name).await.map_err(failed)?;
        dataset.update_config([(format!("{INDEX_CONFIG}{name}"), None::<String>)]).await.map_err(failed)?;
        self.state.publish(Arc::new(dataset)).await;
        self.drop_graph(name).await?;
        Ok(())
    }

    /// Brings the rows written since into all indexes of the table.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Storage`].
    pub async fn optimize_indexes(&self) -> Result<()> {
        let _writer = self.lock_writer().await;
        let mut dataset = self.state.snapshot(&self.schema_state.storage).await?.as_ref().clone();
        let failed = |source| Error::storage(self.name(), source);
        self.cleaned_up(async { dataset.optimize_indices(&OptimizeOptions::default()).await.map_err(failed) }).await?;
        self.state.publish(Arc::new(dataset)).await;
        Ok(())
    }
}

/// Merges the parts that small commits have left of each index, so that the files of one part can become one file: a compaction only joins files that
/// the same parts know.
pub(crate) async fn merge_small_parts(dataset: &mut Dataset) -> lance::Result<()> {
    let indexes = dataset.load_indices().await?;
    let rows: HashMap<u64, u64> =
        dataset.fragments().iter().map(|fragment| (fragment.id, fragment.num_rows().unwrap_or_default() as u64)).collect();
    let mut parts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for part in indexes.iter() {
        let known = part.fragment_bitmap.iter().flatten();
        let num_rows = known.map(|fragment| rows.get(&u64::from(fragment)).copied().unwrap_or_default()).sum();
        parts.entry(part.name.clone()).or_default().push(num_rows);
    }
    for (name, parts) in parts {
        let num_small = parts.iter().rev().take_while(|num_rows| **num_rows <= SMALL_PART_ROWS).count();
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

fn unwatched() -> Arc<dyn BuildProgress> {
    Arc::new(Unwatched)
}
