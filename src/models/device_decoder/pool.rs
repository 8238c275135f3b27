//! Which blocks of a device's tensors are taken, and by what they are to be overwritten. What is in them is the decoder's matter.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::models::kv_cache::BlockSource;

/// The blocks of one policy on a device, by number. Handing one out touches no tensor: the next forward makes room for it.
#[derive(Debug)]
pub struct BlockPool {
    block_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Blocks that were given out since none was taken.
    len: u32,
    free: Vec<u32>,
    /// By the block that is to be written, the one whose content it gets, as this was after the last forward.
    copies: BTreeMap<u32, u32>,
}

/// A block of a pool, which has it back when this is dropped.
///
/// A clone is another block; the next forward copies its content before it writes anything.
#[derive(Debug)]
pub struct PooledBlock {
    pool: Arc<BlockPool>,
    index: u32,
    /// Until a forward asks.
    is_new: AtomicBool,
}

impl BlockPool {
    /// A pool of which no block is taken.
    pub(super) fn new(block_bytes: usize) -> Arc<Self> {
        Arc::new(Self { block_bytes, state: Mutex::default() })
    }

    /// Blocks that sequences and kept prefixes have.
    pub fn num_taken(&self) -> usize {
        let state = self.lock();
        state.len as usize - state.free.len()
    }

    /// How many blocks the tensors must have, and what is to be copied, as (from, to). All is to be read before anything is written.
    pub(super) fn begin_forward(&self) -> (usize, Vec<(u32, u32)>) {
        let mut state = self.lock();
        (state.len as usize, std::mem::take(&mut state.copies).into_iter().map(|(to, from)| (from, to)).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.len += 1;
            self.len - 1
        })
    }
}

impl BlockSource for Arc<BlockPool> {
    type Block = PooledBlock;

    fn new_block(&self) -> PooledBlock {
        let index = self.lock().take();
        PooledBlock::new(Arc::clone(self), index)
    }

    fn block_bytes(&self) -> usize {
        self.block_bytes
    }
}

impl PooledBlock {
    fn new(pool: Arc<BlockPool>, index: u32) -> Self {
        Self { pool, index, is_new: AtomicBool::new(true) }
    }

    /// Whether nobody has asked this before. Behind the tokens of a new block is what was written by those who had it before, or by those who had the
    /// block that it is a copy of.
    pub(super) fn take_new(&self) -> bool {
        self.is_new.swap(false, Ordering::Relaxed)
    }

    /// Its number in the tensors.
    pub(super) fn index(&self) -> u32 {
        self.index
    }
}

impl Clone for PooledBlock {
    fn clone(&self) -> Self {
        let mut state = self.pool.lock();
        let index = state.take();
        // A copy of a copy that is not made yet is one of the same block.
        let from = state.copies.get(&self.index).copied().unwrap_or(self.index);
        state.copies.insert(index, from);
        drop(state);
        Self::new(Arc::clone(&self.pool), index)
    }
}

impl Drop for PooledBlock {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.copies.remove(&self.index);
        state.free.push(self.index);
        if state.free.len() == state.len as usize {
            // From the start again: the next forward needs room for those alone that are given out until then.
            *state = State::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_and_are_given_out_again() {
        let pool = BlockPool::new(1);
        let [first, second] = [pool.new_block(), pool.new_block()];
        drop(first);
        assert_eq!((pool.num_taken(), pool.new_block().index()), (1, 0));
        drop(second);
        assert_eq!((pool.num_taken(), pool.begin_forward()), (0, (0, Vec::new())));
    }

    #[test]
    fn copies_are_of_what_was_there_after_the_last_forward() {
        let pool = BlockPool::new(1);
        let original = pool.new_block();
        let copy = original.clone();
        let copy_of_copy = copy.clone();
        // Its number is given out again, and nothing is written yet.
        drop(original);
        let other = pool.new_block();
        assert_eq!(other.index(), 0);
        let copy_of_other = other.clone();
        // Nobody wants this one any more.
        drop(copy);
        assert_eq!([copy_of_copy.index(), copy_of_other.index()], [2, 3]);
        assert_eq!(pool.begin_forward(), (4, vec![(0, 2), (0, 3)]));
        assert_eq!(pool.begin_forward(), (4, Vec::new()), "once");
    }
}
