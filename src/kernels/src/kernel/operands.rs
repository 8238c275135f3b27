//! What a product is made of, and where it goes.

use std::cell::Cell;
use std::marker::PhantomData;

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

/// The right-hand side: `inner` rows of [`PANEL`](super::PANEL) or [`HALF_PANEL`](super::HALF_PANEL) consecutive columns, `stride` values apart.
#[derive(Clone, Copy)]
pub struct Panel<'a, T = f32> {
    pub values: &'a [T],
    pub stride: usize,
    /// [`PANEL`](super::PANEL) or [`HALF_PANEL`](super::HALF_PANEL).
    pub columns: usize,
    /// What is multiplied next, where that is likely to be in no cache: it is fetched meanwhile.
    pub next: Fetch<'a>,
}

impl<'a, T> Panel<'a, T> {
    /// A panel with another `stride` than its number of columns, or one whose next one is near.
    pub fn new(values: &'a [T], stride: usize, columns: usize) -> Self {
        Self { values, stride, columns, next: Fetch::default() }
    }
}

/// Memory that is fetched ahead of its use.
#[derive(Clone, Copy)]
pub struct Fetch<'a> {
    pub(super) at: *const u8,
    pub(super) num_lines: usize,
    memory: PhantomData<&'a [u8]>,
}

/// Bytes that memory gives at once.
pub(super) const CACHE_LINE: usize = 64;

impl<'a> Fetch<'a> {
    /// These values, up to the last whole line.
    pub fn of<T>(values: &'a [T]) -> Self {
        Self { at: values.as_ptr().cast(), num_lines: size_of_val(values) / CACHE_LINE, memory: PhantomData }
    }
}

impl Default for Fetch<'_> {
    /// Nothing.
    fn default() -> Self {
        Self::of::<u8>(&[])
    }
}

/// The destination: row `r` is `values[r * stride ..][.. width]`.
#[derive(Clone, Copy)]
pub struct Out<'a> {
    pub(super) values: &'a [Cell<f32>],
    pub(super) stride: usize,
    /// At most the panel's columns.
    pub(super) width: usize,
    /// Adds to what is there instead of replacing it.
    pub(super) add: bool,
}

impl<'a> Out<'a> {
    /// The first `width` columns of rows that are `stride` values apart, which are replaced.
    pub fn new(values: &'a mut [f32], stride: usize, width: usize) -> Self {
        Self { values: Cell::from_mut(values).as_slice_of_cells(), stride, width, add: false }
    }

    /// The same, where products are added to what is there if `add`.
    pub fn adding(self, add: bool) -> Self {
        Self { add, ..self }
    }

    /// Adds `bias` `[width]` to each of the first rows.
    pub fn add_bias(&self, num_rows: usize, bias: &[f32]) {
        for row in 0..num_rows {
            let row = &self.values[row * self.stride..][..self.width];
            row.iter().zip(bias).for_each(|(out, bias)| out.set(out.get() + bias));
        }
    }
}

/// A matrix of rows that several threads write, each other columns of it.
pub struct SharedRows<'a> {
    values: &'a [Cell<f32>],
    stride: usize,
}

// SAFETY: its values are reached through `columns` alone, whose callers have them for themselves.
unsafe impl Sync for SharedRows<'_> {}

impl<'a> SharedRows<'a> {
    /// Rows of `stride` values.
    pub fn new(values: &'a mut [f32], stride: usize) -> Self {
        Self { values: Cell::from_mut(values).as_slice_of_cells(), stride }
    }

    /// `width` columns of all rows.
    ///
    /// # Safety
    /// No other thread has one of these columns while what is returned is there.
    pub unsafe fn columns(&self, first: usize, width: usize) -> Out<'_> {
        Out { values: &self.values[first..], stride: self.stride, width, add: false }
    }
}
