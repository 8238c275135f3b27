//! A graph of near neighbours in memory: HNSW (Malkov & Yashunin 2016, arXiv:1603.09320).
//!
//! A node is a row of a matrix that the caller keeps; the graph holds row numbers only. Every node is in layer 0, an `m`th
//! of each layer's nodes is in the one above. A search walks greedily down to layer 0 and there keeps the `ef` nearest rows.
//!
//! Where we differ from the paper: nodes enter in batches against a frozen graph, so that the result does not depend on the
//! number of threads (`build`); a row that equals another one stands behind it as its twin instead of crowding its
//! neighbours; and at the end no node is out of reach. The graph knows no tables, files or deleted rows: the caller filters.

mod build;
mod bytes;
mod remap;
#[cfg(test)]
mod tests;

pub(crate) use remap::Moves;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::simd::{dots_at, prefetch, squared_l2s_at};

/// What a smaller distance means. Cosine is [`Nearness::InnerProduct`] of normalised vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nearness {
    /// The distance is `-(a·b)`.
    InnerProduct,
    /// The distance is `|a - b|²`.
    SquaredL2,
}

/// How a graph is built; kept with it, so that an extended graph stays one graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// Values per vector, at least 1.
    pub(crate) width: usize,
    pub(crate) nearness: Nearness,
    /// Links per node and layer, twice as many in layer 0. Taken into 2..=[`M_MAX`].
    pub(crate) m: usize,
    /// Rows that an insertion looks at before it picks neighbours; larger is slower to build and finds more.
    pub(crate) ef_construction: usize,
    /// Draws the layers and the order of insertion.
    pub(crate) seed: u64,
}

/// Far above what helps, and low enough for the counts of links that a build keeps.
pub(crate) const M_MAX: usize = 512;

/// An HNSW graph over the rows of a matrix `[len, width]`, which is passed to every call.
#[derive(Clone)]
pub(crate) struct Graph {
    parameters: Parameters,
    /// Highest layer of each node.
    levels: Vec<u8>,
    /// Layer 0: `2 * m` slots per node, the neighbours first, then [`NONE`].
    base: Vec<u32>,
    /// The layers above: `m` slots per node and layer, in the order of nodes, then layers.
    upper: Vec<u32>,
    /// Per node, where its layer 1 begins in `upper`, in units of `m` slots; follows from `levels`.
    upper_start: Vec<u32>,
    /// A node of the highest layer, where every search begins. [`None`] when there are no nodes.
    entry: Option<u32>,
    /// `(node, row)` ascending: rows that equal a node bit for bit, and are not linked themselves.
    twins: Vec<(u32, u32)>,
    pool: Pool,
}

/// No neighbour. No row has this number.
const NONE: u32 = u32::MAX;

impl Graph {
    /// Rows in the graph.
    pub(crate) fn len(&self) -> usize {
        self.levels.len()
    }

    /// Bytes on the heap, without the working memory of searches.
    pub(crate) fn memory_bytes(&self) -> usize {
        let links = self.base.capacity() + self.upper.capacity() + self.upper_start.capacity();
        links * size_of::<u32>() + self.levels.capacity() + self.twins.capacity() * size_of::<(u32, u32)>()
    }

    /// Up to `ef` accepted rows near `query` as `(distance, row)`, ascending; rows of one distance by number. With `ef` at
    /// least [`Graph::len`], all accepted rows.
    ///
    /// `vectors`: `[len, width]` or longer, the rows that the graph was built over. A row that is not accepted is walked
    /// through, so the fewer are accepted, the longer is the walk. A distance that is not a number counts as infinite.
    ///
    /// # Panics
    /// If the matrix has fewer rows than the graph, or the query another width.
    pub(crate) fn search(&self, vectors: &[f32], query: &[f32], ef: usize, accept: Option<&dyn Fn(u32) -> bool>) -> Vec<(f32, u32)> {
        assert!(query.len() == self.parameters.width, "the query is as wide as the rows");
        self.search_by(&self.space(vectors).seen_from(query), ef, accept)
    }

    /// [`Self::search`] by other distances than those that the graph was built with, close to them.
    pub(crate) fn search_by(&self, from: &impl Distances, ef: usize, accept: Option<&dyn Fn(u32) -> bool>) -> Vec<(f32, u32)> {
        let Some(entry) = self.entry.filter(|_| ef > 0) else { return Vec::new() };
        let mut scratch = self.pool.take();
        let entry = from.key(entry);
        let start = self.descend(from, entry, 0, &mut scratch);
        let accepted = |row| accept.is_none_or(|accept| accept(row));
        let is_result = |node| accepted(node) || self.twins_of(node).iter().any(|(_, twin)| accepted(*twin));
        // From the entry every node can be reached, which need not hold for the start.
        self.walk(&Walk { from, layer: 0, starts: &[start, entry], ef }, is_result, &mut scratch);
        let nearest = self.rows_of(scratch.frontier.drain_nearest(), ef, accepted);
        self.pool.give(scratch);
        nearest
    }

