//! The inner loop of every matrix product: some rows times one panel of columns.
//!
//! Written with vector intrinsics, because the compiler's own vectorisation of this loop comes and goes with its shape. Each
//! result is a sum over the inner dimension in one fixed order, whatever the number of rows: the basis of "alone equals batched".

use super::simd::{Instructions, instructions};

/// Columns of a whole panel.
pub const PANEL: usize = 32;
/// Columns of a narrow panel, for heads that are not a multiple of [`PANEL`] wide.
pub const HALF_PANEL: usize = PANEL / 2;

/// The left-hand side: element `(row, k)` is `values[row * row_stride + k * inner_stride]`, for `inner` values of k.
#[derive(Clone, Copy)]
pub struct Left<'a> {
    pub values: &'a [f32],
    pub row_stride: usize,
    pub inner_stride: usize,
    pub inner: usize,
}

impl<'a> Left<'a> {
    /// Consecutive rows of `stride` values each, of which the first `inner` are used.
    pub fn rows(values: &'a [f32], stride: usize, inner: usize) -> Self {
        Self { values, row_stride: stride, inner_stride: 1, inner }
    }
}

/// The right-hand side: `inner` rows of [`PANEL`] or [`HALF_PANEL`] consecutive columns, `stride` values apart.
#[derive(Clone, Copy)]
pub struct Panel<'a> {
    pub values: &'a [f32],
    pub stride: usize,
    /// [`PANEL`] or [`HALF_PANEL`].
    pub columns: usize,
    /// What is multiplied next, where that is likely to be in no cache: it is fetched meanwhile.
    pub next: Option<&'a [f32]>,
}

impl<'a> Panel<'a> {
    /// A panel with another `stride` than its number of columns, or one whose next one is near.
    pub fn new(values: &'a [f32], stride: usize, columns: usize) -> Self {
        Self { values, stride, columns, next: None }
    }

    /// The `index`-th of panels of `inner` rows of [`PANEL`] columns, which are multiplied one after the other.
    pub fn of(panels: &'a [f32], index: usize, inner: usize) -> Self {
        let len = PANEL * inner;
        let next = (panels.len() > CACHED).then(|| panels.get((index + 1) * len..(index + 2) * len)).flatten();
        Self { values: &panels[index * len..][..len], stride: PANEL, columns: PANEL, next }
    }
}

/// Numbers that stay in a core's own cache between two products: a mebibyte.
const CACHED: usize = 1 << 18;
/// Numbers that memory gives at once.
const CACHE_LINE: usize = 16;

/// The destination: row `r` is `values[r * stride ..][.. width]`, with `width` at most the panel's columns.
pub struct Out<'a> {
    pub values: &'a mut [f32],
    pub stride: usize,
    pub width: usize,
    /// Adds to what is there instead of replacing it.
    pub add: bool,
}

/// `out[row] (+)= scale * left[row] · panel` for the rows `0..num_rows`.
///
/// # Panics
/// If an operand does not lie inside its slice.
pub fn multiply_panel(left: Left<'_>, num_rows: usize, panel: Panel<'_>, scale: f32, out: Out<'_>) {
    // SAFETY: these are the instructions of the running processor.
    unsafe { multiply_panel_with(instructions(), left, num_rows, panel, scale, out) }
}

/// [`multiply_panel`] with given instructions.
///
/// # Safety
/// The running processor has the instructions.
pub unsafe fn multiply_panel_with(instructions: Instructions, left: Left<'_>, num_rows: usize, panel: Panel<'_>, scale: f32, out: Out<'_>) {
    if num_rows == 0 {
        return;
    }
    let last = |count: usize, stride: usize| count.saturating_sub(1) * stride;
    let left_end = last(num_rows, left.row_stride) + last(left.inner, left.inner_stride);
    assert!(left.inner == 0 || left_end < left.values.len(), "the left rows lie inside their slice");
    assert!(left.inner == 0 || last(left.inner, panel.stride) + panel.columns <= panel.values.len(), "the panel lies inside its slice");
    assert!(out.width <= panel.columns && matches!(panel.columns, PANEL | HALF_PANEL), "the columns are those of a panel");
    let mut sink = Sink { scale, out };
    match instructions {
        // SAFETY: the processor has the instructions, and the asserts above keep all loads inside the slices.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => unsafe { x86::avx512(left, num_rows, panel, &mut sink) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { x86::avx2(left, num_rows, panel, &mut sink) },
        // SAFETY: the asserts above keep all loads inside the slices.
        Instructions::Baseline => unsafe { portable(left, num_rows, panel, &mut sink) },
    }
}

