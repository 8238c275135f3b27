//! The tensors of a pool's blocks, one per layer.

use candle_core::{DType, Device, Tensor};

use super::plan::{Group, Heads};
use crate::error::{Error, Result};
use crate::models::kv_cache::BLOCK;

/// What is needed is rounded up to a multiple of so many blocks.
const BLOCKS_STEP: usize = 16;

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
    /// What candle's operations can number.
    blocks_max: usize,
    /// Up to which room is made ahead of need.
    budget: usize,
}

impl KvTensors {
    /// Tensors without room for any block.
    pub fn new(num_layers: usize, heads: Heads, dtype: DType, device: Device) -> Self {
        let blocks_max = u32::MAX as usize / (2 * heads.keys * BLOCK * heads.width);
        Self { num_layers, heads, dtype, device, layers: Vec::new(), capacity: 0, blocks_max, budget: usize::MAX }
    }

    /// From now on room is made ahead of need up to so many blocks only.
    pub fn set_budget(&mut self, blocks: usize) {
        self.budget = blocks;
    }

    /// As if candle's operations could number so many blocks.
    #[cfg(test)]
    pub fn set_blocks_max(&mut self, blocks: usize) {
        self.blocks_max = blocks;
    }

    /// Blocks for which there is room.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for so many blocks; within the budget, for half as many again as there were if that is more. Memory that was taken is kept until
    /// [`Self::clear`]; if the device has no room, all of it goes, and what was held with it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] beyond what candle's operations can number, [`Error::Tensor`] if the device has no room.
    pub fn grow(&mut self, blocks: usize) -> Result<()> {
        if blocks <= self.capacity {
            return Ok(());
        }
        if blocks > self.blocks_max {
            let message = "the keys and values in flight are more than a tensor on a device can have; run fewer sequences at once";
            return Err(Error::OutOfMemory(message.to_owned()));
        }
        let (held, before) = (std::mem::take(&mut self.layers), std::mem::take(&mut self.capacity));
        let ahead = (before + before / 2).min(self.budget);
        let capacity = blocks.next_multiple_of(BLOCKS_STEP).max(ahead).min(self.blocks_max);
        let num_heads = 2 * self.heads.keys;
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

    /// Gives all memory back, and lets go of what is held.
    pub fn clear(&mut self) {
        self.layers.clear();
        self.capacity = 0;
    }

    /// Writes zeros to these rows of `capacity * BLOCK`, in every layer.
    pub fn zero(&self, rows: &[u32]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let shape = (2 * self.heads.keys, rows.len(), self.heads.width);
        let to = Tensor::new(rows, &self.device)?.reshape((1, rows.len(), 1))?.broadcast_as(shape)?.contiguous()?;
        let zeros = Tensor::zeros(shape, self.dtype, &self.device)?;
        for tensor in &self.layers {
            tensor.scatter_set(&to, &zeros, 1)?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Heads = Heads { queries: 2, keys: 1, width: 2 };

    #[test]
    fn room_is_made_ahead_of_need_within_the_budget() {
        let grown = |budget: usize, blocks_max: usize| {
            let mut tensors = KvTensors::new(1, HEADS, DType::F32, Device::Cpu);
            tensors.set_budget(budget);
            tensors.set_blocks_max(blocks_max);
            [1, 90, 97, 125].map(|blocks| tensors.grow(blocks).map(|()| tensors.capacity()).ok())
        };
        assert_eq!(grown(usize::MAX, usize::MAX), [Some(16), Some(96), Some(144), Some(144)]);
        assert_eq!(grown(120, usize::MAX), [Some(16), Some(96), Some(120), Some(128)], "what is needed is made anyway");
        assert_eq!(grown(0, 97), [Some(16), Some(96), Some(97), None]);
    }

    #[test]
    fn zeros_are_written_to_the_rows_alone() {
        let mut tensors = KvTensors::new(2, HEADS, DType::F32, Device::Cpu);
        tensors.grow(1).unwrap();
        tensors.layers().for_each(|layer| layer.one_set().unwrap());
        tensors.zero(&[3, 40]).unwrap();
        for layer in tensors.layers() {
            for head in layer.to_vec3::<f32>().unwrap() {
                let zeros: Vec<usize> = (0..head.len()).filter(|row| head[*row] == [0.0; 2]).collect();
                assert_eq!((zeros, head.iter().filter(|row| **row == [1.0; 2]).count()), (vec![3, 40], head.len() - 2));
            }
        }
        tensors.clear();
        assert_eq!((tensors.capacity(), tensors.layers().count()), (0, 0));
    }
}
