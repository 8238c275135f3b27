//! The rows that a graph is made of, without a lock on the table in memory: searches and writes go on while it is made.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::super::graph::{Graph, Moves, Nearness, Parameters};
use super::super::table::{Numbering, ResidentGraph, ResidentTable};
use super::super::threads;
use super::file::file_of;
use super::{BuiltGraph, GraphIndex};
use crate::{Metric, Table};

/// Draws the levels of nodes; the same rows give the same graph.
const SEED: u64 = 0x5EED;
/// Lengths of vectors that count as 1.
const UNIT_TOLERANCE: f64 = 1e-5;

pub(super) struct GraphRows {
    pub(super) index: GraphIndex,
    width: usize,
    /// `[rows, width]`.
    matrix: Arc<Vec<f32>>,
    /// Of the vectors, when the metric is cosine.
    norms: Vec<f64>,
    /// The vectors scaled to length 1, when they are not so already and the metric is cosine; made when it is needed, which takes a while.
    normalised: OnceLock<Option<Arc<Vec<f32>>>>,
    pub(super) numbering: Numbering,
    fragments: Value,
}

impl GraphRows {
    /// `None`: the vectors are not in memory.
    pub(super) fn of(resident: &ResidentTable, table: &Table, index: &GraphIndex) -> Option<Self> {
        let vectors = resident.vectors(table, &index.column)?;
        Some(Self {
            index: index.clone(),
            width: vectors.width,
            matrix: Arc::clone(&vectors.matrix),
            norms: if index.metric == Metric::Cosine { vectors.norms.clone() } else { Vec::new() },
            normalised: OnceLock::new(),
            numbering: resident.numbering.clone(),
            fragments: resident.fragments_json(),
        })
    }

    pub(super) fn num_rows(&self) -> usize {
        self.matrix.len() / self.width.max(1)
    }

    pub(super) fn build(&self, progress: &(dyn Fn(usize) -> bool + Sync)) -> Option<ResidentGraph> {
        let nearness = match self.index.metric {
            Metric::L2 => Nearness::SquaredL2,
            Metric::Cosine | Metric::Dot => Nearness::InnerProduct,
        };
        let GraphIndex { m, ef_construction, .. } = self.index;
        let parameters = Parameters { width: self.width, nearness, m, ef_construction, seed: SEED };
        Graph::build(self.first(self.num_rows()), parameters, threads(), progress).map(|graph| self.resident(graph))
    }

    /// The graph with the first `num_rows` rows: those that `moves` leads to, and the others.
    pub(super) fn moved(
        &self,
        graph: &Graph,
        moves: &Moves,
        num_rows: usize,
        progress: &(dyn Fn(usize) -> bool + Sync),
    ) -> Option<ResidentGraph> {
        graph.moved(moves, self.first(num_rows), threads(), progress).map(|graph| self.resident(graph))
    }

    /// The graph with the first `num_rows` rows, of which it has the first. In the background: on one thread.
    pub(super) fn extended(&self, graph: Graph, num_rows: usize) -> Option<Graph> {
        graph.extend(self.first(num_rows), 1, &|_| true)
    }

    pub(super) fn resident(&self, graph: Graph) -> ResidentGraph {
        self.resident_of(Arc::new(graph))
    }

    pub(super) fn resident_of(&self, graph: Arc<Graph>) -> ResidentGraph {
        ResidentGraph { graph, normalised: self.normalised().clone(), saved_rows: 0, is_extending: Arc::default() }
    }

    pub(super) fn built(&self, graph: ResidentGraph) -> BuiltGraph {
        BuiltGraph {
            name: self.index.name.clone(),
            graph,
            numbering: self.numbering.clone(),
            metric: self.index.metric,
            field: self.index.field,
            fragments: self.fragments.clone(),
        }
    }

    /// The graph as its file holds it.
    pub(super) fn file(&self, graph: &Graph) -> Vec<u8> {
        file_of(self.index.field, self.index.metric.name(), &self.fragments, graph)
    }

    fn normalised(&self) -> &Option<Arc<Vec<f32>>> {
        self.normalised.get_or_init(|| normalised(&self.matrix, &self.norms, self.width))
    }

    fn first(&self, num_rows: usize) -> &[f32] {
        &self.normalised().as_ref().unwrap_or(&self.matrix)[..num_rows * self.width]
    }
}

/// The vectors at length 1; `None`: they are so already, or need not be.
fn normalised(matrix: &[f32], norms: &[f64], width: usize) -> Option<Arc<Vec<f32>>> {
    let is_unit = |norm: &f64| (norm - 1.0).abs() < UNIT_TOLERANCE || *norm == 0.0;
    if norms.iter().all(is_unit) {
        return None;
    }
    let mut scaled = Vec::with_capacity(matrix.len());
    for (vector, norm) in matrix.chunks(width).zip(norms) {
        let scale = if *norm > 0.0 { 1.0 / norm } else { 0.0 };
        scaled.extend(vector.iter().map(|value| (f64::from(*value) * scale) as f32));
    }
    Some(Arc::new(scaled))
}
