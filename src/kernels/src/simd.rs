//! Elementwise kernels over f32 rows that the compiler turns into vector code.
//!
//! The binary is built for the oldest x86-64; each kernel is compiled again for AVX2 and AVX-512 and the best one that the
//! processor has is taken at run time. Kernels are plain loops over fixed lanes: sums are kept per lane, because the compiler
//! may not reorder a floating-point sum itself.

use std::sync::OnceLock;

/// Partial sums per row; one AVX-512 register of f32.
pub const LANES: usize = 16;

/// Vector instructions of the processor that runs us.
#[derive(Clone, Copy)]
pub enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Baseline,
}

/// What the running processor has, asked once.
pub fn instructions() -> Instructions {
    static FOUND: OnceLock<Instructions> = OnceLock::new();
    *FOUND.get_or_init(detect)
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Instructions {
    Instructions::Baseline
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Instructions {
    // Every processor with AVX2 that is known has the other two.
    let fma = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
    match (fma, wide && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512bw")) {
        (true, true) => Instructions::Avx512,
        (true, false) => Instructions::Avx2,
        _ => Instructions::Baseline,
    }
}

/// Defines a function whose body is compiled once per instruction set.
macro_rules! vectorised {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
                fn avx512($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
                match $crate::simd::instructions() {
                    // SAFETY: `instructions` found these features on the running processor.
                    $crate::simd::Instructions::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Instructions::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Instructions::Baseline => {}
                }
            }
            body($($arg),*)
        }
    };
}
pub(crate) use vectorised;

/// `e^x` with a relative error below 2e-7; inputs are clamped to the range of normal f32 results.
#[inline(always)]
#[allow(clippy::excessive_precision, reason = "the constants are given as published for the Cephes library")]
pub fn exp(x: f32) -> f32 {
    /// 1.5 * 2^23: adding it rounds to an integer that sits in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = if x < 88.3 { x } else { 88.3 };
    let x = if x > -87.3 { x } else { -87.3 };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_375 + n * 2.121_944_40e-4;
    let mut p = 1.987_569_15e-4;
    p = p * r + 1.398_199_95e-3;
    p = p * r + 8.333_451_9e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_55e-1;
    p = p * r + 5.000_000_1e-1;
    let mantissa = p * r * r + r + 1.0;
    mantissa * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Sum of `f(i)` over `0..len`, kept in [`LANES`] partial sums.
#[inline(always)]
fn lane_sum(len: usize, f: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let full = len - len % LANES;
    for start in (0..full).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += f(start + lane);
        }
    }
    lanes.iter().sum::<f32>() + (full..len).map(f).sum::<f32>()
}

vectorised! {
    /// Inner product of two slices of one length.
    pub fn dot(a: &[f32], b: &[f32]) -> f32 {
        let b = &b[..a.len()];
        lane_sum(a.len(), |i| a[i] * b[i])
    }
}

vectorised! {
    /// `out = silu(gate) * up`.
    pub fn silu_mul_forward(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate * sigmoid(*gate) * up;
        }
    }
}

vectorised! {
    /// Gradients of [`silu_mul_forward`] from the gradient of its result.
    pub fn silu_mul_backward(grad: &[f32], gate: &[f32], up: &[f32], grad_gate: &mut [f32], grad_up: &mut [f32]) {
        let outputs = grad_gate.iter_mut().zip(grad_up);
        for (((grad, gate), up), (grad_gate, grad_up)) in grad.iter().zip(gate).zip(up).zip(outputs) {
            let sigma = sigmoid(*gate);
            *grad_up = grad * gate * sigma;
            *grad_gate = grad * up * sigma * (1.0 + gate * (1.0 - sigma));
        }
    }
}

vectorised! {
    /// One row of [`crate::ops::rms_norm`].
    pub fn rms_norm_row(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let scale = 1.0 / (lane_sum(x.len(), |i| x[i] * x[i]) / x.len() as f32 + eps).sqrt();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * weight;
        }
    }
}

vectorised! {
    /// `dx = r w dy − x r³ mean(w dy x)`, and `dw += dy x r`, with `r` the row's scale.
    pub fn rms_norm_row_backward(grad: &[f32], x: &[f32], weight: &[f32], eps: f32, grad_x: &mut [f32], grad_weight: &mut [f32]) {
        let width = x.len();
        let (grad, weight) = (&grad[..width], &weight[..width]);
        let scale = 1.0 / (lane_sum(width, |i| x[i] * x[i]) / width as f32 + eps).sqrt();
        let mean = lane_sum(width, |i| grad[i] * weight[i] * x[i]) / width as f32;
        let along_x = scale * scale * scale * mean;
        let outputs = grad_x.iter_mut().zip(grad_weight);
        for (((grad, x), weight), (grad_x, grad_weight)) in grad.iter().zip(x).zip(weight).zip(outputs) {
            *grad_x = scale * weight * grad - x * along_x;
            *grad_weight += grad * x * scale;
        }
    }
}