/// `out[row][.. width] (+)= weights[row] · values`, for values whose rows are `values_stride` apart and padded with zeros or
/// other heads' values up to a multiple of [`HALF_PANEL`] columns.
pub fn multiply_values(weights: Left<'_>, num_rows: usize, values: &[f32], values_stride: usize, out: Out<'_>) {
    let width = out.width;
    let mut column = 0;
    while column < width {
        let columns = if width - column >= PANEL { PANEL } else { HALF_PANEL };
        let panel = Panel::new(&values[column..], values_stride, columns);
        let part = Out { values: &mut out.values[column..], stride: out.stride, width: columns.min(width - column), add: out.add };
        multiply_panel(weights, num_rows, panel, 1.0, part);
        column += columns;
    }
}

/// Takes finished sums to the destination.
struct Sink<'a> {
    scale: f32,
    out: Out<'a>,
}

impl Sink<'_> {
    /// A row that is as wide as the sums.
    #[inline(always)]
    unsafe fn write_registers<V: Vector, const W: usize>(&mut self, row: usize, sums: [V; W]) {
        let out = &mut self.out.values[row * self.out.stride..][..W * V::LANES];
        // SAFETY: `out` has as many values as the registers; the caller guarantees the processor's instructions.
        unsafe {
            let scale = V::splat(self.scale);
            for (w, sum) in sums.into_iter().enumerate() {
                let at = out.as_mut_ptr().add(w * V::LANES);
                let scaled = sum.multiply(scale);
                if self.out.add { V::load(at).add(scaled).store(at) } else { scaled.store(at) }
            }
        }
    }

    #[inline(always)]
    fn write(&mut self, row: usize, sums: &[f32; PANEL]) {
        let out = &mut self.out.values[row * self.out.stride..][..self.out.width];
        if self.out.add {
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum * self.scale);
        } else {
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * self.scale);
        }
    }
}

/// Cache lines of the next panel that are asked for ahead of their use, evenly over the steps of all blocks of this one: all at once they would wait for each
/// other, and none at all leaves the memory idle while a few rows are multiplied.
struct Ahead {
    at: *const f32,
    num_lines: usize,
    num_steps: usize,
    /// Grows by `num_lines` with each step; a line is due at each multiple of `num_steps`.
    due: usize,
}

impl Ahead {
    fn of(next: Option<&[f32]>, num_steps: usize) -> Self {
        let next = next.unwrap_or_default();
        Self { at: next.as_ptr(), num_lines: next.len() / CACHE_LINE, num_steps, due: 0 }
    }

    /// At most two lines: there are no more in the columns of a step.
    #[inline(always)]
    fn step(&mut self) {
        self.due += self.num_lines;
        if self.due >= self.num_steps {
            self.fetch();
            if self.due >= self.num_steps {
                self.fetch();
            }
        }
    }

    #[inline(always)]
    fn fetch(&mut self) {
        // SAFETY: fetching ahead reads nothing and fails for no address.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(self.at.cast());
        }
        self.at = self.at.wrapping_add(CACHE_LINE);
        self.due -= self.num_steps;
    }
}

