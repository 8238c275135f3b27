//! What an online TRAIN is to do: its options, checked before any row is read.

use rolloutdb_sql::{Train, TrainMethod};
use serde_json::{Map, Value as Json, json};

use super::super::task::{OnDivergence, check_adapters, check_stopping_metric, check_validation, of_run};
use crate::agent::{AnswerReward, RewardOptions};
use crate::engine::options;
use crate::error::{Error, Result};
use crate::models::DecoderConfig;
use crate::training::{CriticOptions, GroupOptions, Learner, ONLINE_STATEMENT_OPTIONS, OnlineOptions, STATEMENT_OPTIONS, scaling_name};

/// Of what is learned by examples, and not sampled.
const NOT_IN_FORCE: [&str; 3] = ["gradient_accumulation", "long_prompts", "group_by_prefix"];

/// R3-RAG adds the rewards of steps as they are (arXiv:2505.23794).
const JUDGE_STEP_WEIGHT: f64 = 1.0;

/// Who scores steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepScores {
    /// A process reward model; with ProRAG's reward for the format of a step or without.
    Prm { model: String, has_format: bool },
    /// A model that says how relevant is what a step found, of which R3-RAG's reward is made.
    Judge { model: String },
}

/// What an online TRAIN is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct OnlineTask {
    pub options: OnlineOptions,
    pub agent: String,
    pub reward: RewardOptions,
    pub step_scores: Option<StepScores>,
    pub resume: bool,
    pub on_divergence: OnDivergence,
}

