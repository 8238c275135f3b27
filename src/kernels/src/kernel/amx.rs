//! Products of weights in bf16 by the tiles of processors with Intel's AMX.
//!
//! A tile is 16 rows of 32 bf16. One instruction multiplies two of them and adds up in single precision: sixteen times the operations of a vector instruction
//! of f32, in the same time. Rows in single precision go through it as they are, for the 24 bits of a number's mantissa are those of three bf16,
//! `x = high + middle + low`: the sum of the three products is as precise as one of f32, at a third of the rate. That is so from 2^-103 on; of smaller numbers
//! low pieces count as zero, as do bf16 and results below 2^-126. A row with an infinity is NaN.
//!
//! Each result is one sum in a fixed order, whatever the number of rows. It is another order than that of [`multiply_panel`](super::multiply_panel).
//!
//! The system saves 8 KB more for a thread that has used tiles: on a signal stack of Rust's size there is then no room for the message of a stack overflow.

use std::cell::Cell;

use rayon::prelude::*;

use super::PANEL;
use super::operands::Out;
use super::vector::Bf16;

/// Rows of a tile.
const ROWS: usize = 16;
/// Bf16 in a row of a tile: the inner values that one instruction adds up.
const STEP: usize = 32;
/// Bf16 that a number in single precision is the sum of.
const PIECES: usize = 3;
/// Tiles beside each other in a panel.
const ACROSS: usize = PANEL / ROWS;
/// Values that are split in less time than it takes to hand them over.
const PARALLEL_VALUES: usize = 1 << 17;

/// 16 rows of 32 bf16. Of the left-hand side a row is one of the matrix; of a panel it is two values of the inner dimension for each of 16 columns, of each
/// column side by side.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Tile([Bf16; ROWS * STEP]);

impl Default for Tile {
    /// Zeros.
    fn default() -> Self {
        Self([Bf16::default(); ROWS * STEP])
    }
}

/// Whether the processor has AMX for bf16, and the system lets this process use it. Asked once: the first call may fail while a thread of the process has a
/// signal stack too small for the registers, and none can be given one after it.
pub fn has_amx() -> bool {
    x86::has_amx()
}

/// Tiles of a panel of [`PANEL`] columns and `inner` rows; behind the last row are zeros.
pub fn tiles_per_panel(inner: usize) -> usize {
    inner.div_ceil(STEP) * ACROSS
}

/// Where the weight of row `k` and `column` is in its panel: the tile, and the place in it.
#[inline]
fn place(k: usize, column: usize) -> (usize, usize) {
    let (row, pair) = (k % STEP / 2, column % ROWS);
    (k / STEP * ACROSS + column / ROWS, row * STEP + 2 * pair + k % 2)
}

/// The weight of row `k` and `column` of a panel.
#[inline]
pub fn weight(panel: &[Tile], k: usize, column: usize) -> Bf16 {
    let (tile, place) = place(k, column);
    panel[tile].0[place]
}

/// Sets the weight of row `k` and `column` of a panel.
#[inline]
pub fn set_weight(panel: &mut [Tile], k: usize, column: usize, weight: Bf16) {
    let (tile, place) = place(k, column);
    panel[tile].0[place] = weight;
}

/// Tiles that a thread keeps at the most, 3 MB: those of 96 rows of 5,000 values.
const KEPT_MAX: usize = 3 << 10;

thread_local! {
    /// The tiles of the thread's last rows, for the next ones.
    static KEPT: Cell<Vec<Tile>> = const { Cell::new(Vec::new()) };
}

/// The left-hand side in pieces: for each 16 rows and 32 inner values a tile of each piece. Inner values behind the last are zeros; rows behind the last, and
/// tiles behind those of the last, are left from earlier products and not read.
pub struct LeftTiles {
    tiles: Vec<Tile>,
    num_rows: usize,
    inner: usize,
}

impl LeftTiles {
    /// The rows of `x` `[rows, inner]`.
    ///
    /// # Panics
    /// Without AMX ([`has_amx`]), or if `inner` is 0.
    pub fn of(x: &[f32], inner: usize) -> Self {
        let mut left = Self::empty(x.len() / inner, inner);
        // SAFETY: processors with AMX have AVX-512.
        unsafe { x86::split(x, inner, &mut left.tiles) };
        left
    }

