//! What a trajectory that was sampled for training earns for its outcome, and what is measured beside it.

use rolloutdb_udfs::metrics::{KeptFormat, exact_match, f1_score};

use super::questions::TrainingQuestion;
use crate::agent::protocol::Protocol;
use crate::agent::{RewardOptions, StepRecord, Trajectory, kept_format_of};
use crate::training::SampledTrajectory;

/// The outcome of a trajectory; its calls are still to be added. Beside it what it keeps of its protocol's format.
pub fn outcome(
    reward: &RewardOptions,
    protocol: &dyn Protocol,
    question: &TrainingQuestion,
    trajectory: &Trajectory,
) -> (SampledTrajectory, KeptFormat) {
    let steps: Vec<&StepRecord> = trajectory.steps.iter().collect();
    let kept = kept_format_of(protocol, &steps);
    let (answer, golds) = (trajectory.answer.as_deref(), golds(question));
    let sampled = SampledTrajectory {
        calls: Vec::new(),
        reward: reward.of(protocol, &steps, &golds),
        exact_match: answer.map_or(0.0, |answer| exact_match(answer, &golds)),
        f1: answer.map_or(0.0, |answer| f1_score(answer, &golds)),
        is_answered: answer.is_some(),
        is_well_formed: kept.trajectory,
    };
    (sampled, kept)
}

/// The accepted answers, as the metrics take them.
pub fn golds(question: &TrainingQuestion) -> Vec<&str> {
    question.golden_answers.iter().map(String::as_str).collect()
}