vectorised! {
    /// Rotates the pairs `(head[i], head[i + half])` by the angles, times `sign`.
    pub fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
        let (first, second) = head.split_at_mut(cos.len());
        for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(cos.iter().zip(sin)) {
            let (x, y, sin) = (*a, *b, sin * sign);
            *a = x * cos - y * sin;
            *b = y * cos + x * sin;
        }
    }
}

/// See [`largest`].
#[inline(always)]
fn lane_max(row: &[f32]) -> f32 {
    // Several registers of lanes: one alone would wait for itself.
    let mut lanes = [f32::NEG_INFINITY; 4 * LANES];
    let mut chunks = row.chunks_exact(4 * LANES);
    for chunk in &mut chunks {
        for (largest, value) in lanes.iter_mut().zip(chunk) {
            *largest = if *value > *largest { *value } else { *largest };
        }
    }
    lanes.iter().chain(chunks.remainder()).fold(f32::NEG_INFINITY, |a, b| a.max(*b))
}

vectorised! {
    /// The largest of a row's numbers; -∞ of an empty row.
    pub fn largest(row: &[f32]) -> f32 {
        lane_max(row)
    }
}

vectorised! {
    /// Where the first of a row's numbers is that equals `value`; None if none does.
    pub fn position(row: &[f32], value: f32) -> Option<usize> {
        let (chunks, rest) = row.as_chunks::<{ 4 * LANES }>();
        for (index, chunk) in chunks.iter().enumerate() {
            let mut is_here = false;
            for number in chunk {
                is_here |= *number == value;
            }
            if is_here {
                let start = index * 4 * LANES;
                return chunk.iter().position(|number| *number == value).map(|offset| start + offset);
            }
        }
        rest.iter().position(|number| *number == value).map(|offset| chunks.len() * 4 * LANES + offset)
    }
}

vectorised! {
    /// Softmax of a row, in place. An empty row stays empty.
    pub fn softmax(row: &mut [f32]) {
        let largest = lane_max(row);
        let mut sums = [0.0; LANES];
        let (chunks, rest) = row.as_chunks_mut::<LANES>();
        for chunk in chunks {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *value = exp(*value - largest);
                *sum += *value;
            }
        }
        rest.iter_mut().for_each(|value| *value = exp(*value - largest));
        let scale = 1.0 / (sums.iter().sum::<f32>() + rest.iter().sum::<f32>());
        row.iter_mut().for_each(|value| *value *= scale);
    }
}

vectorised! {
    /// `Σ exp(x − max)`. Blocks are summed in lanes and the blocks in f64, so that the sum over a vocabulary keeps the precision of its terms.
    pub fn sum_of_exps(row: &[f32], max: f32) -> f64 {
        let mut sum = 0.0;
        for block in row.chunks(LANES * LANES) {
            let mut sums = [0.0; LANES];
            let (chunks, rest) = block.as_chunks::<LANES>();
            for chunk in chunks {
                for (sum, value) in sums.iter_mut().zip(chunk) {
                    *sum += exp(*value - max);
                }
            }
            sum += f64::from(sums.iter().sum::<f32>() + rest.iter().map(|value| exp(*value - max)).sum::<f32>());
        }
        sum
    }
}

vectorised! {
    /// Gradient of the scores of one softmax row: `grad = weights * (grad − shift)`, in place.
    pub fn softmax_backward(weights: &[f32], grad: &mut [f32], shift: f32) {
        for (grad, weight) in grad.iter_mut().zip(weights) {
            *grad = weight * (*grad - shift);
        }
    }
}

/// The error function with an absolute error below 5e-7 (Abramowitz and Stegun 1964, formula 7.1.26, in f32).
#[inline(always)]
fn erf(x: f32) -> f32 {
    let a = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * a);
    let p = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_7) * t - 0.284_496_74) * t + 0.254_829_6) * t;
    (1.0 - p * exp(-a * a)).copysign(x)
}

vectorised! {
    /// `x = gelu(x + bias)` with the exact (erf) form of GELU.
    pub fn bias_gelu(row: &mut [f32], bias: &[f32]) {
        for (x, bias) in row.iter_mut().zip(bias) {
            let value = *x + bias;
            *x = 0.5 * value * (1.0 + erf(value * std::f32::consts::FRAC_1_SQRT_2));
        }
    }
}

vectorised! {
    /// `x = (y − mean(y)) / sqrt(var(y) + eps) * weight + bias` with `y = x + other`.
    pub fn add_layer_norm_row(x: &mut [f32], other: &[f32], weight: &[f32], bias: &[f32], eps: f32) {
        let width = x.len();
        x.iter_mut().zip(other).for_each(|(x, other)| *x += other);
        let mean = lane_sum(width, |i| x[i]) / width as f32;
        let variance = lane_sum(width, |i| (x[i] - mean) * (x[i] - mean)) / width as f32;
        let scale = 1.0 / (variance + eps).sqrt();
        for ((x, weight), bias) in x.iter_mut().zip(weight).zip(bias) {
            *x = (*x - mean) * scale * weight + bias;
        }
    }
}
