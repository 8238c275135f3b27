//! What a trajectory earns for its outcome, by the functions that SQL has (`exact_match`, `f1_score`, `outcome_reward`).

use rolloutdb_udfs::metrics::{KeptFormat, Outcome, OutcomeReward, WrittenStep, exact_match, f1_score};

use super::questions::TrainingQuestion;
use crate::agent::Trajectory;
use crate::agent::protocol::Protocol;
use crate::engine::function::formats;
use crate::error::{Error, Result};
use crate::training::SampledTrajectory;

/// Decay per step of [`OutcomeReward::ReasonRag`], as `outcome_reward` has it by default.
const ALPHA: f64 = 0.9;

/// The option `reward`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reward {
    ExactMatch,
    F1,
    /// Of a published system; with its reward for the format or without.
    Published(OutcomeReward, bool),
}

const REWARDS: [(&str, Reward); 6] = [
    ("em", Reward::ExactMatch),
    ("f1", Reward::F1),
    ("reasonrag", Reward::Published(OutcomeReward::ReasonRag, false)),
    // As published: ProRAG and R3-RAG reward the format, the first version of Search-R1 does not.
    ("prorag", Reward::Published(OutcomeReward::ProRag, true)),
    ("search_r1", Reward::Published(OutcomeReward::SearchR1, false)),
    ("r3rag", Reward::Published(OutcomeReward::R3Rag, true)),
];

impl Reward {
    /// The reward of this name; `format`: whether it looks at the format, where that is said.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for an unknown name, and for a `format` that the reward does not have.
    pub fn of(name: &str, format: Option<bool>) -> Result<Self> {
        let invalid = |option: &str, found: String, expected: &str| {
            Err(Error::InvalidParameter { name: option.to_owned(), found, expected: expected.to_owned() })
        };
        let Some((_, reward)) = REWARDS.into_iter().find(|(known, _)| *known == name) else {
            return invalid("reward", format!("'{name}'"), "'em', 'f1', 'reasonrag', 'prorag', 'search_r1' or 'r3rag'");
        };
        match (reward, format) {
            (reward, None) => Ok(reward),
            (Self::ExactMatch | Self::F1 | Self::Published(OutcomeReward::ReasonRag, _), Some(format)) => {
                invalid("format_reward", format.to_string(), "reward = 'prorag', 'search_r1' or 'r3rag' beside it")
            }
            (Self::Published(system, _), Some(format)) => Ok(Self::Published(system, format)),
        }
    }

    /// Its name in SQL, and whether it looks at the format.
    pub fn shown(self) -> (&'static str, bool) {
        let is_same = |other: Self| match (self, other) {
            (Self::Published(system, _), Self::Published(other, _)) => system == other,
            (reward, other) => reward == other,
        };
        let name = REWARDS.into_iter().find(|(_, reward)| is_same(*reward)).map_or("em", |(name, _)| name);
        (name, matches!(self, Self::Published(_, true)))
    }

    /// The outcome of a trajectory; its calls are still to be added. Beside it what it keeps of its protocol's format.
    ///
    /// # Errors
    /// [`Error::UnknownOption`] for a state that the protocol does not have.
    pub fn outcome(
        self,
        protocol: &dyn Protocol,
        question: &TrainingQuestion,
        trajectory: &Trajectory,
    ) -> Result<(SampledTrajectory, KeptFormat)> {
        let steps = trajectory.steps.iter().map(|step| WrittenStep { state: step.state.as_str(), response: &step.response });
        let steps: Vec<WrittenStep<'_>> = steps.collect();
        let kept = formats::kept(protocol, &steps)?;
        let (answer, golds) = (trajectory.answer.as_deref(), golds(question));
        let exact_match = answer.map_or(0.0, |answer| exact_match(answer, &golds));
        let f1 = answer.map_or(0.0, |answer| f1_score(answer, &golds));
        let reward = match self {
            Self::ExactMatch => exact_match,
            Self::F1 => f1,
            Self::Published(system, has_format) => {
                let well_formed = if system == OutcomeReward::R3Rag { kept.steps } else { kept.trajectory };
                let steps = trajectory.steps.len() as f64;
                system.of(&Outcome { answer, golds: &golds, well_formed: has_format.then_some(well_formed), steps, alpha: ALPHA })
            }
        };
        let (is_answered, is_well_formed) = (answer.is_some(), kept.trajectory);
        Ok((SampledTrajectory { calls: Vec::new(), reward, exact_match, f1, is_answered, is_well_formed }, kept))
    }
}

/// The accepted answers, as the metrics take them.
pub fn golds(question: &TrainingQuestion) -> Vec<&str> {
    question.golden_answers.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewards_have_names_and_their_published_formats() {
        for (name, reward) in REWARDS {
            assert_eq!(Reward::of(name, None).expect(name), reward);
            assert_eq!(reward.shown().0, name);
        }
        assert_eq!(Reward::of("prorag", None).expect("it is known").shown(), ("prorag", true));
        assert_eq!(Reward::of("prorag", Some(false)).expect("it has a format").shown(), ("prorag", false));
        assert_eq!(Reward::of("search_r1", Some(true)).expect("it has a format").shown(), ("search_r1", true));
        for (name, format) in [("exact", None), ("f1", Some(true)), ("reasonrag", Some(false))] {
            assert!(matches!(Reward::of(name, format), Err(Error::InvalidParameter { .. })), "{name}");
        }
    }
}