/// A vector register of f32.
pub(crate) trait Vector: Copy {
    const LANES: usize;
    /// A register of zeros.
    unsafe fn zero() -> Self;
    /// The `LANES` values from `at`.
    unsafe fn load(at: *const f32) -> Self;
    unsafe fn store(self, at: *mut f32);
    /// `value` in every lane.
    unsafe fn splat(value: f32) -> Self;
    /// `self + left * right`, lane by lane.
    unsafe fn add_products(self, left: Self, right: Self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn multiply(self, other: Self) -> Self;
}

/// The sums of `R` rows over `W` registers of columns, each of them one chain of additions in the order of the inner dimension: the same numbers
/// with every width of the registers, where a product and its sum are one instruction.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "with iterators over the sums the compiler keeps them in memory, twenty times slower")]
unsafe fn block<V: Vector, const R: usize, const W: usize, const FETCHES: bool>(
    left: Left<'_>,
    first: usize,
    panel: Panel<'_>,
    ahead: &mut Ahead,
    sink: &mut Sink<'_>,
) {
    // SAFETY: the caller guarantees the processor's instructions and that all rows and the panel lie inside their slices.
    unsafe {
        let mut sums = [[V::zero(); W]; R];
        let mut rows = [left.values.as_ptr(); R];
        for row in 0..R {
            rows[row] = left.values.as_ptr().add((first + row) * left.row_stride);
        }
        for k in 0..left.inner {
            if FETCHES {
                ahead.step();
            }
            step(&mut sums, &rows, left.inner_stride, panel, k);
        }
        for row in 0..R {
            if sink.out.width == W * V::LANES {
                sink.write_registers(first + row, sums[row]);
            } else {
                let mut total = [0.0; PANEL];
                for w in 0..W {
                    sums[row][w].store(total.as_mut_ptr().add(w * V::LANES));
                }
                sink.write(first + row, &total);
            }
        }
    }
}

/// Adds the products of the `k`-th inner value. A function and not a closure: only `inline(always)` makes sure that it is
/// compiled with its caller's instructions.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "as in `block`")]
unsafe fn step<V: Vector, const R: usize, const W: usize>(
    sums: &mut [[V; W]; R],
    rows: &[*const f32; R],
    inner_stride: usize,
    panel: Panel<'_>,
    k: usize,
) {
    // SAFETY: as for `block`.
    unsafe {
        let (mut left, mut right) = ([V::zero(); R], [V::zero(); W]);
        let columns = panel.values.as_ptr().add(k * panel.stride);
        // The fewer of both stay in registers: with three rows, four vectors of columns and their twelve sums all are taken, and one more would send
        // sums to memory and back in each step, at half the speed.
        if R < W {
            for row in 0..R {
                left[row] = V::splat(*rows[row].add(k * inner_stride));
            }
            for w in 0..W {
                let right = V::load(columns.add(w * V::LANES));
                for row in 0..R {
                    sums[row][w] = sums[row][w].add_products(left[row], right);
                }
            }
        } else {
            for w in 0..W {
                right[w] = V::load(columns.add(w * V::LANES));
            }
            for row in 0..R {
                let left = V::splat(*rows[row].add(k * inner_stride));
                for w in 0..W {
                    sums[row][w] = sums[row][w].add_products(left, right[w]);
                }
            }
        }
    }
}

/// All rows, and the next panel meanwhile if there is one.
#[inline(always)]
unsafe fn all_rows<V: Vector, const R: usize, const W: usize>(left: Left<'_>, num_rows: usize, panel: Panel<'_>, sink: &mut Sink<'_>) {
    // SAFETY: as for `block`, whose conditions the caller guarantees.
    unsafe {
        match panel.next {
            Some(_) => blocks::<V, R, W, true>(left, num_rows, panel, sink),
            None => blocks::<V, R, W, false>(left, num_rows, panel, sink),
        }
    }
}

/// Blocks of `R` rows, then the rest in smaller ones.
#[inline(always)]
unsafe fn blocks<V: Vector, const R: usize, const W: usize, const FETCHES: bool>(
    left: Left<'_>,
    num_rows: usize,
    panel: Panel<'_>,
    sink: &mut Sink<'_>,
) {
    // SAFETY: as for `block`, whose conditions the caller guarantees.
    unsafe {
        let num_rest = num_rows % R;
        let num_blocks =
            num_rows / R + usize::from(R > 8 && num_rest >= 8) + usize::from(R > 4 && num_rest % 8 >= 4) + (num_rest % 4).div_ceil(2);
        let mut ahead = Ahead::of(panel.next, num_blocks * left.inner);
        let mut row = 0;
        while row + R <= num_rows {
            block::<V, R, W, FETCHES>(left, row, panel, &mut ahead, sink);
            row += R;
        }
        if R > 8 && row + 8 <= num_rows {
            block::<V, 8, W, FETCHES>(left, row, panel, &mut ahead, sink);
            row += 8;
        }
        if R > 4 && row + 4 <= num_rows {
            block::<V, 4, W, FETCHES>(left, row, panel, &mut ahead, sink);
            row += 4;
        }
        if row + 2 <= num_rows {
            block::<V, 2, W, FETCHES>(left, row, panel, &mut ahead, sink);
            row += 2;
        }
        if row < num_rows {
            block::<V, 1, W, FETCHES>(left, row, panel, &mut ahead, sink);
        }
    }
}

/// For processors without AVX2.
unsafe fn portable(left: Left<'_>, num_rows: usize, panel: Panel<'_>, sink: &mut Sink<'_>) {
    // SAFETY: as for `block`; arrays need no special instructions.
    unsafe {
        match panel.columns {
            PANEL => all_rows::<[f32; 4], 1, 8>(left, num_rows, panel, sink),
            _ => all_rows::<[f32; 4], 1, 4>(left, num_rows, panel, sink),
        }
    }
}

impl Vector for [f32; 4] {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self {
        [0.0; 4]
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller guarantees four values; an array of f32 needs no more alignment than an f32.
        unsafe { at.cast::<Self>().read() }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: as for `load`.
        unsafe { at.cast::<Self>().write(self) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        [value; 4]
    }

