//! Vectors at one byte per value: a quarter of the bytes to read, and bounds that prove which rows need not be read in full.
//!
//! A value is an integer of -127..=127 times the scale of its row. A query is coded with 7 or 14 bits per value. Products of codes are exact integers, so
//! Cauchy and Schwarz bound what they miss of the true product: `|q·x - q̂·x̂| <= |q| |x - x̂| + |q - q̂| |x̂|`, where the hats are what the codes stand for.

mod kernel;

use std::ops::Range;

use super::graph::Distances;
use super::simd::prefetch;
use crate::Metric;
use kernel::{STEP, pair_at, products};

/// The largest code of a row's value.
const CODE_MAX: f32 = 127.0;
/// A code of 7 bits is stored with this added, because the kernels multiply unsigned by signed bytes.
const OFFSET: i32 = 64;
/// The lower code of 14 bits has this many values.
const LOW_VALUES: i32 = 128;
/// Lengths for which no product or square leaves the range of f32, at either end.
const BOUNDED_LENGTHS: Range<f64> = 1e-18..1e18;
/// Rows of codes that are asked for ahead of their use.
const PREFETCHED_ROWS: usize = 4;
/// What the rounding of the bounds themselves is worth.
const BOUND_ROUNDING: f32 = 1e-3;

/// The codes of the rows of a matrix.
#[derive(Debug)]
pub(crate) struct Codes {
    /// Of a row of codes, a multiple of [`STEP`].
    padded_width: usize,
    /// `[rows, padded_width]`, zeros behind the values.
    values: Vec<i8>,
    /// What one step of a code is worth, per row.
    scales: Vec<f32>,
    /// Per row, at least the Euclidean length of what the codes lose. Infinite where products may leave the range of f32.
    residuals: Vec<f32>,
    norms: Vec<f32>,
    /// Sum of the codes of each row.
    sums: Vec<i32>,
}

/// How finely a query is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fineness {
    /// 7 bits per value: half the products, wider bounds.
    Coarse,
    /// 14 bits per value: what the query loses hardly counts.
    Fine,
}

/// A query in codes.
pub(crate) struct CodedQuery {
    /// `[1 or 2, padded_width]`: the codes, or their upper and their lower halves.
    planes: Vec<u8>,
    num_planes: usize,
    scale: f32,
    norm: f32,
    residual: f32,
    /// What rounding may change in a product of f32 sums, as a share of the product of the lengths.
    rounding: f32,
}

impl Codes {
    pub(crate) fn new(width: usize) -> Self {
        let padded_width = width.next_multiple_of(STEP);
        Self { padded_width, values: Vec::new(), scales: Vec::new(), residuals: Vec::new(), norms: Vec::new(), sums: Vec::new() }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&self.values[..]) + self.norms.len() * (3 * size_of::<f32>() + size_of::<i32>())
    }

    pub(crate) fn reserve(&mut self, num_rows: usize) {
        self.values.reserve_exact(num_rows * self.padded_width);
        self.sums.reserve_exact(num_rows);
        [&mut self.scales, &mut self.residuals, &mut self.norms].into_iter().for_each(|values| values.reserve_exact(num_rows));
    }

    /// Adds a row; `norm` is its Euclidean length.
    pub(crate) fn push(&mut self, vector: &[f32], norm: f64) {
        let start = self.values.len();
        self.values.resize(start + self.padded_width, 0);
        let codes = &mut self.values[start..start + vector.len()];
        // Of a vector whose length leaves the range of f32 at either end, nothing is known.
        let (mut scale, mut residual, mut sum, mut length) = (0.0, f32::INFINITY, 0, 1.0);
        if vector.iter().all(|value| *value == 0.0) {
            (residual, length) = (0.0, 0.0);
        } else if BOUNDED_LENGTHS.contains(&norm) {
            length = norm as f32;
            let largest = vector.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            scale = largest / CODE_MAX;
            let steps = CODE_MAX / largest;
            let mut squares = 0.0;
            for (code, value) in codes.iter_mut().zip(vector) {
                // Half a step beyond, then cut: rounding would be a call for each value.
                *code = (value * steps + 0.5_f32.copysign(*value)) as i8;
                let lost = f64::from(*value) - f64::from(scale) * f64::from(*code);
                squares += lost * lost;
                sum += i32::from(*code);
            }
            residual = squares.sqrt() as f32;
        }
        self.scales.push(scale);
        self.residuals.push(residual);
        self.norms.push(length);
        self.sums.push(sum);
    }

    /// `None`: its length is zero, or too small or large for bounds.
    pub(crate) fn query(&self, query: &[f32], norm: f64, fineness: Fineness) -> Option<CodedQuery> {
        if !BOUNDED_LENGTHS.contains(&norm) || query.len() > self.padded_width {
            return None;
        }
        let (num_planes, code_max) = match fineness {
            Fineness::Coarse => (1, OFFSET - 1),
            Fineness::Fine => (2, OFFSET * LOW_VALUES - LOW_VALUES),
        };
        let largest = query.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let (scale, steps) = (largest / code_max as f32, code_max as f32 / largest);
        let mut planes = vec![0; num_planes * self.padded_width];
        let mut squares = 0.0;
        for (i, value) in query.iter().enumerate() {
            let code = (value * steps).round_ties_even() as i32;
            let lost = f64::from(*value) - f64::from(scale) * f64::from(code);
            squares += lost * lost;
            match fineness {
                Fineness::Coarse => planes[i] = (code + OFFSET) as u8,
                Fineness::Fine => {
                    planes[i] = (code.div_euclid(LOW_VALUES) + OFFSET) as u8;
                    planes[self.padded_width + i] = code.rem_euclid(LOW_VALUES) as u8;
                }
            }
        }
        // A sum of n products of f32, in whatever order, is off by less than n / 8 + 64 roundings with kernels of at least 16 partial sums.
        let rounding = (query.len() / 8 + 64) as f32 * f32::EPSILON;
        Some(CodedQuery { planes, num_planes, scale, norm: norm as f32, residual: squares.sqrt() as f32, rounding })
    }

    /// What bounds the products with some rows: `block` becomes that of `rows`.
    fn read(&self, rows: &[u32], block: &mut Block) {
        fn gather<T: Copy>(out: &mut Vec<T>, values: &[T], rows: &[u32]) {
            out.clear();
            match run_of(rows) {
                Some(run) => out.extend_from_slice(&values[run]),
                None => out.extend(rows.iter().map(|row| values[*row as usize])),
            }
        }
        gather(&mut block.scales, &self.scales, rows);
        gather(&mut block.residuals, &self.residuals, rows);
        gather(&mut block.norms, &self.norms, rows);
        gather(&mut block.sums, &self.sums, rows);
    }
}

