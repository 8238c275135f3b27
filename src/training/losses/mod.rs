//! Losses and advantages as pure functions of numbers; each loss comes with its derivative, worked out by hand.
//!
//! They are f64 and know no tensors: an objective gives them log-probabilities and hands the derivatives to the vocabulary head
//! (`super::head`). Autograd is left out on purpose: candle's `min`-based log-sigmoid has the gradient 1 instead of 1/2 at zero, which is
//! exactly where DPO starts. `tests/fixtures/make_loss_goldens.py` makes the numbers that the tests compare with, by PyTorch's autograd.
//!
//! | file | subject |
//! |---|---|
//! | `preference` | losses of a pair of completions: DPO and its relatives |
//! | `reward` | losses of a scalar score: Bradley-Terry, labels of steps |
//! | `policy` | losses of a sampled token: clipped surrogate, REINFORCE, KL; what a token weighs |
//! | `advantage` | from rewards and values to advantages |
//! | `value` | the loss of a value estimate |
//! | `guard` | keeps good trajectories likely |

pub mod advantage;
pub mod guard;
pub mod policy;
pub mod preference;
pub mod reward;
pub mod value;

#[cfg(test)]
mod tests;

pub use advantage::{
    AdvantageScaling, ScoredStep, batch_advantages, dual_advantage, gae, group_advantages, leave_one_out, step_advantages, whiten,
};
pub use guard::likelihood_guard;
pub use policy::{Clip, TokenNormalizer, TokenTerm, clipped_surrogate, k3, reinforce, sequence_ratio, token_weights};
pub use preference::{LengthNormalization, PairLengths, PairLogps, Preference, PreferenceLoss, PreferenceTerm};
pub use reward::{RewardLoss, RewardTerm, ScoreTerm, bradley_terry, step_cross_entropy, step_squared_error};
pub use value::clipped_value;

use std::f64::consts::LN_2;

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

/// `log(1 - exp(x))` for `x < 0`: the log-probability of everything else. `x = 0` gives `-∞`.
///
/// Either form alone loses its digits at one end; they meet at `-ln 2` (Mächler 2012, "Accurately computing log(1 − exp(−|a|))").
pub fn log1m_exp(x: f64) -> f64 {
    if x > -LN_2 { (-x.exp_m1()).ln() } else { (-x.exp()).ln_1p() }
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
