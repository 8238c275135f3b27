//! The values of encoded weights.
//!
//! The formulas are those of ggml's `dequantize_row_*`, and values equal its own bit for bit: each is a scale times a whole number plus an offset,
//! rounded once. Written with vector intrinsics for the reason that `kernel.rs` has: the compiler's own code for such loops comes and goes with
//! their shape, and is up to ten times slower.

use super::encoding::Encoding;
use super::simd::{Instructions, instructions, vectorised};

/// Values of a small block, and of a group of a large one.
const GROUP: usize = 32;
/// Values of a large block.
const SUPERBLOCK: usize = 256;

/// The values of whole blocks. What `bytes` has beyond the values of `out`, or `out` beyond those of `bytes`, is left as it is.
pub fn decode(encoding: Encoding, bytes: &[u8], out: &mut [f32]) {
    // SAFETY: these are the instructions of the running processor.
    unsafe { decode_with(instructions(), encoding, bytes, out) }
}

/// [`decode`] with given instructions.
///
/// # Safety
/// The running processor has the instructions.
pub unsafe fn decode_with(instructions: Instructions, encoding: Encoding, bytes: &[u8], out: &mut [f32]) {
    match instructions {
        // SAFETY: the processor has the instructions.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => unsafe { x86::avx512(encoding, bytes, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { x86::avx2(encoding, bytes, out) },
        // SAFETY: arrays need no special instructions.
        Instructions::Baseline => unsafe { all_blocks::<[u32; 4]>(encoding, bytes, out) },
    }
}

vectorised! {
    fn upper_halves(bytes: &[u8], out: &mut [f32]) {
        bytes.as_chunks().0.iter().zip(out).for_each(|(bytes, out)| *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16));
    }
}

/// Half precision to single, exactly.
#[inline(always)]
fn half(bytes: [u8; 2]) -> f32 {
    /// 2^112: what the bias of an exponent of eight bits has more than that of five.
    const REBIAS: u32 = 0x7780_0000;
    let bits = u32::from(u16::from_le_bytes(bytes));
    // Subnormal numbers come out right too, since the product is one of numbers.
    let finite = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(REBIAS);
    let endless = 0x7f80_0000 | ((bits & 0x3ff) << 13);
    let magnitude = if bits & 0x7c00 == 0x7c00 { endless } else { finite.to_bits() };
    f32::from_bits(magnitude | ((bits & 0x8000) << 16))
}

/// A register of whole numbers of 32 bits.
trait Lanes: Copy {
    const LANES: usize;
    /// The `LANES` bytes from `at`.
    unsafe fn load(at: *const u8) -> Self;
    /// The same, with a sign.
    unsafe fn load_signed(at: *const u8) -> Self;
    /// The lowest bits of a word, one in each lane.
    unsafe fn bits(word: u32) -> Self;
    unsafe fn and(self, mask: u32) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    unsafe fn shift_left(self, count: u32) -> Self;
    unsafe fn shift_right(self, count: u32) -> Self;
    /// Writes `scale * self + offset`, rounded once.
    unsafe fn write(self, line: Line, at: *mut f32);
    /// A number of half precision.
    unsafe fn half(bytes: [u8; 2]) -> f32;
    /// Writes `LANES` numbers of half precision.
    unsafe fn write_halves(from: *const u8, at: *mut f32);
}

/// # Safety
/// The running processor has the instructions of `L`.
#[inline(always)]
unsafe fn all_blocks<L: Lanes>(encoding: Encoding, bytes: &[u8], out: &mut [f32]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match encoding {
            Encoding::F16 => halves::<L>(bytes, out),
            Encoding::Bf16 => upper_halves(bytes, out),
            Encoding::Q4_0 => q4_0::<L>(bytes, out),
            Encoding::Q4_1 => q4_1::<L>(bytes, out),
            Encoding::Q5_0 => q5_0::<L>(bytes, out),
            Encoding::Q5_1 => q5_1::<L>(bytes, out),
            Encoding::Q8_0 => q8_0::<L>(bytes, out),
            Encoding::Q4K => q4_k::<L>(bytes, out),
            Encoding::Q5K => q5_k::<L>(bytes, out),
            Encoding::Q6K => q6_k::<L>(bytes, out),
        }
    }
}

