//! The options of `TRAIN GRPO` and `TRAIN PPO`: names, defaults and ranges.
//!
//! Both sample trajectories with the weights of the moment and learn from them at once; they differ in where advantages come from: the group of a question's
//! trajectories, or a critic. Who samples and what a trajectory earns is the caller's ([`super::RolloutSource`]).

use super::order::QuestionOrder;
use crate::error::{Error, Result};
use crate::training::losses::{AdvantageScaling, Clip, TokenNormalizer};
use crate::training::options::{RunOptions, between_0_and_1, boolean, count, invalid, not_negative, number, positive, text, unknown};
use crate::training::schedule::Schedule;
use crate::value::Value;

/// Options of [`RunOptions`] that mean nothing where examples are sampled: a step has the trajectories of `batch_size` questions, and a prompt is never cut.
const NOT_ONLINE: [&str; 4] = ["gradient_accumulation", "step_tokens", "long_prompts", "group_by_prefix"];

/// Options of an online TRAIN that its statement reads itself: who acts, and what that earns.
pub const ONLINE_STATEMENT_OPTIONS: &[&str] = &[
    "agent",
    "reward",
    "reward_variant",
    "format_reward",
    "redundant_search_penalty",
    "empty_search_penalty",
    "prm",
    "judge",
    "step_format",
];

/// Of [`RunOptions`], those that online training has.
macro_rules! online_names {
    ($($own:literal),*) => {
        &[
            "epochs", "max_steps", "learning_rate", "schedule", "warmup_ratio", "weight_decay", "adam_beta1", "adam_beta2", "max_grad_norm", "batch_tokens",
            "max_length", "shuffle", "seed", "checkpoint_every", "evaluate_every", "early_stopping", "early_stopping_metric", "recompute", "device",
            "tree_packing", "lora_rank", "lora_alpha", "lora_targets", "lora_rslora", "batch_size", "group_size", "temperature", "updates_per_batch", "mini_batches",
            "loss_normalization", "clip_low", "clip_high", "kl_weight", "entropy_weight", "step_weight", $($own),*
        ]
    };
}

/// How an online training learns.
#[derive(Debug, Clone, PartialEq)]
pub struct OnlineOptions {
    /// Without those that mean nothing here. A sequence, prompt and completion of one policy call, is at most `max_length` and `batch_tokens` long:
    /// longer ones are not sampled.
    pub run: RunOptions,
    /// Questions of a step, >= 1.
    pub batch_size: usize,
    /// Trajectories of each question, >= 1; at least 2 where they are compared with each other.
    pub group_size: usize,
    /// At which trajectories are sampled, and their probabilities taken, > 0.
    pub temperature: f64,
    /// Optimiser steps on the same trajectories, >= 1. From the second one on, probabilities are compared with those of before the first.
    pub updates_per_batch: usize,
    /// Parts of a step's questions, >= 1, each of which has optimiser steps of its own, one after the other in each update; at most one for each question.
    pub mini_batches: usize,
    /// What the sum over all tokens of a step is divided by; with several parts, of a part.
    pub normalization: Normalization,
    /// How far probabilities may leave those of the policy that sampled.
    pub clip: Clip,
    /// Weight of the KL divergence from the reference, >= 0: of the loss for [`Learner::Group`], of the rewards for [`Learner::Critic`].
    pub kl_weight: f64,
    /// Weight of the entropy of what tokens are sampled from, >= 0, which the loss falls with (arXiv:1602.01783).
    pub entropy_weight: f64,
    /// Weight of the steps' scores beside the outcome's reward, >= 0.
    pub step_weight: f64,
    pub learner: Learner,
}

/// What the sum over all tokens of a step is divided by; a sequence is a whole trajectory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalization {
    Sequence,
    Tokens,
    DrGrpo,
    Dapo,
}

/// Where advantages come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Learner {
    /// `TRAIN GRPO`: from the other trajectories of the question.
    Group(GroupOptions),
    /// `TRAIN PPO`: from a critic.
    Critic(CriticOptions),
}

/// What `TRAIN GRPO` has beside the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupOptions {
    pub estimator: Estimator,
    /// What centred rewards are divided by; [`Estimator::Reinforce`] does not read it.
    pub scaling: AdvantageScaling,
    /// Weight of the guard of likelihood, >= 0 ([`super::super::likelihood_guard`]).
    pub likelihood_guard: f64,
}

/// How a trajectory's advantage becomes a gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimator {
    /// Centred by the mean of the group, with the clipped ratio (arXiv:2402.03300).
    Grpo,
    /// Centred by the mean of the others, without a ratio: REINFORCE, leave one out (arXiv:2402.14740).
    Reinforce,
}

/// What `TRAIN PPO` has beside the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct CriticOptions {
    /// Discount by token, 0 to 1.
    pub gamma: f64,
    /// Of generalised advantage estimation, 0 to 1.
    pub lambda: f64,
    pub scope: GaeScope,
    /// How far a value may move towards its target before it is held, > 0.
    pub value_clip: f64,
    /// Peak learning rate of the critic, > 0.
    pub critic_learning_rate: f64,
    /// Whether the advantages of a step are scaled to mean 0 and variance 1.
    pub whiten: bool,
}

