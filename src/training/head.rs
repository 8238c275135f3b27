//! The vocabulary head, outside the autograd graph.
//!
//! `logits = hidden · weightᵀ` is by far the largest tensor of a small policy, `[N, V]`, and autograd would keep four or five
//! copies of it. Here only the rows whose prediction counts pass, some hundred at a time, and the derivatives are written
//! by hand: with `p = softmax(logits)` and `g_t = ∂loss/∂logp_t`,
//! `∂loss/∂logits_t = g_t · (onehot(target_t) − p_t)`, and where the loss has the entropies `H_t` of the distributions with `h_t = ∂loss/∂H_t`,
//! less `h_t · p_t · (log p_t + H_t)`; `d_hidden = d_logits · weight`, `d_weight = d_logitsᵀ · hidden`.
//!
//! On the CPU loops over rows do that in place; where the decoder computes by candle's operations, so does the head (`logits.rs`).

use candle_core::{DType, IndexOp, Tensor};
use rayon::prelude::*;

use super::logits;
use crate::error::{Error, Result};
use crate::models::Decoder;
use crate::models::config::OutputHead;
use crate::models::ops::Arithmetic;
use crate::models::simd::{LANES, exp};

/// About this many logits exist at once, so that they stay in the processor's cache between the passes over them ...
const CHUNK_LOGITS: usize = 1 << 20;
/// ... but with a large vocabulary at least so many rows, or adding up `d_weight` would cost more than computing it.
const CHUNK_ROWS_MIN: usize = 256;
const CHUNK_ROWS_MAX: usize = 1024;
/// On a device: of a vocabulary of 152,000 a few tensors of 311 MB exist at once.
const CHUNK_ROWS_PLAIN: usize = 512;

/// Less than this below the largest logit, a probability is 0 in single precision.
pub(super) const SHIFTED_MIN: f32 = -128.0;

/// What stands between a decoder's last norm and a loss, outside of the autograd graph.
pub(crate) trait DecoderHead: Sized {
    /// The head of a decoder; where that is frozen, without a gradient of its weight.
    ///
    /// # Errors
    /// [`Error::Internal`] if the decoder has a head of another kind.
    fn of(decoder: &Decoder) -> Result<Self>;
}

/// The weight of the vocabulary head, detached.
#[derive(Debug)]
pub(crate) struct Head {
    /// `[V, H]`, of the type of the products.
    weight: Tensor,
    arithmetic: Arithmetic,
    vocab_size: usize,
    chunk_rows: usize,
    /// No gradient of the weight is asked for.
    is_frozen: bool,
}

/// What a head gives for each row and the derivatives that flow out of it.
#[derive(Debug)]
pub(crate) struct HeadGradients {
    /// `[R]`: log-probabilities of the targets (natural log), or scores.
    pub outputs: Vec<f64>,
    /// `[R, H]`
    pub d_hidden: Tensor,
    /// Of the shape of the weight; none of a frozen head.
    pub d_weight: Option<Tensor>,
    /// `[R]`: entropies of the distributions over the vocabulary, in nats; none where they were not asked for.
    pub entropies: Vec<f64>,
}

/// What is told of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeasuredRow {
    /// Of the target.
    pub logp: f64,
    /// Whether no other token is more probable.
    pub is_first: bool,
    /// Of the distribution over the vocabulary, in nats.
    pub entropy: f64,
}

/// Derivatives of the loss by what each row of a chunk gives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slopes<'a> {
    /// `[r]`
    pub d_logps: &'a [f64],
    /// `[r]`, or none.
    pub d_entropies: &'a [f64],
    /// Whether the entropies are told.
    pub tells_entropies: bool,
}

/// What the rows that were passed gave, row by row.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub logps: Vec<f64>,
    /// None where they are not told.
    pub entropies: Vec<f64>,
}

impl DecoderHead for Head {
    fn of(decoder: &Decoder) -> Result<Self> {
        if matches!(decoder.config().head, OutputHead::Score(_)) {
            return Err(Error::Internal("a score is no head of a vocabulary".to_owned()));
        }
        let head = Self::new(decoder.head_weight())?.with_arithmetic(decoder.arithmetic())?;
        Ok(if decoder.head_parameter().is_some() { head } else { head.with_frozen_weight() })
    }
}