/// Blocks with the places of their values.
#[inline(always)]
fn blocks<'a, const BYTES: usize, const VALUES: usize>(
    bytes: &'a [u8],
    out: &'a mut [f32],
) -> impl Iterator<Item = (&'a [u8; BYTES], &'a mut [f32; VALUES])> {
    bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0)
}

#[inline(always)]
unsafe fn halves<L: Lanes>(bytes: &[u8], out: &mut [f32]) {
    let (numbers, count) = (bytes.as_chunks::<2>().0, out.len().min(bytes.len() / 2));
    let whole = count - count % L::LANES;
    // SAFETY: the caller guarantees the instructions; both sides have as many numbers.
    unsafe {
        for i in (0..whole).step_by(L::LANES) {
            L::write_halves(numbers[i..].as_ptr().cast(), out.as_mut_ptr().add(i));
        }
        for (out, number) in out[whole..count].iter_mut().zip(&numbers[whole..]) {
            *out = L::half(*number);
        }
    }
}

/// The scale at the beginning of a block, or another number of half precision in it.
#[inline(always)]
unsafe fn half_at<L: Lanes>(block: &[u8], at: usize) -> f32 {
    // SAFETY: the caller guarantees the instructions.
    unsafe { L::half(*part(block, at)) }
}

#[inline(always)]
fn word_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*part(block, at))
}

/// What a value is made of: `scale * quant + offset`.
#[derive(Clone, Copy)]
struct Line {
    scale: f32,
    offset: f32,
}

/// A block of four bits from 16 bytes, whose lower bits are the first 16 values, with a fifth bit of each from a word.
#[inline(always)]
unsafe fn small_block<L: Lanes>(quants: &[u8; GROUP / 2], fifth_bits: Option<u32>, line: Line, out: &mut [f32; GROUP]) {
    // SAFETY: the caller guarantees the instructions; loads and stores are inside the arrays, whose sizes are multiples of the lanes.
    unsafe {
        for i in (0..GROUP / 2).step_by(L::LANES) {
            let both = L::load(quants.as_ptr().add(i));
            let (mut low, mut high) = (both.and(15), both.shift_right(4));
            if let Some(bits) = fifth_bits {
                low = low.or(L::bits(bits >> i).shift_left(4));
                high = high.or(L::bits(bits >> (i + GROUP / 2)).shift_left(4));
            }
            low.write(line, out.as_mut_ptr().add(i));
            high.write(line, out.as_mut_ptr().add(i + GROUP / 2));
        }
    }
}

#[inline(always)]
unsafe fn q4_0<L: Lanes>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in blocks::<18, GROUP>(bytes, out) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            let scale = half_at::<L>(block, 0);
            small_block::<L>(part(block, 2), None, Line { scale, offset: -8.0 * scale }, out);
        }
    }
}

#[inline(always)]
unsafe fn q4_1<L: Lanes>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in blocks::<20, GROUP>(bytes, out) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            let line = Line { scale: half_at::<L>(block, 0), offset: half_at::<L>(block, 2) };
            small_block::<L>(part(block, 4), None, line, out);
        }
    }
}

#[inline(always)]
unsafe fn q5_0<L: Lanes>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in blocks::<22, GROUP>(bytes, out) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            let scale = half_at::<L>(block, 0);
            small_block::<L>(part(block, 6), Some(word_at(block, 2)), Line { scale, offset: -16.0 * scale }, out);
        }
    }
}

#[inline(always)]
unsafe fn q5_1<L: Lanes>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in blocks::<24, GROUP>(bytes, out) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            let line = Line { scale: half_at::<L>(block, 0), offset: half_at::<L>(block, 2) };
            small_block::<L>(part(block, 8), Some(word_at(block, 4)), line, out);
        }
    }
}

#[inline(always)]
unsafe fn q8_0<L: Lanes>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in blocks::<34, GROUP>(bytes, out) {
        let quants = part::<GROUP>(block, 2);
        // SAFETY: the caller guarantees the instructions; loads and stores are inside the arrays, whose sizes are multiples of the lanes.
        unsafe {
            let line = Line { scale: half_at::<L>(block, 0), offset: 0.0 };
            for i in (0..GROUP).step_by(L::LANES) {
                L::load_signed(quants.as_ptr().add(i)).write(line, out.as_mut_ptr().add(i));
            }
        }
    }
}

