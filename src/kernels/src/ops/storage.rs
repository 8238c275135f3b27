//! Access to the f32 values of CPU tensors, and the matrix product over strided slices.

use candle_core::{CpuStorage, Error, Layout, Result, Storage, Tensor};
use rayon::prelude::*;

use crate::kernel::{Left, Out, PANEL, Panel, multiply_panel};

/// The values of a contiguous f32 storage.
pub fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let (start, end) = layout.contiguous_offsets().ok_or_else(|| Error::Msg("a fused operation needs contiguous tensors".into()).bt())?;
    Ok(&storage.as_slice::<f32>()?[start..end])
}

/// Calls `read` with the values of a CPU tensor, made contiguous first if it is not.
pub fn with_values<T>(tensor: &Tensor, read: impl FnOnce(&[f32]) -> Result<T>) -> Result<T> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => read(values(storage, layout)?),
        _ => Err(Error::Msg("a fused operation got a tensor of another device".into()).bt()),
    }
}

/// A matrix inside a slice: element `(row, column)` is at `start + row * row_stride + column * column_stride`.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    values: &'a [f32],
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of `row_stride` values each, of which the first columns are used.
    pub fn rows(values: &'a [f32], row_stride: usize) -> Self {
        Self { values, row_stride, column_stride: 1 }
    }

    /// The transposed matrix, without a copy.
    pub fn transposed(self) -> Self {
        Self { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    fn skip_rows(self, row: usize) -> Self {
        Self { values: &self.values[row * self.row_stride..], ..self }
    }

    /// Copies `inner` rows of `width` columns into a panel; columns beyond keep what they hold, nobody reads their sums.
    fn pack(&self, first_row: usize, inner: usize, first_column: usize, width: usize, panel: &mut [f32]) {
        let values = &self.values[first_row * self.row_stride + first_column * self.column_stride..];
        if self.column_stride == 1 {
            for (k, target) in panel.chunks_exact_mut(PANEL).take(inner).enumerate() {
                target[..width].copy_from_slice(&values[k * self.row_stride..][..width]);
            }
        } else {
            for column in 0..width {
                let values = values[column * self.column_stride..].iter().step_by(self.row_stride);
                panel[column..].iter_mut().step_by(PANEL).zip(values).take(inner).for_each(|(target, value)| *target = *value);
            }
        }
    }
}

/// Where a product goes: row `r` is `values[r * stride ..]`.
pub struct Destination<'a> {
    pub values: &'a mut [f32],
    pub stride: usize,
    pub write: Write,
}

/// What a product does with the values that are already in its destination.
#[derive(Clone, Copy, PartialEq)]
pub enum Write {
    Replace,
    Add,
}

/// Whether a product may use all threads, or is one of many tasks already.
#[derive(Clone, Copy, PartialEq)]
pub enum Threads {
    One,
    All,
}

/// Values of the inner dimension per pass: a packed panel of so many rows stays in the first-level cache.
const INNER: usize = 256;
/// Rows of the result per parallel task.
const ROWS_PER_TASK: usize = 192;
/// Multiply-adds below which a product stays on the calling thread.
const PARALLEL_WORK: usize = 1 << 20;

/// `out[m, n] (+)= scale * left[m, k] right[k, n]`, `out` with rows of `out_stride` values.
///
/// The order of each sum does not depend on the number of threads.
///
/// # Panics
/// If a matrix does not lie inside its slice.
pub fn multiply(size: [usize; 3], left: Matrix<'_>, right: Matrix<'_>, scale: f32, out: Destination<'_>, threads: Threads) {
    let [m, k, n] = size;
    let Destination { values, stride, write } = out;
    let parallel = threads == Threads::All && m * n * k >= PARALLEL_WORK && m > ROWS_PER_TASK && rayon::current_num_threads() > 1;
    if !parallel {
        return multiply_rows(size, left, right, scale, values, stride, write);
    }
    values.par_chunks_mut(ROWS_PER_TASK * stride).take(m.div_ceil(ROWS_PER_TASK)).enumerate().for_each(|(task, values)| {
        let first = task * ROWS_PER_TASK;
        let size = [ROWS_PER_TASK.min(m - first), k, n];
        multiply_rows(size, left.skip_rows(first), right, scale, values, stride, write);
    });
}

fn multiply_rows([m, k, n]: [usize; 3], left: Matrix<'_>, right: Matrix<'_>, scale: f32, out: &mut [f32], stride: usize, write: Write) {
    if m == 0 || n == 0 {
        return;
    }
    if write == Write::Replace && k == 0 {
        (0..m).for_each(|row| out[row * stride..][..n].fill(0.0));
    }
    let mut packed = vec![0.0; INNER.min(k) * PANEL];
    for first in (0..k).step_by(INNER) {
        let inner = INNER.min(k - first);
        let left = Left {
            values: &left.values[first * left.column_stride..],
            row_stride: left.row_stride,
            inner_stride: left.column_stride,
            inner,
        };
        for column in (0..n).step_by(PANEL) {
            let width = PANEL.min(n - column);
            right.pack(first, inner, column, width, &mut packed);
            let panel = Panel::new(&packed, PANEL, PANEL);
            let out = Out::new(&mut out[column..], stride, width).adding(write == Write::Add || first > 0);
            multiply_panel(left, m, panel, scale, out);
        }
    }
}