    /// The first `ef` accepted rows of the nodes of `keys`, which ascend: nodes and their twins.
    fn rows_of(&self, keys: impl Iterator<Item = u64>, ef: usize, accepted: impl Fn(u32) -> bool) -> Vec<(f32, u32)> {
        let mut rows: Vec<(f32, u32)> = Vec::new();
        for key in keys {
            let (distance, node) = (distance_of(key), node_of(key));
            if rows.len() >= ef && rows.last().is_some_and(|last| last.0 < distance) {
                break;
            }
            let twins = self.twins_of(node).iter().map(|(_, twin)| *twin);
            rows.extend(std::iter::once(node).chain(twins).filter(|row| accepted(*row)).map(|row| (distance, row)));
        }
        if !self.twins.is_empty() {
            rows.sort_unstable_by_key(|(distance, row)| key_of(*distance, *row));
        }
        rows.truncate(ef);
        rows
    }

    /// The key of the nearest node that a greedy walk from `start` finds in the layers above `layer`.
    fn descend(&self, from: &impl Distances, start: u64, layer: usize, scratch: &mut Scratch) -> u64 {
        let mut nearest = start;
        for layer in (layer + 1..=self.level(node_of(start))).rev() {
            loop {
                let best = from.keys(self.links(node_of(nearest), layer), &mut scratch.distances).min();
                match best.filter(|best| *best < nearest) {
                    Some(best) => nearest = best,
                    None => break,
                }
            }
        }
        nearest
    }

    /// Leaves in the frontier of `scratch` the `ef` nearest results that a walk finds: always on from the nearest node, until
    /// that is farther than all of them. Nodes that are no results only lead on.
    fn walk(&self, walk: &Walk<'_, impl Distances>, is_result: impl Fn(u32) -> bool, scratch: &mut Scratch) {
        let &Walk { from, layer, starts, ef } = walk;
        let Scratch { visited, frontier, nodes, distances } = scratch;
        visited.clear(self.len());
        frontier.clear(ef);
        for start in starts.iter().filter(|start| visited.insert(node_of(**start))) {
            frontier.offer(*start, &is_result);
        }
        while let Some(candidate) = frontier.next() {
            self.prefetch_next(frontier, layer);
            nodes.clear();
            nodes.extend(self.links(node_of(candidate), layer).iter().filter(|node| visited.insert(**node)));
            for key in from.keys(nodes, distances) {
                frontier.offer(key, &is_result);
            }
        }
    }

    /// Asks for the links of the candidate that is next, unless the current one leads to something nearer.
    fn prefetch_next(&self, frontier: &Frontier, layer: usize) {
        if let Some(Reverse(next)) = frontier.candidates.peek() {
            let slots = self.slots(node_of(*next), layer);
            prefetch(if layer == 0 { &self.base } else { &self.upper }, slots.start, slots.len());
        }
    }

    fn twins_of(&self, node: u32) -> &[(u32, u32)] {
        let from = self.twins.partition_point(|(other, _)| *other < node);
        let rest = &self.twins[from..];
        let count = rest.iter().take_while(|(other, _)| *other == node).count();
        &rest[..count]
    }

    fn level(&self, node: u32) -> usize {
        usize::from(self.levels[node as usize])
    }

    /// Where the links of `node` in `layer` are in `base` or `upper`; the node is in that layer.
    fn slots(&self, node: u32, layer: usize) -> Range<usize> {
        let m = self.parameters.m;
        let (start, count) = match layer {
            0 => (node as usize * 2 * m, 2 * m),
            _ => ((self.upper_start[node as usize] as usize + layer - 1) * m, m),
        };
        start..start + count
    }

    /// The neighbours of `node` in `layer`; the node is in that layer.
    fn links(&self, node: u32, layer: usize) -> &[u32] {
        let slots = self.slots(node, layer);
        let links = if layer == 0 { &self.base[slots] } else { &self.upper[slots] };
        let count = links.iter().position(|link| *link == NONE).unwrap_or(links.len());
        &links[..count]
    }

    fn space<'a>(&self, vectors: &'a [f32]) -> Space<'a> {
        let Parameters { width, nearness, .. } = self.parameters;
        assert!(vectors.len() / width >= self.len(), "a row of the matrix per node");
        Space { vectors, width, nearness }
    }
}

/// The rows and how far they are from each other.
#[derive(Clone, Copy)]
struct Space<'a> {
    /// `[_, width]`.
    vectors: &'a [f32],
    width: usize,
    nearness: Nearness,
}

impl<'a> Space<'a> {
    fn row(self, node: u32) -> &'a [f32] {
        &self.vectors[node as usize * self.width..][..self.width]
    }

    fn seen_from(self, query: &'a [f32]) -> SeenFrom<'a> {
        SeenFrom { space: self, query }
    }

    /// The distances of `nodes` from `query`, one of `distances` each.
    fn measure(self, query: &[f32], nodes: &[u32], distances: &mut [f32]) {
        match self.nearness {
            Nearness::InnerProduct => {
                dots_at(query, self.vectors, nodes, distances);
                // Not a negation, which would tell the two zeros apart.
                distances.iter_mut().for_each(|distance| *distance = 0.0 - *distance);
            }
            Nearness::SquaredL2 => squared_l2s_at(query, self.vectors, nodes, distances),
        }
    }
}

