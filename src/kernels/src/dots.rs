//! Inner products of every row of one matrix with every row of another, and products with weights that are decoded a few rows at a time.
//!
//! As in `kernel.rs` each result is one sum in a fixed order, whatever the number of rows on either side. There the right side lies in panels,
//! which takes packing; weights that stay encoded come out of their blocks as rows.

use super::decoding::decode;
use super::encoding::Encoding;
use super::kernel::vector::Vector;
use super::simd::{Instructions, instructions};

/// The most lanes of a register.
const LANES_MAX: usize = 16;
/// Rows of weights that are decoded together: in f32 they stay in the processor's caches until all rows of x have met them.
const DECODED_ROWS: usize = 8;

/// Products of `x` `[rows, width]` with encoded weights `[outputs, width]`; gives `out` `[outputs, rows]`. `decoded` is room that is used again.
///
/// # Panics
/// If there is no row of x, `out` has another size, or a row of weights is not whole blocks.
pub fn multiply_encoded(encoding: Encoding, weights: &[u8], x: &[f32], width: usize, decoded: &mut Vec<f32>, out: &mut [f32]) {
    let row_bytes = encoding.bytes(width).expect("a row is whole blocks");
    let rows = x.len() / width;
    decoded.resize(DECODED_ROWS * width, 0.0);
    for (weights, out) in weights.chunks(DECODED_ROWS * row_bytes).zip(out.chunks_mut(DECODED_ROWS * rows)) {
        let decoded = &mut decoded[..weights.len() / row_bytes * width];
        decode(encoding, weights, decoded);
        dots(decoded, x, width, out);
    }
}

/// `out[l * m + r] = left[l] · right[r]` for all rows of `left` and the `m` rows of `right`, each `width` wide.
///
/// # Panics
/// If there are no whole rows, or `out` has another size.
pub fn dots(left: &[f32], right: &[f32], width: usize, out: &mut [f32]) {
    // SAFETY: these are the instructions of the running processor.
    unsafe { dots_with(instructions(), left, right, width, out) }
}

/// [`dots`] with given instructions.
///
/// # Safety
/// The running processor has the instructions.
pub unsafe fn dots_with(instructions: Instructions, left: &[f32], right: &[f32], width: usize, out: &mut [f32]) {
    assert!(width > 0 && left.len().is_multiple_of(width) && right.len().is_multiple_of(width), "rows are whole");
    let pairs = Pairs { left, right, width, num_left: left.len() / width, num_right: right.len() / width };
    assert_eq!(out.len(), pairs.num_left * pairs.num_right, "there is one result for each pair");
    match instructions {
        // SAFETY: the processor has the instructions, and the asserts above keep all loads inside the slices.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => unsafe { x86::avx512(pairs, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { x86::avx2(pairs, out) },
        // SAFETY: the asserts above keep all loads inside the slices; arrays need no special instructions.
        Instructions::Baseline => unsafe { all_pairs::<[f32; 4], 2>(pairs, out) },
    }
}

/// Two matrices of whole rows.
#[derive(Clone, Copy)]
struct Pairs<'a> {
    left: &'a [f32],
    right: &'a [f32],
    width: usize,
    num_left: usize,
    num_right: usize,
}

/// `C` rows of the right side at a time, then those that are left one by one.
#[inline(always)]
unsafe fn all_pairs<V: Vector, const C: usize>(pairs: Pairs<'_>, out: &mut [f32]) {
    // SAFETY: as for `block`, whose conditions the caller guarantees.
    unsafe {
        let mut right = 0;
        while right + C <= pairs.num_right {
            all_left::<V, 4, C>(pairs, right, out);
            right += C;
        }
        while right < pairs.num_right {
            // One row alone has more rows of the left side at a time, whose sums go on side by side.
            all_left::<V, 8, 1>(pairs, right, out);
            right += 1;
        }
    }
}

#[inline(always)]
unsafe fn all_left<V: Vector, const L: usize, const C: usize>(pairs: Pairs<'_>, right: usize, out: &mut [f32]) {
    // SAFETY: as for `block`, whose conditions the caller guarantees.
    unsafe {
        let mut left = 0;
        while left + L <= pairs.num_left {
            block::<V, L, C>(pairs, left, right, out);
            left += L;
        }
        while left < pairs.num_left {
            block::<V, 1, C>(pairs, left, right, out);
            left += 1;
        }
    }
}

/// The sums of `L` rows of the left side with `C` of the right one. The order of each sum depends on the width alone.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "with iterators over the sums the compiler keeps them in memory")]
unsafe fn block<V: Vector, const L: usize, const C: usize>(pairs: Pairs<'_>, left: usize, right: usize, out: &mut [f32]) {
    let Pairs { width, num_right, .. } = pairs;
    let whole = width - width % V::LANES;
    let (left_rows, right_rows) = (&pairs.left[left * width..(left + L) * width], &pairs.right[right * width..(right + C) * width]);
    // SAFETY: the caller guarantees the processor's instructions; the rows are inside the slices just taken.
    unsafe {
        let (left_at, right_at) = (left_rows.as_ptr(), right_rows.as_ptr());
        let mut sums = [[V::zero(); C]; L];
        for k in (0..whole).step_by(V::LANES) {
            let mut values = [V::zero(); C];
            for c in 0..C {
                values[c] = V::load(right_at.add(c * width + k));
            }
            for l in 0..L {
                let weight = V::load(left_at.add(l * width + k));
                for c in 0..C {
                    sums[l][c] = sums[l][c].add_products(weight, values[c]);
                }
            }
        }
        for l in 0..L {
            for c in 0..C {
                let mut lanes = [0.0; LANES_MAX];
                sums[l][c].store(lanes.as_mut_ptr());
                let mut total: f32 = lanes.iter().sum();
                for k in whole..width {
                    total += left_rows[l * width + k] * right_rows[c * width + k];
                }
                out[(left + l) * num_right + right + c] = total;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m256, __m512};

    use super::{Pairs, all_pairs};

    /// 4 rows * 4 rows = 16 of the 32 registers for sums.
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
    pub unsafe fn avx512(pairs: Pairs<'_>, out: &mut [f32]) {
        // SAFETY: the caller guarantees the conditions of `block`.
        unsafe { all_pairs::<__m512, 4>(pairs, out) }
    }

    /// 4 rows * 2 rows = 8 of the 16 registers for sums.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn avx2(pairs: Pairs<'_>, out: &mut [f32]) {
        // SAFETY: the caller guarantees the conditions of `block`.
        unsafe { all_pairs::<__m256, 2>(pairs, out) }
    }
}
