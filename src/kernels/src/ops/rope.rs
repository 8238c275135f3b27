//! Rotary position embedding (arXiv:2104.09864), in Hugging Face's half-split layout.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::storage::{values, with_values};
use crate::simd::rotate;

/// Rows per parallel task.
const ROWS: usize = 128;

/// Cosines and sines of positions `0..len`, each `[len, head_dim / 2]`.
///
/// Angles are computed in f64 and rounded once: tables in the models' half types are wrong beyond position 256.
#[derive(Debug)]
pub struct RopeTable {
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// The table of positions `0..len`; `frequencies`: radians per position of each pair of a head, at least one; `magnitude`: what cosines and
    /// sines are multiplied by, 1 for a rotation.
    pub fn new(frequencies: &[f64], magnitude: f64, len: usize) -> Self {
        let half = frequencies.len();
        let angles = (0..len).flat_map(|position| frequencies.iter().map(move |frequency| position as f64 * frequency));
        let (sin, cos) = angles.map(|angle| ((magnitude * angle.sin()) as f32, (magnitude * angle.cos()) as f32)).unzip();
        Self { half, cos, sin }
    }

    /// Number of positions.
    pub fn len(&self) -> usize {
        self.cos.len() / self.half
    }

    /// Whether the table has no position.
    pub fn is_empty(&self) -> bool {
        self.cos.is_empty()
    }

    /// Cosines and sines `[head_dim / 2]` of one position below [`Self::len`].
    pub fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let range = position * self.half..(position + 1) * self.half;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

/// Rotary tables of one model, grown to the longest sequence seen.
#[derive(Debug)]
pub struct Rope {
    frequencies: Vec<f64>,
    magnitude: f64,
    table: Mutex<Arc<RopeTable>>,
}

impl Rope {
    /// Tables of heads of twice as many columns as there are `frequencies`, in radians per position; `magnitude` as in [`RopeTable::new`].
    pub fn new(frequencies: Vec<f64>, magnitude: f64) -> Self {
        let table = Mutex::new(Arc::new(RopeTable::new(&frequencies, magnitude, 1)));
        Self { frequencies, magnitude, table }
    }

    /// A table that holds at least the positions `0..len`.
    pub fn table(&self, len: usize) -> Arc<RopeTable> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() < len {
            *table = Arc::new(RopeTable::new(&self.frequencies, self.magnitude, len.next_power_of_two()));
        }
        Arc::clone(&table)
    }
}

/// Rotates every head of `x` `[N, heads * head_dim]` by its row's position, and makes it as many times longer as the table says. The backward rotates
/// the gradient back, and makes it longer too.
///
/// # Errors
/// If `positions` has not one entry per row, or one lies outside the table.
pub fn rope(x: &Tensor, positions: &Arc<[u32]>, table: &Arc<RopeTable>) -> Result<Tensor> {
    let rows = x.dim(0)?;
    if positions.len() != rows || positions.iter().any(|position| *position as usize >= table.len()) {
        candle_core::bail!("rope: {rows} rows, {} positions, a table of {}", positions.len(), table.len());
    }
    x.contiguous()?.apply_op1(Rotate { positions: Arc::clone(positions), table: Arc::clone(table) })
}

struct Rotate {
    positions: Arc<[u32]>,
    table: Arc<RopeTable>,
}

impl Rotate {
    /// Rotates by `+angle`, or by `-angle` when `sign` is -1.
    fn apply(&self, x: &[f32], width: usize, sign: f32) -> Vec<f32> {
        let mut out = x.to_vec();
        out.par_chunks_mut(ROWS * width).zip(self.positions.par_chunks(ROWS)).for_each(|(rows, positions)| {
            for (row, position) in rows.chunks_exact_mut(width).zip(positions) {
                let (cos, sin) = self.table.at(*position as usize);
                row.chunks_exact_mut(2 * self.table.half).for_each(|head| rotate(head, cos, sin, sign));
            }
        });
        out
    }
}

impl CustomOp1 for Rotate {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (_, width) = layout.shape().dims2()?;
        Ok((CpuStorage::F32(self.apply(values(x, layout)?, width, 1.0)), layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let (_, width) = x.dims2()?;
        let back = with_values(grad, |grad| Ok(self.apply(grad, width, -1.0)))?;
        Ok(Some(Tensor::from_vec(back, x.shape(), x.device())?))
    }
}
