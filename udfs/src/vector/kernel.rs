//! Inner loops over pairs of vectors of one width, in single precision as pgvector's: what is beyond it is infinite there too.
//!
//! Sums run in [`LANES`] independent accumulators: the compiler keeps them in vector registers, which it may not do for one
//! running sum (addition of floats is not associative), and their errors grow with `n / LANES` rather than `n`.

const LANES: usize = 16;

pub(super) fn dot(left: &[f32], right: &[f32]) -> f64 {
    accumulate(left, right, |a, b| a * b)
}

pub(super) fn squared_distance(left: &[f32], right: &[f32]) -> f64 {
    accumulate(left, right, |a, b| (a - b) * (a - b))
}

pub(super) fn absolute_distance(left: &[f32], right: &[f32]) -> f64 {
    accumulate(left, right, |a, b| (a - b).abs())
}

/// Euclidean length. Squares are added in double precision, as in pgvector: in single precision those of numbers beyond 1e19 are infinite.
pub(super) fn norm(vector: &[f32]) -> f64 {
    vector.iter().map(|number| f64::from(*number) * f64::from(*number)).sum::<f64>().sqrt()
}

/// Sum of `term` over the pairs. Both slices have the same length.
#[inline(always)]
fn accumulate(left: &[f32], right: &[f32], term: impl Fn(f32, f32) -> f32) -> f64 {
    let mut sums = [0.0f32; LANES];
    let (left_chunks, left_rest) = left.as_chunks::<LANES>();
    let (right_chunks, right_rest) = right.as_chunks::<LANES>();
    for (a, b) in left_chunks.iter().zip(right_chunks) {
        for lane in 0..LANES {
            sums[lane] += term(a[lane], b[lane]);
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(a, b)| term(*a, *b)).sum();
    sums.iter().chain(&[rest]).map(|sum| f64::from(*sum)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the plain sum in double precision, at widths below, at and above a multiple of the lanes.
    #[test]
    fn agrees_with_the_plain_sum() {
        for width in [0, 1, 15, 16, 17, 384, 1000] {
            let left: Vec<f32> = (0..width).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
            let right: Vec<f32> = (0..width).map(|i| ((i * 53 % 97) as f32 - 48.0) / 48.0).collect();
            let plain =
                |term: fn(f64, f64) -> f64| -> f64 { left.iter().zip(&right).map(|(a, b)| term(f64::from(*a), f64::from(*b))).sum() };
            let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-4, "{width}: {found} {expected}");
            close(dot(&left, &right), plain(|a, b| a * b));
            close(squared_distance(&left, &right), plain(|a, b| (a - b) * (a - b)));
            close(absolute_distance(&left, &right), plain(|a, b| (a - b).abs()));
        }
    }
}