/// Queries that are compared with the same rows.
pub(crate) struct CodedQueries<'a> {
    codes: &'a Codes,
    metric: Metric,
    queries: &'a [CodedQuery],
    /// Those of all queries, one after the other.
    planes: Vec<&'a [u8]>,
}

/// Working memory for some rows.
#[derive(Default)]
pub(crate) struct Block {
    scales: Vec<f32>,
    residuals: Vec<f32>,
    norms: Vec<f32>,
    sums: Vec<i32>,
    /// `[planes, rows]`.
    products: Vec<i32>,
    /// What the codes stand for, of one query.
    values: Vec<f32>,
    lowers: Vec<f32>,
    uppers: Vec<f32>,
}

impl<'a> CodedQueries<'a> {
    pub(crate) fn new(codes: &'a Codes, metric: Metric, queries: &'a [CodedQuery]) -> Self {
        let planes = queries.iter().flat_map(|query| query.planes.chunks_exact(codes.padded_width)).collect();
        Self { codes, metric, queries, planes }
    }

    /// Calls `each` for every query by its number with lower and upper bounds of the keys of `rows`, which ascend. Keys order rows as their distances do: the
    /// negative product, for cosine divided by both lengths, or the squared distance. A row of which nothing is known has infinite bounds.
    pub(crate) fn bounds(&self, rows: &[u32], block: &mut Block, mut each: impl FnMut(usize, &[f32], &[f32])) {
        if rows.is_empty() {
            return;
        }
        self.codes.read(rows, block);
        block.products.resize(self.planes.len() * rows.len(), 0);
        products(&self.planes, &self.codes.values, rows, &mut block.products);
        let products = std::mem::take(&mut block.products);
        let mut of_planes = products.chunks_exact(rows.len());
        for (number, query) in self.queries.iter().enumerate() {
            let high = of_planes.next().unwrap_or_default();
            block.values.clear();
            let mut values = std::mem::take(&mut block.values);
            match query.num_planes {
                1 => values.extend(block.of_rows(high).map(|(product, scale)| query.value(product, scale))),
                _ => {
                    let low = of_planes.next().unwrap_or_default();
                    values.extend(block.of_rows(high).zip(low).map(|((high, scale), low)| query.fine_value(high, *low, scale)));
                }
            }
            block.values = values;
            match self.metric {
                Metric::Dot => block.fill(query, |product, _, error| (-product - error, -product + error)),
                Metric::Cosine => block.fill(query, |product, norm, error| {
                    let inverse = 1.0 / (query.norm * norm);
                    // A vector of no length is as far as a NaN.
                    let is_zero = norm == 0.0;
                    let bound = |key: f32| if is_zero { f32::INFINITY } else { key * inverse };
                    (bound(-product - error), bound(-product + error))
                }),
                Metric::L2 => block.fill(query, |product, norm, error| {
                    let lengths = query.norm + norm;
                    let squared = query.norm * query.norm + norm * norm - 2.0 * product;
                    let error = 2.0 * error + query.rounding * lengths * lengths;
                    (squared - error, squared + error)
                }),
            }
            each(number, &block.lowers, &block.uppers);
        }
        block.products = products;
    }
}

