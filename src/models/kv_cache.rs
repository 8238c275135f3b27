//! Keys and values of sequences, in blocks that sequences with the same beginning share.

use std::sync::Arc;

use super::kernel::{HALF_PANEL, PANEL};

/// Tokens of one block: those whose keys are one panel of the products of attention.
pub const BLOCK: usize = PANEL;

/// Keys and values of the tokens of one sequence, for every layer.
///
/// A row depends only on its token and those before it, so a prefix of a cache is the cache of the prefix. Whole blocks never change and are shared.
#[derive(Debug, Clone)]
pub struct KvCache {
    shape: KvShape,
    whole: Vec<Arc<KvBlock>>,
    /// Blocks after the whole ones, that tokens are still written to.
    open: Vec<KvBlock>,
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

impl KvBlock {
    fn new(shape: KvShape) -> Self {
        Self(vec![0.0; shape.num_layers * shape.layer_floats()].into())
    }

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

impl KvCache {
    /// An empty cache.
    pub fn new(shape: KvShape) -> Self {
        Self { shape, whole: Vec::new(), open: Vec::new(), len: 0 }
    }

    /// The cache of a sequence that begins with whole blocks and, if `rest` is there, with the first tokens of another block.
    pub(super) fn of_blocks(shape: KvShape, whole: Vec<Arc<KvBlock>>, rest: Option<(&KvBlock, usize)>) -> Self {
        let len = whole.len() * BLOCK + rest.map_or(0, |(_, count)| count);
        Self { shape, whole, open: rest.map(|(block, _)| block.clone()).into_iter().collect(), len }
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
        Self::of_blocks(self.shape, self.whole[..whole].to_vec(), block.map(|block| (block, rest)))
    }

    /// The block of this number for others to share: one that tokens are written to is copied.
    pub(super) fn share(&self, index: usize) -> Arc<KvBlock> {
        match self.whole.get(index) {
            Some(block) => Arc::clone(block),
            None => Arc::new(self.open[index - self.whole.len()].clone()),
        }
    }

    /// All blocks, in the order of their tokens.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &KvBlock> {
        self.whole.iter().map(|block| &**block).chain(&self.open)
    }

    /// Appends the key and value `[num_heads * head_dim]` of the token at `position`, not before [`Self::len`], to one layer.
    pub(super) fn push(&mut self, layer: usize, position: usize, key: &[f32], value: &[f32]) {
        let index = position / BLOCK - self.whole.len();
        while self.open.len() <= index {
            self.open.push(KvBlock::new(self.shape));
        }
        self.open[index].set(self.shape, layer, position % BLOCK, key, value);
    }

    /// Counts the tokens that were pushed to every layer.
    pub(super) fn advance(&mut self, count: usize) {
        self.len += count;
        let full = self.len / BLOCK - self.whole.len();
        self.whole.extend(self.open.drain(..full).map(Arc::new));
    }
}