impl Head {
    /// `weight`: `[V, H]`.
    pub fn new(weight: &Tensor) -> Result<Self> {
        let (vocab_size, _) = weight.dims2()?;
        let chunk_rows = (CHUNK_LOGITS / vocab_size.max(1)).clamp(CHUNK_ROWS_MIN, CHUNK_ROWS_MAX);
        Ok(Self { weight: weight.detach(), arithmetic: Arithmetic::Fused, vocab_size, chunk_rows, is_frozen: false })
    }

    /// The same head by these operations.
    pub fn with_arithmetic(self, arithmetic: Arithmetic) -> Result<Self> {
        match arithmetic {
            Arithmetic::Fused => Ok(self),
            Arithmetic::Plain(dtype) => Ok(Self { weight: self.weight.to_dtype(dtype)?, arithmetic, chunk_rows: CHUNK_ROWS_PLAIN, ..self }),
        }
    }

    /// The same head without a gradient of its weight, which is a third of the work.
    pub fn with_frozen_weight(self) -> Self {
        Self { is_frozen: true, ..self }
    }

    /// The same head with another chunk size; results do not depend on it.
    #[cfg(test)]
    pub fn with_chunk_rows(self, chunk_rows: usize) -> Self {
        Self { chunk_rows, ..self }
    }

    /// Log-probability of `targets[t]` given `hidden[t]`. `hidden`: `[R, H]`, detached; `targets`: R token ids.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a target outside the vocabulary.
    pub fn logps(&self, hidden: &Tensor, targets: &[u32]) -> Result<Vec<f64>> {
        if self.arithmetic == Arithmetic::Fused {
            return self.each(hidden, targets, |row, target| softmax_numerators(row, target).logp);
        }
        self.by_operations(hidden, targets, logits::logps)
    }

    /// As [`Head::logps`], and what else is told of rows that nothing is learned from.
    ///
    /// # Errors
    /// As [`Head::logps`].
    pub fn measured(&self, hidden: &Tensor, targets: &[u32]) -> Result<Vec<MeasuredRow>> {
        if self.arithmetic == Arithmetic::Fused {
            return self.each(hidden, targets, |row, target| {
                let is_first = row[target] >= largest(row);
                let softmax = softmax_numerators(row, target);
                MeasuredRow { logp: softmax.logp, is_first, entropy: softmax.entropy() }
            });
        }
        self.by_operations(hidden, targets, logits::measured)
    }

    /// What `of` makes of the logits `[r, V]` of each chunk and its targets.
    fn by_operations<T>(&self, hidden: &Tensor, targets: &[u32], of: impl Fn(&Tensor, &[u32]) -> Result<Vec<T>>) -> Result<Vec<T>> {
        self.check(targets)?;
        let mut found = Vec::with_capacity(targets.len());
        for (chunk, targets) in self.chunks(hidden, targets)? {
            found.extend(of(&self.product(&chunk)?, targets)?);
        }
        Ok(found)
    }

    /// What `of` makes of the logits of each row and the place of its target.
    fn each<T: Send>(&self, hidden: &Tensor, targets: &[u32], of: impl Fn(&mut [f32], usize) -> T + Sync) -> Result<Vec<T>> {
        self.check(targets)?;
        let mut found = Vec::with_capacity(targets.len());
        for (chunk, chunk_targets) in self.chunks(hidden, targets)? {
            let mut logits = self.logits(&chunk)?;
            let rows = logits.par_chunks_mut(self.vocab_size).zip(chunk_targets);
            found.par_extend(rows.map(|(row, &target)| of(row, target as usize)));
        }
        Ok(found)
    }

    /// As [`Head::logps`], the entropies, and the derivatives for `d_logps[t] = ∂loss/∂logp_t`.
    ///
    /// # Errors
    /// As [`Head::logps`].
    pub fn gradients(&self, hidden: &Tensor, targets: &[u32], d_logps: &[f64]) -> Result<HeadGradients> {
        self.derive(hidden, targets, Slopes { d_logps, d_entropies: &[], tells_entropies: true })
    }

