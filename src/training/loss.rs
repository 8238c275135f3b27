//! Losses as pure functions of log-probabilities, each with its derivative worked out by hand.
//!
//! They are f64 and know no tensors: the trainer gives them log-probabilities and hands the derivatives to the
//! vocabulary head ([`super::head`]). Autograd is left out on purpose: candle's `min`-based log-sigmoid has the
//! gradient 1 instead of 1/2 at zero, which is exactly where DPO starts.

use crate::error::{Error, Result};

/// `log σ(x) = -log(1 + exp(-x))`, without overflow for large `|x|`.
pub fn log_sigmoid(x: f64) -> f64 {
    x.min(0.0) - (-x.abs()).exp().ln_1p()
}

/// `σ(x) = 1 / (1 + exp(-x))`, without overflow for large `|x|`.
pub fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// The four log-probabilities of a preference pair: natural log, summed over the completion's tokens, the prompt left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairLogps {
    pub policy_chosen: f64,
    pub policy_rejected: f64,
    pub reference_chosen: f64,
    pub reference_rejected: f64,
}

/// The DPO loss of one pair and what is logged with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DpoTerm {
    pub loss: f64,
    /// ∂loss/∂`policy_chosen`; ∂loss/∂`policy_rejected` is its negative.
    pub d_chosen: f64,
    /// `β · (policy_chosen − reference_chosen)`, the implicit reward of the chosen completion.
    pub chosen_reward: f64,
    /// `β · (policy_rejected − reference_rejected)`.
    pub rejected_reward: f64,
}

impl DpoTerm {
    /// How far the chosen completion is ahead: `chosen_reward − rejected_reward`.
    pub fn reward_margin(&self) -> f64 {
        self.chosen_reward - self.rejected_reward
    }
}

/// DPO loss of one pair (Rafailov et al. 2023, arXiv:2305.18290, Eq. 7).
///
/// `loss = −log σ(β Δ)` with `Δ = (policy_chosen − reference_chosen) − (policy_rejected − reference_rejected)`, so
/// `∂loss/∂policy_chosen = −β σ(−β Δ)`. Where policy = reference the loss is ln 2 and the derivative `−β/2`.
/// `beta`: > 0; larger keeps the policy closer to the reference.
///
/// # Errors
/// [`Error::InvalidParameter`] if `beta` is not a positive finite number.
pub fn dpo_sigmoid(logps: &PairLogps, beta: f64) -> Result<DpoTerm> {
    if !(beta > 0.0 && beta.is_finite()) {
        return Err(Error::InvalidParameter { name: "beta".into(), found: beta.to_string(), expected: "a number > 0".into() });
    }
    let chosen_reward = beta * (logps.policy_chosen - logps.reference_chosen);
    let rejected_reward = beta * (logps.policy_rejected - logps.reference_rejected);
    let margin = chosen_reward - rejected_reward;
    Ok(DpoTerm { loss: -log_sigmoid(margin), d_chosen: -beta * sigmoid(-margin), chosen_reward, rejected_reward })
}

/// Weighted negative log-likelihood, the loss of supervised fine-tuning: `loss = −Σ_t w_t logp_t / total_weight`.
///
/// `logps`, `weights`: one entry per predicted token. `total_weight`: Σ w over everything that one optimiser step sees, of
/// which these tokens may be a part; the parts' losses add up to the step's. The derivative is [`d_weighted_nll`].
pub fn weighted_nll(logps: &[f64], weights: &[f64], total_weight: f64) -> f64 {
    debug_assert_eq!(logps.len(), weights.len());
    -logps.iter().zip(weights).map(|(logp, weight)| logp * weight).sum::<f64>() / total_weight
}

/// `∂loss/∂logp_t = −w_t / total_weight` of [`weighted_nll`]; it does not depend on the log-probabilities.
pub fn d_weighted_nll(weights: &[f64], total_weight: f64) -> Vec<f64> {
    weights.iter().map(|weight| -weight / total_weight).collect()
}