    /// As [`Self::of`], by all threads where there is work for them.
    ///
    /// # Panics
    /// As [`Self::of`].
    pub fn by_all_threads(x: &[f32], inner: usize) -> Self {
        if x.len() < PARALLEL_VALUES {
            return Self::of(x, inner);
        }
        let mut left = Self::empty(x.len() / inner, inner);
        let blocks = left.tiles.par_chunks_mut(tiles_per_block(inner)).zip(x.par_chunks(ROWS * inner));
        // SAFETY: processors with AMX have AVX-512.
        blocks.for_each(|(tiles, x)| unsafe { x86::split(x, inner, tiles) });
        left
    }

    fn empty(num_rows: usize, inner: usize) -> Self {
        assert!(has_amx(), "the processor has AMX");
        let num_tiles = num_rows.div_ceil(ROWS) * tiles_per_block(inner);
        let kept = KEPT.try_with(Cell::take).unwrap_or_default();
        let tiles = if kept.len() < num_tiles { vec![Tile::default(); num_tiles] } else { kept };
        Self { tiles, num_rows, inner }
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// `out[row] = row · panel` for all rows.
    ///
    /// # Panics
    /// If the panel has another number of tiles than one of as many inner values, if `out` has no place for the rows, or would add to what is there.
    pub fn multiply(&self, panel: &[Tile], out: Out<'_>) {
        if self.num_rows == 0 {
            return;
        }
        assert!(panel.len() == tiles_per_panel(self.inner), "the panel has as many inner values as the rows");
        assert!(out.width <= PANEL && !out.add, "the columns are those of a panel, and replaced");
        assert!((self.num_rows - 1) * out.stride + out.width <= out.values.len(), "the rows of the product have their place");
        // SAFETY: these rows were split, so the processor has AMX; all tiles are there, and all rows of `out`.
        unsafe { x86::multiply(&self.tiles, self.num_rows, panel, out) }
    }
}

impl Drop for LeftTiles {
    fn drop(&mut self) {
        let tiles = std::mem::take(&mut self.tiles);
        // A thread that ends keeps nothing. Other work may have left larger ones meanwhile.
        let _ = KEPT.try_with(|kept| {
            let other = kept.take();
            kept.set(if (other.len()..=KEPT_MAX).contains(&tiles.len()) { tiles } else { other });
        });
    }
}

/// Tiles of the left-hand side of 16 rows.
fn tiles_per_block(inner: usize) -> usize {
    inner.div_ceil(STEP) * PIECES
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{
        __cpuid_count, __m512, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm256_storeu_si256, _mm512_and_si512, _mm512_castps_si512,
        _mm512_castsi512_ps, _mm512_cvtepi32_epi16, _mm512_maskz_loadu_ps, _mm512_set1_epi32, _mm512_srli_epi32, _mm512_sub_ps,
    };
    use std::ops::Range;
    use std::sync::OnceLock;

    use super::{ACROSS, Out, PANEL, PIECES, ROWS, STEP, Tile, tiles_per_block};
    use crate::simd::{Instructions, instructions};

    /// Bytes of a row of a tile, a line of the cache.
    const ROW: usize = size_of::<Tile>() / ROWS;
    /// Numbers of an AVX-512 register.
    const LANES: usize = 16;
    /// Steps of the inner dimension by which weights are fetched ahead, into the cache of the core: 64 KB. They go on in the next panel, which is behind this one.
    const STEPS_AHEAD: usize = 32;

    pub fn has_amx() -> bool {
        static FOUND: OnceLock<bool> = OnceLock::new();
        *FOUND.get_or_init(|| {
            let [tiles, bf16] = [24, 22].map(|bit| __cpuid_count(7, 0).edx >> bit & 1 == 1);
            matches!(instructions(), Instructions::Avx512) && tiles && bf16 && is_granted()
        })
    }

    /// Asks the system for the registers, which are so large that it saves them for processes that have asked alone.
    fn is_granted() -> bool {
        const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
        const XFEATURE_XTILEDATA: usize = 18;
        // SAFETY: the call takes two numbers and changes none of our memory.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    }

    /// Writes the pieces of the rows of `x` `[rows, inner]` to their tiles: of what is left of a number, the upper half.
    ///
    /// # Safety
    /// The processor has AVX-512.
    ///
    /// # Panics
    /// If there are too few tiles.
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
    pub unsafe fn split(x: &[f32], inner: usize, tiles: &mut [Tile]) {
        for (row, x) in x.chunks_exact(inner).enumerate() {
            let tiles = &mut tiles[row / ROWS * tiles_per_block(inner)..][..tiles_per_block(inner)];
            for (x, tiles) in x.chunks(STEP).zip(tiles.chunks_exact_mut(PIECES)) {
                for half in 0..STEP / LANES {
                    let x = x.get(half * LANES..).unwrap_or_default();
                    let mask = u16::MAX.checked_shr((LANES - LANES.min(x.len())) as u32).unwrap_or(0);
                    // SAFETY: as many numbers are loaded as there are.
                    let mut rest = unsafe { _mm512_maskz_loadu_ps(mask, x.as_ptr()) };
                    for tile in &mut *tiles {
                        let to = &mut tile.0[row % ROWS * STEP + half * LANES..][..LANES];
                        let upper = _mm512_srli_epi32::<16>(_mm512_castps_si512(rest));
                        // SAFETY: a bf16 is its 16 bits, and there are 16 of them.
                        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(upper)) };
                        rest = without_upper_half(rest);
                    }
                }
            }
        }
    }