/// How far credit goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaeScope {
    /// From the end of a trajectory to its beginning, over what the policy wrote.
    Trajectory,
    /// To the beginning of each policy call, as R3-RAG has it (arXiv:2505.23794): what a call earns is its own score and, of the last one, the outcome.
    Step,
}

impl OnlineOptions {
    pub const GRPO_NAMES: &'static [&'static str] = online_names!("estimator", "advantage_scaling", "likelihood_guard");
    pub const PPO_NAMES: &'static [&'static str] =
        online_names!("gamma", "lambda", "gae_scope", "value_clip", "critic_learning_rate", "whiten_advantages");

    /// The defaults of `TRAIN GRPO`: eight trajectories of each of eight questions and one update, clip 0.2, no KL penalty, the sum over all tokens divided by their number.
    pub fn grpo() -> Self {
        let group = GroupOptions { estimator: Estimator::Grpo, scaling: AdvantageScaling::GroupStd, likelihood_guard: 0.0 };
        Self::of(Learner::Group(group), 8, 1)
    }

    /// The defaults of `TRAIN PPO`: four trajectories of each of eight questions and four updates, clips 0.2, undiscounted, no KL penalty.
    pub fn ppo() -> Self {
        let critic = CriticOptions {
            gamma: 1.0,
            lambda: 1.0,
            scope: GaeScope::Trajectory,
            value_clip: 0.2,
            critic_learning_rate: 1e-5,
            whiten: true,
        };
        Self::of(Learner::Critic(critic), 4, 4)
    }

    fn of(learner: Learner, group_size: usize, updates_per_batch: usize) -> Self {
        // A step costs many forward passes: none is spent on a learning rate of zero, and less is lost with a step.
        let run = RunOptions {
            learning_rate: 1e-6,
            schedule: Schedule::Constant,
            warmup_ratio: 0.0,
            checkpoint_every: 10,
            ..RunOptions::default()
        };
        Self {
            run,
            batch_size: 8,
            group_size,
            temperature: 1.0,
            updates_per_batch,
            mini_batches: 1,
            normalization: Normalization::Dapo,
            clip: Clip { low: 0.2, high: 0.2 },
            kl_weight: 0.0,
            entropy_weight: 0.0,
            step_weight: 0.3,
            learner,
        }
    }

    /// Optimiser steps of a run over so many questions, and how often a question is drawn in all of them; early stopping may end it sooner.
    pub fn num_steps_and_draws(&self, num_questions: usize) -> (usize, usize) {
        let order = QuestionOrder::new(num_questions, self.batch_size, &self.run);
        let num_steps = order.num_steps();
        (num_steps, (0..num_steps).map(|step| order.num_questions(step)).sum())
    }

    /// Optimiser steps on the trajectories of a step in so many parts. From the second one on the policy is not the one that sampled.
    pub(super) fn num_updates(&self, num_parts: usize) -> usize {
        self.updates_per_batch * num_parts
    }

    /// The statement that has these options.
    pub fn statement(&self) -> &'static str {
        match self.learner {
            Learner::Group(_) => "TRAIN GRPO",
            Learner::Critic(_) => "TRAIN PPO",
        }
    }

    /// Every name that [`Self::set`] knows.
    pub fn names(&self) -> &'static [&'static str] {
        match self.learner {
            Learner::Group(_) => Self::GRPO_NAMES,
            Learner::Critic(_) => Self::PPO_NAMES,
        }
    }

    /// Sets one option, in any order. How they fit together is for [`Self::check`].
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::InvalidParameter`] for a value of the wrong type or out of range.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "batch_size" => self.batch_size = count(name, value)?,
            "group_size" => self.group_size = count(name, value)?,
            "temperature" => self.temperature = positive(name, value)?,
            "updates_per_batch" => self.updates_per_batch = count(name, value)?,
            "mini_batches" => self.mini_batches = count(name, value)?,
            "loss_normalization" => self.normalization = Normalization::parse(name, value)?,
            "clip_low" => self.clip.low = number(name, value, |found| (0.0..1.0).contains(&found), "a number >= 0 and below 1")?,
            "clip_high" => self.clip.high = not_negative(name, value)?,
            "kl_weight" => self.kl_weight = not_negative(name, value)?,
            "entropy_weight" => self.entropy_weight = not_negative(name, value)?,
            "step_weight" => self.step_weight = not_negative(name, value)?,
            _ if self.learner.set(name, value)? => {}
            _ if !NOT_ONLINE.contains(&name) && self.run.set(name, value)? => return Ok(()),
            _ => return Err(unknown(name, self.statement(), self.names())),
        }
        self.run.remember(name, value);
        Ok(())
    }

    /// # Errors
    /// [`Error::InvalidParameter`] for options that do not fit together, or of which one would do nothing.
    pub fn check(&self) -> Result<()> {
        let Learner::Group(GroupOptions { estimator, likelihood_guard, .. }) = self.learner else { return Ok(()) };
        if self.group_size < 2 {
            return Err(expected("group_size", self.group_size, "at least 2: trajectories of a question are compared with each other"));
        }
        if estimator == Estimator::Reinforce {
            for (name, found) in [("updates_per_batch", self.updates_per_batch), ("mini_batches", self.mini_batches)] {
                if found > 1 {
                    return Err(expected(name, found, "1 with estimator = 'reinforce', which has no ratio"));
                }
            }
            let unread = ["advantage_scaling", "clip_low", "clip_high", "likelihood_guard"];
            if let Some((name, value)) = unread.into_iter().find_map(|name| Some((name, self.run.given.get(name)?))) {
                return Err(invalid(name, value, "estimator = 'grpo' beside it"));
            }
        }
        if likelihood_guard > 0.0 && self.num_updates(self.mini_batches.min(self.batch_size)) == 1 {
            let needed = "updates_per_batch or mini_batches of at least 2 beside it: in the first update nothing has become less likely";
            return Err(expected("likelihood_guard", likelihood_guard, needed));
        }
        Ok(())
    }
}

impl Learner {
    /// Sets the option `name`; `false` if it has none of this name.
    fn set(&mut self, name: &str, value: &Value) -> Result<bool> {
        match (self, name) {
            (Self::Group(group), "estimator") => group.estimator = Estimator::parse(name, value)?,
            (Self::Group(group), "advantage_scaling") => group.scaling = scaling(name, value)?,
            (Self::Group(group), "likelihood_guard") => group.likelihood_guard = not_negative(name, value)?,
            (Self::Critic(critic), "gamma") => critic.gamma = between_0_and_1(name, value)?,
            (Self::Critic(critic), "lambda") => critic.lambda = between_0_and_1(name, value)?,
            (Self::Critic(critic), "gae_scope") => critic.scope = GaeScope::parse(name, value)?,
            (Self::Critic(critic), "value_clip") => critic.value_clip = positive(name, value)?,
            (Self::Critic(critic), "critic_learning_rate") => critic.critic_learning_rate = positive(name, value)?,
            (Self::Critic(critic), "whiten_advantages") => critic.whiten = boolean(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Normalization {
    fn parse(name: &str, value: &Value) -> Result<Self> {
        let all = [Self::Sequence, Self::Tokens, Self::DrGrpo, Self::Dapo];
        let found = text(name, value)?;
        let known = all.into_iter().find(|normalization| normalization.name() == found);
        known.ok_or_else(|| invalid(name, value, "'sequence', 'tokens', 'dr_grpo' or 'dapo'"))
    }

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::Tokens => "tokens",
            Self::DrGrpo => "dr_grpo",
            Self::Dapo => "dapo",
        }
    }

    /// `completion_tokens_max`: that a trajectory can have.
    pub fn normalizer(self, completion_tokens_max: usize) -> TokenNormalizer {
        match self {
            Self::Sequence => TokenNormalizer::PerSequence,
            Self::Tokens => TokenNormalizer::ActiveTokens,
            Self::DrGrpo => TokenNormalizer::DrGrpo { completion_tokens_max },
            Self::Dapo => TokenNormalizer::Dapo,
        }
    }
}

impl Estimator {
    fn parse(name: &str, value: &Value) -> Result<Self> {
        match text(name, value)? {
            "grpo" => Ok(Self::Grpo),
            "reinforce" => Ok(Self::Reinforce),
            _ => Err(invalid(name, value, "'grpo' or 'reinforce'")),
        }
    }

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpo => "grpo",
            Self::Reinforce => "reinforce",
        }
    }
}

impl GaeScope {
    fn parse(name: &str, value: &Value) -> Result<Self> {
        match text(name, value)? {
            "trajectory" => Ok(Self::Trajectory),
            "step" => Ok(Self::Step),
            _ => Err(invalid(name, value, "'trajectory' or 'step'")),
        }
    }

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trajectory => "trajectory",
            Self::Step => "step",
        }
    }
}

fn scaling(name: &str, value: &Value) -> Result<AdvantageScaling> {
    match text(name, value)? {
        "group" => Ok(AdvantageScaling::GroupStd),
        "batch" => Ok(AdvantageScaling::BatchStd),
        "none" => Ok(AdvantageScaling::None),
        _ => Err(invalid(name, value, "'group', 'batch' or 'none'")),
    }
}

/// The name in SQL.
pub fn scaling_name(scaling: AdvantageScaling) -> &'static str {
    match scaling {
        AdvantageScaling::GroupStd => "group",
        AdvantageScaling::BatchStd => "batch",
        AdvantageScaling::None => "none",
    }
}

fn expected(name: &str, found: impl ToString, expected: &str) -> Error {
    Error::InvalidParameter { name: name.to_owned(), found: found.to_string(), expected: expected.to_owned() }
}
