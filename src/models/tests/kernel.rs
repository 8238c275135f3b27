//! The inner loop gives the same sums with every instruction set that the processor has, and the same bits where products and sums are one instruction.

use crate::models::kernel::{Bf16, Fetch, HALF_PANEL, Left, Out, PANEL, Panel, Weight, multiply_panel_with};
use crate::models::random::CounterRng;
use crate::models::simd::{Instructions, instructions};

/// What the running processor can do, all of it.
pub(super) fn available() -> Vec<Instructions> {
    match instructions() {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => vec![Instructions::Avx512, Instructions::Avx2, Instructions::Baseline],
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => vec![Instructions::Avx2, Instructions::Baseline],
        Instructions::Baseline => vec![Instructions::Baseline],
    }
}

fn random(len: usize, seed: u64) -> Vec<f32> {
    (0..len as u64).map(|i| CounterRng::new(seed).normal(i) as f32).collect()
}

/// The next number towards zero that bf16 has.
fn upper_half(value: f32) -> f32 {
    f32::from_bits(value.to_bits() & 0xffff_0000)
}

/// A product with any panel.
struct Product<'a> {
    instructions: Instructions,
    left: Left<'a>,
    rows: usize,
    /// What is where the product goes, in rows of 35.
    before: &'a [f32],
    width: usize,
    add: bool,
}

impl Product<'_> {
    fn with<T: Weight>(&self, panel: Panel<'_, T>) -> Vec<f32> {
        let mut found = self.before.to_vec();
        let out = Out::new(&mut found, 35, self.width).adding(self.add);
        // SAFETY: only instructions that the processor has are listed.
        unsafe { multiply_panel_with(self.instructions, self.left, self.rows, panel, 0.5, out) };
        found
    }
}

#[test]
fn every_instruction_set_gives_the_product() {
    for (rows, inner, columns, width, add) in [
        (1, 1, PANEL, 32, false),
        (7, 33, PANEL, 20, true),
        (13, 64, HALF_PANEL, 16, false),
        (3, 0, PANEL, 5, false),
        (31, 40, PANEL, 32, true),
        (23, 40, PANEL, 32, false),
        (20, 17, HALF_PANEL, 16, true),
    ] {
        let (left, before) = (random(rows * (inner + 3), 1), random(rows * 35, 3));
        let panel: Vec<f32> = random((inner + 1) * 40, 2).into_iter().map(upper_half).collect();
        let halves: Vec<Bf16> = panel.iter().map(|value| Bf16::exactly(*value).unwrap()).collect();
        let mut fused = Vec::new();
        for instructions in available() {
            let of = Product { instructions, left: Left::rows(&left, inner + 3, inner), rows, before: &before, width, add };
            let alone = Panel::new(&panel, 40, columns);
            let found = of.with(alone);
            assert_eq!(of.with(Panel { next: Fetch::of(&left), ..alone }), found, "{rows} rows: what is fetched ahead changes no sum");
            assert_eq!(of.with(Panel::new(&halves, 40, columns)), found, "{rows} rows: the same weights in bf16");
            for row in 0..rows {
                for column in 0..35 {
                    let sum: f64 = (0..inner).map(|k| f64::from(left[row * (inner + 3) + k]) * f64::from(panel[k * 40 + column])).sum();
                    let old = f64::from(before[row * 35 + column]);
                    let expected = if column >= width { old } else { 0.5 * sum + if add { old } else { 0.0 } };
                    assert!((f64::from(found[row * 35 + column]) - expected).abs() < 1e-4, "row {row}, column {column}");
                }
            }
            if !matches!(instructions, Instructions::Baseline) {
                fused.push(found);
            }
        }
        assert!(fused.windows(2).all(|both| both[0] == both[1]), "{rows} rows: AVX-512 and AVX2 differ");
    }
}

#[test]
#[should_panic(expected = "the panel lies inside its slice")]
fn a_panel_beyond_its_slice_is_refused() {
    let mut out = [0.0; PANEL];
    let out = Out::new(&mut out, PANEL, PANEL);
    let panel = Panel::new(&[0.0_f32; PANEL], PANEL, PANEL);
    crate::models::kernel::multiply_panel(Left::rows(&[1.0, 2.0], 2, 2), 1, panel, 1.0, out);
}
