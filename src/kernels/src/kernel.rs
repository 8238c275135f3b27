//! The inner loop of every matrix product: some rows times one panel of columns.
//!
//! Written with vector intrinsics, because the compiler's own vectorisation of this loop comes and goes with its shape. Each
//! result is a sum over the inner dimension in one fixed order, whatever the number of rows: the basis of "alone equals batched".

mod amx;
mod operands;
pub(crate) mod vector;

pub use self::amx::{LeftTiles, Tile, has_amx, set_weight, tiles_per_panel, weight};
use self::operands::CACHE_LINE;
pub use self::operands::{Fetch, Left, Out, Panel, SharedRows};
use self::vector::Vector;
pub use self::vector::{Bf16, Weight};
use super::simd::{Instructions, instructions};

/// Columns of a whole panel.
pub const PANEL: usize = 32;
/// Columns of a narrow panel, for heads that are not a multiple of [`PANEL`] wide.
pub const HALF_PANEL: usize = PANEL / 2;

/// `out[row] (+)= scale * left[row] · panel` for the rows `0..num_rows`.
///
/// # Panics
/// If an operand does not lie inside its slice.
pub fn multiply_panel<T: Weight>(left: Left<'_>, num_rows: usize, panel: Panel<'_, T>, scale: f32, out: Out<'_>) {
    // SAFETY: these are the instructions of the running processor.
    unsafe { multiply_panel_with(instructions(), left, num_rows, panel, scale, out) }
}

/// [`multiply_panel`] with given instructions.
///
/// # Safety
/// The running processor has the instructions.
pub unsafe fn multiply_panel_with<T: Weight>(
    instructions: Instructions,
    left: Left<'_>,
    num_rows: usize,
    panel: Panel<'_, T>,
    scale: f32,
    out: Out<'_>,
) {
    // SAFETY: the caller's.
    unsafe { T::multiply_panel(instructions, left, num_rows, panel, scale, out) }
}

/// [`multiply_panel_with`], for the types of weights to be compiled with this package.
unsafe fn multiply_panel_of<T: Weight>(
    instructions: Instructions,
    left: Left<'_>,
    num_rows: usize,
    panel: Panel<'_, T>,
    scale: f32,
    out: Out<'_>,
) {
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
        let part = Out { values: &out.values[column..], width: columns.min(width - column), ..out };
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
        let out = &self.out.values[row * self.out.stride..][..W * V::LANES];
        // SAFETY: `out` has as many values as the registers, which are written as cells may be; the caller guarantees the processor's instructions.
        unsafe {
            let scale = V::splat(self.scale);
            for (w, sum) in sums.into_iter().enumerate() {
                let at = out.as_ptr().add(w * V::LANES).cast_mut().cast();
                let scaled = sum.multiply(scale);
                if self.out.add { V::load(at).add(scaled).store(at) } else { scaled.store(at) }
            }
        }
    }

    #[inline(always)]
    fn write(&mut self, row: usize, sums: &[f32; PANEL]) {
        let out = &self.out.values[row * self.out.stride..][..self.out.width];
        if self.out.add {
            out.iter().zip(sums).for_each(|(out, sum)| out.set(out.get() + sum * self.scale));
        } else {
            out.iter().zip(sums).for_each(|(out, sum)| out.set(sum * self.scale));
        }
    }
}

/// Cache lines of the next panel that are asked for ahead of their use, evenly over the steps of all blocks of this one: all at once they would wait for each
/// other, and none at all leaves the memory idle while a few rows are multiplied.
struct Ahead {
    at: *const u8,
    num_lines: usize,
    num_steps: usize,
    /// Grows by `num_lines` with each step; a line is due at each multiple of `num_steps`.
    due: usize,
}

