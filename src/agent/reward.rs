//! What a trajectory earns: by its answer, by the format that it keeps, less what needless searches cost. The tree search and online training earn by it,
//! with the functions that SQL has (`exact_match`, `f1_score`, `outcome_reward`, `redundant_searches`).

use rolloutdb_udfs::metrics::{KeptFormat, Outcome, OutcomeReward, Variant, exact_match_of, f1_score_of, redundant_searches};
use serde::{Deserialize, Serialize};

use super::environment::StepRecord;
use super::options::{at_least_zero, boolean, choice, out_of_range};
use super::protocol::{Protocol, kept_format};
use crate::error::Result;
use crate::value::Value;

/// Decay per step of [`OutcomeReward::ReasonRag`], as `outcome_reward` has it by default.
const ALPHA: f64 = 0.9;

/// By which score an answer earns its reward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerReward {
    F1,
    #[serde(rename = "em")]
    ExactMatch,
    /// As a published system, with its words and equal answers.
    ReasonRag,
    ProRag,
    #[serde(rename = "search_r1")]
    SearchR1,
    R3Rag,
}

const REWARDS: &[(&str, AnswerReward)] = &[
    ("f1", AnswerReward::F1),
    ("em", AnswerReward::ExactMatch),
    ("reasonrag", AnswerReward::ReasonRag),
    ("prorag", AnswerReward::ProRag),
    ("search_r1", AnswerReward::SearchR1),
    ("r3rag", AnswerReward::R3Rag),
];

/// The options of a reward.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RewardOptions {
    pub reward: AnswerReward,
    /// Whose words and equal answers; those of a published system's reward are its own.
    pub reward_variant: Variant,
    /// Whether the format counts; None: as published.
    pub format_reward: Option<bool>,
    /// What each query that was asked before in the trajectory takes away, >= 0.
    pub redundant_search_penalty: f64,
    /// What each step whose searches found nothing takes away, >= 0.
    pub empty_search_penalty: f64,
}

impl Default for RewardOptions {
    fn default() -> Self {
        Self {
            reward: AnswerReward::F1,
            reward_variant: Variant::Squad,
            format_reward: None,
            redundant_search_penalty: 0.0,
            empty_search_penalty: 0.0,
        }
    }
}

