//! The file of a graph: the length of a header, the header (column, metric and fragments of the rows) and the graph.

use std::fs;

use serde_json::{Value, json};

use super::super::graph::Graph;
use super::super::table::{ResidentGraph, ResidentTable};
use super::rows::GraphRows;
use super::{BuiltGraph, GraphIndex};
use crate::{Error, Result, Table};

/// What a file holds.
pub(super) struct StoredGraph {
    pub(super) graph: Graph,
    /// As [`ResidentTable::fragments_json`] has written them.
    pub(super) fragments: Value,
}

impl BuiltGraph {
    pub(super) fn to_file(&self) -> Vec<u8> {
        file_of(self.field, self.metric.name(), &self.fragments, &self.graph.graph)
    }
}

pub(super) fn file_of(field: i32, metric: &str, fragments: &Value, graph: &Graph) -> Vec<u8> {
    // Those that the graph reaches into: what comes after them is no business of the file.
    let mut first_row = 0;
    let mut reached = Vec::new();
    for fragment in fragments.as_array().into_iter().flatten() {
        if first_row < graph.len() as u64 {
            reached.push(fragment);
        }
        first_row += fragment[1].as_u64().unwrap_or(0);
    }
    let header = json!({ "field": field, "metric": metric, "fragments": reached }).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&graph.to_bytes());
    file
}

/// The graph in the file of an index. A damaged file is as good as none: what it holds can be made again.
pub(super) fn read(table: &Table, index: &GraphIndex) -> Result<Option<StoredGraph>> {
    let path = table.state.graph_file(&index.name)?;
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|source| Error::io(&path, source))?,
    };
    Ok(stored(&bytes, index))
}

fn stored(bytes: &[u8], index: &GraphIndex) -> Option<StoredGraph> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (header, graph) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let mut header: Value = serde_json::from_slice(header).ok()?;
    if header["metric"] != index.metric.name() || header["field"] != index.field {
        return None;
    }
    Some(StoredGraph { graph: Graph::from_bytes(graph).ok()?, fragments: header["fragments"].take() })
}

impl ResidentTable {
    /// The graph in the file of an index, over the first of these rows: moved, when it was built over other fragments too.
    pub(super) fn read_graph(&self, table: &Table, index: &GraphIndex) -> Result<Option<ResidentGraph>> {
        let Some(stored) = read(table, index)? else { return Ok(None) };
        let Some(rows) = GraphRows::of(self, table, index) else { return Ok(None) };
        if self.starts_with(&stored.fragments) && stored.graph.len() <= self.num_rows() {
            let saved_rows = stored.graph.len();
            return Ok(Some(ResidentGraph { saved_rows, ..rows.resident(stored.graph) }));
        }
        let moves = self.moves_of(&stored.fragments, stored.graph.len());
        let num_rows = moves.iter().flatten().max().map_or(0, |last| *last as usize + 1);
        Ok(if num_rows == 0 { None } else { rows.moved(&stored.graph, &moves, num_rows, &|_| true) })
    }
}
