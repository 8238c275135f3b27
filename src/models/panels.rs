//! Weight matrices packed for inference, where a row of a product does not depend on the other rows.
//!
//! A general matrix library picks its kernel by the number of rows, so a token's numbers would change with what else is in the
//! batch. With `kernel.rs` each result is one sum in a fixed order: a sequence decodes to the same bits alone, in a batch, in
//! pieces, or after a cached prefix. The weights lie in panels of columns, which a single row streams through once. Weights that were published in bf16 stay
//! that: half the memory, which is what few rows wait for, and the same numbers. Processors with AMX have such weights in tiles, and products with other last bits.

use rayon::prelude::*;

use super::huge_pages;
use super::kernel::{
    Bf16, Fetch, Left, LeftTiles, Out, PANEL, Panel, SharedRows, Tile, has_amx, multiply_panel, set_weight, tiles_per_panel, weight,
};
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
/// Weights that a thread looks at together when they are packed.
const WEIGHTS_PER_TASK: usize = 1 << 16;
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

/// A weight matrix `[output, input]`, packed for `x Wᵀ`: panel `p` holds columns `p * PANEL ..`, zero-padded.
#[derive(Debug)]
pub struct PackedMatrix {
    panels: Panels,
    bias: Option<Vec<f32>>,
    input: usize,
    output: usize,
}

/// The panels one after the other, each `[input, PANEL]` or in tiles.
#[derive(Debug)]
enum Panels {
    Single(Vec<f32>),
    Halves(Vec<Bf16>),
    /// For AMX. Each panel in [`tiles_per_panel`] of them.
    Tiles(Vec<Tile>),
}

/// The rows of a product, as the panels take them.
enum Rows<'a> {
    Plain(Left<'a>),
    Tiles(LeftTiles),
}

impl PackedMatrix {
    /// Packs the row-major matrices `[output_i, input]`, stacked along the output, and their biases.
    pub fn new(input: usize, matrices: &[&[f32]], biases: &[&[f32]]) -> Self {
        Self::packed(input, matrices, biases, has_amx)
    }

    /// As [`Self::new`] on a processor without AMX.
    #[cfg(test)]
    pub fn without_tiles(input: usize, matrices: &[&[f32]], biases: &[&[f32]]) -> Self {
        Self::packed(input, matrices, biases, || false)
    }

    fn packed(input: usize, matrices: &[&[f32]], biases: &[&[f32]], has_amx: impl FnOnce() -> bool) -> Self {
        let output = matrices.iter().map(|matrix| matrix.len() / input).sum();
        let all = |is: fn(f32) -> bool| {
            let mut parts = matrices.iter().map(|matrix| matrix.par_chunks(WEIGHTS_PER_TASK));
            parts.all(|parts| parts.all(|part| part.iter().all(|value| is(*value))))
        };
        let half = |value| Bf16::exactly(value).unwrap_or_default();
        let panels = if !all(|value| Bf16::exactly(value).is_some()) {
            Panels::Single(packed(input, output, matrices, |value| value))
        } else if all(f32::is_finite) && has_amx() {
            Panels::Tiles(packed_tiles(input, output, matrices, half))
        } else {
            Panels::Halves(packed(input, output, matrices, half))
        };
        let bias = (!biases.is_empty()).then(|| biases.concat());
        Self { panels, bias, input, output }
    }

    /// Whether the weights are in tiles; None if they are kept in single precision.
    #[cfg(test)]
    pub fn has_tiles(&self) -> Option<bool> {
        match self.panels {
            Panels::Single(_) => None,
            Panels::Halves(_) => Some(false),
            Panels::Tiles(_) => Some(true),
        }
    }

    /// Number of output columns.
    pub fn output(&self) -> usize {
        self.output
    }