impl RewardOptions {
    pub const NAMES: [&'static str; 5] = ["reward", "reward_variant", "format_reward", "redundant_search_penalty", "empty_search_penalty"];

    /// Sets one option; `false` if it is not one of [`Self::NAMES`].
    ///
    /// # Errors
    /// [`crate::error::Error::WrongType`], [`crate::error::Error::InvalidParameter`]; nothing changes then.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<bool> {
        match name {
            "reward" => self.reward = choice(name, value, REWARDS)?,
            "reward_variant" => self.reward_variant = choice(name, value, Variant::ALL)?,
            "format_reward" => self.format_reward = Some(boolean(name, value)?),
            "redundant_search_penalty" => self.redundant_search_penalty = at_least_zero(name, value)?,
            "empty_search_penalty" => self.empty_search_penalty = at_least_zero(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What an option that is given must have beside it to have an effect; None if it has one.
    pub fn missing_for(&self, name: &str) -> Option<&'static str> {
        let system = self.reward.system();
        match name {
            "reward_variant" if system.is_some() => Some("reward = 'f1' or 'em' beside it: a published reward compares as its system does"),
            "format_reward" if system.is_none_or(|system| system == OutcomeReward::ReasonRag) => {
                Some("reward = 'prorag', 'search_r1' or 'r3rag' beside it")
            }
            _ => None,
        }
    }

    /// # Errors
    /// [`crate::error::Error::InvalidParameter`] for an option that is given and would have no effect, naming what is missing.
    pub fn check_effect(&self, name: &str, value: &Value) -> Result<()> {
        self.missing_for(name).map_or(Ok(()), |expected| Err(out_of_range(name, value, expected)))
    }

    /// Whether the format of a trajectory counts.
    pub fn has_format(&self) -> bool {
        self.reward.system().is_some() && self.format_reward.unwrap_or(self.has_published_format())
    }

    /// As published, ProRAG and R3-RAG reward the format, and the first version of Search-R1 does not.
    fn has_published_format(&self) -> bool {
        matches!(self.reward, AnswerReward::ProRag | AnswerReward::R3Rag)
    }

    /// The same options, in which what holds anyway is not said.
    #[must_use]
    pub fn settled(self) -> Self {
        Self { format_reward: self.format_reward.filter(|counts| *counts != self.has_published_format()), ..self }
    }

    /// What a trajectory earns that has come to its end. `steps`: all of them, from the question on. `golds`: at least one accepted answer.
    ///
    /// Within [0, 1] by F1 and exact match without penalties; else within the range of the published reward, less the penalties.
    pub fn of(&self, protocol: &dyn Protocol, steps: &[&StepRecord], golds: &[&str]) -> f64 {
        let answer = steps.last().and_then(|step| step.action.answer());
        let earned = match self.reward.system() {
            Some(system) => system.of(&Outcome {
                answer,
                golds,
                well_formed: self.has_format().then(|| {
                    let kept = kept_format_of(protocol, steps);
                    if system == OutcomeReward::R3Rag { kept.steps } else { kept.trajectory }
                }),
                steps: steps.len() as f64,
                alpha: ALPHA,
            }),
            None => {
                let score = if self.reward == AnswerReward::F1 { f1_score_of } else { exact_match_of };
                answer.map_or(0.0, |answer| score(self.reward_variant, answer, golds))
            }
        };
        earned - self.penalty(steps)
    }

    fn penalty(&self, steps: &[&StepRecord]) -> f64 {
        let mut penalty = 0.0;
        if self.redundant_search_penalty > 0.0 {
            penalty += self.redundant_search_penalty * redundant_searches(steps.iter().filter_map(|step| step.query())) as f64;
        }
        if self.empty_search_penalty > 0.0 {
            penalty += self.empty_search_penalty * steps.iter().filter(|step| step.found_nothing()).count() as f64;
        }
        penalty
    }
}

impl AnswerReward {
    /// Whose it is; None for a plain score.
    fn system(self) -> Option<OutcomeReward> {
        match self {
            Self::F1 | Self::ExactMatch => None,
            Self::ReasonRag => Some(OutcomeReward::ReasonRag),
            Self::ProRag => Some(OutcomeReward::ProRag),
            Self::SearchR1 => Some(OutcomeReward::SearchR1),
            Self::R3Rag => Some(OutcomeReward::R3Rag),
        }
    }
}

/// What these steps keep of their protocol's format.
pub fn kept_format_of(protocol: &dyn Protocol, steps: &[&StepRecord]) -> KeptFormat {
    kept_format(protocol, steps.iter().map(|step| (step.state, &*step.response)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::answer;
    use crate::agent::testing::{MemoryCorpus, Script, agent_of};

    /// Two queries for the same, of which one finds nothing, and an answer outside of its format.
    const TEXTS: &[&str] = &[
        "<think>Who?</think><search>Jaws directed</search>",
        "<think>Again.</think><search>the Jaws directed!</search>",
        "<think>Perhaps.</think><search>snow</search>",
        "It is <answer>born in 1946</answer>",
    ];

    async fn earned(options: &[(&str, Value)]) -> f64 {
        let mut reward = RewardOptions::default();
        for (name, value) in options {
            assert!(reward.set(name, value).unwrap(), "{name}");
            reward.check_effect(name, value).unwrap();
        }
        let agent = agent_of("search_r1", Script::new(TEXTS), MemoryCorpus::films());
        let trajectory = answer(&agent, Some("When was the director of Jaws born?"), "q").await.unwrap();
        assert_eq!(trajectory.steps.len(), 4);
        reward.of(&*agent.protocol, &trajectory.steps.iter().collect::<Vec<_>>(), &["1946", "in 1946"])
    }

    fn named(reward: &str) -> (&'static str, Value) {
        ("reward", Value::Text(reward.to_owned()))
    }

    #[tokio::test]
    async fn answers_formats_and_searches_count() {
        // Two words of three are the best golden answer's two.
        assert!((earned(&[]).await - 0.8).abs() < 1e-12);
        assert!((earned(&[named("em")]).await).abs() < 1e-12);
        assert!((earned(&[named("reasonrag")]).await - 0.8 * 0.9_f64.powi(4)).abs() < 1e-12);
        let format = |counts| ("format_reward", Value::Bool(counts));
        assert!((earned(&[named("prorag"), format(false)]).await - 1.6).abs() < 1e-12);
        assert!((earned(&[named("prorag")]).await - 0.6).abs() < 1e-12, "as published the broken format costs 1");
        assert!((earned(&[named("search_r1")]).await).abs() < 1e-12);
        assert!((earned(&[named("search_r1"), format(true)]).await - 0.1).abs() < 1e-12, "an answer that is wrong, and its format too");
        assert!((earned(&[named("r3rag")]).await + 0.9).abs() < 1e-12, "a step is malformed");
        let redundant = ("redundant_search_penalty", Value::Float(0.25));
        let empty = ("empty_search_penalty", Value::Int(1));
        assert!((earned(std::slice::from_ref(&redundant)).await - 0.55).abs() < 1e-12);
        assert!((earned(&[redundant, empty]).await + 0.45).abs() < 1e-12);
    }

    #[test]
    fn an_option_has_an_effect_or_is_refused() {
        let plain = RewardOptions::default();
        let of = |reward| RewardOptions { reward, ..plain };
        for (options, name) in [
            (plain, "format_reward"),
            (of(AnswerReward::ExactMatch), "format_reward"),
            (of(AnswerReward::ReasonRag), "format_reward"),
            (of(AnswerReward::SearchR1), "reward_variant"),
        ] {
            let error = options.check_effect(name, &Value::Bool(true)).unwrap_err().to_string();
            assert!(error.contains("expected reward = "), "{error}");
        }
        for (name, reward) in REWARDS {
            let options = RewardOptions { reward: *reward, ..plain };
            assert_eq!(options.has_format(), matches!(*name, "prorag" | "r3rag"), "{name}");
            assert!(!RewardOptions { format_reward: Some(false), ..options }.has_format());
        }
        // A stored reward has the name that SQL has for it.
        for (name, reward) in REWARDS {
            assert_eq!(serde_json::to_value(reward).unwrap(), *name);
        }
    }
}
