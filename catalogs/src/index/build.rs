//! Indexes are made, made anew, brought up to date and removed, each in a commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use lance::index::DatasetIndexExt;

use super::progress::{Stages, Unwatched};
use super::vector;
use super::{BuildProgress, INDEX_CONFIG, IndexDefinition, IndexKind, asked_for, describe, lance_params, names};
use crate::comment::index_comment;
use crate::names::nearest;
use crate::{Error, ObjectKey, Result, Table};

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
        match &index.unbuilt {
            Some(_) => self.check_unbuilt(index)?,
            None => self.check_index_column(index)?,
        }
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
        if index.unbuilt.is_some() {
            let mut dataset = self.dataset.as_ref().clone();
            let description = [(format!("{INDEX_CONFIG}{}", index.name), Some(describe(index, &self.dataset)))];
            dataset.update_config(description).await.map_err(failed)?;
            self.state.publish(Arc::new(dataset)).await;
            return Ok(());
        }
        let num_rows = self.row_count().await?;
        let data_type = self.column_type(&index.column)?;
        // There are no more partitions than distinct vectors, and of none there is nothing to learn until more rows come.
        let (params, has_vectors) = match index.kind.is_vector() {
            true => {
                let lists = if index.kind == IndexKind::Hnsw { 1 } else { vector::lists(index, num_rows)? };
                let usable = self.usable_vectors(index, lists).await?;
                let fitting =
                    if usable < lists { IndexDefinition { options: with_lists(index, usable), ..index.clone() } } else { index.clone() };
                (lance_params(&fitting, data_type, num_rows)?, usable > 0)
            }
            false => (lance_params(index, data_type, num_rows)?, true),
        };
        let graph = match index.kind {
            IndexKind::Hnsw if has_vectors => self.build_graph(&self.graph_of(index)?, progress).await?,
            _ => None,
        };
        let mut dataset = self.dataset.as_ref().clone();
        // The description before the index: a crash in between leaves one without an index, which nothing shows.
        let description = [(format!("{INDEX_CONFIG}{}", index.name), Some(describe(index, &self.dataset)))];
        dataset.update_config(description).await.map_err(failed)?;
        let columns = [index.column.as_str()];
        let builder = dataset.create_index_builder(&columns, index.kind.lance_type(), params.as_ref());
        let builder = builder.name(index.name.clone()).replace(true).train(has_vectors).progress(Arc::new(Stages(Arc::clone(progress))));
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
        if asked_for(&dataset, name).is_none_or(|index| index.unbuilt.is_none()) {
            dataset.drop_index(name).await.map_err(failed)?;
        }
        let gone = [(format!("{INDEX_CONFIG}{name}"), None::<String>), (index_comment(name), None)];
        dataset.update_config(gone).await.map_err(failed)?;
        self.state.publish(Arc::new(dataset)).await;
        self.drop_graph(name).await?;
        self.schema_state.storage.register().forget(&ObjectKey::index(self.schema_name(), self.name(), name));
        Ok(())
    }

    /// Brings the rows written since into all indexes of the table.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Storage`].
    pub async fn optimize_indexes(&self) -> Result<()> {
        let _writer = self.lock_writer().await;
        let table = self.latest().await?;
        let dataset = self.cleaned_up(table.index_new_rows()).await?;
        self.state.publish(Arc::new(dataset)).await;
        Ok(())
    }
}

/// The options with as many lists as there are vectors for.
fn with_lists(index: &IndexDefinition, usable: usize) -> BTreeMap<String, String> {
    let mut options = index.options.clone();
    if index.kind != IndexKind::Hnsw {
        options.insert("lists".to_owned(), usable.max(1).to_string());
    }
    options
}

fn unwatched() -> Arc<dyn BuildProgress> {
    Arc::new(Unwatched)
}