    /// What is left of numbers when the bf16 of their upper halves are taken away, exactly.
    #[target_feature(enable = "avx512f")]
    fn without_upper_half(values: __m512) -> __m512 {
        let upper = _mm512_and_si512(_mm512_castps_si512(values), _mm512_set1_epi32(0xffff_0000_u32 as i32));
        _mm512_sub_ps(values, _mm512_castsi512_ps(upper))
    }

    /// What the processor is told about its eight tiles: a kind, then bytes and number of the rows of each.
    #[repr(C, align(64))]
    struct Shapes([u8; 64]);

    impl Shapes {
        /// Of sums and left-hand sides of two blocks of rows, of which the second may be empty, and of two tiles of weights.
        fn of(first: usize, second: usize) -> Self {
            let mut shapes = Self([0; 64]);
            shapes.0[0] = 1;
            for (tile, rows) in [first, first, second, second, first, second, ROWS, ROWS].into_iter().enumerate() {
                if rows > 0 {
                    (shapes.0[16 + 2 * tile], shapes.0[48 + tile]) = (ROW as u8, rows as u8);
                }
            }
            shapes
        }
    }

    // Each instruction is a block of assembly of its own, and what it leaves in a register is there for the next: no function here turns AMX on for the compiler,
    // which then has no use of its own for these registers, keeps such blocks in their order, and calls nothing in between that is not compiled into the same loop.

    /// Registers of the sums: of two blocks of rows, by 16 columns each.
    const SUMS: [[usize; ACROSS]; 2] = [[0, 1], [2, 3]];
    /// Registers of the left-hand side, one for each block.
    const LEFT: [usize; 2] = [4, 5];
    /// Registers of weights, of 16 columns each.
    const WEIGHTS: [usize; ACROSS] = [6, 7];

    #[inline(always)]
    unsafe fn load<const REGISTER: usize>(from: *const Tile) {
        // SAFETY: the caller has the tile.
        unsafe {
            asm!("tileloadd tmm{tile}, [{from} + {row}*1]", tile = const REGISTER, from = in(reg) from, row = in(reg) ROW, options(nostack, readonly))
        }
    }

    /// Sets the sums of a block to zero.
    #[inline(always)]
    unsafe fn begin<const BLOCK: usize>() {
        // SAFETY: the registers are sums.
        unsafe {
            asm!("tilezero tmm{first}", "tilezero tmm{second}", first = const SUMS[BLOCK][0], second = const SUMS[BLOCK][1], options(nostack, nomem))
        }
    }

    /// Adds the product of the rows of a block and 16 columns.
    #[inline(always)]
    unsafe fn add_product<const BLOCK: usize, const COLUMNS: usize>() {
        // SAFETY: both sides were loaded.
        unsafe {
            asm!(
                "tdpbf16ps tmm{sums}, tmm{left}, tmm{weights}",
                sums = const SUMS[BLOCK][COLUMNS],
                left = const LEFT[BLOCK],
                weights = const WEIGHTS[COLUMNS],
                options(nostack, nomem)
            );
        }
    }

