//! Sums of products of codes: 7 unsigned bits by 8 signed ones, so that two products fit 16 bits. Integers, so every kernel has the same results.

/// Codes that a kernel takes at once; rows are as wide as a multiple of it.
pub(super) const STEP: usize = 32;

/// The sums of every plane with the rows of `matrix` `[_, width]` that `rows` names: `out` is `[planes, rows]`, each plane is `[width]`, with values up to
/// 127.
///
/// # Panics
/// If the shapes do not fit, the width is no multiple of [`STEP`], or a row is not in the matrix.
pub(super) fn products(planes: &[&[u8]], matrix: &[i8], rows: &[u32], out: &mut [i32]) {
    let Some(width) = planes.first().map(|plane| plane.len()) else { return };
    assert!(width.is_multiple_of(STEP) && planes.iter().all(|plane| plane.len() == width), "planes of one width");
    assert_eq!(out.len(), rows.len() * planes.len(), "a sum for each plane and row");
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has AVX2, and the shapes were checked.
        return unsafe { avx2::products(planes, matrix, rows, out) };
    }
    let sums = planes.iter().flat_map(|plane| rows.iter().map(|row| sum(plane, &matrix[*row as usize * width..][..width])));
    out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum);
}

/// The sums of two planes with row `row` of `matrix`.
///
/// # Panics
/// If the planes differ in width, the width is no multiple of [`STEP`], or the row is not in the matrix.
pub(super) fn pair_at(planes: [&[u8]; 2], matrix: &[i8], row: usize) -> [i32; 2] {
    let width = planes[0].len();
    assert!(width.is_multiple_of(STEP) && planes[1].len() == width, "planes of one width");
    let row = &matrix[row * width..][..width];
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has AVX2, and the widths were checked.
        return unsafe { avx2::tile([row], planes)[0] };
    }
    planes.map(|plane| sum(plane, row))
}

