//! Graphs in step with their tables: rows that come are taken in, and a compaction moves what it has rewritten.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use serde_json::Value;

use super::super::graph::Graph;
use super::super::table::{ResidentGraph, ResidentTable};
use super::file::{self, StoredGraph};
use super::moves::CompactedRows;
use super::rows::GraphRows;
use super::{GraphIndex, write_durably};
use crate::state::TableState;
use crate::{Result, Table};

/// A graph takes rows in when there are so many, and this part of those that it has: fewer are soon measured. The steps depend on nothing but the
/// number of rows, so that the graph does not depend on when they were taken.
const STEP_MIN: usize = 1_024;
const STEP_SHARE: usize = 64;
/// The file is written anew when this part of the graph is not in it: from an older file the same steps lead to the same graph.
const UNSAVED_SHARE: usize = 8;

/// The rows of a graph of `len` rows after its next step.
fn next_step(len: usize) -> usize {
    len + STEP_MIN.max(len / STEP_SHARE)
}

/// A graph as it was before a compaction.
pub(crate) struct HeldGraph {
    index: GraphIndex,
    graph: Arc<Graph>,
    /// As [`ResidentTable::fragments_json`] has them.
    fragments: Value,
}

impl Table {
    /// Lets the graph of an index take in the rows that came since, when there are enough of them. Returns at once.
    pub(crate) fn extend_graph_if_due(&self, resident: &ResidentTable, index: &GraphIndex) {
        let Some(held) = resident.graph(&index.name) else { return };
        if resident.num_rows() < next_step(held.graph.len()) || held.is_extending.swap(true, Ordering::Relaxed) {
            return;
        }
        let Some(rows) = GraphRows::of(resident, self, index) else { return };
        // No hold on the table: it can be closed meanwhile.
        tokio::spawn(extend(Arc::downgrade(&self.state), held.clone(), rows));
    }

    /// The graphs of this version, in memory or in their files.
    ///
    /// # Errors
    /// [`crate::Error::Io`], [`crate::Error::Storage`].
    pub(crate) async fn held_graphs(&self) -> Result<Vec<HeldGraph>> {
        let mut held = Vec::new();
        for index in self.graph_indexes().await? {
            let resident = self.state.resident.read().await;
            if let Some(ResidentGraph { graph, .. }) = resident.graph(&index.name) {
                held.push(HeldGraph { index, graph: Arc::clone(graph), fragments: resident.fragments_json() });
            } else if let Some(StoredGraph { graph, fragments }) = file::read(self, &index)? {
                held.push(HeldGraph { index, graph: Arc::new(graph), fragments });
            }
        }
        Ok(held)
    }

    /// Brings graphs to this version, the first after a compaction, with all rows in them. Nothing happens when the table does not fit into memory.
    ///
    /// # Errors
    /// [`crate::Error::Io`], [`crate::Error::Storage`].
    pub(crate) async fn move_graphs(&self, held: Vec<HeldGraph>, compacted: &CompactedRows) -> Result<()> {
        if held.is_empty() {
            return Ok(());
        }
        if !compacted.is_empty() {
            // The rows get the numbers that they will have after a restart.
            *self.state.resident.write().await = ResidentTable::default();
        }
        self.state.heat.raise();
        for HeldGraph { index, graph, fragments } in held {
            let Some(resident) = self.resident(&[&index.column], 1).await? else { return Ok(()) };
            if compacted.is_empty() && resident.graph(&index.name).is_some_and(|held| held.graph.len() == resident.num_rows()) {
                continue;
            }
            let Some(rows) = GraphRows::of(&resident, self, &index) else { continue };
            let old_rows = fragments.as_array().into_iter().flatten().flat_map(|fragment| {
                let (id, num_rows) = (fragment[0].as_u64().unwrap_or(0), fragment[1].as_u64().unwrap_or(0));
                (0..num_rows).map(move |place| (id, place))
            });
            let moved_to = |(fragment, place)| resident.row(compacted.address(fragment, place)?).and_then(|row| u32::try_from(row).ok());
            let moves: Vec<Option<u32>> = old_rows.take(graph.len()).map(moved_to).collect();
            drop(resident);
            let work = move |is_cancelled: &AtomicBool| {
                let moved = rows.moved(&graph, &moves, rows.num_rows(), &|_| !is_cancelled.load(Ordering::Relaxed));
                moved.map(|moved| rows.built(moved))
            };
            if let Some(moved) = self.on_a_thread(work).await? {
                self.keep_graph(moved).await?;
            }
        }
        Ok(())
    }
}

/// Takes as many steps as there are rows for.
async fn extend(state: Weak<TableState>, held: ResidentGraph, rows: GraphRows) -> Result<()> {
    let (mut graph, mut saved_rows) = (Arc::clone(&held.graph), held.saved_rows);
    let extended = tokio::task::spawn_blocking(move || {
        while rows.num_rows() >= next_step(graph.len()) {
            let end = next_step(graph.len());
            graph = Arc::new(rows.extended(Graph::clone(&graph), end)?);
        }
        Some((graph, rows))
    });
    let (Ok(Some((graph, rows))), Some(state)) = (extended.await, state.upgrade()) else { return Ok(()) };
    let _files = state.graph_files.lock().await;
    // The index may be gone, or the rows have other numbers.
    let is_held = |resident: &ResidentTable| {
        let now = resident.graph(&rows.index.name);
        now.is_some_and(|now| Arc::ptr_eq(&now.is_extending, &held.is_extending)) && resident.numbering == rows.numbering
    };
    if !is_held(&*state.resident.read().await) {
        return Ok(());
    }
    if (graph.len() - saved_rows) * UNSAVED_SHARE > graph.len() {
        let (path, file) = (state.graph_file(&rows.index.name)?, rows.file(&graph));
        saved_rows = if write_durably(&path, &file).is_ok() { graph.len() } else { saved_rows };
    }
    let mut write = state.resident.write().await;
    if is_held(&write) {
        write.insert_graph(rows.index.name.clone(), ResidentGraph { saved_rows, ..rows.resident_of(graph) });
    }
    Ok(())
}
