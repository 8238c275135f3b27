//! Losses of a preference pair: DPO and its relatives.
//!
//! All of them compare a score of the chosen completion with one of the rejected completion. The score is the log-probability under the
//! policy, less that under the reference where the loss has a reference, and divided by the completion's length where the lengths are
//! normalised. Below, `c` and `r` are the scores and `m = β c − β r`.
//!
//! | loss | formula | reference | lengths | source |
//! |---|---|---|---|---|
//! | sigmoid | `−(1−ε) log σ(m) − ε log σ(−m)` | yes | sum | Rafailov et al. 2023, arXiv:2305.18290, Eq. 7; ε: Mitchell 2023, cDPO |
//! | hinge | `max(0, 1 − m)` | yes | sum | Zhao et al. 2023, arXiv:2305.10425 |
//! | ipo | `(c − r − 1/(2β))²` | yes | mean | Azar et al. 2023, arXiv:2310.12036, Eq. 17 |
//! | robust | `(−(1−ε) log σ(m) + ε log σ(−m)) / (1 − 2ε)` | yes | sum | Chowdhury et al. 2024, arXiv:2403.00409 |
//! | orpo | `−c − β log σ(odds(c) − odds(r))`, `odds(x) = x − log(1 − eˣ)` | no | mean | Hong et al. 2024, arXiv:2403.07691, Eq. 6 |
//! | simpo | `−log σ(m − γ)` | no | mean | Meng et al. 2024, arXiv:2405.14734, Eq. 6 |
//!
//! They are TRL's, but for two things. The likelihood term of ORPO is over the completion; TRL's is over prompt and completion. The rewards
//! that are logged are those that the loss compares, so for normalised lengths they are means; TRL logs sums for IPO. `gamma` of SimPO is
//! the margin itself, as `simpo_gamma` in TRL and LLaMA-Factory; the paper's code takes `gamma / beta`.

use super::{log_sigmoid, log1m_exp, sigmoid};
use crate::error::{Error, Result};

/// The largest mean log-probability whose odds are told apart. The log-probabilities come from f32 logits, which resolve no more; at 0 the
/// odds would be infinite.
const MEAN_LOGP_MAX: f64 = -1e-7;

/// The four log-probabilities of a preference pair: natural log, summed over the completion's tokens, the prompt left out.
///
/// Losses without a reference do not read the last two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairLogps {
    pub policy_chosen: f64,
    pub policy_rejected: f64,
    pub reference_chosen: f64,
    pub reference_rejected: f64,
}

/// Tokens of the completions that count in their log-probabilities, the end-of-text token included; >= 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairLengths {
    pub chosen: usize,
    pub rejected: usize,
}

/// Which loss; the table above has the formulas.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PreferenceLoss {
    /// `label_smoothing`: the share of pairs whose labels are taken to be the wrong way round, from 0 to below 0.5.
    Sigmoid {
        label_smoothing: f64,
    },
    Hinge,
    Ipo,
    /// Unbiased where the share `label_smoothing`, from 0 to below 0.5, of the labels is the wrong way round.
    Robust {
        label_smoothing: f64,
    },
    Orpo,
    /// `gamma`: the margin by which the chosen completion's reward shall be ahead, >= 0.
    SimPo {
        gamma: f64,
    },
}

impl PreferenceLoss {
    /// Whether the loss compares with a reference model.
    pub fn needs_reference(self) -> bool {
        !matches!(self, Self::Orpo | Self::SimPo { .. })
    }

    /// What the loss's source does with the lengths of the completions.
    pub fn default_normalization(self) -> LengthNormalization {
        match self {
            Self::Sigmoid { .. } | Self::Hinge | Self::Robust { .. } => LengthNormalization::Sum,
            Self::Ipo | Self::Orpo | Self::SimPo { .. } => LengthNormalization::Mean,
        }
    }

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sigmoid { .. } => "sigmoid",
            Self::Hinge => "hinge",
            Self::Ipo => "ipo",
            Self::Robust { .. } => "robust",
            Self::Orpo => "orpo",
            Self::SimPo { .. } => "simpo",
        }
    }
}