/// The scales of the eight groups of a block and then their minimums, six bits each.
#[inline(always)]
fn scales_and_minimums(packed: &[u8; 12]) -> [u8; 16] {
    let [first, second, third] = [word_at(packed, 0), word_at(packed, 4), word_at(packed, 8)];
    let join = |first: u32, last: u32| u64::from(first) | (u64::from(last) << 32);
    // Those of the first four groups are six bits of a byte; of the last four the lower four bits are in the third word and the others on top of
    // the first.
    let scales = join(first & 0x3f3f_3f3f, (third & 0x0f0f_0f0f) | ((first >> 2) & 0x3030_3030));
    let minimums = join(second & 0x3f3f_3f3f, ((third >> 4) & 0x0f0f_0f0f) | ((second >> 2) & 0x3030_3030));
    (u128::from(scales) | (u128::from(minimums) << 64)).to_le_bytes()
}

/// Two groups of four or five bits from 32 bytes: the first has their lower bits. `fifth_bits`: a byte for each value, and at which of its bits
/// the first group has its own, before the second one's.
#[inline(always)]
unsafe fn pair_of_groups<L: Lanes>(
    quants: &[u8; GROUP],
    fifth_bits: Option<(&[u8; GROUP], u32)>,
    lines: [Line; 2],
    out: &mut [f32; 2 * GROUP],
) {
    // SAFETY: the caller guarantees the instructions; loads and stores are inside the arrays, whose sizes are multiples of the lanes.
    unsafe {
        for i in (0..GROUP).step_by(L::LANES) {
            let both = L::load(quants.as_ptr().add(i));
            let (mut low, mut high) = (both.and(15), both.shift_right(4));
            if let Some((bits, first)) = fifth_bits {
                let bits = L::load(bits.as_ptr().add(i)).shift_right(first);
                low = low.or(bits.and(1).shift_left(4));
                high = high.or(bits.and(2).shift_left(3));
            }
            low.write(lines[0], out.as_mut_ptr().add(i));
            high.write(lines[1], out.as_mut_ptr().add(i + GROUP));
        }
    }
}

/// The four pairs of groups of a block of [`Encoding::Q4K`] or [`Encoding::Q5K`].
#[inline(always)]
unsafe fn pairs_of_groups<L: Lanes>(
    block: &[u8],
    fifth_bits: Option<&[u8; GROUP]>,
    quants: &[u8; SUPERBLOCK / 2],
    out: &mut [f32; SUPERBLOCK],
) {
    // SAFETY: the caller guarantees the instructions.
    let (scale, minimum) = unsafe { (half_at::<L>(block, 0), half_at::<L>(block, 2)) };
    let packed = scales_and_minimums(part(block, 4));
    let mut numbers = [0.0; 16];
    for i in (0..16).step_by(L::LANES) {
        // SAFETY: as above; loads and stores are inside the arrays.
        unsafe { L::load(packed.as_ptr().add(i)).write(Line { scale: 1.0, offset: 0.0 }, numbers.as_mut_ptr().add(i)) }
    }
    let pairs = quants.as_chunks().0.iter().zip(out.as_chunks_mut().0);
    for (pair, (quants, out)) in pairs.enumerate() {
        let line = |group: usize| Line { scale: scale * numbers[group], offset: -(minimum * numbers[group + 8]) };
        let fifth_bits = fifth_bits.map(|bits| (bits, 2 * pair as u32));
        // SAFETY: as above.
        unsafe { pair_of_groups::<L>(quants, fifth_bits, [line(2 * pair), line(2 * pair + 1)], out) }
    }
}

#[inline(always)]
unsafe fn q4_k<L: Lanes>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in blocks::<144, SUPERBLOCK>(bytes, out) {
        // SAFETY: the caller guarantees the instructions.
        unsafe { pairs_of_groups::<L>(block, None, part(block, 16), out) }
    }
}

#[inline(always)]
unsafe fn q5_k<L: Lanes>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in blocks::<176, SUPERBLOCK>(bytes, out) {
        // SAFETY: the caller guarantees the instructions.
        unsafe { pairs_of_groups::<L>(block, Some(part(block, 16)), part(block, 48), out) }
    }
}

