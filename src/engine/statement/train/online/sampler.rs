//! The statement's end of an online training: runs an agent with the weights that it is given, and says what its trajectories earn.

use std::sync::Arc;

use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::mpsc::UnboundedReceiver;

use super::questions::{Questions, TrainingQuestion};
use super::rewards::outcome;
use super::scores::StepScorer;
use super::source::{Groups, Request, Wanted};
use crate::agent::protocol::Protocol;
use crate::agent::{Agent, RewardOptions, Trajectory, answer_group};
use crate::engine::binding::{Environment, LocalPolicy};
use crate::error::Result;
use crate::models::random::CounterRng;
use crate::models::{Policy, Tokenizer};
use crate::training::{PolicyCall, SampledTrajectory};

/// Questions in flight: together with their groups as many sequences as decode at once.
const QUESTIONS_AT_ONCE: usize = 32;

/// Samples trajectories, and scores them.
pub struct Sampler {
    /// Of the agent that the statement names: protocol, prompts, corpus, retriever, `k`, `max_steps` and `max_tokens`. Its policy is another, and so is all
    /// that shapes how that is sampled.
    pub environment: Environment,
    pub protocol: Arc<dyn Protocol>,
    pub reward: RewardOptions,
    pub step_scorer: Option<StepScorer>,
    pub questions: Questions,
    pub seed: u64,
    /// Of a prompt and what is written after it.
    pub tokens_max: usize,
}

/// What shapes the distribution that is sampled from.
#[derive(Debug, Clone, Copy)]
pub struct Sampling {
    pub temperature: f64,
    pub seed: i64,
}

impl Sampler {
    /// Answers requests until nobody has any more.
    pub async fn serve(&self, mut requests: UnboundedReceiver<Request>) {
        while let Some(Request { policy, wanted, reply }) = requests.recv().await {
            let sampled = self.sampled(policy, wanted).await;
            // A thread that has ended meanwhile needs no answer.
            let _ = reply.send(sampled);
        }
    }

    async fn sampled(&self, policy: Policy, wanted: Wanted) -> Result<Groups> {
        match wanted {
            Wanted::Groups { step, questions, group_size, temperature } => {
                let questions = questions.into_iter().map(|index| &self.questions.learned[index]).collect();
                let sampling = Sampling { temperature, seed: seed_of(self.seed, step) };
                self.groups(policy, questions, group_size, sampling, self.step_scorer.as_ref()).await
            }
            Wanted::Measured => {
                // The most probable tokens need no seed.
                let sampling = Sampling { temperature: 0.0, seed: 0 };
                self.groups(policy, self.questions.measured.iter().collect(), 1, sampling, None).await
            }
        }
    }

    /// Groups of these questions, in order.
    ///
    /// # Errors
    /// Those of the agent and of the scorer.
    pub async fn groups(
        &self,
        policy: Policy,
        questions: Vec<&TrainingQuestion>,
        group_size: usize,
        sampling: Sampling,
        scorer: Option<&StepScorer>,
    ) -> Result<Groups> {
        let tokenizer = policy.tokenizer().clone();
        let agent = self.agent(policy, sampling)?;
        let (agent, tokenizer, questions) = (&agent, &tokenizer, &questions);
        let group = |index: usize| self.group(agent, tokenizer, questions[index], group_size, scorer);
        stream::iter(0..questions.len()).map(group).buffered(QUESTIONS_AT_ONCE).try_collect().await
    }

    /// The agent with this policy, which samples from its whole distribution at the temperature and from nothing else: the probabilities that training takes are
    /// those of what was sampled.
    ///
    /// # Errors
    /// As [`Environment::agent`].
    pub fn agent(&self, policy: Policy, sampling: Sampling) -> Result<Agent> {
        let policy = Arc::new(LocalPolicy::within(policy, self.tokens_max));
        let Sampling { temperature, seed } = sampling;
        Ok(Agent { temperature, top_p: 1.0, top_k: 0, min_p: 0.0, repetition_penalty: 1.0, seed, ..self.environment.agent(policy)? })
    }

    async fn group(
        &self,
        agent: &Agent,
        tokenizer: &Tokenizer,
        question: &TrainingQuestion,
        group_size: usize,
        scorer: Option<&StepScorer>,
    ) -> Result<Vec<SampledTrajectory>> {
        let trajectories = answer_group(agent, &question.question, &question.id, group_size).await?;
        try_join_all(trajectories.iter().map(|trajectory| self.scored(tokenizer, question, trajectory, scorer))).await
    }

    async fn scored(
        &self,
        tokenizer: &Tokenizer,
        question: &TrainingQuestion,
        trajectory: &Trajectory,
        scorer: Option<&StepScorer>,
    ) -> Result<SampledTrajectory> {
        let (mut sampled, kept) = outcome(&self.reward, self.protocol.as_ref(), question, trajectory);
        let scores = match scorer {
            Some(scorer) => scorer.scores(self.protocol.as_ref(), question, trajectory, kept).await?,
            None => vec![None; trajectory.steps.len()],
        };
        for (step, score) in trajectory.steps.iter().zip(scores) {
            sampled.calls.push(PolicyCall {
                // As the policy was asked.
                prompt: match step.known_prompt_ids() {
                    Some(ids) => ids.to_vec(),
                    None => tokenizer.encode_prompt(&step.prompt)?,
                },
                completion: step.token_ids.clone(),
                logprobs: step.token_logprobs.clone(),
                score,
            });
        }
        Ok(sampled)
    }
}

/// The agent's seed in a step: another one in each, so that a question that comes again is sampled anew.
fn seed_of(seed: u64, step: usize) -> i64 {
    CounterRng::new(seed).stream(step as u64).bits(0).cast_signed()
}
