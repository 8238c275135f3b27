//! Losses of one sampled token, and what a token weighs in the loss of a step.
//!
//! Log-probabilities are natural and of the sampled token. "Old" is the policy that sampled it, "reference" the frozen one of the KL
//! penalty. Active tokens are those that the policy wrote: retrieved passages and inserted tags are none.

/// Ratios of probabilities stay within `e^±60`, which f32, in which the gradient goes on, still holds. Beyond it the loss is flat. TRL has
/// no bound; Search-R1 bounds the ratio by 100 and k3 by 10.
const LOG_RATIO_MAX: f64 = 60.0;

/// How far the ratio of probabilities may leave 1 before a token stops pulling: `[1 − low, 1 + high]`.
///
/// Both >= 0. PPO and GRPO: 0.2 and 0.2; DAPO's "clip higher": 0.2 and 0.28 (Yu et al. 2025, arXiv:2503.14476).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    pub low: f64,
    pub high: f64,
}

/// The loss of one token and its derivative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenTerm {
    pub loss: f64,
    /// ∂loss/∂logp.
    pub d_logp: f64,
    /// Whether the clip took the derivative away.
    pub is_clipped: bool,
}

/// PPO's clipped surrogate: `−min(q A, clip(q, 1 − low, 1 + high) A)` with `q = exp(logp − old_logp)` (Schulman et al. 2017,
/// arXiv:1707.06347, Eq. 7).
///
/// Where policy = old the loss is `−A` and the derivative too. For weights by sequence (GSPO) give the means of the sequence's
/// log-probabilities: the derivative is then by the mean, and each of the n active tokens gets 1/n of it; [`sequence_ratio`] has the ratio.
pub fn clipped_surrogate(logp: f64, old_logp: f64, advantage: f64, clip: Clip) -> TokenTerm {
    let log_ratio = logp - old_logp;
    let ratio = bounded(log_ratio).exp();
    let (lowest, highest) = (1.0 - clip.low, 1.0 + clip.high);
    let (counted, is_clipped) = if advantage > 0.0 && ratio > highest {
        (highest, true)
    } else if advantage < 0.0 && ratio < lowest {
        (lowest, true)
    } else {
        (ratio, false)
    };
    let d_logp = if is_clipped || is_bounded(log_ratio) { 0.0 } else { -ratio * advantage };
    TokenTerm { loss: -counted * advantage, d_logp, is_clipped }
}

/// `exp` of the mean of `logp − old_logp` over the active tokens: the importance weight of a whole sequence (Zheng et al. 2025, GSPO,
/// arXiv:2507.18071). 1 if no token is active.
pub fn sequence_ratio(logps: &[f64], old_logps: &[f64], active: &[bool]) -> f64 {
    debug_assert!(logps.len() == old_logps.len() && logps.len() == active.len());
    let (mut sum, mut num_active) = (0.0, 0_usize);
    for ((logp, old_logp), _) in logps.iter().zip(old_logps).zip(active).filter(|(_, active)| **active) {
        sum += logp - old_logp;
        num_active += 1;
    }
    bounded(sum / num_active.max(1) as f64).exp()
}

/// REINFORCE: `−A logp` (Williams 1992).
pub fn reinforce(logp: f64, advantage: f64) -> TokenTerm {
    TokenTerm { loss: -advantage * logp, d_logp: -advantage, is_clipped: false }
}

/// The estimate `k3 = e^d − d − 1`, `d = reference_logp − logp`, of the KL divergence of policy from reference: >= 0 and unbiased (Schulman
/// 2020, "Approximating KL divergence"; GRPO, arXiv:2402.03300, Eq. 4).
pub fn k3(logp: f64, reference_logp: f64) -> TokenTerm {
    let log_ratio = reference_logp - logp;
    let d = bounded(log_ratio);
    let d_logp = if is_bounded(log_ratio) { 0.0 } else { -d.exp_m1() };
    TokenTerm { loss: d.exp_m1() - d, d_logp, is_clipped: false }
}

/// What the sum over all active tokens of a step is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenNormalizer {
    /// The mean over sequences of each one's mean: GRPO's paper. A token of a short sequence weighs more.
    PerSequence,
    /// The active tokens of the sequences at hand (TRL's `bnpo`).
    ActiveTokens,
    /// `number of sequences × completion_tokens_max`, whatever their lengths are (Liu et al. 2025, Dr. GRPO, arXiv:2503.20783).
    DrGrpo { completion_tokens_max: usize },
    /// The active tokens of the whole optimiser step (DAPO).
    Dapo,
}

/// The weight of one active token of `sequence` in the loss.
///
/// `active`: active tokens of each sequence at hand, `sequence` indexes it. `total_active`: those of the whole optimiser step, of which
/// these sequences may be a part; only [`TokenNormalizer::Dapo`] reads it. Under the three others the parts of a step are means of their
/// own: give all sequences of the step at once, or divide by the number of parts. A count of zero is taken for one, as TRL does.
///
/// ProRAG divides by all tokens of the completions, the retrieved ones too; here they never count.
///
/// # Panics
/// If `sequence` is not below the length of `active`, for [`TokenNormalizer::PerSequence`].
pub fn token_weights(normalizer: TokenNormalizer, sequence: usize, active: &[usize], total_active: usize) -> f64 {
    let divisor = match normalizer {
        TokenNormalizer::PerSequence => active.len() * active[sequence].max(1),
        TokenNormalizer::ActiveTokens => active.iter().sum::<usize>().max(1),
        TokenNormalizer::DrGrpo { completion_tokens_max } => (active.len() * completion_tokens_max).max(1),
        TokenNormalizer::Dapo => total_active.max(1),
    };
    1.0 / divisor as f64
}

fn bounded(log_ratio: f64) -> f64 {
    log_ratio.clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)
}

fn is_bounded(log_ratio: f64) -> bool {
    log_ratio.abs() > LOG_RATIO_MAX
}
