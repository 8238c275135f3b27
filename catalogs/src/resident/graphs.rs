//! Graphs of HNSW indexes: built over the resident rows, kept in a file beside the table, and read back after a restart.
//!
//! A graph knows its rows by number, and a number means the same row for as long as the fragments are the same. The file names the fragments it was built
//! over; when one of them is gone (OPTIMIZE wrote it anew), the file is no longer used until REINDEX.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::columns::Vectors;
use super::graph::{Graph, Nearness, Parameters};
use super::table::{Resident, ResidentGraph, ResidentTable};
use crate::durability::{create_directory, sync_directory, write_durably};
use crate::names::to_directory;
use crate::{Error, Metric, Result, Table};

const FOLDER: &str = "_graphs";
/// Draws the levels of nodes; the same rows give the same graph.
const SEED: u64 = 0x5EED;
/// Lengths of vectors that count as 1.
const UNIT_TOLERANCE: f64 = 1e-5;

/// An HNSW index, as far as its graph needs to know.
#[derive(Debug, Clone)]
pub(crate) struct GraphIndex {
    pub(crate) name: String,
    pub(crate) column: String,
    pub(crate) metric: Metric,
    pub(crate) m: usize,
    pub(crate) ef_construction: usize,
}

impl Table {
    /// Builds the graph of an index over this version and writes its file. Nothing happens when the table does not fit into memory.
    ///
    /// # Errors
    /// [`Error::Storage`], [`Error::Io`].
    pub(crate) async fn build_graph(&self, index: &GraphIndex) -> Result<()> {
        self.state.heat.raise();
        let Some(resident) = self.resident(&[&index.column], 1).await? else { return Ok(()) };
        let (table, index) = (self.clone(), index.clone());
        let built = tokio::task::spawn_blocking(move || -> Result<_> {
            let Some(vectors) = resident.vectors(&table, &index.column) else { return Ok(None) };
            let Some(graph) = ResidentGraph::build(vectors, &index) else { return Ok(None) };
            write_durably(&table.graph_file(&index.name)?, &file_of(&resident, &index, &graph))?;
            Ok(Some((index.name, graph, resident.num_rows())))
        });
        let built =
            built.await.map_err(|error| Error::NotReady(format!("the graph of table \"{}\" was not built: {error}", self.name())))?;
        if let Some((name, graph, num_rows)) = built? {
            let mut write = self.state.resident.write().await;
            // Rows are only ever added, unless everything was read anew in the meantime.
            if write.num_rows() >= num_rows {
                write.insert_graph(name, graph);
            }
        }
        Ok(())
    }

    /// The resident rows with the graph of an index, from its file if need be; without the graph when there is no file for these rows.
    pub(crate) async fn with_graph(&self, resident: Resident, index: &GraphIndex) -> Result<Resident> {
        if resident.has_graph(&index.name) || resident.lacks_graph(&index.name) {
            return Ok(resident);
        }
        drop(resident);
        let mut write = Arc::clone(&self.state.resident).write_owned().await;
        match write.read_graph(self, index)? {
            Some(graph) => write.insert_graph(index.name.clone(), graph),
            None => write.note_no_graph(index.name.clone()),
        }
        Ok(write.downgrade())
    }

    /// Removes the file of an index's graph.
    pub(crate) async fn drop_graph(&self, index: &str) -> Result<()> {
        self.state.resident.write().await.remove_graph(index);
        let file = self.graph_file(index)?;
        match fs::remove_file(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| sync_directory(&self.graph_folder())).map_err(|source| Error::io(file, source)),
        }
    }

    fn graph_folder(&self) -> PathBuf {
        self.state.directory.join(FOLDER)
    }

    fn graph_file(&self, index: &str) -> Result<PathBuf> {
        let folder = self.graph_folder();
        create_directory(&folder).map_err(|source| Error::io(&folder, source))?;
        Ok(folder.join(to_directory("index", index)?))
    }
}

impl ResidentTable {
    /// The graph in the file of an index, if it was built over the first of these rows.
    fn read_graph(&self, table: &Table, index: &GraphIndex) -> Result<Option<ResidentGraph>> {
        let path = table.graph_file(&index.name)?;
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|source| Error::io(&path, source))?,
        };
        let Some(vectors) = self.vectors(table, &index.column) else { return Ok(None) };
        // A damaged file is as good as none: what it holds can be made again.
        let Some((header, graph)) = split(&bytes) else { return Ok(None) };
        if header["metric"] != index.metric.name() || !self.starts_with(&header["fragments"]) {
            return Ok(None);
        }
        let Ok(graph) = Graph::from_bytes(graph) else { return Ok(None) };
        if graph.len() > self.num_rows() {
            return Ok(None);
        }
        Ok(Some(ResidentGraph { normalised: normalised(vectors, index.metric, self.num_rows()), graph }))
    }
}

impl ResidentGraph {
    fn build(vectors: &Vectors, index: &GraphIndex) -> Option<Self> {
        let num_rows = vectors.norms.len();
        let normalised = normalised(vectors, index.metric, num_rows);
        let nearness = match index.metric {
            Metric::L2 => Nearness::SquaredL2,
            Metric::Cosine | Metric::Dot => Nearness::InnerProduct,
        };
        let parameters = Parameters { width: vectors.width, nearness, m: index.m, ef_construction: index.ef_construction, seed: SEED };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let graph = Graph::build(normalised.as_deref().unwrap_or(&vectors.matrix), parameters, threads, &|_| true)?;
        Some(Self { graph, normalised })
    }
}

/// The vectors at length 1, for cosine, when they are not so already.
fn normalised(vectors: &Vectors, metric: Metric, num_rows: usize) -> Option<Vec<f32>> {
    let is_unit = |norm: &f64| (norm - 1.0).abs() < UNIT_TOLERANCE || *norm == 0.0;
    if metric != Metric::Cosine || vectors.norms.iter().all(is_unit) {
        return None;
    }
    let mut matrix = Vec::with_capacity(num_rows * vectors.width);
    for (row, norm) in vectors.norms.iter().take(num_rows).enumerate() {
        let scale = if *norm > 0.0 { 1.0 / norm } else { 0.0 };
        matrix.extend(vectors.vector(row).iter().map(|value| (f64::from(*value) * scale) as f32));
    }
    Some(matrix)
}

/// Length of the header, the header, the graph.
fn file_of(resident: &ResidentTable, index: &GraphIndex, graph: &ResidentGraph) -> Vec<u8> {
    let header = json!({ "metric": index.metric.name(), "fragments": resident.fragments_json() }).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&graph.graph.to_bytes());
    file
}

fn split(file: &[u8]) -> Option<(Value, &[u8])> {
    let (length, rest) = file.split_first_chunk::<8>()?;
    let (header, graph) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    Some((serde_json::from_slice(header).ok()?, graph))
}
