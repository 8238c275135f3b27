//! `x Wᵀ + b`.

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Device, Layout, Result, Shape, Tensor};

use super::storage::{Destination, Matrix, Threads, Write, multiply, values, with_values};

/// Linear layer: `x` `[N, I]`, `weight` `[O, I]`, `bias` `[O]` or none; gives `[N, O]`.
///
/// # Errors
/// If shapes do not fit.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let x = x.contiguous()?;
    match bias {
        Some(bias) => x.apply_op3(weight, bias, Linear),
        None => x.apply_op2(weight, Linear),
    }
}

struct Linear;

/// `(N, I, O)` of a product, checked.
pub(super) fn sizes(x: &Layout, weight: &Layout) -> Result<(usize, usize, usize)> {
    let (rows, input) = x.shape().dims2()?;
    let (output, weight_input) = weight.shape().dims2()?;
    if input != weight_input {
        candle_core::bail!("linear: x has width {input}, the weight expects {weight_input}");
    }
    Ok((rows, input, output))
}

fn forward(x: &[f32], weight: &[f32], bias: Option<&[f32]>, [rows, input, output]: [usize; 3]) -> Vec<f32> {
    let (mut out, write) = match bias {
        Some(bias) => (bias.repeat(rows), Write::Add),
        None => (vec![0.0; rows * output], Write::Replace),
    };
    let transposed = Matrix::rows(weight, input).transposed();
    let destination = Destination { values: &mut out, stride: output, write };
    multiply([rows, input, output], Matrix::rows(x, input), transposed, 1.0, destination, Threads::All);
    out
}

/// `dx = dy W` and `dW = dyᵀ x`, each only if a variable needs it: a frozen weight costs no product.
fn backward(x: &Tensor, weight: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let ((rows, input), output) = (x.dims2()?, weight.dim(0)?);
    let device = x.device();
    with_values(grad, |dy| {
        let dy = Matrix::rows(dy, output);
        let grad_x = || with_values(weight, |weight| product([rows, output, input], dy, Matrix::rows(weight, input), device));
        let grad_weight = || with_values(x, |x| product([output, rows, input], dy.transposed(), Matrix::rows(x, input), device));
        Ok((x.track_op().then(grad_x).transpose()?, weight.track_op().then(grad_weight).transpose()?))
    })
}

/// `left[m, k] right[k, n]` as a tensor.
fn product([m, k, n]: [usize; 3], left: Matrix<'_>, right: Matrix<'_>, device: &Device) -> Result<Tensor> {
    let mut values = vec![0.0_f32; m * n];
    multiply([m, k, n], left, right, 1.0, Destination { values: &mut values, stride: n, write: Write::Replace }, Threads::All);
    Tensor::from_vec(values, (m, n), device)
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, w: &CpuStorage, lw: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, input, output) = sizes(lx, lw)?;
        let out = forward(values(x, lx)?, values(w, lw)?, None, [rows, input, output]);
        Ok((CpuStorage::F32(out), (rows, output).into()))
    }

    fn bwd(&self, x: &Tensor, w: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        backward(x, w, grad)
    }
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear_bias"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        lx: &Layout,
        w: &CpuStorage,
        lw: &Layout,
        b: &CpuStorage,
        lb: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, input, output) = sizes(lx, lw)?;
        let bias = values(b, lb)?;
        if bias.len() != output {
            candle_core::bail!("linear: the bias has width {}, the weight gives {output}", bias.len());
        }
        let out = forward(values(x, lx)?, values(w, lw)?, Some(bias), [rows, input, output]);
        Ok((CpuStorage::F32(out), (rows, output).into()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        b: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (grad_x, grad_weight) = backward(x, w, grad)?;
        Ok((grad_x, grad_weight, b.track_op().then(|| grad.sum(0)).transpose()?))
    }
}
