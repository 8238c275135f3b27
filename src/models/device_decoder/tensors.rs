//! The tensors of a pool's blocks, one per layer.

use candle_core::{DType, Device, Tensor};

use super::plan::{Group, Heads};
use crate::error::{Error, Result};
use crate::models::kv_cache::BLOCK;

/// Blocks for which there is room at least.
const BLOCKS_MIN: usize = 16;

/// Keys and values of all blocks of a pool: a tensor `[2 * key heads, capacity * BLOCK, head_dim]` for each layer, the heads of keys before those of
/// values.
///
/// Heads come first for two reasons. The head of a block is consecutive, so that one selection of rows gathers what products of attention want. And candle's
/// scatter on a GPU has a thread for each head and column, each of which writes all rows.
#[derive(Debug)]
pub(super) struct KvTensors {
    num_layers: usize,
    heads: Heads,
    dtype: DType,
    device: Device,
    /// None while there is no room for any block.
    layers: Vec<Tensor>,
    capacity: usize,
}

impl KvTensors {
    /// Tensors without room for any block.
    pub fn new(num_layers: usize, heads: Heads, dtype: DType, device: Device) -> Self {
        Self { num_layers, heads, dtype, device, layers: Vec::new(), capacity: 0 }
    }

    /// Blocks for which there is room.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for so many blocks, or for half as many again as there were if that is more. Memory that was taken is kept, except after an error: then
    /// all of it goes, and what was held with it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] beyond what candle's operations can number, [`Error::Tensor`] if the device has no room.
    pub fn grow(&mut self, blocks: usize) -> Result<()> {
        if blocks <= self.capacity {
            return Ok(());
        }
        let (held, before) = (std::mem::take(&mut self.layers), std::mem::take(&mut self.capacity));
        let capacity = blocks.max(before + before / 2).max(BLOCKS_MIN);
        let num_heads = 2 * self.heads.keys;
        if u32::try_from(num_heads * capacity * BLOCK * self.heads.width).is_err() {
            let message = "the keys and values in flight are more than a tensor on a device can have; run fewer sequences at once";
            return Err(Error::OutOfMemory(message.to_owned()));
        }
        // All zero: what was never written is multiplied by a weight of zero, and must be a number.
        let zeros = |blocks: usize| Tensor::zeros((num_heads, blocks * BLOCK, self.heads.width), self.dtype, &self.device);
        let layers: candle_core::Result<Vec<Tensor>> = if held.is_empty() {
            (0..self.num_layers).map(|_| zeros(capacity)).collect()
        } else {
            // One after the other: only one tensor is there twice at a time.
            held.into_iter().map(|tensor| Tensor::cat(&[&tensor, &zeros(capacity - before)?], 1)).collect()
        };
        (self.layers, self.capacity) = (layers?, capacity);
        Ok(())
    }

    /// Copies whole blocks, as (from, to); all are read before one is written.
    pub fn copy(&self, copies: &[(u32, u32)]) -> Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        let (from, to): (Vec<u32>, Vec<u32>) = copies.iter().copied().unzip();
        let (heads, width) = (2 * self.heads.keys, BLOCK * self.heads.width);
        let from = Tensor::new(from, &self.device)?;
        let to = Tensor::new(to, &self.device)?.reshape((1, copies.len(), 1))?.broadcast_as((heads, copies.len(), width))?.contiguous()?;
        for tensor in &self.layers {
            let blocks = tensor.reshape((heads, self.capacity, width))?;
            blocks.scatter_set(&to, &blocks.index_select(&from, 1)?, 1)?;
        }
        Ok(())
    }

    /// The tensor of every layer.
    pub fn layers(&self) -> impl Iterator<Item = &Tensor> {
        self.layers.iter()
    }
}

/// The keys and the values of a group from the tensor of a layer, each `[size * key heads, blocks * BLOCK, head_dim]`. `ids`: [`Group::keys`].
pub(super) fn gather(tensor: &Tensor, group: &Group, ids: &Tensor, heads: Heads) -> candle_core::Result<(Tensor, Tensor)> {
    let selected = tensor.reshape(((), BLOCK * heads.width))?.index_select(ids, 0)?;
    let selected = selected.reshape((2, group.size * heads.keys, group.blocks * BLOCK, heads.width))?;
    Ok((selected.get(0)?, selected.get(1)?))
}