    /// Writes the sums of a block to rows that are `stride` numbers apart.
    #[inline(always)]
    unsafe fn end<const BLOCK: usize>(to: *mut f32, stride: usize) {
        // SAFETY: the caller has place for them.
        unsafe {
            asm!(
                "tilestored [{to} + {stride}*1], tmm{first}",
                "tilestored [{to} + {stride}*1 + {row}], tmm{second}",
                first = const SUMS[BLOCK][0],
                second = const SUMS[BLOCK][1],
                row = const ROW,
                to = in(reg) to,
                stride = in(reg) stride * size_of::<f32>(),
                options(nostack)
            );
        }
    }

    /// Rows `0..num_rows` of `left` times `panel`, to `out`.
    ///
    /// # Safety
    /// The processor has AMX, `left` has the tiles of all rows, in as many steps as the panel, and `out` has the rows.
    pub unsafe fn multiply(left: &[Tile], num_rows: usize, panel: &[Tile], out: Out<'_>) {
        let tiles_per_block = panel.len() / ACROSS * PIECES;
        let mut shaped = (0, 0);
        for row in (0..num_rows).step_by(2 * ROWS) {
            let (first, second) = (ROWS.min(num_rows - row), ROWS.min((num_rows - row).saturating_sub(ROWS)));
            let left = &left[row / ROWS * tiles_per_block..];
            // SAFETY: the caller's; sums go to rows of `out` if they are as wide as those, and to `narrow` otherwise.
            unsafe {
                if shaped != (first, second) {
                    shaped = (first, second);
                    asm!("ldtilecfg [{}]", in(reg) &Shapes::of(first, second), options(nostack, readonly));
                }
                if out.width == PANEL {
                    let to = &out.values[row * out.stride..][..(first + second - 1) * out.stride + PANEL];
                    blocks(left, [first, second], panel, to.as_ptr().cast_mut().cast(), out.stride);
                } else {
                    let mut narrow = [[0.0_f32; PANEL]; 2 * ROWS];
                    blocks(left, [first, second], panel, narrow.as_mut_ptr().cast(), PANEL);
                    for (row, sums) in (row..).zip(&narrow[..first + second]) {
                        let to = &out.values[row * out.stride..][..out.width];
                        to.iter().zip(sums).for_each(|(out, sum)| out.set(*sum));
                    }
                }
            }
        }
        // SAFETY: the tiles are in use no more.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }

    /// The sums of one block of rows or two, to rows that are `stride` numbers apart.
    ///
    /// # Safety
    /// The tiles have the shapes of these blocks, `left` has their tiles, and there is place for the sums.
    unsafe fn blocks(left: &[Tile], num_rows: [usize; 2], panel: &[Tile], to: *mut f32, stride: usize) {
        // SAFETY: the caller's.
        unsafe {
            match num_rows {
                [first, 0] => one_block(left, first, panel, to, stride),
                [_, second] => two_blocks(left, second, panel, to, stride),
            }
        }
    }

    /// [`blocks`] of one. The tiles of the next step are fetched between the products of this one, and weights further ahead: all at once they would wait for each
    /// other.
    unsafe fn one_block(left: &[Tile], num_rows: usize, panel: &[Tile], to: *mut f32, stride: usize) {
        // SAFETY: the caller's; the tiles of all steps are there.
        unsafe {
            begin::<0>();
            for step in 0..panel.len() / ACROSS {
                let (weights, left) = (panel.as_ptr().wrapping_add(step * ACROSS), left.as_ptr().wrapping_add(step * PIECES));
                load::<{ WEIGHTS[0] }>(weights);
                for piece in 0..PIECES {
                    let next = Next { weights, left: [(left, num_rows)], piece };
                    load::<{ LEFT[0] }>(left.wrapping_add(piece));
                    add_product::<0, 0>();
                    next.fetch(0);
                    if piece == 0 {
                        load::<{ WEIGHTS[1] }>(weights.wrapping_add(1));
                    }
                    add_product::<0, 1>();
                    next.fetch(1);
                }
            }
            end::<0>(to, stride);
        }
    }

    /// [`blocks`] of two, of which the first has all rows: each tile of weights is loaded once for both, and each of the rows once for both columns.
    unsafe fn two_blocks(left: &[Tile], num_rows_of_second: usize, panel: &[Tile], to: *mut f32, stride: usize) {
        let num_steps = panel.len() / ACROSS;
        // SAFETY: the caller's; the tiles of all steps are there.
        unsafe {
            begin::<0>();
            begin::<1>();
            for step in 0..num_steps {
                let (weights, first) = (panel.as_ptr().wrapping_add(step * ACROSS), left.as_ptr().wrapping_add(step * PIECES));
                let second = first.wrapping_add(num_steps * PIECES);
                load::<{ WEIGHTS[0] }>(weights);
                for piece in 0..PIECES {
                    let next = Next { weights, left: [(first, ROWS), (second, num_rows_of_second)], piece };
                    load::<{ LEFT[0] }>(first.wrapping_add(piece));
                    add_product::<0, 0>();
                    next.fetch(0);
                    if piece == 0 {
                        load::<{ WEIGHTS[1] }>(weights.wrapping_add(1));
                    }
                    add_product::<0, 1>();
                    next.fetch(1);
                    load::<{ LEFT[1] }>(second.wrapping_add(piece));
                    add_product::<1, 0>();
                    next.fetch(2);
                    add_product::<1, 1>();
                    next.fetch(3);
                }
            }
            end::<0>(to, stride);
            end::<1>(to.wrapping_add(ROWS * stride), stride);
        }
    }

    /// What comes after a step, fetched in parts after each product of a piece of its `N` blocks.
    #[derive(Clone, Copy)]
    struct Next<const N: usize> {
        /// Of the step.
        weights: *const Tile,
        /// Of the step, and the rows of each block.
        left: [(*const Tile, usize); N],
        piece: usize,
    }

    impl<const N: usize> Next<N> {
        /// Products of a piece.
        const PRODUCTS: usize = N * ACROSS;

        /// After the product numbered `product`: of the piece's tiles of the next step, to the first-level cache, and of the weights that are [`STEPS_AHEAD`].
        #[inline(always)]
        fn fetch(self, product: usize) {
            for (tiles, num_rows) in self.left {
                part(num_rows, product, Self::PRODUCTS).for_each(|row| fetch::<_MM_HINT_T0>(tiles.wrapping_add(PIECES + self.piece), row));
            }
            let weights = self.weights.wrapping_add(STEPS_AHEAD * ACROSS);
            let rows = part(ACROSS * ROWS, self.piece * Self::PRODUCTS + product, PIECES * Self::PRODUCTS);
            rows.for_each(|row| fetch::<_MM_HINT_T1>(weights, row));
        }
    }

    /// The part numbered `index` of `num_rows` rows in `count` parts.
    #[inline(always)]
    fn part(num_rows: usize, index: usize, count: usize) -> Range<usize> {
        index * num_rows / count..(index + 1) * num_rows / count
    }

    /// Fetches a row behind `from`, a line of the cache.
    #[inline(always)]
    fn fetch<const HINT: i32>(from: *const Tile, row: usize) {
        // SAFETY: fetching ahead reads nothing and fails for no address.
        unsafe { _mm_prefetch::<HINT>(from.cast::<i8>().wrapping_add(row * ROW)) };
    }
}

/// Other processors and systems have none.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod x86 {
    use super::{Out, Tile};

