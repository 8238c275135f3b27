//! The gate of SwiGLU: `silu(gate) * up`.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::storage::{values, with_values};
use crate::simd::{silu_mul_backward, silu_mul_forward};

/// Values per parallel task: large enough that the task costs more than its scheduling.
const CHUNK: usize = 1 << 14;

/// `silu(gate) * up`, elementwise over tensors of one shape.
///
/// # Errors
/// If the shapes differ.
pub fn silu_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.contiguous()?.apply_op2(&up.contiguous()?, SiluMul)
}

struct SiluMul;

impl CustomOp2 for SiluMul {
    fn name(&self) -> &'static str {
        "silu_mul"
    }

    fn cpu_fwd(&self, gate: &CpuStorage, lg: &Layout, up: &CpuStorage, lu: &Layout) -> Result<(CpuStorage, Shape)> {
        if lg.shape() != lu.shape() {
            candle_core::bail!("silu_mul: shapes {:?} and {:?} differ", lg.shape(), lu.shape());
        }
        let (gate, up) = (values(gate, lg)?, values(up, lu)?);
        let mut out = vec![0.0; gate.len()];
        out.par_chunks_mut(CHUNK)
            .zip(gate.par_chunks(CHUNK).zip(up.par_chunks(CHUNK)))
            .for_each(|(out, (gate, up))| silu_mul_forward(gate, up, out));
        Ok((CpuStorage::F32(out), lg.shape().clone()))
    }

    /// `du = dh silu(g)`, `dg = dh u σ (1 + g (1 − σ))`.
    fn bwd(&self, gate: &Tensor, up: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let mut grad_gate = vec![0.0; gate.elem_count()];
        let mut grad_up = vec![0.0; gate.elem_count()];
        with_values(grad, |grad| {
            with_values(gate, |gate| {
                with_values(up, |up| {
                    let inputs = grad.par_chunks(CHUNK).zip(gate.par_chunks(CHUNK).zip(up.par_chunks(CHUNK)));
                    let outputs = grad_gate.par_chunks_mut(CHUNK).zip(grad_up.par_chunks_mut(CHUNK));
                    outputs.zip(inputs).for_each(|((grad_gate, grad_up), (grad, (gate, up)))| {
                        silu_mul_backward(grad, gate, up, grad_gate, grad_up);
                    });
                    Ok(())
                })
            })
        })?;
        let tensor = |values| Tensor::from_vec(values, gate.shape(), gate.device());
        Ok((Some(tensor(grad_gate)?), Some(tensor(grad_up)?)))
    }
}
