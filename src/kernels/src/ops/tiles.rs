//! Attention by candle's operations, tile by tile, with a backward of its own.
//!
//! candle's graph would keep some six copies of the scores of all rows and heads. Here the scores of some hundred rows exist at once, and the backward
//! computes them again. A device does better with few large products than with many small ones, so that a tile has all heads, and reaches over
//! trees: what a row does not see is masked.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorage, CudaStorage, CustomOp3, DType, Device, Error, Layout, Result, Shape, Storage, Tensor};
use candle_nn::ops::softmax_last_dim;

use super::attention::AttentionShape;
use super::forest::Forest;

/// Added to the scores of keys that a row does not see: no number is left of them, and none becomes infinite.
const UNSEEN: f64 = 1e30;

/// How large a tile is at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub rows: usize,
    /// Of all heads; a tile of one row may have more.
    pub scores: usize,
}

impl Limits {
    /// 256 MiB of f32, of which a few copies exist at once.
    pub const DEFAULT: Self = Self { rows: 512, scores: 1 << 26 };
}

/// How the attention over a forest is cut.
#[derive(Debug)]
pub struct Tiles {
    shape: AttentionShape,
    tiles: Vec<Tile>,
}

/// Consecutive query rows, and the keys from the first of their tree to the last of them.
#[derive(Debug)]
struct Tile {
    rows: Range<usize>,
    first_key: usize,
    /// `[1, rows, 1, keys]`: 0 where a row sees a key, -[`UNSEEN`] where not.
    mask: Tensor,
}

/// `[heads of keys, rows, head_dim]`, where the query heads of a key head are rows that follow each other.
struct Heads {
    query: Tensor,
    key: Tensor,
    value: Tensor,
}

impl Tiles {
    /// # Errors
    /// If the device has no memory left.
    pub fn new(shape: AttentionShape, limits: Limits, device: &Device) -> Result<Self> {
        let num_rows = shape.forest.num_tokens() as u32;
        let numbers = Tensor::arange(0, num_rows, device)?;
        let ends = Tensor::new(ends(&shape.forest), device)?;
        let tile = |(rows, first_key): (Range<usize>, usize)| {
            let num_keys = rows.end - first_key;
            let row_numbers = numbers.narrow(0, rows.start, rows.len())?.unsqueeze(1)?;
            let key = |of_keys: &Tensor| of_keys.narrow(0, first_key, num_keys)?.unsqueeze(0);
            // Trees lie depth first: a row sees what comes before it, and whose segment goes on behind it.
            let seen = row_numbers.broadcast_ge(&key(&numbers)?)?.to_dtype(DType::F32)?;
            let seen = (seen * row_numbers.broadcast_lt(&key(&ends)?)?.to_dtype(DType::F32)?)?;
            let mask = seen.affine(UNSEEN, -UNSEEN)?.reshape((1, rows.len(), 1, num_keys))?;
            Ok::<_, Error>(Tile { rows, first_key, mask })
        };
        let tiles = cut(&shape.forest, shape.num_heads, limits).into_iter().map(tile).collect::<Result<_>>()?;
        Ok(Self { shape, tiles })
    }