    /// As [`Head::gradients`], of a loss that the entropies of the distributions are in too: `d_entropies[t] = ∂loss/∂H_t`, or none at all, and then
    /// entropies are not told either.
    ///
    /// # Errors
    /// As [`Head::logps`].
    pub fn gradients_with_entropies(
        &self,
        hidden: &Tensor,
        targets: &[u32],
        d_logps: &[f64],
        d_entropies: &[f64],
    ) -> Result<HeadGradients> {
        self.derive(hidden, targets, Slopes { d_logps, d_entropies, tells_entropies: !d_entropies.is_empty() })
    }

    fn derive(&self, hidden: &Tensor, targets: &[u32], slopes: Slopes<'_>) -> Result<HeadGradients> {
        self.check(targets)?;
        if targets.is_empty() {
            return Err(Error::Internal("a batch without a row that counts".into()));
        }
        let mut found = Found::default();
        let mut d_hidden = Vec::new();
        let mut d_weight: Option<Tensor> = None;
        for (index, (chunk, chunk_targets)) in self.chunks(hidden, targets)?.into_iter().enumerate() {
            let rows = index * self.chunk_rows..index * self.chunk_rows + chunk_targets.len();
            let (d_logps, d_entropies) = (&slopes.d_logps[rows.clone()], slopes.d_entropies.get(rows).unwrap_or_default());
            let slopes = Slopes { d_logps, d_entropies, ..slopes };
            let d_logits = self.d_logits(&chunk, chunk_targets, slopes, &mut found)?;
            d_hidden.push(d_logits.matmul(&self.weight)?.to_dtype(DType::F32)?);
            if self.is_frozen {
                continue;
            }
            let part = d_logits.t()?.matmul(&chunk.to_dtype(d_logits.dtype())?)?.to_dtype(DType::F32)?;
            d_weight = Some(match d_weight {
                Some(sum) => (sum + part)?,
                None => part,
            });
        }
        Ok(HeadGradients { outputs: found.logps, d_hidden: Tensor::cat(&d_hidden, 0)?, d_weight, entropies: found.entropies })
    }

    /// The derivatives `[r, V]` by the logits of a chunk, of the type of the products; adds to `found` the log-probabilities of its targets.
    fn d_logits(&self, chunk: &Tensor, targets: &[u32], slopes: Slopes<'_>, found: &mut Found) -> Result<Tensor> {
        if self.arithmetic != Arithmetic::Fused {
            return Ok(logits::gradient(&self.product(chunk)?, targets, slopes, found)?.to_dtype(self.weight.dtype())?);
        }
        let mut logits = self.logits(chunk)?;
        let rows = logits.par_chunks_mut(self.vocab_size).zip(targets).zip(slopes.d_logps);
        let of_rows: Vec<Softmax> = if slopes.d_entropies.is_empty() {
            rows.map(|((row, &target), &d_logp)| logits_to_gradient(row, target as usize, d_logp)).collect()
        } else {
            let of_row = |(((row, &target), &d_logp), &d_entropy): (((&mut [f32], &u32), &f64), &f64)| {
                logits_to_gradient_with_entropy(row, target as usize, d_logp, d_entropy)
            };
            rows.zip(slopes.d_entropies).map(of_row).collect()
        };
        found.logps.extend(of_rows.iter().map(|row| row.logp));
        if slopes.tells_entropies {
            found.entropies.extend(of_rows.iter().map(Softmax::entropy));
        }
        Ok(Tensor::from_vec(logits, (targets.len(), self.vocab_size), chunk.device())?)
    }

    /// Pairs of hidden rows `[r, H]` and their targets, `r <= chunk_rows`.
    fn chunks<'a>(&self, hidden: &Tensor, targets: &'a [u32]) -> Result<Vec<(Tensor, &'a [u32])>> {
        let chunk = |(index, targets): (usize, &'a [u32])| {
            let start = index * self.chunk_rows;
            Ok((hidden.i(start..start + targets.len())?, targets))
        };
        targets.chunks(self.chunk_rows).enumerate().map(chunk).collect()
    }

    /// `[r, V]`, row after row.
    fn logits(&self, hidden: &Tensor) -> Result<Vec<f32>> {
        Ok(self.product(hidden)?.flatten_all()?.to_vec1()?)
    }

    /// The logits `[r, V]` as f32, whatever the type of the product is.
    fn product(&self, hidden: &Tensor) -> Result<Tensor> {
        Ok(hidden.to_dtype(self.weight.dtype())?.matmul(&self.weight.t()?)?.to_dtype(DType::F32)?)
    }

    fn check(&self, targets: &[u32]) -> Result<()> {
        match targets.iter().find(|&&target| target as usize >= self.vocab_size) {
            Some(target) => Err(Error::InvalidParameter {
                name: "token id".into(),
                found: target.to_string(),
                expected: format!("less than {}, the size of the policy's vocabulary", self.vocab_size),
            }),
            None => Ok(()),
        }
    }
}