    #[inline(always)]
    unsafe fn add_products(self, left: Self, right: Self) -> Self {
        std::array::from_fn(|lane| self[lane] + left[lane] * right[lane])
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        std::array::from_fn(|lane| self[lane] + other[lane])
    }

    #[inline(always)]
    unsafe fn multiply(self, other: Self) -> Self {
        std::array::from_fn(|lane| self[lane] * other[lane])
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m512, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps,
        _mm256_storeu_ps, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps,
        _mm512_storeu_ps,
    };

    use super::{Left, PANEL, Panel, Sink, Vector, all_rows};

    /// 12 rows * 2 registers = 24 of the 32 registers.
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
    pub unsafe fn avx512(left: Left<'_>, num_rows: usize, panel: Panel<'_>, sink: &mut Sink<'_>) {
        // SAFETY: the caller guarantees the conditions of `block`.
        unsafe {
            match panel.columns {
                PANEL => all_rows::<__m512, 12, 2>(left, num_rows, panel, sink),
                _ => all_rows::<__m512, 12, 1>(left, num_rows, panel, sink),
            }
        }
    }

    /// 3 rows * 4 registers = 12 of the 16 registers.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn avx2(left: Left<'_>, num_rows: usize, panel: Panel<'_>, sink: &mut Sink<'_>) {
        // SAFETY: the caller guarantees the conditions of `block`.
        unsafe {
            match panel.columns {
                PANEL => all_rows::<__m256, 3, 4>(left, num_rows, panel, sink),
                _ => all_rows::<__m256, 3, 2>(left, num_rows, panel, sink),
            }
        }
    }