    fn heads(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Heads> {
        Ok(Heads { query: self.queries(query)?, key: self.keys(key)?, value: self.keys(value)? })
    }

    /// `[N, heads * head_dim]` with the heads first.
    fn queries(&self, x: &Tensor) -> Result<Tensor> {
        let (heads, group, width) = (self.shape.num_key_value_heads, self.shape.group(), self.shape.head_dim);
        let rows = x.dim(0)?;
        x.reshape((rows, heads, group, width))?.permute((1, 0, 2, 3))?.contiguous()?.reshape((heads, rows * group, width))
    }

    fn keys(&self, x: &Tensor) -> Result<Tensor> {
        x.reshape((x.dim(0)?, self.shape.num_key_value_heads, self.shape.head_dim))?.transpose(0, 1)?.contiguous()
    }

    /// What [`Self::queries`] made of rows.
    fn rows_of_queries(&self, x: &Tensor) -> Result<Tensor> {
        let (heads, rows, width) = x.dims3()?;
        let group = self.shape.group();
        let x = x.reshape((heads, rows / group, group, width))?.permute((1, 0, 2, 3))?.contiguous()?;
        x.reshape((rows / group, heads * group * width))
    }

    fn rows_of_keys(&self, x: &Tensor) -> Result<Tensor> {
        let (heads, rows, width) = x.dims3()?;
        x.transpose(0, 1)?.contiguous()?.reshape((rows, heads * width))
    }

    /// The rows of a tile among heads of queries.
    fn tile_of_queries(&self, x: &Tensor, tile: &Tile) -> Result<Tensor> {
        x.narrow(1, tile.rows.start * self.shape.group(), tile.rows.len() * self.shape.group())
    }

    /// f32 `[heads of keys, rows of queries, keys]`.
    fn weights(&self, query: &Tensor, key: &Tensor, tile: &Tile) -> Result<Tensor> {
        let scores = (query.matmul(&key.t()?)?.to_dtype(DType::F32)? * f64::from(self.shape.scale()))?;
        let (heads, rows, keys) = scores.dims3()?;
        let scores = scores.reshape((heads, tile.rows.len(), self.shape.group(), keys))?.broadcast_add(&tile.mask)?;
        softmax_last_dim(&scores)?.reshape((heads, rows, keys))
    }

    fn forward(&self, heads: &Heads) -> Result<Tensor> {
        let mixed = |tile: &Tile| {
            let query = self.tile_of_queries(&heads.query, tile)?;
            let weights = self.weights(&query, &tile.keys(&heads.key)?, tile)?;
            weights.to_dtype(heads.value.dtype())?.matmul(&tile.keys(&heads.value)?)
        };
        self.rows_of_queries(&Tensor::cat(&self.tiles.iter().map(mixed).collect::<Result<Vec<_>>>()?, 1)?)
    }

    /// With `P` the weights recomputed and `D = rowsum(dO O)`: `dV = Pᵀ dO`, `dS = P (dO Vᵀ − D)`, `dQ = c dS K`, `dK = c dSᵀ Q`.
    fn backward(&self, heads: &Heads, out: &Tensor, grad: &Tensor) -> Result<[Tensor; 3]> {
        let dtype = heads.query.dtype();
        let (out, grad) = (self.queries(out)?, self.queries(grad)?);
        let mut grad_query = Vec::with_capacity(self.tiles.len());
        let zeros = || Tensor::zeros(heads.key.shape(), DType::F32, heads.key.device());
        let (grad_key, grad_value) = (zeros()?, zeros()?);
        for tile in &self.tiles {
            let of_tile = |x: &Tensor| self.tile_of_queries(x, tile);
            let (query, out, grad) = (of_tile(&heads.query)?, of_tile(&out)?, of_tile(&grad)?);
            let (key, value) = (tile.keys(&heads.key)?, tile.keys(&heads.value)?);
            let weights = self.weights(&query, &key, tile)?;
            tile.add(&grad_value, &weights.to_dtype(dtype)?.t()?.matmul(&grad)?)?;
            let grad_weights = grad.matmul(&value.t()?)?.to_dtype(DType::F32)?;
            let sums = (out.to_dtype(DType::F32)? * grad.to_dtype(DType::F32)?)?.sum_keepdim(2)?;
            let grad_scores = ((weights * grad_weights.broadcast_sub(&sums)?)? * f64::from(self.shape.scale()))?.to_dtype(dtype)?;
            tile.add(&grad_key, &grad_scores.t()?.matmul(&query)?)?;
            grad_query.push(grad_scores.matmul(&key)?);
        }
        let grad_query = self.rows_of_queries(&Tensor::cat(&grad_query, 1)?)?;
        Ok([grad_query, self.rows_of_keys(&grad_key.to_dtype(dtype)?)?, self.rows_of_keys(&grad_value.to_dtype(dtype)?)?])
    }
}

impl Tile {
    /// Those that the tile sees, of heads of keys.
    fn keys(&self, x: &Tensor) -> Result<Tensor> {
        x.narrow(1, self.first_key, self.rows.end - self.first_key)
    }

