//! Keys and values of one sequence, laid out for the panel products of attention.

use super::kernel::{HALF_PANEL, PANEL};

/// Keys and values of the tokens of one sequence, for every layer.
///
/// A row depends only on its token and those before it, so a prefix of a cache is the cache of the prefix.
#[derive(Debug, Clone)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    shape: KvShape,
    len: usize,
}

/// Heads of a cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KvShape {
    pub num_layers: usize,
    pub num_heads: usize,
    pub head_dim: usize,
}

/// One layer: keys as panels `[len / PANEL][num_heads][head_dim][PANEL]`, values as rows `[len][num_heads][value_width]`.
///
/// A key panel holds [`PANEL`] positions, so that scores of a query are sums over whole vectors of positions. Values are padded
/// to `value_width`, a multiple of half a panel.
#[derive(Debug, Clone, Default)]
pub(super) struct LayerCache {
    pub(super) keys: Vec<f32>,
    pub(super) values: Vec<f32>,
}

impl KvShape {
    /// Columns of one head's values in the cache.
    pub(super) fn value_width(&self) -> usize {
        self.head_dim.next_multiple_of(HALF_PANEL)
    }

    /// Floats of one panel of keys.
    pub(super) fn key_panel(&self) -> usize {
        self.num_heads * self.head_dim * PANEL
    }

    /// Floats of one position's values.
    pub(super) fn value_row(&self) -> usize {
        self.num_heads * self.value_width()
    }
}

impl KvCache {
    /// An empty cache.
    pub fn new(shape: KvShape) -> Self {
        Self { layers: vec![LayerCache::default(); shape.num_layers], shape, len: 0 }
    }

    /// Number of tokens whose keys and values are held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no token is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A copy of the first `len` tokens.
    pub fn prefix(&self, len: usize) -> Self {
        let (keys, values) = (len.div_ceil(PANEL) * self.shape.key_panel(), len * self.shape.value_row());
        let cut = |layer: &LayerCache| LayerCache { keys: layer.keys[..keys].to_vec(), values: layer.values[..values].to_vec() };
        Self { layers: self.layers.iter().map(cut).collect(), shape: self.shape, len }
    }

    /// Drops all but the first `len` tokens.
    pub fn truncate(&mut self, len: usize) {
        for layer in &mut self.layers {
            layer.keys.truncate(len.div_ceil(PANEL) * self.shape.key_panel());
            layer.values.truncate(len * self.shape.value_row());
        }
        self.len = self.len.min(len);
    }

    /// Memory of the keys and values, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.layers.iter().map(|layer| (layer.keys.capacity() + layer.values.capacity()) * size_of::<f32>()).sum()
    }

    pub(super) fn layer(&self, index: usize) -> &LayerCache {
        &self.layers[index]
    }

    /// Appends the key and value `[num_heads * head_dim]` of the token at `position` to one layer.
    pub(super) fn push(&mut self, layer: usize, position: usize, key: &[f32], value: &[f32]) {
        let (shape, layer) = (self.shape, &mut self.layers[layer]);
        let (panel, lane) = (position / PANEL, position % PANEL);
        if lane == 0 {
            layer.keys.resize((panel + 1) * shape.key_panel(), 0.0);
        }
        let panel = &mut layer.keys[panel * shape.key_panel()..];
        key.iter().enumerate().for_each(|(column, key)| panel[column * PANEL + lane] = *key);
        for head in value.chunks_exact(shape.head_dim) {
            layer.values.extend_from_slice(head);
            layer.values.resize(layer.values.len() + shape.value_width() - shape.head_dim, 0.0);
        }
    }

    /// Counts the tokens that were pushed to every layer.
    pub(super) fn advance(&mut self, count: usize) {
        self.len += count;
    }
}