impl Ahead {
    fn of(next: Fetch<'_>, num_steps: usize) -> Self {
        Self { at: next.at, num_lines: next.num_lines, num_steps, due: 0 }
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

/// The sums of `R` rows over `W` registers of columns, each of them one chain of additions in the order of the inner dimension: the same numbers
/// with every width of the registers, where a product and its sum are one instruction.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "with iterators over the sums the compiler keeps them in memory, twenty times slower")]
unsafe fn block<V: Vector, T: Weight, const R: usize, const W: usize, const FETCHES: bool>(
    left: Left<'_>,
    first: usize,
    panel: Panel<'_, T>,
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
unsafe fn step<V: Vector, T: Weight, const R: usize, const W: usize>(
    sums: &mut [[V; W]; R],
    rows: &[*const f32; R],
    inner_stride: usize,
    panel: Panel<'_, T>,
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
                let right: V = T::load(columns.add(w * V::LANES));
                for row in 0..R {
                    sums[row][w] = sums[row][w].add_products(left[row], right);
                }
            }
        } else {
            for w in 0..W {
                right[w] = T::load(columns.add(w * V::LANES));
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
unsafe fn all_rows<V: Vector, T: Weight, const R: usize, const W: usize>(
    left: Left<'_>,
    num_rows: usize,
    panel: Panel<'_, T>,
    sink: &mut Sink<'_>,
) {
    // SAFETY: as for `block`, whose conditions the caller guarantees.
    unsafe {
        match panel.next.num_lines {
            0 => blocks::<V, T, R, W, false>(left, num_rows, panel, sink),
            _ => blocks::<V, T, R, W, true>(left, num_rows, panel, sink),
        }
    }
}

/// Blocks of `R` rows, then the rest in smaller ones.
#[inline(always)]
unsafe fn blocks<V: Vector, T: Weight, const R: usize, const W: usize, const FETCHES: bool>(
    left: Left<'_>,
    num_rows: usize,
    panel: Panel<'_, T>,
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
            block::<V, T, R, W, FETCHES>(left, row, panel, &mut ahead, sink);
            row += R;
        }
        if R > 8 && row + 8 <= num_rows {
            block::<V, T, 8, W, FETCHES>(left, row, panel, &mut ahead, sink);
            row += 8;
        }
        if R > 4 && row + 4 <= num_rows {
            block::<V, T, 4, W, FETCHES>(left, row, panel, &mut ahead, sink);
            row += 4;
        }
        if row + 2 <= num_rows {
            block::<V, T, 2, W, FETCHES>(left, row, panel, &mut ahead, sink);
            row += 2;
        }
        if row < num_rows {
            block::<V, T, 1, W, FETCHES>(left, row, panel, &mut ahead, sink);
        }
    }
}

/// For processors without AVX2.
unsafe fn portable<T: Weight>(left: Left<'_>, num_rows: usize, panel: Panel<'_, T>, sink: &mut Sink<'_>) {
    // SAFETY: as for `block`; arrays need no special instructions.
    unsafe {
        match panel.columns {
            PANEL => all_rows::<[f32; 4], T, 1, 8>(left, num_rows, panel, sink),
            _ => all_rows::<[f32; 4], T, 1, 4>(left, num_rows, panel, sink),
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m256, __m512};

    use super::{Left, PANEL, Panel, Sink, Weight, all_rows};

    /// 12 rows * 2 registers = 24 of the 32 registers.
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
    pub unsafe fn avx512<T: Weight>(left: Left<'_>, num_rows: usize, panel: Panel<'_, T>, sink: &mut Sink<'_>) {
        // SAFETY: the caller guarantees the conditions of `block`.
        unsafe {
            match panel.columns {
                PANEL => all_rows::<__m512, T, 12, 2>(left, num_rows, panel, sink),
                _ => all_rows::<__m512, T, 12, 1>(left, num_rows, panel, sink),
            }
        }
    }

    /// 3 rows * 4 registers = 12 of the 16 registers.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn avx2<T: Weight>(left: Left<'_>, num_rows: usize, panel: Panel<'_, T>, sink: &mut Sink<'_>) {
        // SAFETY: the caller guarantees the conditions of `block`.
        unsafe {
            match panel.columns {
                PANEL => all_rows::<__m256, T, 3, 4>(left, num_rows, panel, sink),
                _ => all_rows::<__m256, T, 3, 2>(left, num_rows, panel, sink),
            }
        }
    }
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
                    let out = Out::new(&mut out[index * PANEL..], columns, PANEL);
                    let mut of_panel = panels[index * PANEL * inner..].chunks(PANEL * inner);
                    let (panel, next) = (Panel::new(of_panel.next().unwrap_or_default(), PANEL, PANEL), of_panel.next());
                    let next = Fetch::of(next.filter(|_| inner * columns > 1 << 18).unwrap_or_default());
                    multiply_panel(Left::rows(&left, inner, inner), rows, Panel { next, ..panel }, 1.0, out);
                }
            });
            assert!(out.iter().all(|value| value.is_finite()));
            println!("[{rows}, {inner}] x [{inner}, {columns}]: {rate:.1} GFLOP/s, by AMX {:.1}", rate_of_amx(rows, inner, columns));
        }
    }

    /// The same with weights in bf16 by AMX; NaN without it.
    fn rate_of_amx(rows: usize, inner: usize, columns: usize) -> f64 {
        if !has_amx() {
            return f64::NAN;
        }
        let (left, len) = (numbers(rows * inner, 7), tiles_per_panel(inner));
        let mut tiles = vec![Tile::default(); columns / PANEL * len];
        for panel in tiles.chunks_exact_mut(len) {
            (0..inner * PANEL).for_each(|at| set_weight(panel, at / PANEL, at % PANEL, Bf16::exactly((at % 5) as f32).unwrap_or_default()));
        }
        let mut out = vec![0.0; rows * columns];
        let rate = rate(2 * rows * inner * columns, || {
            let left = LeftTiles::of(&left, inner);
            for (index, panel) in tiles.chunks_exact(len).enumerate() {
                left.multiply(panel, Out::new(&mut out[index * PANEL..], columns, PANEL));
            }
        });
        assert!(out.iter().all(|value| value.is_finite()));
        rate
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
                let out = Out::new(&mut scores[index * PANEL..], keys, PANEL);
                multiply_panel(Left::rows(&queries, width, width), rows, Panel::new(values, PANEL, PANEL), 0.1, out);
            }
        });
        let summed = rate(2 * rows * width * keys, || {
            for (index, values) in values.chunks_exact(block * width).enumerate() {
                let out = Out::new(&mut mixed, width, width).adding(index > 0);
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