    /// Adds what a tile gives to its keys.
    fn add(&self, sum: &Tensor, part: &Tensor) -> Result<()> {
        sum.slice_set(&(self.keys(sum)? + part.to_dtype(DType::F32)?)?, 1, self.first_key)
    }
}

/// See [`super::causal_attention`], in the type of its inputs, which they share.
///
/// # Errors
/// If shapes do not fit.
pub fn causal_attention(query: &Tensor, key: &Tensor, value: &Tensor, tiles: &Arc<Tiles>) -> Result<Tensor> {
    tiles.shape.check(query.dims2()?, key.dims2()?, value.dims2()?)?;
    if tiles.tiles.is_empty() {
        return query.copy();
    }
    let out = tiles.forward(&tiles.heads(&query.detach(), &key.detach(), &value.detach())?)?;
    if ![query, key, value].iter().any(|input| input.track_op()) {
        return Ok(out);
    }
    query.apply_op3(key, value, CausalAttention { tiles: Arc::clone(tiles), out: Mutex::new(Some(out)) })
}

struct CausalAttention {
    tiles: Arc<Tiles>,
    /// The result, until candle takes it: its custom operations get storages, and what is computed here are tensors.
    out: Mutex<Option<Tensor>>,
}

impl CausalAttention {
    fn result(&self) -> Result<(Storage, Shape)> {
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner).take();
        let out = out.ok_or_else(|| Error::Msg("attention was asked for its result twice".into()).bt())?;
        let (storage, layout) = out.storage_and_layout();
        Ok((storage.try_clone(layout)?, out.shape().clone()))
    }
}

impl CustomOp3 for CausalAttention {
    fn name(&self) -> &'static str {
        "attention_in_tiles"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        match self.result()? {
            (Storage::Cpu(storage), shape) => Ok((storage, shape)),
            _ => candle_core::bail!("attention was computed on another device"),
        }
    }

    fn cuda_fwd(
        &self,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        match self.result()? {
            (Storage::Cuda(storage), shape) => Ok((storage, shape)),
            _ => candle_core::bail!("attention was computed on another device"),
        }
    }

    fn bwd(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        out: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let heads = self.tiles.heads(&query.detach(), &key.detach(), &value.detach())?;
        let [query, key, value] = self.tiles.backward(&heads, &out.detach(), grad)?;
        Ok((Some(query), Some(key), Some(value)))
    }
}

/// For each row where the last branch of its segment ends.
fn ends(forest: &Forest) -> Vec<u32> {
    let segments = forest.segments();
    let mut ends: Vec<usize> = segments.iter().map(|segment| segment.rows.end).collect();
    // Branches come behind what they branch off from.
    for index in (0..segments.len()).rev() {
        if let Some(parent) = segments[index].parent {
            ends[parent] = ends[parent].max(ends[index]);
        }
    }
    segments.iter().zip(ends).flat_map(|(segment, end)| segment.rows.clone().map(move |_| end as u32)).collect()
}

/// Rows and first keys of all tiles. One that begins within a tree ends with it at the latest, so that the next one need not see its keys.
fn cut(forest: &Forest, num_heads: usize, limits: Limits) -> Vec<(Range<usize>, usize)> {
    let num_rows = forest.num_tokens();
    let mut tiles = Vec::new();
    let mut trees = forest.tree_rows().peekable();
    let mut start = 0;
    while start < num_rows {
        while trees.peek().is_some_and(|tree| tree.end <= start) {
            trees.next();
        }
        let Some(tree) = trees.peek() else { break };
        let end = if start == tree.start { num_rows } else { tree.end };
        let longest = (end - start).min(limits.rows.max(1));
        let fits = |rows: &usize| num_heads * rows * (start + rows - tree.start) <= limits.scores;
        let rows = (1..=longest).rev().find(fits).unwrap_or(1);
        tiles.push((start..start + rows, tree.start));
        start += rows;
    }
    tiles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_the_rows_once_and_see_their_trees() {
        let forest = Forest::depth_first([(0, 10), (1, 4), (1, 3), (0, 2), (0, 1), (1, 1)]);
        let all = |rows, scores| cut(&forest, 2, Limits { rows, scores });
        assert_eq!(all(100, usize::MAX), [(0..21, 0)]);
        assert_eq!(all(8, usize::MAX), [(0..8, 0), (8..16, 0), (16..17, 0), (17..21, 17)]);
        assert_eq!(all(8, 100), [(0..7, 0), (7..11, 0), (11..14, 0), (14..16, 0), (16..17, 0), (17..21, 17)]);
        assert_eq!(all(8, 1).len(), 21, "a row is never cut");
        assert!(cut(&Forest::default(), 2, Limits::DEFAULT).is_empty());
    }

    #[test]
    fn a_segment_ends_with_its_last_branch() {
        let forest = Forest::depth_first([(0, 2), (1, 1), (2, 2), (1, 1), (0, 1)]);
        assert_eq!(ends(&forest), [6, 6, 5, 5, 5, 6, 7]);
    }
}