/// What is known of a row whose logits became `exp(logit − max)`.
#[derive(Debug, Clone, Copy)]
struct Softmax {
    /// Of the target.
    logp: f64,
    /// Of the row.
    sum: f64,
    /// Mean of `logit − max` under the distribution.
    mean_shifted: f64,
}

impl Softmax {
    /// In nats. With s = logit − max and their mean m under p, `log p + H` is `s − m`: no logarithm of a p that is 0.
    fn entropy(&self) -> f64 {
        self.sum.ln() - self.mean_shifted
    }
}

/// Replaces the logits of one row by `exp(logit − max)`.
fn softmax_numerators(row: &mut [f32], target: usize) -> Softmax {
    let max = largest(row);
    let shifted = f64::from(row[target] - max);
    let Exponentials { sum, weighted } = exponentiate(row, max);
    Softmax { logp: shifted - sum.ln(), sum, mean_shifted: weighted / sum }
}

/// Replaces the logits of one row by `d_logp · (onehot(target) − p)`.
fn logits_to_gradient(row: &mut [f32], target: usize, d_logp: f64) -> Softmax {
    let found = softmax_numerators(row, target);
    scale(row, (-d_logp / found.sum) as f32);
    row[target] += d_logp as f32;
    found
}

/// As [`logits_to_gradient`], less `d_entropy · p · (log p + H)`.
fn logits_to_gradient_with_entropy(row: &mut [f32], target: usize, d_logp: f64, d_entropy: f64) -> Softmax {
    let max = largest(row);
    let shifted: Vec<f32> = row.iter().map(|logit| logit - max).collect();
    let found = softmax_numerators(row, target);
    for (value, shifted) in row.iter_mut().zip(shifted) {
        let probability = f64::from(*value) / found.sum;
        *value = (-probability * (d_logp + d_entropy * (f64::from(shifted) - found.mean_shifted))) as f32;
    }
    row[target] += d_logp as f32;
    found
}

/// The loops below keep one partial result per lane, because the compiler may not reorder a floating-point sum itself.
fn largest(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = row.chunks_exact(LANES);
    let rest = chunks.remainder().iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.iter().copied().fold(rest, f32::max)
}

/// Sums over a row of `e = exp(value − max)`.
#[derive(Debug, Clone, Copy, Default)]
struct Exponentials {
    /// Of `e`.
    sum: f64,
    /// Of `e · (value − max)`.
    weighted: f64,
}

/// Replaces each value by `exp(value − max)`. Short blocks are summed in f32 lanes, the blocks in f64, so that the sum over a vocabulary of 150,000
/// keeps the precision of its terms.
fn exponentiate(row: &mut [f32], max: f32) -> Exponentials {
    let mut all = Exponentials::default();
    for block in row.chunks_mut(LANES * LANES) {
        let of_block = exponentiate_block(block, max);
        all.sum += of_block.sum;
        all.weighted += of_block.weighted;
    }
    all
}

fn exponentiate_block(block: &mut [f32], max: f32) -> Exponentials {
    let (mut sums, mut weighted) = ([0_f32; LANES], [0_f32; LANES]);
    let mut chunks = block.chunks_exact_mut(LANES);
    let mut add = |values: &mut [f32]| {
        for ((value, sum), weighted) in values.iter_mut().zip(&mut sums).zip(&mut weighted) {
            let shifted = *value - max;
            *value = exp(shifted);
            *sum += *value;
            // A logit of minus infinity adds nothing.
            *weighted += *value * shifted.max(SHIFTED_MIN);
        }
    };
    for chunk in &mut chunks {
        add(chunk);
    }
    add(chunks.into_remainder());
    let total = |lanes: [f32; LANES]| lanes.into_iter().map(f64::from).sum();
    Exponentials { sum: total(sums), weighted: total(weighted) }
}

fn scale(row: &mut [f32], factor: f32) {
    row.iter_mut().for_each(|value| *value *= factor);
}
