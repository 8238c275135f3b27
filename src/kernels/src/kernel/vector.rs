//! Vector registers, and the types of weights that are loaded to them.

use super::multiply_panel_of;
use super::operands::{Left, Out, Panel};
use crate::simd::Instructions;

/// The upper half of an f32 whose lower half is zero, as published weights are.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
#[repr(transparent)]
pub struct Bf16(u16);

impl Bf16 {
    /// None if the lower half is not zero.
    pub fn exactly(value: f32) -> Option<Self> {
        let bits = value.to_bits();
        (bits & 0xffff == 0).then_some(Self((bits >> 16) as u16))
    }
}

impl From<Bf16> for f32 {
    #[inline(always)]
    fn from(value: Bf16) -> Self {
        Self::from_bits(u32::from(value.0) << 16)
    }
}

/// What the numbers of a panel are kept as.
pub trait Weight: Copy {
    /// The `LANES` numbers from `at`.
    ///
    /// # Safety
    /// They are there, and the running processor has the instructions of `V`.
    unsafe fn load<V: Vector>(at: *const Self) -> V;

    /// [`multiply_panel_with`](super::multiply_panel_with). A function of each type, for it to be compiled here, with all optimisation: what is generic is compiled
    /// where it is used.
    ///
    /// # Safety
    /// As of that.
    unsafe fn multiply_panel(instructions: Instructions, left: Left<'_>, num_rows: usize, panel: Panel<'_, Self>, scale: f32, out: Out<'_>);
}

impl Weight for f32 {
    #[inline(always)]
    unsafe fn load<V: Vector>(at: *const Self) -> V {
        // SAFETY: the caller's.
        unsafe { V::load(at) }
    }

    unsafe fn multiply_panel(
        instructions: Instructions,
        left: Left<'_>,
        num_rows: usize,
        panel: Panel<'_, Self>,
        scale: f32,
        out: Out<'_>,
    ) {
        // SAFETY: the caller's.
        unsafe { multiply_panel_of(instructions, left, num_rows, panel, scale, out) }
    }
}

impl Weight for Bf16 {
    #[inline(always)]
    unsafe fn load<V: Vector>(at: *const Self) -> V {
        // SAFETY: the caller's; the type is that of its only field.
        unsafe { V::load_upper_halves(at.cast()) }
    }

    unsafe fn multiply_panel(
        instructions: Instructions,
        left: Left<'_>,
        num_rows: usize,
        panel: Panel<'_, Self>,
        scale: f32,
        out: Out<'_>,
    ) {
        // SAFETY: the caller's.
        unsafe { multiply_panel_of(instructions, left, num_rows, panel, scale, out) }
    }
}

/// A vector register of f32.
pub trait Vector: Copy {
    const LANES: usize;
    /// A register of zeros.
    unsafe fn zero() -> Self;
    /// The `LANES` values from `at`.
    unsafe fn load(at: *const f32) -> Self;
    /// The `LANES` values whose upper halves are from `at`, and whose lower halves are zero.
    unsafe fn load_upper_halves(at: *const u16) -> Self;
    unsafe fn store(self, at: *mut f32);
    /// `value` in every lane.
    unsafe fn splat(value: f32) -> Self;
    /// `self + left * right`, lane by lane.
    unsafe fn add_products(self, left: Self, right: Self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn multiply(self, other: Self) -> Self;
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
    unsafe fn load_upper_halves(at: *const u16) -> Self {
        // SAFETY: as for `load`.
        let halves = unsafe { at.cast::<[u16; 4]>().read() };
        halves.map(|half| f32::from_bits(u32::from(half) << 16))
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
        __m256, __m512, _mm_loadu_si128, _mm256_add_ps, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_fmadd_ps, _mm256_loadu_ps,
        _mm256_loadu_si256, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm512_add_ps,
        _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps,
        _mm512_slli_epi32, _mm512_storeu_ps,
    };

    use super::Vector;

    macro_rules! vector {
        (
            $register:ty, $lanes:literal, $zero:ident, $load:ident, $store:ident, $splat:ident, $fma:ident, $add:ident, $mul:ident,
            $load_halves:ident, $widen:ident, $shift:ident, $cast:ident
        ) => {
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
                unsafe fn load_upper_halves(at: *const u16) -> Self {
                    unsafe { $cast($shift::<16>($widen($load_halves(at.cast())))) }
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
        _mm512_mul_ps,
        _mm256_loadu_si256,
        _mm512_cvtepu16_epi32,
        _mm512_slli_epi32,
        _mm512_castsi512_ps
    );
    vector!(
        __m256,
        8,
        _mm256_setzero_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_set1_ps,
        _mm256_fmadd_ps,
        _mm256_add_ps,
        _mm256_mul_ps,
        _mm_loadu_si128,
        _mm256_cvtepu16_epi32,
        _mm256_slli_epi32,
        _mm256_castsi256_ps
    );
}