    macro_rules! vector {
        ($register:ty, $lanes:literal, $zero:ident, $load:ident, $store:ident, $splat:ident, $fma:ident, $add:ident, $mul:ident) => {
            // SAFETY of every call: only reached from the functions above, which enable the instructions.
            impl Vector for $register {
                const LANES: usize = $lanes;

                #[inline(always)]
                unsafe fn zero() -> Self {
                    unsafe { $zero() }
                }

                #[inline(always)]
                unsafe fn load(at: *const f32) -> Self {
                    unsafe { $load(at) }
                }

                #[inline(always)]
                unsafe fn store(self, at: *mut f32) {
                    unsafe { $store(at, self) }
                }

                #[inline(always)]
                unsafe fn splat(value: f32) -> Self {
                    unsafe { $splat(value) }
                }

                #[inline(always)]
                unsafe fn add_products(self, left: Self, right: Self) -> Self {
                    unsafe { $fma(left, right, self) }
                }

                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    unsafe { $add(self, other) }
                }

                #[inline(always)]
                unsafe fn multiply(self, other: Self) -> Self {
                    unsafe { $mul(self, other) }
                }
            }
        };
    }

    vector!(
        __m512,
        16,
        _mm512_setzero_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_set1_ps,
        _mm512_fmadd_ps,
        _mm512_add_ps,
        _mm512_mul_ps
    );
    vector!(__m256, 8, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_add_ps, _mm256_mul_ps);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Of one core: `cargo test --release -p rolloutdb-kernels --lib speed_of_products -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn speed_of_products() {
        let of_cache = [(96, 2048, 768), (32, 768, 768), (1, 128, 512)];
        // 402 MB.
        let of_memory = [96, 32, 12, 4, 1].map(|rows| (rows, 768, 131_072));
        for (rows, inner, columns) in of_cache.into_iter().chain(of_memory) {
            let (left, panels) = (numbers(rows * inner, 7), numbers(columns * inner, 5));
            let mut out = vec![0.0; rows * columns];
            let rate = rate(2 * rows * inner * columns, || {
                for index in 0..columns / PANEL {
                    let out = Out { values: &mut out[index * PANEL..], stride: columns, width: PANEL, add: false };
                    multiply_panel(Left::rows(&left, inner, inner), rows, Panel::of(&panels, index, inner), 1.0, out);
                }
            });
            assert!(out.iter().all(|value| value.is_finite()));
            println!("[{rows}, {inner}] x [{inner}, {columns}]: {rate:.1} GFLOP/s");
        }
    }

    /// The two products of attention for 48 queries of four heads of 64 that share keys and values, which lie in blocks of 32:
    /// `cargo test --release -p rolloutdb-kernels --lib speed_of_attention -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn speed_of_attention() {
        let (rows, width, keys, block) = (192, 64, 2048, 32);
        let (queries, values) = (numbers(rows * width, 7), numbers(keys * width, 5));
        let (mut scores, mut mixed) = (vec![0.0; rows * keys], vec![0.0; rows * width]);
        let scored = rate(2 * rows * width * keys, || {
            for (index, values) in values.chunks_exact(PANEL * width).enumerate() {
                let out = Out { values: &mut scores[index * PANEL..], stride: keys, width: PANEL, add: false };
                multiply_panel(Left::rows(&queries, width, width), rows, Panel::new(values, PANEL, PANEL), 0.1, out);
            }
        });
        let summed = rate(2 * rows * width * keys, || {
            for (index, values) in values.chunks_exact(block * width).enumerate() {
                let out = Out { values: &mut mixed, stride: width, width, add: index > 0 };
                multiply_values(Left::rows(&scores[index * block..], keys, block), rows, values, width, out);
            }
        });
        assert!(scores.iter().chain(&mixed).all(|value| value.is_finite()));
        println!("scores {scored:.1} GFLOP/s, sums of values {summed:.1} GFLOP/s");
    }

    fn numbers(len: usize, period: usize) -> Vec<f32> {
        (0..len).map(|index| (index % period) as f32 * 0.1).collect()
    }

    /// The best of seven times, in operations per nanosecond.
    fn rate(operations: usize, mut work: impl FnMut()) -> f64 {
        let seconds = (0..7).map(|_| {
            let started = Instant::now();
            work();
            started.elapsed().as_secs_f64()
        });
        operations as f64 / seconds.fold(f64::INFINITY, f64::min) / 1e9
    }
}
