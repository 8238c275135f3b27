//! Losses of a scalar score: reward models of pairs (Bradley-Terry) and of labelled steps.

use super::{log_sigmoid, sigmoid};

/// The loss of two scores and its derivatives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RewardTerm {
    pub loss: f64,
    /// ∂loss/∂(score of chosen).
    pub d_chosen: f64,
    /// ∂loss/∂(score of rejected).
    pub d_rejected: f64,
}

/// The loss of one score and its derivative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreTerm {
    pub loss: f64,
    pub d_score: f64,
}

/// The loss of a reward model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewardLoss {
    /// Of a pair: [`bradley_terry`].
    BradleyTerry,
    /// Of a step with a label: [`step_cross_entropy`].
    CrossEntropy,
    /// Of a step with a label: [`step_squared_error`].
    SquaredError,
}

impl RewardLoss {
    const ALL: [Self; 3] = [Self::BradleyTerry, Self::CrossEntropy, Self::SquaredError];

    /// The loss of this name in SQL.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|loss| loss.name() == name)
    }

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::BradleyTerry => "bradley_terry",
            Self::CrossEntropy => "cross_entropy",
            Self::SquaredError => "squared_error",
        }
    }

    /// Whether it compares two scores.
    pub fn needs_pairs(self) -> bool {
        self == Self::BradleyTerry
    }
}

/// Bradley-Terry loss of a reward model: `−log σ(chosen − rejected − margin)` (Ouyang et al. 2022, arXiv:2203.02155, Eq. 1; the margin:
/// Touvron et al. 2023, arXiv:2307.09288, Eq. 2).
///
/// `chosen`, `rejected`: scores, any number. `margin`: how far `chosen` shall be ahead, usually 0.
pub fn bradley_terry(chosen: f64, rejected: f64, margin: f64) -> RewardTerm {
    let ahead = chosen - rejected - margin;
    let slope = sigmoid(-ahead);
    RewardTerm { loss: -log_sigmoid(ahead), d_chosen: -slope, d_rejected: slope }
}

/// Binary cross-entropy of a step's logit with its label: `−y log σ(x) − (1 − y) log σ(−x)`.
///
/// `label`: 0 to 1; a share between them is a soft label, for instance the share of rollouts that end well (Wang et al. 2024,
/// Math-Shepherd, arXiv:2312.08935).
pub fn step_cross_entropy(logit: f64, label: f64) -> ScoreTerm {
    let loss = -(label * log_sigmoid(logit) + (1.0 - label) * log_sigmoid(-logit));
    ScoreTerm { loss, d_score: sigmoid(logit) - label }
}

/// Squared error of a step's score: `(score − label)²`, without the factor 1/2.
pub fn step_squared_error(score: f64, label: f64) -> ScoreTerm {
    let error = score - label;
    ScoreTerm { loss: error * error, d_score: 2.0 * error }
}
