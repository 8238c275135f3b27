//! Keys and values of sequences, in blocks that sequences with the same beginning share.

use std::fmt::Debug;
use std::sync::Arc;

use super::kernel::{HALF_PANEL, PANEL};

/// Tokens of one block: those whose keys are one panel of the products of attention.
pub const BLOCK: usize = PANEL;

/// Where the blocks of a cache come from: the machine's memory ([`KvShape`]), or a pool on a device.
pub trait BlockSource: Clone + Debug + Send + Sync {
    /// Keys and values of at most [`BLOCK`] tokens, of every layer. What is written to a clone does not change the other one.
    type Block: Clone + Debug + Send + Sync;

    /// A block of no tokens.
    fn new_block(&self) -> Self::Block;

    /// Memory of one block.
    fn block_bytes(&self) -> usize;
}

/// Keys and values of the tokens of one sequence, for every layer.
///
/// A row depends only on its token and those before it, so a prefix of a cache is the cache of the prefix. Whole blocks never change and are shared.
#[derive(Debug, Clone)]
pub struct KvCache<S: BlockSource = KvShape> {
    source: S,
    whole: Vec<Arc<S::Block>>,
    /// Blocks after the whole ones, that tokens are still written to.
    open: Vec<S::Block>,
    len: usize,
}

/// Heads of a cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KvShape {
    pub num_layers: usize,
    pub num_heads: usize,
    pub head_dim: usize,
}

/// Keys and values of at most [`BLOCK`] tokens: for each layer keys as a panel `[num_heads][head_dim][BLOCK]`, so that scores of a query are sums over
/// whole vectors of positions, then values as rows `[BLOCK][num_heads][value_width]`, padded to a multiple of half a panel.
#[derive(Debug, Clone)]
pub struct KvBlock(Box<[f32]>);

impl KvShape {
    /// Columns of one head's values in a block.
    fn value_width(&self) -> usize {
        self.head_dim.next_multiple_of(HALF_PANEL)
    }

    /// Floats of one head's keys in a block.
    pub(super) fn key_panel(&self) -> usize {
        self.head_dim * PANEL
    }

    /// Floats of one position's values.
    pub(super) fn value_row(&self) -> usize {
        self.num_heads * self.value_width()
    }

    /// First column of a head in a position's values.
    pub(super) fn value_column(&self, head: usize) -> usize {
        head * self.value_width()
    }

    fn layer_keys(&self) -> usize {
        self.num_heads * self.key_panel()
    }

    fn layer_floats(&self) -> usize {
        self.layer_keys() + BLOCK * self.value_row()
    }

    /// Memory of one block.
    pub fn block_bytes(&self) -> usize {
        self.num_layers * self.layer_floats() * size_of::<f32>()
    }
}

impl BlockSource for KvShape {
    type Block = KvBlock;

    fn new_block(&self) -> KvBlock {
        KvBlock(vec![0.0; self.num_layers * self.layer_floats()].into())
    }

    fn block_bytes(&self) -> usize {
        KvShape::block_bytes(self)
    }
}

impl KvBlock {
    /// Keys `[num_heads][head_dim][BLOCK]` and values `[BLOCK][num_heads][value_width]` of one layer.
    pub(super) fn layer(&self, shape: KvShape, layer: usize) -> (&[f32], &[f32]) {
        self.0[layer * shape.layer_floats()..][..shape.layer_floats()].split_at(shape.layer_keys())
    }

    fn set(&mut self, shape: KvShape, layer: usize, offset: usize, key: &[f32], value: &[f32]) {
        let (keys, values) = self.0[layer * shape.layer_floats()..][..shape.layer_floats()].split_at_mut(shape.layer_keys());
        key.iter().enumerate().for_each(|(column, key)| keys[column * PANEL + offset] = *key);
        let row = &mut values[offset * shape.value_row()..][..shape.value_row()];
        for (row, head) in row.chunks_exact_mut(shape.value_width()).zip(value.chunks_exact(shape.head_dim)) {
            row[..shape.head_dim].copy_from_slice(head);
        }
    }
}

impl<S: BlockSource> KvCache<S> {
    /// An empty cache.
    pub fn new(source: S) -> Self {
        Self { source, whole: Vec::new(), open: Vec::new(), len: 0 }
    }

    /// The cache of a sequence that begins with whole blocks and, if `rest` is there, with the first tokens of another block.
    pub(super) fn of_blocks(source: S, whole: Vec<Arc<S::Block>>, rest: Option<(&S::Block, usize)>) -> Self {
        let len = whole.len() * BLOCK + rest.map_or(0, |(_, count)| count);
        Self { source, whole, open: rest.map(|(block, _)| block.clone()).into_iter().collect(), len }
    }

    /// Number of tokens whose keys and values are held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no token is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The cache of the first `len` tokens: shares their whole blocks, and copies at most one.
    pub fn prefix(&self, len: usize) -> Self {
        let (whole, rest) = (len / BLOCK, len % BLOCK);
        let block = self.blocks().nth(whole).filter(|_| rest > 0);
        Self::of_blocks(self.source.clone(), self.whole[..whole].to_vec(), block.map(|block| (block, rest)))
    }

    /// The blocks that tokens were written to, for others to share, in order.
    pub(super) fn into_shared(self) -> impl Iterator<Item = Arc<S::Block>> {
        let num_blocks = self.len.div_ceil(BLOCK);
        self.whole.into_iter().chain(self.open.into_iter().map(Arc::new)).take(num_blocks)
    }

    /// All blocks, in the order of their tokens.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &S::Block> {
        self.whole.iter().map(|block| &**block).chain(&self.open)
    }

    /// Opens the blocks that sequences of `len` tokens have.
    pub(super) fn make_room(&mut self, len: usize) {
        while (self.whole.len() + self.open.len()) * BLOCK < len {
            self.open.push(self.source.new_block());
        }
    }

    /// Counts the tokens that were written to every layer.
    pub(super) fn advance(&mut self, count: usize) {
        self.len += count;
        let full = self.len / BLOCK - self.whole.len();
        self.whole.extend(self.open.drain(..full).map(Arc::new));
    }
}

impl KvCache {
    /// Writes the key and value `[num_heads * head_dim]` of the token at `position`, not before [`Self::len`], to one layer.
    pub(super) fn push(&mut self, layer: usize, position: usize, key: &[f32], value: &[f32]) {
        self.make_room(position + 1);
        self.open[position / BLOCK - self.whole.len()].set(self.source, layer, position % BLOCK, key, value);
    }
}
