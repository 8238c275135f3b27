//! Exact search that reads codes first, and in full only the rows that may be among the nearest.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::codes::{Block, CodedQueries, CodedQuery, Codes, Fineness};
use super::nearest::{Measure, Nearest, Search};

/// Rows whose codes stay in the first-level cache while all queries pass over them.
const BLOCK_ROWS: usize = 64;
/// From so many queries on, products cost more time than reading the codes does.
const MANY_QUERIES: usize = 4;
/// Among fewer rows per neighbour, bounds leave out too little.
const ROWS_PER_NEIGHBOUR: usize = 16;

/// The queries of a search in codes.
pub(super) struct Screened<'a> {
    codes: &'a Codes,
    queries: Vec<CodedQuery>,
}

impl<'a> Screened<'a> {
    /// `None`: codes would not save anything, or give no bounds for one of the queries.
    pub(super) fn new(search: &Search<'a>, measures: &[Measure<'_>]) -> Option<Self> {
        let codes = search.vectors.codes.as_ref()?;
        if search.k.saturating_mul(ROWS_PER_NEIGHBOUR) > search.vectors.norms.len() {
            return None;
        }
        let fineness = if measures.len() < MANY_QUERIES { Fineness::Fine } else { Fineness::Coarse };
        let queries: Option<Vec<CodedQuery>> =
            measures.iter().map(|measure| codes.query(measure.query, measure.query_norm, fineness)).collect();
        Some(Self { codes, queries: queries? })
    }

    /// The nearest accepted ones of `rows` for each query, as if every one had been measured.
    pub(super) fn nearest(&self, search: &Search<'_>, measures: &[Measure<'_>], rows: Range<usize>) -> Vec<Nearest> {
        let mut screens: Vec<Screen> = self.queries.iter().map(|_| Screen::new(search.k)).collect();
        let queries = CodedQueries::new(self.codes, search.metric, &self.queries);
        let (mut block, mut numbers) = (Block::default(), Vec::with_capacity(2 * BLOCK_ROWS));
        let mut compare = |numbers: &mut Vec<u32>| {
            queries.bounds(numbers, &mut block, |query, lowers, uppers| screens[query].offer(numbers, lowers, uppers));
            numbers.clear();
        };
        for start in rows.clone().step_by(BLOCK_ROWS) {
            numbers.extend(search.accepted_of(start..(start + BLOCK_ROWS).min(rows.end)));
            if numbers.len() >= BLOCK_ROWS {
                compare(&mut numbers);
            }
        }
        compare(&mut numbers);
        screens.into_iter().zip(measures).map(|(screen, measure)| screen.measured(search, measure)).collect()
    }
}

/// The rows that may be among the nearest of one query, as far as it has come.
struct Screen {
    k: usize,
    /// The least upper bounds of the keys of `k` rows, the greatest on top.
    uppers: BinaryHeap<Key>,
    /// The top of `uppers`: a row whose lower bound is greater has `k` nearer ones.
    limit: f32,
    /// Lower bounds of the keys of rows, and the rows.
    candidates: Vec<(f32, u32)>,
}

/// A key of a row, in order; NaN is the greatest.
struct Key(f32);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Screen {
    fn new(k: usize) -> Self {
        Self { k, uppers: BinaryHeap::with_capacity(k + 1), limit: f32::INFINITY, candidates: Vec::new() }
    }

    /// Takes the rows that have a chance, by the bounds of their keys.
    fn offer(&mut self, rows: &[u32], lowers: &[f32], uppers: &[f32]) {
        if !any_up_to(lowers, self.limit) {
            return;
        }
        for (row, (lower, upper)) in rows.iter().zip(lowers.iter().zip(uppers)) {
            if *lower <= self.limit {
                self.candidates.push((*lower, *row));
                self.narrow(*upper);
            }
        }
    }

    fn narrow(&mut self, upper: f32) {
        if self.uppers.len() == self.k {
            let Some(mut greatest) = self.uppers.peek_mut().filter(|greatest| upper < greatest.0) else { return };
            *greatest = Key(upper);
        } else {
            self.uppers.push(Key(upper));
        }
        if self.uppers.len() == self.k {
            self.limit = self.uppers.peek().map_or(f32::INFINITY, |greatest| greatest.0);
        }
    }

    /// Measures the rows that still have a chance.
    fn measured(self, search: &Search<'_>, measure: &Measure<'_>) -> Nearest {
        let mut nearest = Nearest::new(search.k);
        let rows: Vec<u32> = self.candidates.into_iter().filter(|(lower, _)| *lower <= self.limit).map(|(_, row)| row).collect();
        search.measured(measure, &rows).into_iter().for_each(|found| nearest.offer(found));
        nearest
    }
}

/// Whether one of the values is up to `limit`, without a branch for each.
fn any_up_to(values: &[f32], limit: f32) -> bool {
    values.iter().fold(false, |any, value| any | (*value <= limit))
}