#[inline(always)]
unsafe fn q6_k<L: Lanes>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in blocks::<210, SUPERBLOCK>(bytes, out) {
        let (bytes, mut scales) = (part::<16>(block, 192), [0.0; 16]);
        // SAFETY: the caller guarantees the instructions; loads and stores are inside the arrays.
        unsafe {
            let line = Line { scale: half_at::<L>(block, 208), offset: 0.0 };
            for i in (0..16).step_by(L::LANES) {
                L::load_signed(bytes.as_ptr().add(i)).write(line, scales.as_mut_ptr().add(i));
            }
        }
        let halves = scales.as_chunks().0.iter().zip(out.as_chunks_mut().0);
        for (half, (scales, out)) in halves.enumerate() {
            // SAFETY: as above.
            unsafe { four_groups::<L>(part(block, 64 * half), part(block, 128 + 32 * half), scales, out) }
        }
    }
}

/// Half of a block of [`Encoding::Q6K`], four groups: `lower` has the lower four bits of two in its lower bits and those of the others in its
/// upper ones, `upper` the upper two bits of all. Each 16 values have a scale.
#[inline(always)]
unsafe fn four_groups<L: Lanes>(lower: &[u8; 2 * GROUP], upper: &[u8; GROUP], scales: &[f32; 8], out: &mut [f32; SUPERBLOCK / 2]) {
    // SAFETY: the caller guarantees the instructions; loads and stores are inside the arrays, whose sizes are multiples of the lanes.
    unsafe {
        for i in (0..GROUP).step_by(L::LANES) {
            let [a, b, c, d] = [0, 2, 4, 6].map(|group| {
                let scale = scales[group + i / (GROUP / 2)];
                Line { scale, offset: -32.0 * scale }
            });
            let (first, second) = (L::load(lower.as_ptr().add(i)), L::load(lower.as_ptr().add(i + GROUP)));
            let (upper, out) = (L::load(upper.as_ptr().add(i)), out.as_mut_ptr().add(i));
            first.and(15).or(upper.and(0x03).shift_left(4)).write(a, out);
            second.and(15).or(upper.and(0x0c).shift_left(2)).write(b, out.add(GROUP));
            first.shift_right(4).or(upper.and(0x30)).write(c, out.add(2 * GROUP));
            second.shift_right(4).or(upper.and(0xc0).shift_right(2)).write(d, out.add(3 * GROUP));
        }
    }
}

/// `N` bytes of a block.
#[inline(always)]
fn part<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a block has all of its parts")
}

