//! Search through a graph: a walk proposes rows, which are measured.

use super::codes::{CodedDistances, Fineness};
use super::graph::Graph;
use super::nearest::{Found, Measure, Nearest, Search};
use crate::Metric;

/// Fewer rows are compared one by one instead of walking the graph through rows that do not match.
pub(crate) const FILTERED_ROWS_MIN: usize = 4_000;
/// A walk that is to find `ef` rows looks at about this many for each of them, and at more in the ratio of all rows to those that match.
const WALKED_PER_FOUND: usize = 32;
/// A walk along codes counts if the rows that it finds lie this many times farther apart than codes are from the truth.
const SPREAD_PER_LOSS: f64 = 16.0;

impl Search<'_> {
    /// Walks the graph, whose nodes are the first rows; later rows are measured. Exactly min(k, accepted rows) rows and ties come back.
    ///
    /// `normalised`: what the graph was built over, if that is not the vectors themselves.
    pub(crate) fn by_graph(&self, graph: &Graph, normalised: Option<&[f32]>, query: &[f32], ef: usize) -> Vec<Found> {
        let ef = ef.max(self.k);
        let num_accepted = self.num_accepted();
        if num_accepted <= FILTERED_ROWS_MIN.max(self.k) || self.is_walk_longer(num_accepted, ef) {
            return self.exact(&[query]).remove(0);
        }
        let measure = Measure::new(self.metric, query);
        let accept = |row: u32| self.accepted.contains(row as usize);
        let walk = Walk { graph, normalised, ef, accept: if self.accepts_all { None } else { Some(&accept) } };
        let proposed = self.proposed_by_codes(&measure, &walk).unwrap_or_else(|| self.proposed(&measure, &walk));
        let mut nearest = Nearest::new(self.k);
        let later: Vec<u32> = self.accepted_of(graph.len()..self.vectors.norms.len()).collect();
        proposed.into_iter().chain(self.measured(&measure, &later)).for_each(|found| nearest.offer(found));
        let found = nearest.into_found();
        if found.len() < self.k.min(num_accepted) {
            return self.exact(&[query]).remove(0);
        }
        self.counts.by_graph.add(1);
        found
    }

    /// Whether it is less work to compare the accepted rows than to walk to `ef` of them.
    fn is_walk_longer(&self, num_accepted: usize, ef: usize) -> bool {
        let num_rows = self.vectors.norms.len();
        num_accepted < num_rows && num_accepted.saturating_mul(num_accepted) < WALKED_PER_FOUND.saturating_mul(ef).saturating_mul(num_rows)
    }

    /// What a walk along the codes of vectors finds, measured. `None`: the codes lose too much to tell rows this near to the query apart.
    fn proposed_by_codes(&self, measure: &Measure<'_>, walk: &Walk<'_>) -> Option<Vec<Found>> {
        let codes = self.vectors.codes.as_ref()?;
        let query = codes.query(measure.query, measure.query_norm, Fineness::Fine)?;
        let from = CodedDistances { codes, query: &query, metric: self.metric };
        let proposed = walk.graph.search_by(&from, walk.ef, walk.accept);
        let spread = f64::from(proposed.last()?.0) - f64::from(proposed.first()?.0);
        let rows: Vec<u32> = proposed.iter().map(|(_, row)| *row).collect();
        let found = self.measured(measure, &rows);
        let losses = proposed.iter().zip(&found).map(|((coded, _), found)| (from.exact(found.distance) - f64::from(*coded)).abs());
        let is_told_apart = losses.fold(0.0, f64::max) * SPREAD_PER_LOSS < spread;
        is_told_apart.then_some(found)
    }

    /// What a walk along the vectors finds, measured.
    fn proposed(&self, measure: &Measure<'_>, walk: &Walk<'_>) -> Vec<Found> {
        let unit: Vec<f32>;
        let query = match self.metric {
            Metric::Cosine if measure.query_norm > 0.0 => {
                unit = measure.query.iter().map(|value| (f64::from(*value) / measure.query_norm) as f32).collect();
                &unit
            }
            _ => measure.query,
        };
        let proposed = walk.graph.search(walk.normalised.unwrap_or(&self.vectors.matrix), query, walk.ef, walk.accept);
        let rows: Vec<u32> = proposed.into_iter().map(|(_, row)| row).collect();
        self.measured(measure, &rows)
    }
}

/// What a walk is to find.
struct Walk<'a> {
    graph: &'a Graph,
    /// What the graph was built over, if that is not the vectors themselves.
    normalised: Option<&'a [f32]>,
    ef: usize,
    /// Absent: every row.
    accept: Option<&'a dyn Fn(u32) -> bool>,
}
