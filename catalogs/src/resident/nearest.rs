//! The nearest rows among resident vectors.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::Bits;
use super::columns::Vectors;
use super::graph::Graph;
use super::simd::{dots, squared_l2s};
use crate::Metric;
use crate::search::counts::SearchCounts;

/// Rows whose distances are computed before they are compared: their vectors stay in the second-level cache while all queries pass over them.
const BLOCK_ROWS: usize = 128;
/// Products that are worth a thread of their own.
const PRODUCTS_PER_THREAD: usize = 8 << 20;
/// Fewer rows are measured one by one instead of walking the graph through rows that do not match.
pub(crate) const FILTERED_ROWS_MIN: usize = 4_000;

/// The `k` nearest rows and all that tie with the last of them, in no order.
#[derive(Debug)]
pub(crate) struct Nearest {
    k: usize,
    /// The farthest on top.
    heap: BinaryHeap<Found>,
    /// Rows as far as the farthest in the heap.
    ties: Vec<Found>,
}

/// A row at a distance. NaN is farther than every number, and `-0.0` is `0.0`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Found {
    pub(crate) distance: f64,
    pub(crate) row: usize,
}

impl Eq for Found {}

impl Ord for Found {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance)
    }
}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Nearest {
    fn new(k: usize) -> Self {
        Self { k, heap: BinaryHeap::with_capacity(k.min(1 << 16) + 1), ties: Vec::new() }
    }

    fn offer(&mut self, distance: f64, row: usize) {
        let distance = if distance.is_nan() { f64::NAN.abs() } else { distance + 0.0 };
        let found = Found { distance, row };
        if self.heap.len() < self.k {
            self.heap.push(found);
            return;
        }
        let Some(farthest) = self.heap.peek().copied() else { return };
        match found.cmp(&farthest) {
            Ordering::Greater => {}
            Ordering::Equal => self.ties.push(found),
            Ordering::Less => {
                self.heap.pop();
                self.heap.push(found);
                match self.heap.peek() {
                    Some(now) if *now >= farthest => self.ties.push(farthest),
                    _ => self.ties.clear(),
                }
            }
        }
    }

    fn into_found(self) -> Vec<Found> {
        let mut found = self.heap.into_vec();
        found.extend(self.ties);
        found
    }
}

/// A search among the vectors of one column.
pub(crate) struct Search<'a> {
    pub(crate) vectors: &'a Vectors,
    pub(crate) metric: Metric,
    pub(crate) k: usize,
    /// The rows that match and have a vector.
    pub(crate) accepted: &'a Bits,
    /// Whether that is every row.
    pub(crate) accepts_all: bool,
    pub(crate) counts: &'a SearchCounts,
}

