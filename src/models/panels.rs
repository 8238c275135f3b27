//! Weight matrices packed for inference, where a row of a product does not depend on the other rows.
//!
//! A general matrix library picks its kernel by the number of rows, so a token's numbers would change with what else is in the
//! batch. With `kernel.rs` each result is one sum in a fixed order: a sequence decodes to the same bits alone, in a batch, in
//! pieces, or after a cached prefix. The weights lie in panels of columns, which a single row streams through once.

use rayon::prelude::*;

use super::kernel::{Left, Out, PANEL, Panel, multiply_panel};
use super::scratch::Scratch;

/// Multiply-adds below which a product stays on the calling thread: handing work over costs some microseconds.
const PARALLEL_WORK: usize = 1 << 22;
/// Rows per parallel task of a tall product; a multiple of the kernel's blocks.
const ROWS_PER_TASK: usize = 96;

/// A weight matrix `[output, input]`, packed for `x Wᵀ`: panel `p` holds columns `p * PANEL ..` as `[input, PANEL]`, zero-padded.
#[derive(Debug)]
pub struct PackedMatrix {
    panels: Vec<f32>,
    bias: Option<Vec<f32>>,
    input: usize,
    output: usize,
}

impl PackedMatrix {
    /// Packs the row-major matrices `[output_i, input]`, stacked along the output, and their biases.
    pub fn new(input: usize, matrices: &[&[f32]], biases: &[&[f32]]) -> Self {
        let output = matrices.iter().map(|matrix| matrix.len() / input).sum();
        let mut panels = vec![0.0; usize::div_ceil(output, PANEL) * PANEL * input];
        let rows = matrices.iter().flat_map(|matrix| matrix.chunks_exact(input));
        for (column, row) in rows.enumerate() {
            let panel = &mut panels[column / PANEL * PANEL * input..];
            row.iter().enumerate().for_each(|(k, value)| panel[k * PANEL + column % PANEL] = *value);
        }
        let bias = (!biases.is_empty()).then(|| biases.concat());
        Self { panels, bias, input, output }
    }

    /// Number of output columns.
    pub fn output(&self) -> usize {
        self.output
    }

    /// Row `index` of the matrix that was packed, written to `out` `[input]`.
    pub fn copy_row(&self, index: usize, out: &mut [f32]) {
        let panel = &self.panels[index / PANEL * PANEL * self.input..];
        out.iter_mut().enumerate().for_each(|(k, out)| *out = panel[k * PANEL + index % PANEL]);
    }

    /// `x Wᵀ + b`: `x` `[rows, input]`, gives `[rows, output]`.
    pub fn multiply(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len() / self.input * self.output];
        self.multiply_into(x, &mut out);
        out
    }

    /// As [`Self::multiply`], to `out`, all of which is written.
    pub fn multiply_into(&self, x: &[f32], out: &mut [f32]) {
        let rows = x.len() / self.input;
        if rows == 0 {
            return;
        }
        if rows * self.input * self.output < PARALLEL_WORK || rayon::current_num_threads() == 1 {
            self.multiply_rows(x, out);
        } else if rows >= 2 * ROWS_PER_TASK {
            let tasks = out.par_chunks_mut(ROWS_PER_TASK * self.output).zip(x.par_chunks(ROWS_PER_TASK * self.input));
            tasks.for_each(|(out, x)| self.multiply_rows(x, out));
        } else {
            self.multiply_by_panels(x, rows, out);
        }
    }

    fn multiply_rows(&self, x: &[f32], out: &mut [f32]) {
        let rows = x.len() / self.input;
        let x = Left::rows(x, self.input, self.input);
        for (index, panel) in self.panels.chunks_exact(PANEL * self.input).enumerate() {
            let first = index * PANEL;
            let panel = Panel { values: panel, stride: PANEL, columns: PANEL };
            let width = PANEL.min(self.output - first);
            multiply_panel(x, rows, panel, 1.0, Out { values: &mut out[first..], stride: self.output, width, add: false });
        }
        self.add_bias(out);
    }

    /// For few rows and large weights: each task streams its own panels, then the pieces are put side by side.
    fn multiply_by_panels(&self, x: &[f32], rows: usize, out: &mut [f32]) {
        let x = Left::rows(x, self.input, self.input);
        let product = |panel: &[f32]| {
            let mut piece = Scratch::new(rows * PANEL);
            let panel = Panel { values: panel, stride: PANEL, columns: PANEL };
            multiply_panel(x, rows, panel, 1.0, Out { values: &mut piece, stride: PANEL, width: PANEL, add: false });
            piece
        };
        let pieces: Vec<Scratch> = self.panels.par_chunks_exact(PANEL * self.input).map(product).collect();
        for (row, out) in out.chunks_exact_mut(self.output).enumerate() {
            for (out, piece) in out.chunks_mut(PANEL).zip(&pieces) {
                out.copy_from_slice(&piece[row * PANEL..][..out.len()]);
            }
        }
        self.add_bias(out);
    }

    fn add_bias(&self, out: &mut [f32]) {
        if let Some(bias) = &self.bias {
            for row in out.chunks_exact_mut(self.output) {
                row.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
            }
        }
    }
}