    pub fn has_amx() -> bool {
        false
    }

    pub unsafe fn split(_x: &[f32], _inner: usize, _tiles: &mut [Tile]) {}

    pub unsafe fn multiply(_left: &[Tile], _num_rows: usize, _panel: &[Tile], _out: Out<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_weight_has_a_place_and_the_rest_is_zero() {
        for inner in [1, 31, 32, 33, 100] {
            let mut panel = vec![Tile::default(); tiles_per_panel(inner)];
            // Bf16 from 1 on are different numbers.
            let value = |k: usize, column: usize| {
                Bf16::exactly(f32::from_bits((0x3f80 + (k * PANEL + column) as u32) << 16)).expect("its lower half is zero")
            };
            let places = || (0..inner).flat_map(|k| (0..PANEL).map(move |column| (k, column)));
            places().for_each(|(k, column)| set_weight(&mut panel, k, column, value(k, column)));
            assert!(places().all(|(k, column)| weight(&panel, k, column) == value(k, column)), "{inner}");
            let num_weights = panel.iter().flat_map(|tile| tile.0).filter(|weight| *weight != Bf16::default()).count();
            assert_eq!(num_weights, inner * PANEL);
        }
    }

    #[test]
    fn a_number_is_the_sum_of_its_pieces() {
        if !has_amx() {
            eprintln!("skipped: this processor has no AMX");
            return;
        }
        let bits = [
            0,
            0x8000_0000,
            0x3f80_0000,
            0x3fff_ffff,
            0xc2f7_3a51,
            0x0c00_0001,
            0x0c7f_ffff,
            f32::MAX.to_bits(),
            f32::MIN.to_bits(),
            0x4b7f_ffff,
        ];
        // Two rows that begin at different lanes, and end within a tile.
        for inner in [bits.len(), 32 + bits.len(), 16] {
            let x: Vec<f32> = (0..2 * inner).map(|at| f32::from_bits(bits[(at * 7 + at / inner) % bits.len()])).collect();
            let left = LeftTiles::of(&x, inner);
            for (at, value) in x.iter().enumerate() {
                let (row, k) = (at / inner, at % inner);
                let pieces = &left.tiles[k / STEP * PIECES..][..PIECES];
                let sum: f64 = pieces.iter().map(|tile| f64::from(f32::from(tile.0[row * STEP + k % STEP]))).sum();
                assert_eq!(sum, f64::from(*value), "{value:e}");
            }
        }
        // A number that is none has no piece of one.
        let left = LeftTiles::of(&[f32::NAN, f32::from_bits(0x7f80_0001)], 2);
        let sums = [0, 1].map(|at| left.tiles[..PIECES].iter().map(|tile| f32::from(tile.0[at])).sum::<f32>());
        assert!(sums.iter().all(|sum| sum.is_nan()));
    }

    #[test]
    fn rows_are_split_alike_by_all_threads() {
        if !has_amx() {
            eprintln!("skipped: this processor has no AMX");
            return;
        }
        let (rows, inner) = (75, 1800);
        let x: Vec<f32> = (0..rows * inner).map(|at| (at % 1013) as f32 / 7.0).collect();
        assert!(x.len() > PARALLEL_VALUES);
        let panel: Vec<Tile> =
            (0..tiles_per_panel(inner)).map(|at| Tile([Bf16::exactly((at % 5) as f32).unwrap_or_default(); ROWS * STEP])).collect();
        let product = |left: LeftTiles| {
            let mut out = vec![0.0; rows * PANEL];
            left.multiply(&panel, Out::new(&mut out, PANEL, PANEL));
            out
        };
        assert_eq!(product(LeftTiles::by_all_threads(&x, inner)), product(LeftTiles::of(&x, inner)));
    }

    #[test]
    fn a_product_has_its_place_or_is_refused() {
        if !has_amx() {
            eprintln!("skipped: this processor has no AMX");
            return;
        }
        let (left, panel) = (LeftTiles::of(&[1.0; 20 * 40], 40), vec![Tile::default(); tiles_per_panel(40)]);
        let mut out = vec![7.0; 19 * 50 + 30];
        left.multiply(&panel, Out::new(&mut out, 50, 30));
        assert!(out.chunks(50).all(|row| row[..30].iter().all(|value| *value == 0.0) && row[30..].iter().all(|value| *value == 7.0)));
        let refused = |panel: &[Tile], values: &mut [f32], add: bool| {
            let call = std::panic::AssertUnwindSafe(|| left.multiply(panel, Out::new(values, 50, 30).adding(add)));
            std::panic::catch_unwind(call).is_err()
        };
        assert!(refused(&panel, &mut out[1..], false), "a number too few");
        assert!(refused(&panel[1..], &mut out, false), "another panel");
        assert!(refused(&panel, &mut out, true), "tiles replace");
        LeftTiles::of(&[], 40).multiply(&[], Out::new(&mut [], 50, 30));
    }
}