/// How far nodes are from one query.
pub(crate) trait Distances {
    /// The distances of `nodes`, one of `distances` each.
    fn measure(&self, nodes: &[u32], distances: &mut [f32]);

    fn keys<'b>(&self, nodes: &'b [u32], distances: &'b mut Vec<f32>) -> impl Iterator<Item = u64> + use<'b, Self> {
        distances.resize(nodes.len(), 0.0);
        self.measure(nodes, distances);
        distances.iter().zip(nodes).map(|(distance, node)| key_of(*distance, *node))
    }

    fn key(&self, node: u32) -> u64 {
        let mut distance = [0.0];
        self.measure(&[node], &mut distance);
        key_of(distance[0], node)
    }
}

/// The rows from one query.
struct SeenFrom<'a> {
    space: Space<'a>,
    query: &'a [f32],
}

impl Distances for SeenFrom<'_> {
    fn measure(&self, nodes: &[u32], distances: &mut [f32]) {
        self.space.measure(self.query, nodes, distances);
    }
}

/// One integer that orders like `(distance, node)`; NaN like infinity.
fn key_of(distance: f32, node: u32) -> u64 {
    let distance = if distance.is_nan() { f32::INFINITY } else { distance };
    let bits = distance.to_bits();
    // As unsigned integers, positive floats are in order and negative ones in reverse.
    let ordered = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    u64::from(ordered) << 32 | u64::from(node)
}

fn distance_of(key: u64) -> f32 {
    let ordered = (key >> 32) as u32;
    f32::from_bits(if ordered >> 31 == 0 { !ordered } else { ordered ^ 1 << 31 })
}

fn node_of(key: u64) -> u32 {
    key as u32
}

/// What a walk through one layer is to find.
struct Walk<'a, D> {
    from: &'a D,
    layer: usize,
    /// Keys of the nodes to begin at.
    starts: &'a [u64],
    ef: usize,
}

/// Working memory of searches that are not running. What a search takes it gives back.
#[derive(Default)]
struct Pool(Mutex<Vec<Scratch>>);

/// A clone starts with none.
impl Clone for Pool {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Pool {
    fn take(&self) -> Scratch {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give(&self, scratch: Scratch) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    }
}

/// Working memory of one search.
#[derive(Default)]
struct Scratch {
    visited: Visited,
    frontier: Frontier,
    nodes: Vec<u32>,
    distances: Vec<f32>,
}

/// How far a walk has come.
#[derive(Default)]
struct Frontier {
    /// Nodes to walk on from, nearest first.
    candidates: BinaryHeap<Reverse<u64>>,
    /// The nearest results so far, farthest first; at most `ef`.
    results: BinaryHeap<u64>,
    ef: usize,
}

impl Frontier {
    fn clear(&mut self, ef: usize) {
        self.candidates.clear();
        self.results.clear();
        self.ef = ef;
    }

    /// Takes the nearest candidate, unless it is too far to lead to a result.
    fn next(&mut self) -> Option<u64> {
        self.candidates.pop().map(|Reverse(key)| key).filter(|key| self.is_near(*key))
    }

    /// Makes `key` a candidate, and a result if it is one, unless it is too far for both.
    fn offer(&mut self, key: u64, is_result: impl Fn(u32) -> bool) {
        if self.is_near(key) {
            self.candidates.push(Reverse(key));
            if is_result(node_of(key)) {
                self.keep(key);
            }
        }
    }

    /// Whether there are fewer than `ef` results nearer than `key`.
    fn is_near(&self, key: u64) -> bool {
        self.results.len() < self.ef || self.results.peek().is_some_and(|worst| key < *worst)
    }

    fn keep(&mut self, key: u64) {
        if self.results.len() < self.ef {
            self.results.push(key);
        } else if let Some(mut worst) = self.results.peek_mut() {
            *worst = key;
        }
    }

    /// The results, nearest first.
    fn drain_nearest(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(&mut self.results).into_sorted_vec().into_iter()
    }
}

/// A set of rows that is emptied in no time: a row is in it when it bears the mark of the current round.
#[derive(Default)]
struct Visited {
    marks: Vec<u8>,
    round: u8,
}

impl Visited {
    fn clear(&mut self, num_rows: usize) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 || self.marks.len() < num_rows {
            self.marks.clear();
            self.marks.resize(num_rows, 0);
            self.round = 1;
        }
    }

    fn contains(&self, row: u32) -> bool {
        self.marks[row as usize] == self.round
    }

    /// Whether `row` was not in it.
    fn insert(&mut self, row: u32) -> bool {
        std::mem::replace(&mut self.marks[row as usize], self.round) != self.round
    }
}