/// For processors without AVX2.
impl Lanes for [u32; 4] {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: the caller guarantees four bytes.
        unsafe { at.cast::<[u8; 4]>().read() }.map(u32::from)
    }

    #[inline(always)]
    unsafe fn load_signed(at: *const u8) -> Self {
        // SAFETY: as above.
        unsafe { at.cast::<[i8; 4]>().read() }.map(|value| i32::from(value).cast_unsigned())
    }

    #[inline(always)]
    unsafe fn bits(word: u32) -> Self {
        std::array::from_fn(|lane| word >> lane & 1)
    }

    #[inline(always)]
    unsafe fn and(self, mask: u32) -> Self {
        self.map(|value| value & mask)
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        std::array::from_fn(|lane| self[lane] | other[lane])
    }

    #[inline(always)]
    unsafe fn shift_left(self, count: u32) -> Self {
        self.map(|value| value << count)
    }

    #[inline(always)]
    unsafe fn shift_right(self, count: u32) -> Self {
        self.map(|value| value >> count)
    }

    #[inline(always)]
    unsafe fn write(self, line: Line, at: *mut f32) {
        // Double precision holds product and sum exactly; a fused operation would be a call of a library.
        let value = |value: u32| (f64::from(value.cast_signed()) * f64::from(line.scale) + f64::from(line.offset)) as f32;
        // SAFETY: the caller guarantees four places.
        unsafe { at.cast::<[f32; 4]>().write(self.map(value)) }
    }

    #[inline(always)]
    unsafe fn half(bytes: [u8; 2]) -> f32 {
        half(bytes)
    }

    #[inline(always)]
    unsafe fn write_halves(from: *const u8, at: *mut f32) {
        // SAFETY: the caller guarantees four numbers and four places.
        unsafe { at.cast::<[f32; 4]>().write(from.cast::<[[u8; 2]; 4]>().read().map(half)) }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32, _mm_loadl_epi64, _mm_loadu_si128, _mm256_and_si256,
        _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_si256,
        _mm256_or_si256, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_sll_epi32, _mm256_srl_epi32, _mm256_srlv_epi32,
        _mm256_storeu_ps, _mm512_and_si512, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvtph_ps,
        _mm512_fmadd_ps, _mm512_or_si512, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setr_epi32, _mm512_sll_epi32, _mm512_srl_epi32,
        _mm512_srlv_epi32, _mm512_storeu_ps,
    };

    use super::{Encoding, Lanes, Line, all_blocks};

    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
    pub unsafe fn avx512(encoding: Encoding, bytes: &[u8], out: &mut [f32]) {
        // SAFETY: the caller guarantees the instructions.
        unsafe { all_blocks::<__m512i>(encoding, bytes, out) }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub unsafe fn avx2(encoding: Encoding, bytes: &[u8], out: &mut [f32]) {
        // SAFETY: as above.
        unsafe { all_blocks::<__m256i>(encoding, bytes, out) }
    }

    macro_rules! lanes {
        ($register:ty, $lanes:literal, $load:ident, $unsigned:ident, $signed:ident, $splat:ident, $order:expr, $and:ident, $or:ident,
         $shift_left:ident, $shift_right:ident, $shift_each:ident, $float:ident, $splat_float:ident, $fma:ident, $store:ident,
         $load_halves:ident, $halves:ident) => {
            // SAFETY of every call: only reached from the functions above, which enable the instructions.
            impl Lanes for $register {
                const LANES: usize = $lanes;

                #[inline(always)]
                unsafe fn load(at: *const u8) -> Self {
                    unsafe { $unsigned($load(at.cast())) }
                }

                #[inline(always)]
                unsafe fn load_signed(at: *const u8) -> Self {
                    unsafe { $signed($load(at.cast())) }
                }

                #[inline(always)]
                unsafe fn bits(word: u32) -> Self {
                    unsafe { $shift_each($splat(word.cast_signed()), $order).and(1) }
                }

                #[inline(always)]
                unsafe fn and(self, mask: u32) -> Self {
                    unsafe { $and(self, $splat(mask.cast_signed())) }
                }

                #[inline(always)]
                unsafe fn or(self, other: Self) -> Self {
                    unsafe { $or(self, other) }
                }

                #[inline(always)]
                unsafe fn shift_left(self, count: u32) -> Self {
                    unsafe { $shift_left(self, _mm_cvtsi32_si128(count.cast_signed())) }
                }

                #[inline(always)]
                unsafe fn shift_right(self, count: u32) -> Self {
                    unsafe { $shift_right(self, _mm_cvtsi32_si128(count.cast_signed())) }
                }

                #[inline(always)]
                unsafe fn write(self, line: Line, at: *mut f32) {
                    unsafe { $store(at, $fma($float(self), $splat_float(line.scale), $splat_float(line.offset))) }
                }

                #[inline(always)]
                unsafe fn half(bytes: [u8; 2]) -> f32 {
                    unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(u16::from_le_bytes(bytes).into()))) }
                }

                #[inline(always)]
                unsafe fn write_halves(from: *const u8, at: *mut f32) {
                    unsafe { $store(at, $halves($load_halves(from.cast()))) }
                }
            }
        };
    }

    lanes!(
        __m512i,
        16,
        _mm_loadu_si128,
        _mm512_cvtepu8_epi32,
        _mm512_cvtepi8_epi32,
        _mm512_set1_epi32,
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_and_si512,
        _mm512_or_si512,
        _mm512_sll_epi32,
        _mm512_srl_epi32,
        _mm512_srlv_epi32,
        _mm512_cvtepi32_ps,
        _mm512_set1_ps,
        _mm512_fmadd_ps,
        _mm512_storeu_ps,
        _mm256_loadu_si256,
        _mm512_cvtph_ps
    );
    lanes!(
        __m256i,
        8,
        _mm_loadl_epi64,
        _mm256_cvtepu8_epi32,
        _mm256_cvtepi8_epi32,
        _mm256_set1_epi32,
        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
        _mm256_and_si256,
        _mm256_or_si256,
        _mm256_sll_epi32,
        _mm256_srl_epi32,
        _mm256_srlv_epi32,
        _mm256_cvtepi32_ps,
        _mm256_set1_ps,
        _mm256_fmadd_ps,
        _mm256_storeu_ps,
        _mm_loadu_si128,
        _mm256_cvtph_ps
    );
}
