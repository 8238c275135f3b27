//! What the vocabulary head makes of a chunk of logits where they are on a device: the numbers of `head.rs`, by candle's operations.

use candle_core::{D, DType, Tensor};

use super::head::{Found, MeasuredRow, SHIFTED_MIN, Slopes};
use crate::error::Result;

/// Of each row of logits `[r, V]`, f32: the log-probability of its target.
pub(super) fn logps(logits: &Tensor, targets: &[u32]) -> Result<Vec<f64>> {
    column(&Rows::of(logits, targets)?.logps()?)
}

/// As [`logps`], with whether no other token is more probable, and the entropy.
pub(super) fn measured(logits: &Tensor, targets: &[u32]) -> Result<Vec<MeasuredRow>> {
    let rows = Rows::of(logits, targets)?;
    let is_first = column(&rows.of_target.ge(0.0_f32)?.to_dtype(DType::F32)?)?;
    let (logps, entropies) = (column(&rows.logps()?)?, column(&rows.entropies(&rows.means()?)?)?);
    let rows = logps.into_iter().zip(is_first).zip(entropies);
    Ok(rows.map(|((logp, is_first), entropy)| MeasuredRow { logp, is_first: is_first > 0.0, entropy }).collect())
}

/// The derivatives `d_logp · (onehot(target) − p)` `[r, V]`, less `d_entropy · p · (log p + H)` where there are such; adds to `found` the
/// log-probabilities of the targets and the entropies.
pub(super) fn gradient(logits: &Tensor, targets: &[u32], slopes: Slopes<'_>, found: &mut Found) -> Result<Tensor> {
    let rows = Rows::of(logits, targets)?;
    let on_device = |slopes: &[f64]| {
        let slopes: Vec<f32> = slopes.iter().map(|slope| *slope as f32).collect();
        Tensor::from_vec(slopes, rows.targets.shape(), logits.device())
    };
    let d_logps = on_device(slopes.d_logps)?;
    let mut d_others = rows.exponentials.broadcast_mul(&(&d_logps / &rows.sums)?.neg()?)?;
    if slopes.tells_entropies {
        let means = rows.means()?;
        if !slopes.d_entropies.is_empty() {
            // log p + H is the logit less the mean logit.
            let scaled = rows.exponentials.broadcast_mul(&(on_device(slopes.d_entropies)? / &rows.sums)?)?;
            d_others = (d_others - (scaled * rows.shifted.broadcast_sub(&means)?)?)?;
        }
        found.entropies.extend(column(&rows.entropies(&means)?)?);
    }
    found.logps.extend(column(&rows.logps()?)?);
    Ok(d_others.scatter_add(&rows.targets, &d_logps, 1)?)
}

/// Rows of logits, taken apart for a softmax.
struct Rows {
    /// `[r, 1]`, as the next ones.
    targets: Tensor,
    /// Its logit less the largest one.
    of_target: Tensor,
    sums: Tensor,
    /// `[r, V]`: the logits less the largest one, and of these the exponentials.
    shifted: Tensor,
    exponentials: Tensor,
}

impl Rows {
    fn of(logits: &Tensor, targets: &[u32]) -> Result<Self> {
        let targets = Tensor::from_slice(targets, (targets.len(), 1), logits.device())?;
        let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?)?;
        let of_target = shifted.gather(&targets, 1)?;
        let exponentials = shifted.exp()?;
        Ok(Self { sums: exponentials.sum_keepdim(D::Minus1)?, targets, of_target, shifted, exponentials })
    }

    /// Of `shifted` under the distributions, `[r, 1]`.
    fn means(&self) -> Result<Tensor> {
        // A logit of minus infinity adds nothing.
        let shifted = self.shifted.maximum(SHIFTED_MIN)?;
        Ok(((&self.exponentials * shifted)?.sum_keepdim(D::Minus1)? / &self.sums)?)
    }

    /// `[r, 1]`, in nats.
    fn entropies(&self, means: &Tensor) -> Result<Tensor> {
        Ok((self.sums.log()? - means)?)
    }

    fn logps(&self) -> Result<Tensor> {
        Ok((&self.of_target - self.sums.log()?)?)
    }
}

fn column(values: &Tensor) -> Result<Vec<f64>> {
    Ok(values.flatten_all()?.to_vec1::<f32>()?.into_iter().map(f64::from).collect())
}
