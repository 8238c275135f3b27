//! Advantages: how much better than expected a trajectory, a step or a token was.
//!
//! Rewards, scores and values are finite; nothing here is differentiated.

/// Added to the standard deviation of rewards, as in TRL and ProRAG. (Search-R1 adds 1e-6.)
const STD_EPSILON: f64 = 1e-4;

/// Added to variances, as in ProRAG and in the usual code of PPO.
const VARIANCE_EPSILON: f64 = 1e-8;

/// What the centred rewards of a group are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdvantageScaling {
    /// The standard deviation of the group: GRPO's paper.
    GroupStd,
    /// Nothing: Dr. GRPO, which does not favour questions that are all but solved or all but hopeless.
    None,
    /// The standard deviation of the rewards of all groups of the step.
    BatchStd,
}

/// Advantages of a group, the trajectories of one question: `(R − mean) / (std + 1e-4)`, `std` being that of a sample (Shao et al.
/// 2024, GRPO, arXiv:2402.03300).
///
/// A group of one, and a group of equal rewards, has no advantages: all are exactly 0. [`AdvantageScaling::BatchStd`] takes this group
/// for the whole batch; [`batch_advantages`] is for several.
pub fn group_advantages(rewards: &[f64], scaling: AdvantageScaling) -> Vec<f64> {
    scaled(rewards, scaling, rewards)
}

/// [`group_advantages`] of each group of a step.
pub fn batch_advantages(groups: &[Vec<f64>], scaling: AdvantageScaling) -> Vec<Vec<f64>> {
    let batch = groups.concat();
    groups.iter().map(|rewards| scaled(rewards, scaling, &batch)).collect()
}

/// REINFORCE with the mean of the others as baseline: `R_i − mean of the group without i` (Kool et al. 2019; Ahmadian et al. 2024, RLOO,
/// arXiv:2402.14740). A group of one gives 0.
pub fn leave_one_out(rewards: &[f64]) -> Vec<f64> {
    if are_equal(rewards) {
        return vec![0.0; rewards.len()];
    }
    let sum: f64 = rewards.iter().sum();
    let num_others = rewards.len() as f64 - 1.0;
    rewards.iter().map(|reward| reward - (sum - reward) / num_others).collect()
}

/// A step of a trajectory: its score by a process reward model, and how many tokens of it the policy wrote.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoredStep {
    pub score: f64,
    pub num_tokens: usize,
}

/// Advantages of the steps of a group of trajectories: `(score − mean) / sqrt(variance + 1e-8)`, mean and variance being over the tokens
/// of all steps of the group, so that a long step weighs more (ProRAG, arXiv:2601.21912). `Σ advantage · num_tokens = 0`.
///
/// All are exactly 0 if no step has tokens or all scores are equal.
pub fn step_advantages(group: &[Vec<ScoredStep>]) -> Vec<Vec<f64>> {
    let counted: Vec<ScoredStep> = group.iter().flatten().copied().filter(|step| step.num_tokens > 0).collect();
    let scores: Vec<f64> = counted.iter().map(|step| step.score).collect();
    if are_equal(&scores) {
        return group.iter().map(|steps| vec![0.0; steps.len()]).collect();
    }
    let weights: Vec<f64> = counted.iter().map(|step| step.num_tokens as f64).collect();
    let total: f64 = weights.iter().sum();
    let mean = scores.iter().zip(&weights).map(|(score, weight)| score * weight).sum::<f64>() / total;
    let variance = scores.iter().zip(&weights).map(|(score, weight)| (score - mean).powi(2) * weight).sum::<f64>() / total;
    let divisor = (variance + VARIANCE_EPSILON).sqrt();
    group.iter().map(|steps| steps.iter().map(|step| (step.score - mean) / divisor).collect()).collect()
}

/// ProRAG's advantage of a token: `outcome + step_weight · step`, the trajectory's by [`group_advantages`] and its step's by
/// [`step_advantages`]. ProRAG runs with `step_weight` 0.3.
pub fn dual_advantage(outcome: f64, step: f64, step_weight: f64) -> f64 {
    outcome + step_weight * step
}

/// Generalised advantage estimation over the trainable tokens of one trajectory (Schulman et al. 2016, arXiv:1506.02438): advantages,
/// and the returns `advantage + value` that the values are to learn.
///
/// `rewards`, `values`, `trainable`: one entry per token, `[T]`. Tokens that the policy did not write are skipped as if they were not
/// there: neither their rewards nor their values count, the token after a passage follows the one before it, and their own advantage and
/// return are 0. So the reward of the outcome belongs to the last trainable token. `gamma`, `lambda`: 0 to 1.
pub fn gae(rewards: &[f64], values: &[f64], trainable: &[bool], gamma: f64, lambda: f64) -> (Vec<f64>, Vec<f64>) {
    debug_assert!(rewards.len() == values.len() && rewards.len() == trainable.len());
    let (mut advantages, mut returns) = (vec![0.0; rewards.len()], vec![0.0; rewards.len()]);
    let (mut next_advantage, mut next_value) = (0.0, 0.0);
    for token in (0..rewards.len()).rev().filter(|&token| trainable[token]) {
        let delta = rewards[token] + gamma * next_value - values[token];
        next_advantage = delta + gamma * lambda * next_advantage;
        next_value = values[token];
        advantages[token] = next_advantage;
        returns[token] = next_advantage + next_value;
    }
    (advantages, returns)
}

/// Scales the advantages of the trainable tokens to variance 1, and with `shift_mean` moves their mean to 0; the others become 0.
///
/// `(A − mean) / sqrt(variance + 1e-8)`, the variance being that of a sample, as in the PPO of TRL and verl. Fewer than two trainable
/// tokens have no variance: they are only shifted.
pub fn whiten(advantages: &mut [f64], trainable: &[bool], shift_mean: bool) {
    debug_assert_eq!(advantages.len(), trainable.len());
    let counted: Vec<f64> =
        advantages.iter().zip(trainable).filter(|(_, trainable)| **trainable).map(|(advantage, _)| *advantage).collect();
    let center = mean(&counted);
    let divisor = if counted.len() < 2 { 1.0 } else { (sample_variance(&counted) + VARIANCE_EPSILON).sqrt() };
    let base = if shift_mean { 0.0 } else { center };
    for (advantage, &trainable) in advantages.iter_mut().zip(trainable) {
        *advantage = if trainable { (*advantage - center) / divisor + base } else { 0.0 };
    }
}

fn scaled(rewards: &[f64], scaling: AdvantageScaling, batch: &[f64]) -> Vec<f64> {
    // The mean of equal numbers may differ from them by a rounding error, which the division would blow up.
    if are_equal(rewards) {
        return vec![0.0; rewards.len()];
    }
    let divisor = match scaling {
        AdvantageScaling::GroupStd => sample_variance(rewards).sqrt() + STD_EPSILON,
        AdvantageScaling::BatchStd => sample_variance(batch).sqrt() + STD_EPSILON,
        AdvantageScaling::None => 1.0,
    };
    let center = mean(rewards);
    rewards.iter().map(|reward| (reward - center) / divisor).collect()
}

/// Whether there are not two different numbers.
fn are_equal(numbers: &[f64]) -> bool {
    numbers.windows(2).all(|pair| pair[0] == pair[1])
}

/// 0 of nothing.
fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

/// With Bessel's correction; 0 of fewer than two.
fn sample_variance(numbers: &[f64]) -> f64 {
    let center = mean(numbers);
    let num_free = numbers.len().saturating_sub(1).max(1) as f64;
    numbers.iter().map(|number| (number - center).powi(2)).sum::<f64>() / num_free
}