impl OnlineTask {
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::InvalidParameter`] and [`Error::WrongType`] for options; [`Error::Internal`] for a method that learns from rows.
    pub fn of(train: &Train) -> Result<Self> {
        let mut learning = match train.method {
            TrainMethod::Grpo => OnlineOptions::grpo(),
            TrainMethod::Ppo => OnlineOptions::ppo(),
            other => return Err(Error::Internal(format!("TRAIN {other} samples nothing"))),
        };
        let given = &train.options;
        let is_own = |name: &str| STATEMENT_OPTIONS.contains(&name) || ONLINE_STATEMENT_OPTIONS.contains(&name);
        for (name, value) in given.iter().filter(|(name, _)| !is_own(name)) {
            learning.set(name, &options::value(name, value)?).map_err(with_own_names)?;
        }
        learning.check()?;
        check_validation(&learning.run, train.validate.is_some())?;
        check_stopping_metric(&learning.run, &["reward", "exact_match", "f1", "answered", "well_formed"])?;
        check_adapters(given, &learning.run)?;
        learning.run.device.check_training()?;
        let step_scores = step_scores(train)?;
        if matches!(step_scores, Some(StepScores::Judge { .. })) && !learning.run.given.contains_key("step_weight") {
            learning.step_weight = JUDGE_STEP_WEIGHT;
        }
        if let (None, Some(weight)) = (&step_scores, learning.run.given.get("step_weight")) {
            return Err(invalid("step_weight", weight.to_string(), "prm or judge beside it, which score the steps"));
        }
        let agent = options::text(given, "agent")?;
        let no_agent = || invalid("agent", "(not set)".to_owned(), "the name of an agent, as CREATE AGENT made it");
        Ok(Self {
            agent: agent.ok_or_else(no_agent)?.to_owned(),
            reward: reward(train)?,
            step_scores,
            resume: options::boolean(given, "resume", true)?,
            on_divergence: OnDivergence::of(given)?,
            options: learning,
        })
    }

    /// No sequence is longer than what the model reads.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for adapters that the model cannot have.
    pub fn fit(&mut self, config: &DecoderConfig) -> Result<()> {
        let run = &mut self.options.run;
        run.max_length = run.max_length.min(config.max_position_embeddings);
        run.lora.as_ref().map_or(Ok(()), |lora| lora.num_parameters(config).map(|_| ()))
    }

    /// Of a sequence, prompt and completion of one policy call: it passes the model at once.
    pub fn tokens_max(&self) -> usize {
        self.options.run.max_length.min(self.options.run.batch_tokens)
    }

    /// The options in force by name, defaults too; those that say nothing are left out.
    pub fn in_force(&self) -> Json {
        let learning = &self.options;
        let mut all = of_run(&learning.run);
        NOT_IN_FORCE.iter().for_each(|name| drop(all.remove(*name)));
        let mut set = |name: &str, value: Json| drop(all.insert(name.to_owned(), value));
        let RewardOptions { reward, reward_variant, redundant_search_penalty, empty_search_penalty, .. } = self.reward;
        set("agent", json!(self.agent));
        set("reward", json!(reward));
        set("format_reward", json!(self.reward.has_format()));
        if self.reward.missing_for("reward_variant").is_none() {
            set("reward_variant", json!(reward_variant));
        }
        set("redundant_search_penalty", json!(redundant_search_penalty));
        set("empty_search_penalty", json!(empty_search_penalty));
        set("batch_size", json!(learning.batch_size));
        set("group_size", json!(learning.group_size));
        set("temperature", json!(learning.temperature));
        set("updates_per_batch", json!(learning.updates_per_batch));
        set("mini_batches", json!(learning.mini_batches));
        set("loss_normalization", json!(learning.normalization.name()));
        set("clip_low", json!(learning.clip.low));
        set("clip_high", json!(learning.clip.high));
        set("kl_weight", json!(learning.kl_weight));
        set("entropy_weight", json!(learning.entropy_weight));
        match &self.step_scores {
            None => {}
            Some(StepScores::Prm { model, has_format }) => {
                set("prm", json!(model));
                set("step_format", json!(has_format));
                set("step_weight", json!(learning.step_weight));
            }
            Some(StepScores::Judge { model }) => {
                set("judge", json!(model));
                set("step_weight", json!(learning.step_weight));
            }
        }
        all.extend(of_learner(&learning.learner));
        Json::Object(all)
    }
}

fn of_learner(learner: &Learner) -> Map<String, Json> {
    let all = match learner {
        Learner::Group(GroupOptions { estimator, scaling, likelihood_guard }) => json!({
            "estimator": estimator.name(),
            "advantage_scaling": scaling_name(*scaling),
            "likelihood_guard": likelihood_guard,
        }),
        Learner::Critic(CriticOptions { gamma, lambda, scope, value_clip, critic_learning_rate, whiten }) => json!({
            "gamma": gamma,
            "lambda": lambda,
            "gae_scope": scope.name(),
            "value_clip": value_clip,
            "critic_learning_rate": critic_learning_rate,
            "whiten_advantages": whiten,
        }),
    };
    if let Json::Object(all) = all { all } else { Map::new() }
}

/// Exact match unless it is said.
fn reward(train: &Train) -> Result<RewardOptions> {
    let mut reward = RewardOptions { reward: AnswerReward::ExactMatch, ..RewardOptions::default() };
    let is_reward = |name: &str| RewardOptions::NAMES.contains(&name);
    let given = train.options.iter().filter(|(name, _)| is_reward(name));
    let given = given.map(|(name, value)| Ok((name, options::value(name, value)?))).collect::<Result<Vec<_>>>()?;
    for (name, value) in &given {
        reward.set(name, value)?;
    }
    given.iter().try_for_each(|(name, value)| reward.check_effect(name, value))?;
    Ok(reward)
}

fn step_scores(train: &Train) -> Result<Option<StepScores>> {
    let given = &train.options;
    let (prm, judge) = (options::text(given, "prm")?, options::text(given, "judge")?);
    let has_format = options::boolean(given, "step_format", false)?;
    match (prm, judge) {
        (Some(_), Some(judge)) => Err(invalid("judge", format!("'{judge}'"), "no prm beside it: one of them scores the steps")),
        (Some(prm), None) => Ok(Some(StepScores::Prm { model: prm.to_owned(), has_format })),
        (None, _) if given.get("step_format").is_some() => Err(invalid("step_format", has_format.to_string(), "prm beside it")),
        (None, Some(judge)) => Ok(Some(StepScores::Judge { model: judge.to_owned() })),
        (None, None) => Ok(None),
    }
}

/// The options of the statement are among those that it has.
fn with_own_names(error: Error) -> Error {
    match error {
        Error::UnknownOption { kind, name, of, mut known } => {
            known.extend(ONLINE_STATEMENT_OPTIONS.iter().chain(STATEMENT_OPTIONS).map(|&name| name.to_owned()));
            Error::UnknownOption { kind, name, of, known }
        }
        other => other,
    }
}

fn invalid(name: &str, found: String, expected: &str) -> Error {
    Error::InvalidParameter { name: name.to_owned(), found, expected: expected.to_owned() }
}

#[cfg(test)]
mod tests {
    use rolloutdb_sql::Statement;

    use super::*;

    fn task(method: &str, given: &str) -> Result<OnlineTask> {
        let text = format!("TRAIN {method} MODEL m FROM b USING (SELECT 1) WITH ({given})");
        match rolloutdb_sql::parse(&text)?.pop() {
            Some(Statement::Train(train)) => OnlineTask::of(&train),
            other => panic!("{text} is read as {other:?}"),
        }
    }

    #[test]
    fn what_is_given_is_in_force() {
        let given = "agent = 'qa', reward = 'prorag', format_reward = off, prm = 'p', step_format = true, step_weight = 0.5, group_size = 4, \
            loss_normalization = 'dr_grpo', advantage_scaling = 'none', clip_high = 0.28, kl_weight = 0.01, lora_rank = 4, resume = false";
        let task = task("GRPO", given).expect("they fit together");
        assert_eq!((task.agent.as_str(), task.resume), ("qa", false));
        assert_eq!((task.reward.reward, task.reward.has_format()), (AnswerReward::ProRag, false));
        let in_force = task.in_force();
        let expected = json!({
            "agent": "qa", "reward": "prorag", "format_reward": false, "prm": "p", "step_format": true, "step_weight": 0.5, "group_size": 4,
            "loss_normalization": "dr_grpo", "advantage_scaling": "none", "clip_high": 0.28, "clip_low": 0.2, "kl_weight": 0.01, "lora_rank": 4,
            "estimator": "grpo", "updates_per_batch": 1, "temperature": 1.0, "learning_rate": 1e-6,
        });
        for (name, value) in expected.as_object().expect("it is one") {
            assert_eq!(&in_force[name], value, "{name}");
        }
        assert!(NOT_IN_FORCE.iter().chain(&["step_tokens"]).all(|name| in_force[name].is_null()), "{in_force}");
    }

    #[test]
    fn ppo_has_a_critic() {
        let task = task("PPO", "agent = 'qa', judge = 'j', gae_scope = 'step', lambda = 0.95").expect("they fit together");
        assert_eq!(task.step_scores, Some(StepScores::Judge { model: "j".to_owned() }));
        let in_force = task.in_force();
        assert_eq!((&in_force["lambda"], &in_force["gae_scope"], &in_force["judge"]), (&json!(0.95), &json!("step"), &json!("j")));
        assert!(in_force["estimator"].is_null());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (method, given) in [
            ("GRPO", "reward = 'em'"),
            ("GRPO", "agent = 'qa', group_size = 1"),
            ("GRPO", "agent = 'qa', temperature = 0"),
            ("GRPO", "agent = 'qa', reward = 'exact'"),
            ("GRPO", "agent = 'qa', format_reward = true"),
            ("GRPO", "agent = 'qa', reward = 'prorag', reward_variant = 'prorag'"),
            ("GRPO", "agent = 'qa', reward = 'reasonrag', format_reward = true"),
            ("PPO", "agent = 'qa', empty_search_penalty = -0.1"),
            ("GRPO", "agent = 'qa', step_weight = 0.3"),
            ("GRPO", "agent = 'qa', step_format = true"),
            ("GRPO", "agent = 'qa', prm = 'p', judge = 'j'"),
            ("GRPO", "agent = 'qa', likelihood_guard = 0.1"),
            ("GRPO", "agent = 'qa', estimator = 'reinforce', clip_low = 0.1"),
            ("GRPO", "agent = 'qa', estimator = 'reinforce', updates_per_batch = 2"),
            ("GRPO", "agent = 'qa', evaluate_every = 2"),
            ("GRPO", "agent = 'qa', lora_keep = true"),
            ("PPO", "agent = 'qa', value_clip = 0"),
        ] {
            let found = task(method, given);
            assert!(matches!(found, Err(Error::InvalidParameter { .. })), "{method} {given}: {found:?}");
        }
        for (method, given) in [
            ("GRPO", "agent = 'qa', grup_size = 4"),
            ("GRPO", "agent = 'qa', gae_scope = 'step'"),
            ("GRPO", "agent = 'qa', gradient_accumulation = 2"),
            ("PPO", "agent = 'qa', estimator = 'grpo'"),
            ("PPO", "agent = 'qa', long_prompts = 'drop'"),
        ] {
            let found = task(method, given);
            let is_known = |known: &[String]| known.iter().any(|known| known == "agent");
            assert!(matches!(&found, Err(Error::UnknownOption { known, .. }) if is_known(known)), "{method} {given}: {found:?}");
        }
    }
}