impl Block {
    /// Of one plane: the sums of products of the codes without the offset, and the scales.
    fn of_rows(&self, sums_of_plane: &[i32]) -> impl Iterator<Item = (i32, f32)> {
        sums_of_plane.iter().zip(&self.sums).zip(&self.scales).map(|((product, sum), scale)| (product - OFFSET * sum, *scale))
    }

    /// Fills the bounds by `bound`, which is given the product that the codes stand for, the length of the row, and how far the product may be off.
    #[inline]
    fn fill(&mut self, query: &CodedQuery, bound: impl Fn(f32, f32, f32) -> (f32, f32)) {
        let num_rows = self.values.len();
        let Self { values, residuals, norms, lowers, uppers, .. } = self;
        lowers.resize(num_rows, 0.0);
        uppers.resize(num_rows, 0.0);
        let of_rows = values.iter().zip(residuals.iter()).zip(norms.iter());
        for (((value, residual), norm), (lower, upper)) in of_rows.zip(lowers.iter_mut().zip(uppers.iter_mut())) {
            let lost = query.norm * residual + query.residual * (norm + residual);
            let error = lost * (1.0 + BOUND_ROUNDING) + query.rounding * query.norm * norm;
            (*lower, *upper) = bound(*value, *norm, error);
        }
    }
}

/// The numbers of `rows`, which ascend, if each is one more than the one before.
fn run_of(rows: &[u32]) -> Option<Range<usize>> {
    let (first, last) = (*rows.first()? as usize, *rows.last()? as usize);
    (last - first + 1 == rows.len()).then_some(first..last + 1)
}

/// The distances that codes stand for, as a walk through a graph needs them: all of one query less by a constant, or in a constant ratio.
pub(crate) struct CodedDistances<'a> {
    pub(crate) codes: &'a Codes,
    pub(crate) query: &'a CodedQuery,
    pub(crate) metric: Metric,
}

impl CodedDistances<'_> {
    /// The value that [`Distances::measure`] comes close to, of a row at `distance`.
    pub(crate) fn exact(&self, distance: f64) -> f64 {
        match self.metric {
            Metric::Dot => distance,
            Metric::Cosine => (distance - 1.0) * f64::from(self.query.norm),
            Metric::L2 => distance * distance,
        }
    }

    fn distance(&self, row: usize) -> f32 {
        let Self { codes, query, metric } = self;
        let (high, low) = query.planes.split_at(codes.padded_width);
        let [high, low] = pair_at([high, if low.is_empty() { high } else { low }], &codes.values, row);
        let high = high - OFFSET * codes.sums[row];
        let product = match query.num_planes {
            1 => query.value(high, codes.scales[row]),
            _ => query.fine_value(high, low, codes.scales[row]),
        };
        let norm = codes.norms[row];
        match metric {
            // Not a negation, which would tell the two zeros apart.
            Metric::Dot => 0.0 - product,
            Metric::Cosine if norm == 0.0 => 0.0,
            Metric::Cosine => 0.0 - product / norm,
            Metric::L2 => query.norm * query.norm + norm * norm - 2.0 * product,
        }
    }
}

impl Distances for CodedDistances<'_> {
    fn measure(&self, nodes: &[u32], distances: &mut [f32]) {
        let width = self.codes.padded_width;
        for (i, (node, distance)) in nodes.iter().zip(distances).enumerate() {
            if let Some(next) = nodes.get(i + PREFETCHED_ROWS) {
                prefetch(&self.codes.values, *next as usize * width, width);
            }
            *distance = self.distance(*node as usize);
        }
    }
}

impl CodedQuery {
    #[inline]
    fn value(&self, product: i32, scale: f32) -> f32 {
        product as f32 * (scale * self.scale)
    }

    #[inline]
    fn fine_value(&self, high: i32, low: i32, scale: f32) -> f32 {
        (LOW_VALUES as f32 * high as f32 + low as f32) * (scale * self.scale)
    }
}