fn sum(plane: &[u8], row: &[i8]) -> i32 {
    plane.iter().zip(row).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    // The standard library keeps the answer.
    is_x86_feature_detected!("avx2")
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_shuffle_epi32, _mm256_add_epi32, _mm256_castsi256_si128, _mm256_extracti128_si256,
        _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_set1_epi16, _mm256_setzero_si256,
    };

    use super::super::super::simd::prefetch;
    use super::STEP;

    /// Rows that are asked for ahead of their use.
    const AHEAD: usize = 4;

    /// # Safety
    /// The shapes are those of [`super::products`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn products(planes: &[&[u8]], matrix: &[i8], rows: &[u32], out: &mut [i32]) {
        let (mut planes, mut out) = (planes, out);
        while !planes.is_empty() {
            // As many sums as leave registers for what is multiplied.
            let taken = match planes.len() {
                8.. => 8,
                4..8 => 4,
                2..4 => 2,
                _ => 1,
            };
            let (now, later) = planes.split_at(taken);
            let (sums, rest) = out.split_at_mut(taken * rows.len());
            // SAFETY: as many planes as the tile takes, and their part of `out`.
            unsafe {
                match taken {
                    8 => tiles::<1, 8>(now, matrix, rows, sums),
                    4 => tiles::<2, 4>(now, matrix, rows, sums),
                    2 => tiles::<4, 2>(now, matrix, rows, sums),
                    _ => tiles::<4, 1>(now, matrix, rows, sums),
                }
            }
            (planes, out) = (later, rest);
        }
    }

    /// # Safety
    /// `planes` are `PLANES`, and the shapes are those of [`super::products`].
    #[target_feature(enable = "avx2")]
    unsafe fn tiles<const ROWS: usize, const PLANES: usize>(planes: &[&[u8]], matrix: &[i8], rows: &[u32], out: &mut [i32]) {
        let mut of_tile = [planes[0]; PLANES];
        of_tile.copy_from_slice(planes);
        let width = of_tile[0].len();
        // The processor foresees rows that follow each other.
        let is_run = rows.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let (groups, rest) = rows.as_chunks::<ROWS>();
        let mut number = 0;
        for group in groups {
            if !is_run {
                for next in rows[number..].iter().skip(AHEAD).take(ROWS) {
                    prefetch(matrix, *next as usize * width, width);
                }
            }
            let mut codes = [&matrix[..0]; ROWS];
            for (codes, row) in codes.iter_mut().zip(group) {
                *codes = &matrix[*row as usize * width..][..width];
            }
            // SAFETY: rows and planes have the same width.
            for sums in unsafe { tile::<ROWS, PLANES>(codes, of_tile) } {
                for (plane, sum) in sums.into_iter().enumerate() {
                    out[plane * rows.len() + number] = sum;
                }
                number += 1;
            }
        }
        for row in rest {
            // SAFETY: as above.
            let [sums] = unsafe { tile::<1, PLANES>([&matrix[*row as usize * width..][..width]], of_tile) };
            for (plane, sum) in sums.into_iter().enumerate() {
                out[plane * rows.len() + number] = sum;
            }
            number += 1;
        }
    }

    /// # Safety
    /// All rows and planes have one width, a multiple of [`STEP`].
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn tile<const ROWS: usize, const PLANES: usize>(
        rows: [&[i8]; ROWS],
        planes: [&[u8]; PLANES],
    ) -> [[i32; PLANES]; ROWS] {
        // Loops instead of closures, which would not be compiled for the instructions of this function.
        let ones = _mm256_set1_epi16(1);
        let mut sums = [[_mm256_setzero_si256(); PLANES]; ROWS];
        for start in (0..planes[0].len()).step_by(STEP) {
            let mut loaded = [ones; PLANES];
            for (loaded, plane) in loaded.iter_mut().zip(planes) {
                // SAFETY: `start + STEP` is at most the width of each plane.
                *loaded = unsafe { _mm256_loadu_si256(plane.as_ptr().add(start).cast()) };
            }
            for (row, sums) in rows.iter().zip(&mut sums) {
                // SAFETY: as above, of each row.
                let row = unsafe { _mm256_loadu_si256(row.as_ptr().add(start).cast()) };
                for (plane, sum) in loaded.iter().zip(sums) {
                    // No pair of products leaves 16 bits: 2 * 127 * 127 = 32,258.
                    let pairs = _mm256_maddubs_epi16(*plane, row);
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                }
            }
        }
        let mut totals = [[0; PLANES]; ROWS];
        for (totals, sums) in totals.iter_mut().zip(sums) {
            for (total_of, sum) in totals.iter_mut().zip(sums) {
                *total_of = total(sum);
            }
        }
        totals
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn total(sums: __m256i) -> i32 {
        let sums = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        let sums = _mm_add_epi32(sums, _mm_shuffle_epi32::<0b01_00_11_10>(sums));
        let sums = _mm_add_epi32(sums, _mm_shuffle_epi32::<0b10_11_00_01>(sums));
        _mm_cvtsi128_si32(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(count: usize, seed: u32) -> impl Iterator<Item = u32> {
        (0..count as u32).map(move |i| (i ^ seed).wrapping_mul(2_654_435_761) >> 9)
    }

    #[test]
    fn every_number_of_planes_and_rows_has_the_sums_of_plain_integers() {
        for width in [STEP, 4 * STEP] {
            for num_planes in [1, 2, 3, 5, 8, 11, 16] {
                for num_rows in [0, 1, 3, 4, 5, 9] {
                    let planes: Vec<u8> = bytes(width * num_planes, 1).map(|value| (value % 128) as u8).collect();
                    let planes: Vec<&[u8]> = planes.chunks_exact(width).collect();
                    let matrix: Vec<i8> = bytes(width * 20, 2).map(|value| ((value % 255) as i32 - 127) as i8).collect();
                    let rows: Vec<u32> = bytes(num_rows, 5).map(|row| row % 20).collect();
                    let mut out = vec![-1; num_planes * num_rows];
                    products(&planes, &matrix, &rows, &mut out);
                    let of_row = |row: &u32| &matrix[*row as usize * width..][..width];
                    let expected: Vec<i32> = planes.iter().flat_map(|plane| rows.iter().map(|row| sum(plane, of_row(row)))).collect();
                    assert_eq!(out, expected, "{num_planes} planes, {num_rows} rows of {width}");
                }
            }
        }
    }

    #[test]
    fn the_largest_codes_do_not_saturate() {
        let (plane, row) = ([127_u8; STEP], [-127_i8; STEP]);
        let mut out = [0];
        products(&[&plane], &row, &[0], &mut out);
        assert_eq!(out, [-127 * 127 * STEP as i32]);
    }

    #[test]
    fn rows_by_number_are_those_of_the_matrix() {
        let planes: Vec<u8> = bytes(2 * STEP, 3).map(|value| (value % 128) as u8).collect();
        let (high, low) = planes.split_at(STEP);
        let matrix: Vec<i8> = bytes(9 * STEP, 4).map(|value| ((value % 255) as i32 - 127) as i8).collect();
        for row in [8, 0, 3, 7] {
            let pair = pair_at([high, low], &matrix, row);
            let row = &matrix[row * STEP..][..STEP];
            assert_eq!(pair, [sum(high, row), sum(low, row)]);
        }
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_row_that_is_not_there_is_refused() {
        pair_at([&[1; STEP]; 2], &[0; STEP], 1);
    }
}
