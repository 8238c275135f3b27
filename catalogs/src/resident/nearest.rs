//! The nearest rows among resident vectors.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::Bits;
use super::bits::ones;
use super::columns::Vectors;
use super::screening::Screened;
use super::simd::{dots_at, squared_l2s_at};
use crate::Metric;
use crate::search::counts::SearchCounts;

/// Rows whose distances are computed before they are compared: their vectors stay in the second-level cache while all queries pass over them.
const BLOCK_ROWS: usize = 128;
/// Products that are worth a thread of their own.
const PRODUCTS_PER_THREAD: usize = 8 << 20;

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

impl Found {
    fn new(distance: f64, row: usize) -> Self {
        let distance = if distance.is_nan() { f64::NAN.abs() } else { distance + 0.0 };
        Self { distance, row }
    }
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
    pub(super) fn new(k: usize) -> Self {
        Self { k, heap: BinaryHeap::with_capacity(k.min(1 << 16) + 1), ties: Vec::new() }
    }

    pub(super) fn offer(&mut self, found: Found) {
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

    pub(super) fn into_found(self) -> Vec<Found> {
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
    /// Compares every accepted row, for all queries at once.
    pub(crate) fn exact(&self, queries: &[&[f32]]) -> Vec<Vec<Found>> {
        self.counts.by_every_vector.add(queries.len());
        let measures: Vec<Measure<'_>> = queries.iter().map(|query| Measure::new(self.metric, query)).collect();
        let screened = Screened::new(self, &measures);
        let part = |rows: Range<usize>| match &screened {
            Some(screened) => screened.nearest(self, &measures, rows),
            None => self.exact_part(&measures, rows),
        };
        let num_rows = self.vectors.norms.len();
        let products = self.num_accepted() * self.vectors.width * queries.len();
        let threads = super::threads().min(products / PRODUCTS_PER_THREAD).max(1);
        let share = num_rows.div_ceil(threads).next_multiple_of(BLOCK_ROWS).max(BLOCK_ROWS);
        let mut merged: Vec<Nearest> = queries.iter().map(|_| Nearest::new(self.k)).collect();
        std::thread::scope(|scope| {
            let rows = |number: usize| (number * share).min(num_rows)..((number + 1) * share).min(num_rows);
            let part = &part;
            let others: Vec<_> = (1..threads).map(|number| scope.spawn(move || part(rows(number)))).collect();
            let mut found = vec![part(rows(0))];
            for other in others {
                found.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            for part in found {
                for (nearest, part) in merged.iter_mut().zip(part) {
                    part.into_found().into_iter().for_each(|found| nearest.offer(found));
                }
            }
        });
        merged.into_iter().map(Nearest::into_found).collect()
    }

    pub(super) fn num_accepted(&self) -> usize {
        if self.accepts_all { self.vectors.norms.len() } else { self.accepted.count() }
    }

    /// The accepted ones of `rows`, ascending.
    pub(super) fn accepted_of(&self, rows: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        let first = rows.start as u32;
        let (all, some) = match self.accepts_all {
            true => (rows, 0..0),
            false => (0..0, rows),
        };
        all.map(|row| row as u32).chain(ones(self.accepted.words(), some.start, some.len()).map(move |row| first + row))
    }

    fn exact_part(&self, measures: &[Measure<'_>], rows: Range<usize>) -> Vec<Nearest> {
        let mut nearest: Vec<Nearest> = measures.iter().map(|_| Nearest::new(self.k)).collect();
        let mut block = Vec::with_capacity(BLOCK_ROWS);
        for start in rows.clone().step_by(BLOCK_ROWS) {
            block.clear();
            block.extend(self.accepted_of(start..(start + BLOCK_ROWS).min(rows.end)));
            for (measure, nearest) in measures.iter().zip(&mut nearest) {
                self.measured(measure, &block).into_iter().for_each(|found| nearest.offer(found));
            }
        }
        nearest
    }

    /// How far `rows` are.
    pub(super) fn measured(&self, measure: &Measure<'_>, rows: &[u32]) -> Vec<Found> {
        let mut raw = vec![0f32; rows.len()];
        measure.raw(&self.vectors.matrix, rows, &mut raw);
        let found = |(raw, row): (f32, &u32)| {
            let row = *row as usize;
            Found::new(measure.distance(raw, self.vectors.norms[row]), row)
        };
        raw.into_iter().zip(rows).map(found).collect()
    }
}

/// Distances from one query, with pgvector's values and signs.
pub(crate) struct Measure<'a> {
    metric: Metric,
    pub(super) query: &'a [f32],
    pub(super) query_norm: f64,
}

impl<'a> Measure<'a> {
    pub(crate) fn new(metric: Metric, query: &'a [f32]) -> Self {
        Self { metric, query, query_norm: f64::from(super::dot(query, query)).sqrt() }
    }

    /// Products or squared distances of rows of a matrix.
    fn raw(&self, matrix: &[f32], rows: &[u32], out: &mut [f32]) {
        match self.metric {
            Metric::L2 => squared_l2s_at(self.query, matrix, rows, out),
            Metric::Cosine | Metric::Dot => dots_at(self.query, matrix, rows, out),
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