impl Search<'_> {
    /// Reads every vector once for all queries.
    pub(crate) fn exact(&self, queries: &[&[f32]]) -> Vec<Vec<Found>> {
        self.counts.by_every_vector.add(queries.len());
        let num_rows = self.vectors.norms.len();
        let products = num_rows * self.vectors.width * queries.len();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(products / PRODUCTS_PER_THREAD).max(1);
        let share = num_rows.div_ceil(threads).next_multiple_of(BLOCK_ROWS).max(BLOCK_ROWS);
        let mut merged: Vec<Nearest> = queries.iter().map(|_| Nearest::new(self.k)).collect();
        std::thread::scope(|scope| {
            let part = |number: usize| (number * share).min(num_rows)..((number + 1) * share).min(num_rows);
            let others: Vec<_> = (1..threads).map(|number| scope.spawn(move || self.exact_part(queries, part(number)))).collect();
            let mut found = vec![self.exact_part(queries, part(0))];
            for other in others {
                found.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            for part in found {
                for (nearest, part) in merged.iter_mut().zip(part) {
                    part.into_found().into_iter().for_each(|found| nearest.offer(found.distance, found.row));
                }
            }
        });
        merged.into_iter().map(Nearest::into_found).collect()
    }

    fn exact_part(&self, queries: &[&[f32]], rows: Range<usize>) -> Vec<Nearest> {
        let measures: Vec<Measure<'_>> = queries.iter().map(|query| Measure::new(self.metric, query)).collect();
        let mut nearest: Vec<Nearest> = queries.iter().map(|_| Nearest::new(self.k)).collect();
        let mut raw = [0f32; BLOCK_ROWS];
        for start in rows.clone().step_by(BLOCK_ROWS) {
            let end = (start + BLOCK_ROWS).min(rows.end);
            let block = &self.vectors.matrix[start * self.vectors.width..end * self.vectors.width];
            for (measure, nearest) in measures.iter().zip(&mut nearest) {
                let raw = &mut raw[..end - start];
                measure.raw(block, self.vectors.width, raw);
                for (row, raw) in (start..end).zip(raw.iter()) {
                    if self.accepts_all || self.accepted.contains(row) {
                        nearest.offer(measure.distance(*raw, self.vectors.norms[row]), row);
                    }
                }
            }
        }
        nearest
    }

    /// Measures the accepted rows one by one.
    fn exact_among(&self, query: &[f32], rows: impl Iterator<Item = usize>) -> Vec<Found> {
        let measure = Measure::new(self.metric, query);
        let mut nearest = Nearest::new(self.k);
        for row in rows {
            nearest.offer(self.measured(&measure, row), row);
        }
        nearest.into_found()
    }

    fn measured(&self, measure: &Measure<'_>, row: usize) -> f64 {
        let mut raw = [0f32];
        measure.raw(self.vectors.vector(row), self.vectors.width, &mut raw);
        measure.distance(raw[0], self.vectors.norms[row])
    }

    /// Walks the graph, whose nodes are the first rows; later rows are measured. Exactly min(k, accepted rows) rows and ties come back.
    ///
    /// `normalised`: what the graph was built over, if that is not the vectors themselves.
    pub(crate) fn by_graph(&self, graph: &Graph, normalised: Option<&[f32]>, query: &[f32], ef: usize) -> Vec<Found> {
        let num_accepted = if self.accepts_all { self.vectors.norms.len() } else { self.accepted.count() };
        if num_accepted <= FILTERED_ROWS_MIN.max(self.k) {
            self.counts.by_every_vector.add(1);
            return self.exact_among(query, self.accepted.iter());
        }
        let measure = Measure::new(self.metric, query);
        let unit: Vec<f32>;
        let walked = match self.metric {
            Metric::Cosine if measure.query_norm > 0.0 => {
                unit = query.iter().map(|value| (f64::from(*value) / measure.query_norm) as f32).collect();
                &unit
            }
            _ => query,
        };
        let accept = |row: u32| self.accepted.contains(row as usize);
        let accept: Option<&dyn Fn(u32) -> bool> = if self.accepts_all { None } else { Some(&accept) };
        let matrix = normalised.unwrap_or(&self.vectors.matrix);
        let proposed = graph.search(matrix, walked, ef.max(self.k), accept);
        let mut nearest = Nearest::new(self.k);
        for (_, row) in &proposed {
            nearest.offer(self.measured(&measure, *row as usize), *row as usize);
        }
        for row in graph.len()..self.vectors.norms.len() {
            if self.accepts_all || self.accepted.contains(row) {
                nearest.offer(self.measured(&measure, row), row);
            }
        }
        let found = nearest.into_found();
        if found.len() < self.k.min(num_accepted) {
            return self.exact(&[query]).remove(0);
        }
        self.counts.by_graph.add(1);
        found
    }
}

/// Distances from one query, with pgvector's values and signs.
pub(crate) struct Measure<'a> {
    metric: Metric,
    query: &'a [f32],
    query_norm: f64,
}

impl<'a> Measure<'a> {
    pub(crate) fn new(metric: Metric, query: &'a [f32]) -> Self {
        Self { metric, query, query_norm: f64::from(super::dot(query, query)).sqrt() }
    }

    /// Products or squared distances of contiguous vectors.
    fn raw(&self, vectors: &[f32], width: usize, out: &mut [f32]) {
        match self.metric {
            Metric::L2 => squared_l2s(self.query, vectors, width, out),
            Metric::Cosine | Metric::Dot => dots(self.query, vectors, width, out),
        }
    }

    /// NaN for the cosine distance of a zero vector, as in pgvector.
    fn distance(&self, raw: f32, norm: f64) -> f64 {
        let raw = f64::from(raw);
        match self.metric {
            Metric::L2 => raw.sqrt(),
            Metric::Dot => -raw,
            // Rounding may leave the range; NaN passes through `clamp`.
            Metric::Cosine => 1.0 - (raw / (self.query_norm * norm)).clamp(-1.0, 1.0),
        }
    }

    /// Of one vector.
    pub(crate) fn to(&self, vector: &[f32]) -> f64 {
        let raw = match self.metric {
            Metric::L2 => super::squared_l2(self.query, vector),
            Metric::Cosine | Metric::Dot => super::dot(self.query, vector),
        };
        self.distance(raw, f64::from(super::dot(vector, vector)).sqrt())
    }
}
