//! Weight matrices packed for inference, where a row of a product does not depend on the other rows.
//!
//! A general matrix library picks its kernel by the number of rows, so a token's numbers would change with what else is in the
//! batch. With `kernel.rs` each result is one sum in a fixed order: a sequence decodes to the same bits alone, in a batch, in
//! pieces, or after a cached prefix. The weights lie in panels of columns, which a single row streams through once.

use std::ops::Range;

use rayon::prelude::*;

use super::kernel::{Left, Out, PANEL, Panel, multiply_panel};
use super::ops::Threads;
use super::scratch::Scratch;

/// Multiply-adds below which a product stays on the calling thread: handing work over costs some microseconds.
const PARALLEL_WORK: usize = 1 << 22;
/// Rows whose products take as long as reading the weights from memory, which fewer rows wait for.
const ROWS_OF_MEMORY: usize = 8;
/// Parts of the weights that each core multiplies with few rows: several, since a core may be held up.
const TASKS_PER_CORE: usize = 4;
/// The most rows of a parallel task, which stay in a core's cache with what is made of them.
const ROWS_PER_TASK_MAX: usize = 96;
/// Rows of a task are a multiple of it, so that few are left over from the kernel's blocks.
const ROWS_STEP: usize = 4;
/// With fewer rows for each core, cores that all read all weights wait for the memory.
const ROWS_PER_CORE_MIN: usize = 24;

/// Rows of each task of `rows` independent ones, so that all cores have about as many; None if they are too few for two tasks of `ROWS_PER_TASK_MAX`, or for
/// `ROWS_PER_CORE_MIN` on each core.
pub fn rows_per_task(rows: usize) -> Option<usize> {
    let num_threads = rayon::current_num_threads();
    if num_threads == 1 || rows < (2 * ROWS_PER_TASK_MAX).max(num_threads * ROWS_PER_CORE_MIN) {
        return None;
    }
    let num_tasks = num_threads * rows.div_ceil(num_threads * ROWS_PER_TASK_MAX);
    Some(rows.div_ceil(num_tasks).next_multiple_of(ROWS_STEP))
}

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
        self.multiply_into(x, &mut out, Threads::All);
        out
    }

    /// As [`Self::multiply`], to `out`, all of which is written.
    pub fn multiply_into(&self, x: &[f32], out: &mut [f32], threads: Threads) {
        let rows = x.len() / self.input;
        if rows == 0 {
            return;
        }
        let work = rows.max(ROWS_OF_MEMORY) * self.input * self.output;
        if threads == Threads::One || work < PARALLEL_WORK || rayon::current_num_threads() == 1 {
            self.multiply_rows(x, out);
        } else if let Some(len) = rows_per_task(rows) {
            let tasks = out.par_chunks_mut(len * self.output).zip(x.par_chunks(len * self.input));
            tasks.for_each(|(out, x)| self.multiply_rows(x, out));
        } else {
            self.multiply_by_panels(x, rows, out);
        }
    }

    fn multiply_rows(&self, x: &[f32], out: &mut [f32]) {
        self.multiply_panels(x, 0..self.num_panels(), out);
        self.add_bias(out);
    }

    /// For few rows and large weights: each task streams panels of its own, then what it made is put beside that of the others.
    fn multiply_by_panels(&self, x: &[f32], rows: usize, out: &mut [f32]) {
        let len = self.num_panels().div_ceil(TASKS_PER_CORE * rayon::current_num_threads());
        let product = |task: usize| {
            let panels = task * len..self.num_panels().min((task + 1) * len);
            let mut piece = Scratch::new(rows * self.num_columns(&panels));
            self.multiply_panels(x, panels, &mut piece);
            piece
        };
        let pieces: Vec<Scratch> = (0..self.num_panels().div_ceil(len)).into_par_iter().map(product).collect();
        for (row, out) in out.chunks_exact_mut(self.output).enumerate() {
            for (out, piece) in out.chunks_mut(len * PANEL).zip(&pieces) {
                out.copy_from_slice(&piece[row * out.len()..][..out.len()]);
            }
        }
        self.add_bias(out);
    }

    /// The columns of some panels, without bias, of all rows of `x`; `out` `[rows, columns]`.
    fn multiply_panels(&self, x: &[f32], panels: Range<usize>, out: &mut [f32]) {
        let (rows, stride, first_panel) = (x.len() / self.input, self.num_columns(&panels), panels.start);
        for index in panels {
            let first = (index - first_panel) * PANEL;
            let out = Out { values: &mut out[first..], stride, width: PANEL.min(stride - first), add: false };
            multiply_panel(Left::rows(x, self.input, self.input), rows, Panel::of(&self.panels, index, self.input), 1.0, out);
        }
    }

    fn num_panels(&self) -> usize {
        self.output.div_ceil(PANEL)
    }

    /// Of the matrix, in these panels.
    fn num_columns(&self, panels: &Range<usize>) -> usize {
        self.output.min(panels.end * PANEL) - panels.start * PANEL
    }

    fn add_bias(&self, out: &mut [f32]) {
        if let Some(bias) = &self.bias {
            for row in out.chunks_exact_mut(self.output) {
                row.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
            }
        }
    }
}
