//! Graphs of HNSW indexes: built over the resident rows, kept in a file beside the table, read back after a restart, and brought along as rows come, go
//! and move.
//!
//! A graph knows its rows by number, and a number means the same row for as long as the fragments are the same. Rows that come later are measured one by
//! one, until there are enough of them that the graph takes them in. Rows that are deleted stay in it as places to walk through, until their fragments
//! are gone: then the graph moves to the fragments that there are.

mod file;
mod moves;
mod rows;
mod upkeep;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::table::{Numbering, Resident, ResidentGraph};
use crate::durability::{create_directory, sync_directory, write_durably};
use crate::index::BuildProgress;
use crate::names::to_directory;
use crate::state::TableState;
use crate::{Error, Metric, Result, Table};
pub(crate) use moves::CompactedRows;
use rows::GraphRows;

const FOLDER: &str = "_graphs";

/// An HNSW index, as far as its graph needs to know.
#[derive(Debug, Clone)]
pub(crate) struct GraphIndex {
    pub(crate) name: String,
    /// The number of the column.
    pub(crate) field: i32,
    pub(crate) column: String,
    pub(crate) metric: Metric,
    pub(crate) m: usize,
    pub(crate) ef_construction: usize,
}

/// Where the graph of an index is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphPlace {
    Memory,
    /// In its file: it is read when the table is searched often.
    File,
}

/// A graph that no search sees yet.
pub(crate) struct BuiltGraph {
    name: String,
    graph: ResidentGraph,
    numbering: Numbering,
    metric: Metric,
    field: i32,
    fragments: Value,
}

/// Ends the work of a thread when the future that waits for it is dropped.
#[derive(Default)]
struct Cancellation(Arc<AtomicBool>);

impl Drop for Cancellation {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Table {
    /// Builds the graph of an index over this version; `None` when the table does not fit into memory. [`Self::keep_graph`] shows it to searches.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) async fn build_graph(&self, index: &GraphIndex, progress: &Arc<dyn BuildProgress>) -> Result<Option<BuiltGraph>> {
        self.state.heat.raise();
        let Some(resident) = self.resident(&[&index.column], 1).await? else { return Ok(None) };
        let Some(rows) = GraphRows::of(&resident, self, index) else { return Ok(None) };
        drop(resident);
        let progress = Arc::clone(progress);
        progress.phase("build graph", Some(rows.num_rows() as u64), "rows");
        let work = move |is_cancelled: &AtomicBool| {
            let graph = rows.build(&|inserted| {
                progress.done(inserted as u64);
                !is_cancelled.load(Ordering::Relaxed)
            });
            graph.map(|graph| rows.built(graph))
        };
        self.on_a_thread(work).await
    }

    async fn on_a_thread<T: Send + 'static>(&self, work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Result<T> {
        let cancellation = Cancellation::default();
        let is_cancelled = Arc::clone(&cancellation.0);
        let done = tokio::task::spawn_blocking(move || work(&is_cancelled)).await;
        done.map_err(|error| Error::NotReady(format!("the graph of table \"{}\" was not built: {error}", self.name())))
    }

    /// Writes the file of a graph, and gives the graph to the rows in memory, if it was built over these.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) async fn keep_graph(&self, mut built: BuiltGraph) -> Result<()> {
        let _files = self.state.graph_files.lock().await;
        write_durably(&self.state.graph_file(&built.name)?, &built.to_file())?;
        built.graph.saved_rows = built.graph.graph.len();
        let mut write = self.state.resident.write().await;
        if write.numbering == built.numbering {
            write.insert_graph(built.name, built.graph);
        }
        Ok(())
    }

    /// The resident rows with the graph of an index, from its file if need be; without the graph when there is no file for these rows. `None`: the rows
    /// in memory have become those of another version, or are gone.
    pub(crate) async fn with_graph(&self, resident: Resident, index: &GraphIndex) -> Result<Option<Resident>> {
        if resident.graph(&index.name).is_some() || resident.lacks_graph(&index.name) {
            return Ok(Some(resident));
        }
        drop(resident);
        let mut write = Arc::clone(&self.state.resident).write_owned().await;
        if !write.has(self, &self.column_names()) {
            return Ok(None);
        }
        let (table, index) = (self.clone(), index.clone());
        // A graph that has to move is work for a thread that may take its time.
        let read = move |_: &AtomicBool| {
            match write.read_graph(&table, &index)? {
                Some(graph) => write.insert_graph(index.name, graph),
                None => write.note_no_graph(index.name),
            }
            table.note_memory(&write);
            Ok(Some(write.downgrade()))
        };
        self.on_a_thread(read).await?
    }

    /// Removes the graph of an index, and its file. An index of other kind has none.
    pub(crate) async fn drop_graph(&self, index: &str) -> Result<()> {
        let _files = self.state.graph_files.lock().await;
        self.state.resident.write().await.forget_index(index);
        let file = self.state.graph_file(index)?;
        match fs::remove_file(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| sync_directory(&self.state.graph_folder())).map_err(|source| Error::io(file, source)),
        }
    }

    /// Where the graph of an index is; `None`: there is none for the rows that there are.
    pub(crate) async fn graph_place(&self, index: &str) -> Result<Option<GraphPlace>> {
        let resident = self.state.resident.read().await;
        if resident.graph(index).is_some() {
            return Ok(Some(GraphPlace::Memory));
        }
        let is_in_file = !resident.lacks_graph(index) && self.state.graph_file(index)?.exists();
        Ok(is_in_file.then_some(GraphPlace::File))
    }

    /// Bytes of the file of an index's graph.
    pub(crate) fn graph_file_bytes(&self, index: &str) -> Result<u64> {
        Ok(fs::metadata(self.state.graph_file(index)?).map_or(0, |file| file.len()))
    }
}

impl TableState {
    fn graph_folder(&self) -> PathBuf {
        self.directory.join(FOLDER)
    }

    fn graph_file(&self, index: &str) -> Result<PathBuf> {
        let folder = self.graph_folder();
        create_directory(&folder).map_err(|source| Error::io(&folder, source))?;
        Ok(folder.join(to_directory("index", index)?))
    }
}
