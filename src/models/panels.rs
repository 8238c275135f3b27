//! Weight matrices packed for inference, where a row of a product does not depend on the other rows.
//!
//! A general matrix library picks its kernel by the number of rows, so a token's numbers would change with what else is in the
//! batch. With `kernel.rs` each result is one sum in a fixed order: a sequence decodes to the same bits alone, in a batch, in
//! pieces, or after a cached prefix. The weights lie in panels of columns, which a single row streams through once. Weights that were published in bf16 stay
//! that: half the memory, which is what few rows wait for, and the same numbers.

use rayon::prelude::*;

use super::huge_pages;
use super::kernel::{Bf16, Fetch, Left, Out, PANEL, Panel, SharedRows, multiply_panel};
use super::ops::Threads;
use super::shares::Shares;

/// Multiply-adds below which a product stays on the calling thread: handing work over costs some microseconds.
const PARALLEL_WORK: usize = 1 << 22;
/// Rows whose products take as long as reading the weights from memory, which fewer rows wait for.
const ROWS_OF_MEMORY: usize = 8;
/// The most rows of a parallel task, which stay in a core's cache with what is made of them.
const ROWS_PER_TASK_MAX: usize = 96;
/// Rows of a task are a multiple of it, so that few are left over from the kernel's blocks.
const ROWS_STEP: usize = 4;
/// With fewer rows for each core, cores that all read all weights wait for the memory.
const ROWS_PER_CORE_MIN: usize = 24;
/// Bytes of weights that stay in a core's own cache between two products.
const CACHED: usize = 1 << 20;

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
    panels: Panels,
    bias: Option<Vec<f32>>,
    input: usize,
    output: usize,
}

#[derive(Debug)]
enum Panels {
    Single(Vec<f32>),
    Halves(Vec<Bf16>),
}

impl PackedMatrix {
    /// Packs the row-major matrices `[output_i, input]`, stacked along the output, and their biases.
    pub fn new(input: usize, matrices: &[&[f32]], biases: &[&[f32]]) -> Self {
        let output = matrices.iter().map(|matrix| matrix.len() / input).sum();
        let panels = match matrices.iter().copied().flatten().all(|value| Bf16::exactly(*value).is_some()) {
            true => Panels::Halves(packed(input, output, matrices, |value| Bf16::exactly(value).unwrap_or_default())),
            false => Panels::Single(packed(input, output, matrices, |value| value)),
        };
        let bias = (!biases.is_empty()).then(|| biases.concat());
        Self { panels, bias, input, output }
    }

    /// Whether the weights are kept in bf16.
    #[cfg(test)]
    pub fn is_halves(&self) -> bool {
        matches!(self.panels, Panels::Halves(_))
    }

    /// Number of output columns.
    pub fn output(&self) -> usize {
        self.output
    }

    /// Row `index` of the matrix that was packed, written to `out` `[input]`.
    pub fn copy_row(&self, index: usize, out: &mut [f32]) {
        let first = index / PANEL * PANEL * self.input + index % PANEL;
        let places = out.iter_mut().enumerate().map(|(k, out)| (first + k * PANEL, out));
        match &self.panels {
            Panels::Single(values) => places.for_each(|(place, out)| *out = values[place]),
            Panels::Halves(values) => places.for_each(|(place, out)| *out = values[place].into()),
        }
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
            self.multiply_by_panels(x, out);
        }
    }

    /// For few rows and large weights: each thread reads panels of its own, one after the other, and at the end some that another has left.
    fn multiply_by_panels(&self, x: &[f32], out: &mut [f32]) {
        let num_threads = rayon::current_num_threads();
        let (shares, out) = (Shares::new(self.num_panels(), num_threads), SharedRows::new(out, self.output));
        let multiply = |thread: usize| {
            shares.take(thread, |index, next| {
                // SAFETY: a panel is taken once.
                let columns = unsafe { out.columns(index * PANEL, self.width(index)) };
                self.multiply_panel(x, index, next, columns);
            });
        };
        (0..num_threads).into_par_iter().with_max_len(1).for_each(multiply);
    }

    fn multiply_rows(&self, x: &[f32], out: &mut [f32]) {
        for index in 0..self.num_panels() {
            let next = Some(index + 1).filter(|next| *next < self.num_panels());
            self.multiply_panel(x, index, next, Out::new(&mut out[index * PANEL..], self.output, self.width(index)));
        }
    }

    /// The columns of a panel of all rows of `x`, while the panel numbered `next` is fetched.
    fn multiply_panel(&self, x: &[f32], index: usize, next: Option<usize>, out: Out<'_>) {
        let rows = x.len() / self.input;
        let left = Left::rows(x, self.input, self.input);
        match &self.panels {
            Panels::Single(values) => multiply_panel(left, rows, self.panel(values, index, next), 1.0, out),
            Panels::Halves(values) => multiply_panel(left, rows, self.panel(values, index, next), 1.0, out),
        }
        if let Some(bias) = &self.bias {
            out.add_bias(rows, &bias[index * PANEL..]);
        }
    }

    fn panel<'a, T>(&self, values: &'a [T], index: usize, next: Option<usize>) -> Panel<'a, T> {
        let len = PANEL * self.input;
        let next = next.filter(|_| size_of_val(values) > CACHED).map(|next| Fetch::of(&values[next * len..][..len]));
        Panel { next: next.unwrap_or_default(), ..Panel::new(&values[index * len..][..len], PANEL, PANEL) }
    }

    fn num_panels(&self) -> usize {
        self.output.div_ceil(PANEL)
    }

    /// Columns of the matrix in a panel.
    fn width(&self, index: usize) -> usize {
        PANEL.min(self.output - index * PANEL)
    }
}

/// The panels of the matrices `[output_i, input]`, which have `output` rows together.
fn packed<T: Copy + Default>(input: usize, output: usize, matrices: &[&[f32]], of: impl Fn(f32) -> T) -> Vec<T> {
    let len = output.div_ceil(PANEL) * PANEL * input;
    let mut panels = Vec::with_capacity(len);
    huge_pages::advise(panels.spare_capacity_mut());
    panels.resize(len, T::default());
    let rows = matrices.iter().flat_map(|matrix| matrix.chunks_exact(input));
    for (column, row) in rows.enumerate() {
        let panel = &mut panels[column / PANEL * PANEL * input..];
        row.iter().enumerate().for_each(|(k, value)| panel[k * PANEL + column % PANEL] = of(*value));
    }
    panels
}