    /// Row `index` of the matrix that was packed, written to `out` `[input]`.
    pub fn copy_row(&self, index: usize, out: &mut [f32]) {
        let (panel, column) = (index / PANEL, index % PANEL);
        let place = |k: usize| (panel * self.input + k) * PANEL + column;
        match &self.panels {
            Panels::Single(values) => out.iter_mut().enumerate().for_each(|(k, out)| *out = values[place(k)]),
            Panels::Halves(values) => out.iter_mut().enumerate().for_each(|(k, out)| *out = values[place(k)].into()),
            Panels::Tiles(tiles) => {
                let panel = self.tiles(tiles, panel);
                out.iter_mut().enumerate().for_each(|(k, out)| *out = weight(panel, k, column).into());
            }
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
        let rows = self.rows(x, Threads::All);
        let multiply = |thread: usize| {
            shares.take(thread, |index, next| {
                // SAFETY: a panel is taken once.
                let columns = unsafe { out.columns(index * PANEL, self.width(index)) };
                self.multiply_panel(&rows, index, next, columns);
            });
        };
        (0..num_threads).into_par_iter().with_max_len(1).for_each(multiply);
    }

    /// Some rows after the others, as many as stay in the cache with what is made of them.
    fn multiply_rows(&self, x: &[f32], out: &mut [f32]) {
        for (x, out) in x.chunks(ROWS_PER_TASK_MAX * self.input).zip(out.chunks_mut(ROWS_PER_TASK_MAX * self.output)) {
            let rows = self.rows(x, Threads::One);
            for index in 0..self.num_panels() {
                let next = Some(index + 1).filter(|next| *next < self.num_panels());
                self.multiply_panel(&rows, index, next, Out::new(&mut out[index * PANEL..], self.output, self.width(index)));
            }
        }
    }

    fn rows<'a>(&self, x: &'a [f32], threads: Threads) -> Rows<'a> {
        match (&self.panels, threads) {
            (Panels::Tiles(_), Threads::One) => Rows::Tiles(LeftTiles::of(x, self.input)),
            (Panels::Tiles(_), Threads::All) => Rows::Tiles(LeftTiles::by_all_threads(x, self.input)),
            _ => Rows::Plain(Left::rows(x, self.input, self.input)),
        }
    }

    /// The columns of a panel of all rows, while the panel numbered `next` is fetched. (Of tiles it is the one behind this, which is the next but for what another
    /// thread has left.)
    fn multiply_panel(&self, rows: &Rows<'_>, index: usize, next: Option<usize>, out: Out<'_>) {
        let num_rows = match rows {
            Rows::Plain(left) => left.values.len() / self.input,
            Rows::Tiles(left) => left.num_rows(),
        };
        match (&self.panels, rows) {
            (Panels::Single(values), Rows::Plain(left)) => multiply_panel(*left, num_rows, self.panel(values, index, next), 1.0, out),
            (Panels::Halves(values), Rows::Plain(left)) => multiply_panel(*left, num_rows, self.panel(values, index, next), 1.0, out),
            (Panels::Tiles(tiles), Rows::Tiles(left)) => left.multiply(self.tiles(tiles, index), out),
            _ => unreachable!("rows are made for the panels"),
        }
        if let Some(bias) = &self.bias {
            out.add_bias(num_rows, &bias[index * PANEL..]);
        }
    }

    fn panel<'a, T>(&self, values: &'a [T], index: usize, next: Option<usize>) -> Panel<'a, T> {
        let len = PANEL * self.input;
        let next = next.filter(|_| size_of_val(values) > CACHED).map(|next| Fetch::of(&values[next * len..][..len]));
        Panel { next: next.unwrap_or_default(), ..Panel::new(&values[index * len..][..len], PANEL, PANEL) }
    }

    fn tiles<'a>(&self, tiles: &'a [Tile], index: usize) -> &'a [Tile] {
        let len = tiles_per_panel(self.input);
        &tiles[index * len..][..len]
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
fn packed<T: Copy + Default + Send>(input: usize, output: usize, matrices: &[&[f32]], of: impl Fn(f32) -> T + Sync) -> Vec<T> {
    pack(output, matrices, input, PANEL * input, |panel, column, k, value| panel[k * PANEL + column] = of(value))
}

/// As [`packed`], in tiles.
fn packed_tiles(input: usize, output: usize, matrices: &[&[f32]], of: impl Fn(f32) -> Bf16 + Sync) -> Vec<Tile> {
    pack(output, matrices, input, tiles_per_panel(input), |panel, column, k, value| set_weight(panel, k, column, of(value)))
}

/// Panels of `len` each, zeros but for what `set` writes of each column of a panel, each `k` and the weight there.
fn pack<T: Copy + Default + Send>(
    output: usize,
    matrices: &[&[f32]],
    input: usize,
    len: usize,
    set: impl Fn(&mut [T], usize, usize, f32) + Sync,
) -> Vec<T> {
    let num_values = output.div_ceil(PANEL) * len;
    let mut panels = Vec::with_capacity(num_values);
    huge_pages::advise(panels.spare_capacity_mut());
    panels.resize(num_values, T::default());
    let rows: Vec<&[f32]> = matrices.iter().flat_map(|matrix| matrix.chunks_exact(input)).collect();
    panels.par_chunks_exact_mut(len).zip(rows.par_chunks(PANEL)).for_each(|(panel, rows)| {
        for (column, row) in rows.iter().enumerate() {
            row.iter().enumerate().for_each(|(k, value)| set(panel, column, k, *value));
        }
    });
    panels
}