/// How the log-probabilities of a completion's tokens become its score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthNormalization {
    /// Their sum: a longer completion weighs more.
    Sum,
    /// Their mean.
    Mean,
}

impl LengthNormalization {
    /// Reads `sum` or `mean`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for any other text.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "sum" => Ok(Self::Sum),
            "mean" => Ok(Self::Mean),
            _ => Err(invalid("length_normalization", format!("'{text}'"), "'sum' or 'mean'")),
        }
    }

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
        }
    }
}

/// A preference loss with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preference {
    pub loss: PreferenceLoss,
    /// Positive; larger keeps the policy closer to the reference. ORPO: the weight of its odds ratio, which the paper calls λ.
    pub beta: f64,
    pub normalization: LengthNormalization,
    /// Weight, >= 0, of the mean negative log-likelihood of the chosen completion, added to the loss (Pang et al. 2024, arXiv:2404.19733,
    /// without the prompt).
    pub sft_weight: f64,
}

/// The loss of one pair and what is logged with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PreferenceTerm {
    /// With the SFT term.
    pub loss: f64,
    /// ∂loss/∂(sum of the chosen completion's log-probabilities): the same for each of its tokens.
    pub d_chosen: f64,
    /// ∂loss/∂(sum of the rejected completion's log-probabilities).
    pub d_rejected: f64,
    /// β times the score of the chosen completion.
    pub chosen_reward: f64,
    /// β times the score of the rejected completion.
    pub rejected_reward: f64,
    /// Mean negative log-likelihood of the chosen completion's tokens, without its weight. ORPO has it in its loss in any case.
    pub sft_loss: f64,
}

impl PreferenceTerm {
    /// How far the chosen completion is ahead: `chosen_reward − rejected_reward`.
    pub fn reward_margin(&self) -> f64 {
        self.chosen_reward - self.rejected_reward
    }
}

impl Preference {
    /// DPO as in its paper: sums, no label smoothing, no SFT term.
    pub fn sigmoid(beta: f64) -> Self {
        let loss = PreferenceLoss::Sigmoid { label_smoothing: 0.0 };
        Self { loss, beta, normalization: loss.default_normalization(), sft_weight: 0.0 }
    }

    /// Whether all parameters are in range.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] with the name of the option: `beta`, `label_smoothing`, `gamma`, `sft_weight` or `length_normalization`
    /// (ORPO and SimPO are defined on means only).
    pub fn check(&self) -> Result<()> {
        if !(self.beta > 0.0 && self.beta.is_finite()) {
            return Err(invalid("beta", self.beta, "a number > 0"));
        }
        if !(self.sft_weight >= 0.0 && self.sft_weight.is_finite()) {
            return Err(invalid("sft_weight", self.sft_weight, "a number >= 0"));
        }
        match self.loss {
            PreferenceLoss::Sigmoid { label_smoothing } | PreferenceLoss::Robust { label_smoothing }
                if !(0.0..0.5).contains(&label_smoothing) =>
            {
                Err(invalid("label_smoothing", label_smoothing, "a number >= 0 and below 0.5"))
            }
            PreferenceLoss::SimPo { gamma } if !(gamma >= 0.0 && gamma.is_finite()) => Err(invalid("gamma", gamma, "a number >= 0")),
            PreferenceLoss::Orpo | PreferenceLoss::SimPo { .. } if self.normalization == LengthNormalization::Sum => {
                Err(invalid("length_normalization", "'sum'", format!("'mean' for loss = '{}'", self.loss.name())))
            }
            _ => Ok(()),
        }
    }

