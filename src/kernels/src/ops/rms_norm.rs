//! Root-mean-square normalisation (arXiv:1910.07467).

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::storage::{values, with_values};
use crate::simd::{rms_norm_row, rms_norm_row_backward};

/// Rows per parallel task. Fixed, so that the order of the sums in the backward does not depend on the number of threads.
const ROWS: usize = 128;

/// `x / sqrt(mean(x²) + eps) * weight` along the rows of `x` `[N, H]`; `weight` `[H]`.
///
/// # Errors
/// If the widths differ.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    x.contiguous()?.apply_op2(weight, RmsNorm { eps: eps as f32 })
}

struct RmsNorm {
    eps: f32,
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, weight: &CpuStorage, lw: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, width) = lx.shape().dims2()?;
        let (x, weight) = (values(x, lx)?, values(weight, lw)?);
        if weight.len() != width {
            candle_core::bail!("rms_norm: x has width {width}, the weight {}", weight.len());
        }
        let mut out = vec![0.0; rows * width];
        out.par_chunks_mut(ROWS * width).zip(x.par_chunks(ROWS * width)).for_each(|(out, x)| {
            let rows = out.chunks_exact_mut(width).zip(x.chunks_exact(width));
            rows.for_each(|(out, x)| rms_norm_row(x, weight, self.eps, out));
        });
        Ok((CpuStorage::F32(out), (rows, width).into()))
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (rows, width) = x.dims2()?;
        let mut grad_x = vec![0.0; rows * width];
        let mut grad_weight = vec![0.0; width];
        with_values(grad, |grad| {
            with_values(x, |x| {
                with_values(weight, |weight| {
                    for part in self.backward_parts(grad, x, weight, &mut grad_x) {
                        grad_weight.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
                    }
                    Ok(())
                })
            })
        })?;
        let device = x.device();
        let grad_x = x.track_op().then(|| Tensor::from_vec(grad_x, (rows, width), device)).transpose()?;
        // The sums of a frozen weight are a small part of the pass over the rows, so they are made all the same.
        let grad_weight = weight.track_op().then(|| Tensor::from_vec(grad_weight, width, device)).transpose()?;
        Ok((grad_x, grad_weight))
    }
}

impl RmsNorm {
    /// Writes `grad_x` and returns the weight's gradient of every block of rows.
    fn backward_parts(&self, grad: &[f32], x: &[f32], weight: &[f32], grad_x: &mut [f32]) -> Vec<Vec<f32>> {
        let width = weight.len();
        let blocks = grad_x.par_chunks_mut(ROWS * width).zip(grad.par_chunks(ROWS * width).zip(x.par_chunks(ROWS * width)));
        let part = |(grad_x, (grad, x)): (&mut [f32], (&[f32], &[f32]))| {
            let mut grad_weight = vec![0.0; width];
            let inputs = grad.chunks_exact(width).zip(x.chunks_exact(width));
            for (grad_x, (grad, x)) in grad_x.chunks_exact_mut(width).zip(inputs) {
                rms_norm_row_backward(grad, x, weight, self.eps, grad_x, &mut grad_weight);
            }
            grad_weight
        };
        blocks.map(part).collect()
    }
}
