//! Inner products and squared Euclidean distances of f32 rows, with the best instructions of the running processor.
//!
//! A row's sum has one order of additions, whatever is computed beside it: single and gathered values are the same
//! bits, so equal rows have equal distances and values of different calls can be compared. Several rows are read at once,
//! because one row alone leaves the processor waiting for memory.

use std::sync::OnceLock;

/// Inner product of two vectors of one width.
///
/// # Panics
/// If the widths differ.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    single::<PRODUCT>(a, b)
}

/// Squared Euclidean distance of two vectors of one width.
///
/// # Panics
/// If the widths differ.
pub(crate) fn squared_l2(a: &[f32], b: &[f32]) -> f32 {
    single::<SQUARED_L2>(a, b)
}

/// [`dot`] of `query` `[width]` with the rows of `matrix` `[_, width]` that `rows` names, one value of `out` each.
///
/// # Panics
/// If a row is not in the matrix, or `rows` and `out` differ in length.
pub(crate) fn dots_at(query: &[f32], matrix: &[f32], rows: &[u32], out: &mut [f32]) {
    gather::<PRODUCT>(query, matrix, rows, out);
}

/// [`squared_l2`] of `query` `[width]` with the rows of `matrix` `[_, width]` that `rows` names, one value of `out` each.
///
/// # Panics
/// If a row is not in the matrix, or `rows` and `out` differ in length.
pub(crate) fn squared_l2s_at(query: &[f32], matrix: &[f32], rows: &[u32], out: &mut [f32]) {
    gather::<SQUARED_L2>(query, matrix, rows, out);
}

/// Asks for the cache lines of `values[start..start + len]` ahead of their use. Outside of `values` it does nothing.
#[inline(always)]
pub(crate) fn prefetch<T>(values: &[T], start: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(part) = values.get(start..start.wrapping_add(len)) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for offset in (0..size_of_val(part)).step_by(CACHE_LINE) {
            // SAFETY: the offset is inside of `part`, and a prefetch reads nothing that the program can see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(part.as_ptr().byte_add(offset).cast()) }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, start, len);
}

/// Bytes.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE: usize = 64;

/// The two things that a kernel sums: `a·b` and `(a - b)²`.
const PRODUCT: bool = false;
const SQUARED_L2: bool = true;

fn single<const L2: bool>(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "vectors of one width");
    let mut out = [0.0];
    each_row::<L2>(a, b, |i| i, &mut out);
    out[0]
}

fn gather<const L2: bool>(query: &[f32], matrix: &[f32], rows: &[u32], out: &mut [f32]) {
    assert_eq!(rows.len(), out.len(), "one value per row");
    each_row::<L2>(query, matrix, |i| rows[i] as usize, out);
}

/// `out[i]` becomes the value of `query` and row `row_of(i)` of `matrix`.
fn each_row<const L2: bool>(query: &[f32], matrix: &[f32], row_of: impl Fn(usize) -> usize, out: &mut [f32]) {
    match instructions() {
        // SAFETY: `instructions` found AVX-512 on the running processor.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => unsafe { avx512::each_row::<L2>(query, matrix, row_of, out) },
        // SAFETY: `instructions` found AVX2 and FMA on the running processor.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { avx2::each_row::<L2>(query, matrix, row_of, out) },
        Instructions::Portable => portable::each_row::<L2>(query, matrix, row_of, out),
    }
}

/// Vector instructions of the running processor.
#[derive(Clone, Copy)]
enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

