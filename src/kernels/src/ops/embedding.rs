//! Rows of an embedding table.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};

use super::storage::{values, with_values};

/// The rows `ids` of `table` `[V, H]`, as `[N, H]`. The backward adds each row's gradient to its id's row.
///
/// # Errors
/// If an id is not below `V`.
pub fn embedding(table: &Tensor, ids: &[u32]) -> Result<Tensor> {
    table.apply_op1(Embedding { ids: ids.into() })
}

struct Embedding {
    ids: Arc<[u32]>,
}

impl CustomOp1 for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn cpu_fwd(&self, table: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (vocab, width) = layout.shape().dims2()?;
        let table = values(table, layout)?;
        let mut out = Vec::with_capacity(self.ids.len() * width);
        for &id in self.ids.iter() {
            let id = id as usize;
            if id >= vocab {
                candle_core::bail!("token id {id} is outside the vocabulary of {vocab}");
            }
            out.extend_from_slice(&table[id * width..][..width]);
        }
        Ok((CpuStorage::F32(out), (self.ids.len(), width).into()))
    }

    fn bwd(&self, table: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let (vocab, width) = table.dims2()?;
        let mut sum = vec![0.0_f32; vocab * width];
        with_values(grad, |grad| {
            for (&id, row) in self.ids.iter().zip(grad.chunks_exact(width)) {
                let target = &mut sum[id as usize * width..][..width];
                target.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
            Ok(())
        })?;
        Ok(Some(Tensor::from_vec(sum, (vocab, width), table.device())?))
    }
}