    /// The loss of one pair. The parameters must have passed [`Preference::check`].
    pub fn term(&self, logps: &PairLogps, lengths: PairLengths) -> PreferenceTerm {
        debug_assert!(lengths.chosen > 0 && lengths.rejected > 0, "{lengths:?}");
        let (chosen_divisor, rejected_divisor) = match self.normalization {
            LengthNormalization::Sum => (1.0, 1.0),
            LengthNormalization::Mean => (lengths.chosen as f64, lengths.rejected as f64),
        };
        let chosen = self.log_ratio(logps.policy_chosen, logps.reference_chosen) / chosen_divisor;
        let rejected = self.log_ratio(logps.policy_rejected, logps.reference_rejected) / rejected_divisor;
        let (loss, d_chosen, d_rejected) = self.compare(chosen, rejected);
        let num_chosen = lengths.chosen as f64;
        let sft_loss = -logps.policy_chosen / num_chosen;
        PreferenceTerm {
            loss: loss + self.sft_weight * sft_loss,
            d_chosen: d_chosen / chosen_divisor - self.sft_weight / num_chosen,
            d_rejected: d_rejected / rejected_divisor,
            chosen_reward: self.beta * chosen,
            rejected_reward: self.beta * rejected,
            sft_loss,
        }
    }

    fn log_ratio(&self, policy: f64, reference: f64) -> f64 {
        if self.loss.needs_reference() { policy - reference } else { policy }
    }

    /// The loss of two scores and its derivatives by them.
    fn compare(&self, chosen: f64, rejected: f64) -> (f64, f64, f64) {
        let beta = self.beta;
        let margin = beta * chosen - beta * rejected;
        let (loss, d_difference) = match self.loss {
            PreferenceLoss::Sigmoid { label_smoothing } => {
                let right = 1.0 - label_smoothing;
                let loss = -(right * log_sigmoid(margin) + label_smoothing * log_sigmoid(-margin));
                (loss, -beta * (right * sigmoid(-margin) - label_smoothing * sigmoid(margin)))
            }
            PreferenceLoss::Robust { label_smoothing } => {
                let (right, scale) = (1.0 - label_smoothing, 1.0 - 2.0 * label_smoothing);
                let loss = -(right * log_sigmoid(margin) - label_smoothing * log_sigmoid(-margin)) / scale;
                (loss, -beta * (right * sigmoid(-margin) + label_smoothing * sigmoid(margin)) / scale)
            }
            // A margin that is not a number must not pass for one that is wide enough.
            PreferenceLoss::Hinge if margin >= 1.0 => (0.0, 0.0),
            PreferenceLoss::Hinge => (1.0 - margin, -beta),
            PreferenceLoss::Ipo => {
                let distance = chosen - rejected - 1.0 / (2.0 * beta);
                (distance * distance, 2.0 * distance)
            }
            PreferenceLoss::SimPo { gamma } => (-log_sigmoid(margin - gamma), -beta * sigmoid(gamma - margin)),
            PreferenceLoss::Orpo => return odds_ratio(chosen, rejected, beta),
        };
        (loss, d_difference, -d_difference)
    }
}

/// ORPO's loss of two mean log-probabilities and its derivatives by them.
///
/// `∂odds(x)/∂x = 1/(1 − eˣ)`. The quotient `σ(−z)/(1 − eˣ)` is taken in logarithms: near `x = 0` both of its parts vanish.
fn odds_ratio(chosen: f64, rejected: f64, beta: f64) -> (f64, f64, f64) {
    // `clamp` keeps what is not a number, unlike `min`.
    let (c, r) = (chosen.clamp(f64::NEG_INFINITY, MEAN_LOGP_MAX), rejected.clamp(f64::NEG_INFINITY, MEAN_LOGP_MAX));
    let (others_c, others_r) = (log1m_exp(c), log1m_exp(r));
    let z = (c - r) - (others_c - others_r);
    let wrong = log_sigmoid(-z);
    let loss = -chosen - beta * log_sigmoid(z);
    (loss, -1.0 - beta * (wrong - others_c).exp(), beta * (wrong - others_r).exp())
}

fn invalid(name: &str, found: impl ToString, expected: impl Into<String>) -> Error {
    Error::InvalidParameter { name: name.into(), found: found.to_string(), expected: expected.into() }
}