/// Asked once, so that one process never mixes sums of different kernels.
fn instructions() -> Instructions {
    static FOUND: OnceLock<Instructions> = OnceLock::new();
    *FOUND.get_or_init(detect)
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Instructions {
    Instructions::Portable
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Instructions {
    if is_x86_feature_detected!("avx512f") {
        Instructions::Avx512
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        Instructions::Avx2
    } else {
        Instructions::Portable
    }
}

/// The walk over the rows, some at a time; the next ones are asked for while these are summed. A macro, because the kernel
/// cannot be inlined into a function without its target features.
#[cfg(target_arch = "x86_64")]
macro_rules! walk_rows {
    ($query:ident, $matrix:ident, $row_of:ident, $out:ident) => {
        let width = $query.len();
        let row = |i: usize| &$matrix[$row_of(i) * width..][..width];
        let count = $out.len();
        let (groups, rest) = $out.as_chunks_mut::<AT_ONCE>();
        let mut i = 0;
        for group in groups {
            for next in (i + AT_ONCE..count).take(AT_ONCE) {
                super::prefetch($matrix, $row_of(next) * width, width);
            }
            *group = values::<L2, AT_ONCE>($query, std::array::from_fn(|ahead| row(i + ahead)));
            i += AT_ONCE;
        }
        for value in rest {
            [*value] = values::<L2, 1>($query, [row(i)]);
            i += 1;
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::{
        __m512, _mm_add_ps, _mm_storeu_ps, _mm256_add_ps, _mm256_castpd_ps, _mm256_castps256_ps128, _mm256_extractf128_ps, _mm512_add_ps,
        _mm512_castps_pd, _mm512_castps512_ps256, _mm512_extractf64x4_pd, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_maskz_loadu_ps,
        _mm512_setzero_ps, _mm512_sub_ps,
    };

    /// Rows summed together: their 16 sums and the query fill the registers.
    const AT_ONCE: usize = 4;
    /// f32 per register.
    const LANES: usize = 16;
    /// Sums per row, so that an addition need not wait for the one before.
    const SUMS: usize = 4;

    #[target_feature(enable = "avx512f")]
    pub(super) fn each_row<const L2: bool>(query: &[f32], matrix: &[f32], row_of: impl Fn(usize) -> usize, out: &mut [f32]) {
        walk_rows!(query, matrix, row_of, out);
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn values<const L2: bool, const ROWS: usize>(query: &[f32], rows: [&[f32]; ROWS]) -> [f32; ROWS] {
        let width = query.len();
        let mut sums = [[_mm512_setzero_ps(); SUMS]; ROWS];
        let whole = width - width % (LANES * SUMS);
        for start in (0..whole).step_by(LANES * SUMS) {
            for lane in 0..SUMS {
                let from = start + lane * LANES;
                // SAFETY: `from + LANES <= whole <= width`, the length of the query and of each row.
                unsafe {
                    let of_query = _mm512_loadu_ps(query.as_ptr().add(from));
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        sums[lane] = add::<L2>(sums[lane], of_query, _mm512_loadu_ps(row.as_ptr().add(from)));
                    }
                }
            }
        }
        for (lane, from) in (whole..width).step_by(LANES).enumerate() {
            let mask = 0xffff_u16 >> (LANES - LANES.min(width - from));
            // SAFETY: the mask selects values below `width`, and others are not read.
            unsafe {
                let of_query = _mm512_maskz_loadu_ps(mask, query.as_ptr().add(from));
                for (sums, row) in sums.iter_mut().zip(rows) {
                    sums[lane] = add::<L2>(sums[lane], of_query, _mm512_maskz_loadu_ps(mask, row.as_ptr().add(from)));
                }
            }
        }
        sums.map(|sums| total(sums))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add<const L2: bool>(sum: __m512, a: __m512, b: __m512) -> __m512 {
        if L2 {
            let difference = _mm512_sub_ps(a, b);
            _mm512_fmadd_ps(difference, difference, sum)
        } else {
            _mm512_fmadd_ps(a, b, sum)
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn total(sums: [__m512; SUMS]) -> f32 {
        let sum = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
        let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(sum)));
        let sum = _mm256_add_ps(_mm512_castps512_ps256(sum), high);
        let sum = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps::<1>(sum));
        let mut lanes = [0.0_f32; 4];
        // SAFETY: `lanes` has room for the four values.
        unsafe { _mm_storeu_ps(lanes.as_mut_ptr(), sum) };
        (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256, __m256i, _mm_add_ps, _mm_storeu_ps, _mm256_add_ps, _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_fmadd_ps,
        _mm256_loadu_ps, _mm256_loadu_si256, _mm256_maskload_ps, _mm256_setzero_ps, _mm256_sub_ps,
    };

    /// Rows summed together: their eight sums and the query fit the sixteen registers.
    const AT_ONCE: usize = 2;
    /// f32 per register.
    const LANES: usize = 8;
    /// Sums per row, so that an addition need not wait for the one before.
    const SUMS: usize = 4;
    /// The mask of the first n lanes starts n values before the zeros.
    static MASKS: [i32; 2 * LANES] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn each_row<const L2: bool>(query: &[f32], matrix: &[f32], row_of: impl Fn(usize) -> usize, out: &mut [f32]) {
        walk_rows!(query, matrix, row_of, out);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn values<const L2: bool, const ROWS: usize>(query: &[f32], rows: [&[f32]; ROWS]) -> [f32; ROWS] {
        let width = query.len();
        let mut sums = [[_mm256_setzero_ps(); SUMS]; ROWS];
        let whole = width - width % (LANES * SUMS);
        for start in (0..whole).step_by(LANES * SUMS) {
            for lane in 0..SUMS {
                let from = start + lane * LANES;
                // SAFETY: `from + LANES <= whole <= width`, the length of the query and of each row.
                unsafe {
                    let of_query = _mm256_loadu_ps(query.as_ptr().add(from));
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        sums[lane] = add::<L2>(sums[lane], of_query, _mm256_loadu_ps(row.as_ptr().add(from)));
                    }
                }
            }
        }
        for (lane, from) in (whole..width).step_by(LANES).enumerate() {
            let mask = first_lanes(LANES.min(width - from));
            // SAFETY: the mask selects values below `width`, and others are not read.
            unsafe {
                let of_query = _mm256_maskload_ps(query.as_ptr().add(from), mask);
                for (sums, row) in sums.iter_mut().zip(rows) {
                    sums[lane] = add::<L2>(sums[lane], of_query, _mm256_maskload_ps(row.as_ptr().add(from), mask));
                }
            }
        }
        sums.map(|sums| total(sums))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn first_lanes(count: usize) -> __m256i {
        let mask = &MASKS[LANES - count..][..LANES];
        // SAFETY: the slice has the eight values.
        unsafe { _mm256_loadu_si256(mask.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn add<const L2: bool>(sum: __m256, a: __m256, b: __m256) -> __m256 {
        if L2 {
            let difference = _mm256_sub_ps(a, b);
            _mm256_fmadd_ps(difference, difference, sum)
        } else {
            _mm256_fmadd_ps(a, b, sum)
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn total(sums: [__m256; SUMS]) -> f32 {
        let sum = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
        let sum = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps::<1>(sum));
        let mut lanes = [0.0_f32; 4];
        // SAFETY: `lanes` has room for the four values.
        unsafe { _mm_storeu_ps(lanes.as_mut_ptr(), sum) };
        (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    }
}

mod portable {
    /// Partial sums, which the compiler may keep in vector registers; it may not reorder one sum.
    const LANES: usize = 16;

    pub(super) fn each_row<const L2: bool>(query: &[f32], matrix: &[f32], row_of: impl Fn(usize) -> usize, out: &mut [f32]) {
        for (i, value) in out.iter_mut().enumerate() {
            *value = self::value::<L2>(query, &matrix[row_of(i) * query.len()..][..query.len()]);
        }
    }

    fn value<const L2: bool>(query: &[f32], row: &[f32]) -> f32 {
        let term = |(a, b): (&f32, &f32)| if L2 { (a - b) * (a - b) } else { a * b };
        let (query, row) = (query.chunks_exact(LANES), row.chunks_exact(LANES));
        let rest: f32 = query.remainder().iter().zip(row.remainder()).map(term).sum();
        let mut sums = [0.0_f32; LANES];
        for (query, row) in query.zip(row) {
            for (sum, pair) in sums.iter_mut().zip(query.iter().zip(row)) {
                *sum += term(pair);
            }
        }
        sums.iter().sum::<f32>() + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Widths around every step of the kernels.
    const WIDTHS: [usize; 16] = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 130, 384];

    fn values(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32).map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    #[test]
    fn gathered_values_have_the_bits_of_single_ones() {
        for width in WIDTHS {
            for num_rows in 0..10 {
                let (query, matrix) = (values(width, 1), values(width * num_rows, 2));
                let rows: Vec<u32> = (0..num_rows as u32).rev().collect();
                let each = |value: fn(&[f32], &[f32]) -> f32| -> Vec<u32> {
                    (0..num_rows).map(|row| value(&query, &matrix[row * width..][..width]).to_bits()).collect()
                };
                let bits = |fill: &dyn Fn(&mut [f32])| -> Vec<u32> {
                    let mut out = vec![f32::NAN; num_rows];
                    fill(&mut out);
                    out.into_iter().map(f32::to_bits).collect()
                };
                let reversed = |mut values: Vec<u32>| {
                    values.reverse();
                    values
                };
                assert_eq!(reversed(bits(&|out| dots_at(&query, &matrix, &rows, out))), each(dot));
                assert_eq!(reversed(bits(&|out| squared_l2s_at(&query, &matrix, &rows, out))), each(squared_l2));
            }
        }
    }

    type Kernel = fn(&[f32], &[f32], &mut [f32]);

    /// The kernels that the running processor can execute, for products and squared distances.
    fn kernels() -> Vec<[Kernel; 2]> {
        let mut kernels: Vec<[Kernel; 2]> = vec![[
            |query, matrix, out| portable::each_row::<PRODUCT>(query, matrix, |i| i, out),
            |query, matrix, out| portable::each_row::<SQUARED_L2>(query, matrix, |i| i, out),
        ]];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            kernels.push([
                // SAFETY: the features were found.
                |query, matrix, out| unsafe { avx2::each_row::<PRODUCT>(query, matrix, |i| i, out) },
                // SAFETY: as above.
                |query, matrix, out| unsafe { avx2::each_row::<SQUARED_L2>(query, matrix, |i| i, out) },
            ]);
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            kernels.push([
                // SAFETY: the feature was found.
                |query, matrix, out| unsafe { avx512::each_row::<PRODUCT>(query, matrix, |i| i, out) },
                // SAFETY: as above.
                |query, matrix, out| unsafe { avx512::each_row::<SQUARED_L2>(query, matrix, |i| i, out) },
            ]);
        }
        kernels
    }

    #[test]
    fn every_kernel_agrees_with_sums_of_f64() {
        for width in WIDTHS {
            let (query, matrix) = (values(width, 3), values(width * 5, 4));
            for [product, squared] in kernels() {
                let (mut products, mut distances) = ([f32::NAN; 5], [f32::NAN; 5]);
                product(&query, &matrix, &mut products);
                squared(&query, &matrix, &mut distances);
                for row in 0..5 {
                    let pairs = || query.iter().zip(&matrix[row * width..][..width]).map(|(a, b)| (f64::from(*a), f64::from(*b)));
                    let product: f64 = pairs().map(|(a, b)| a * b).sum();
                    let squared: f64 = pairs().map(|(a, b)| (a - b) * (a - b)).sum();
                    assert!(
                        (f64::from(products[row]) - product).abs() < 1e-4,
                        "width {width}, row {row}: {} is not {product}",
                        products[row]
                    );
                    assert!(
                        (f64::from(distances[row]) - squared).abs() < 1e-4,
                        "width {width}, row {row}: {} is not {squared}",
                        distances[row]
                    );
                }
            }
        }
    }

    #[test]
    fn order_of_arguments_does_not_matter() {
        let (a, b) = (values(384, 5), values(384, 6));
        assert_eq!(dot(&a, &b).to_bits(), dot(&b, &a).to_bits());
        assert_eq!(squared_l2(&a, &b).to_bits(), squared_l2(&b, &a).to_bits());
    }

    #[test]
    fn prefetch_outside_of_the_values_does_nothing() {
        prefetch(&[0_u32; 4], 3, 2);
        prefetch::<f32>(&[], usize::MAX, 2);
    }

    #[test]
    #[should_panic(expected = "of one width")]
    fn a_product_checks_its_shape() {
        dot(&[0.0; 3], &[0.0; 2]);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_gather_checks_its_rows() {
        dots_at(&[0.0; 3], &[0.0; 6], &[0, 2], &mut [0.0; 2]);
    }
}
