//! TRAIN GRPO and TRAIN PPO: questions instead of examples, and an agent that answers them with the policy that is trained.
//!
//! ```text
//! thread that trains: weights ─Request─► statement: Sampler (agent, corpus, rewards) ─trajectories─► thread: advantages, update, next weights
//! ```
//!
//! No version of the weights in between is on the disk: the decode runtime gets a packed copy of them for each step. Older versions of the model serve meanwhile.

mod dry_run;
mod questions;
mod rewards;
mod sampler;
mod scores;
mod source;
mod task;
#[cfg(test)]
mod tests;
mod thread;
mod trial;

use std::sync::Arc;
use std::time::Instant;

use datafusion::common::ScalarValue;
use rolloutdb_sql::Train;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::lineage::{self, Origin};
use super::run::Counts;
use super::warnings::Watch;
use super::{Trained, on_training_thread, rows};
use crate::agent::AgentOptions;
use crate::engine::apply::Asked;
use crate::engine::binding::Environment;
use crate::engine::lineage::{self as engine_lineage, Thing};
use crate::engine::session::{Response, Session};
use crate::error::Result;
use crate::models::{DecoderConfig, ModelInfo};
use crate::training::{Estimate, Warnings};
use dry_run::DryRun;
use questions::Questions;
use sampler::Sampler;
use scores::StepScorer;
use source::Rollouts;
use task::OnlineTask;
use thread::OnlineTraining;

pub async fn execute(session: &Session, train: &Train, parameters: &[ScalarValue], base: &ModelInfo, started: Instant) -> Result<Response> {
    let shared = &session.database().shared;
    let mut task = OnlineTask::of(train)?;
    shared.registry.check_name(&train.model)?;
    let config = DecoderConfig::load(&base.directory)?;
    task.fit(&config)?;
    let acting = Acting::open(session, &task).await?;
    let questions = questions::read(session, train, parameters).await?;
    if let Some(task) = session.task() {
        task.say_rows(questions.learned.len());
    }
    if train.dry_run {
        scores::check(session, task.step_scores.as_ref())?;
        let (num_questions, num_measured, agent) = (questions.learned.len(), questions.measured.len(), acting.options.clone());
        let calls = session.task().map(|task| Arc::clone(task.calls())).unwrap_or_default();
        let trial = Box::pin(calls.scope(trial::run(session, base, &config, &task, acting, questions))).await?;
        let device = task.options.run.device;
        let flops_per_second = super::on_thread(move |_| Estimate::measured_flops_per_second(device)).await?;
        let dry_run = DryRun { config, task, agent, num_questions, num_measured, trial, flops_per_second };
        return Ok(rows("TRAIN", dry_run.run()?));
    }
    acting.tell(session, train, base);
    let mut trained = Box::pin(trained(session, train, base, task, acting, questions)).await?;
    trained.origin = trained.origin.bound(parameters);
    super::summary(&Box::pin(super::publish(session, train, base, trained, started)).await?, started)
}

/// The agent that the statement names, without its policy.
struct Acting {
    name: String,
    options: AgentOptions,
    environment: Environment,
}

impl Acting {
    async fn open(session: &Session, task: &OnlineTask) -> Result<Self> {
        let shared = &session.database().shared;
        let options = shared.agents.get(&task.agent)?.options;
        session.access().require_agent(&task.agent, &options)?;
        let environment = Environment::open(&options, &shared.catalog, &shared.models, &shared.retrievals).await?;
        // What is wrong with the prompts is told before a question is read.
        environment.protocol()?;
        Ok(Self { name: task.agent.clone(), options, environment })
    }

    /// Says whose policy acts.
    fn tell(&self, session: &Session, train: &Train, base: &ModelInfo) {
        let (own, name) = (&self.options.policy, &base.name);
        if own != name && *own != base.reference() {
            session.notices().notice(format!(
                "TRAIN {} {}: agent {} acts with the policy that is trained, which begins as {}, and not with {own}: its protocol, prompts, corpus and limits \
                 are used",
                train.method,
                train.model,
                self.name,
                base.reference()
            ));
        }
    }

    /// The agent, with what it searches.
    async fn things(&self, session: &Session, base: &ModelInfo) -> Result<Vec<Thing>> {
        let (agent, options, policy) = (self.name.clone(), self.options.clone(), base.reference());
        let asked = Asked { agent, options, policy, corpus_version: self.environment.corpus_version() };
        engine_lineage::acting(&session.database().shared, &asked, None).await
    }

    /// All that shapes its trajectories beside the policy and how that is sampled.
    fn identity(&self) -> Result<Json> {
        let AgentOptions { corpus, retriever, k, protocol, prompts, max_steps, max_tokens, .. } = &self.options;
        let (_, templates) = self.environment.protocol()?;
        let texts: Vec<(&str, &str)> = templates.texts().map(|(state, text)| (state.as_str(), text)).collect();
        Ok(json!({
            "corpus": corpus,
            "corpus_version": self.environment.corpus_version(),
            "retriever": retriever,
            "k": k,
            "protocol": protocol,
            "prompts": prompts,
            "prompt_texts": texts,
            "max_steps": max_steps,
            "max_tokens": max_tokens,
        }))
    }
}

/// Tokens that a trajectory can have.
fn completion_tokens_max(options: &AgentOptions) -> usize {
    options.max_steps.saturating_mul(options.max_tokens)
}

/// Trains on a thread of its own, samples for it, and reports progress.
async fn trained(
    session: &Session,
    train: &Train,
    base: &ModelInfo,
    mut task: OnlineTask,
    acting: Acting,
    questions: Questions,
) -> Result<Trained> {
    let shared = &session.database().shared;
    let step_scorer = match &mut task.step_scores {
        Some(scores) => Some(StepScorer::open(session, scores).await?),
        None => None,
    };
    let (in_force, environment) = (task.in_force(), acting.identity()?);
    let identity = json!({
        "run": lineage::identity_of(train, base, &in_force),
        "environment": environment,
        "questions": questions.learned,
        "validation": questions.measured,
    });
    let origin = Origin::with_options(train, base, &in_force, task.options.run.seed, questions.tables.clone());
    let origin = origin.and("environment", environment);
    let things = Box::pin(acting.things(session, base)).await?;
    let origin = Box::pin(origin.standing(shared, base, things)).await?;
    let (requests, received) = mpsc::unbounded_channel();
    let rollouts = Rollouts {
        policy: shared.models.training_policy(base)?,
        requests,
        num_questions: questions.learned.len(),
        num_validation_questions: questions.measured.len(),
        completion_tokens_max: completion_tokens_max(&acting.options),
    };
    let counts = Counts { examples: questions.learned.len(), validation_examples: questions.measured.len(), ..Counts::default() };
    let (protocol, _) = acting.environment.protocol()?;
    let sampler = Sampler {
        environment: acting.environment,
        protocol,
        reward: task.reward,
        step_scorer,
        questions,
        seed: task.options.run.seed,
        tokens_max: task.tokens_max(),
    };
    let (notices, what) = (session.notices().clone(), format!("TRAIN {} {}", train.method, train.model));
    let training = OnlineTraining {
        directory: base.directory.clone(),
        options: task.options,
        resume: task.resume,
        on_divergence: task.on_divergence,
        identity,
        rollouts,
        counts,
        trainings: Arc::clone(&shared.trainings),
        warnings: Warnings::new(move |warning| notices.warning(format!("{what}: {warning}"))),
    };
    let calls = session.task().map(|task| Arc::clone(task.calls())).unwrap_or_default();
    let sampling = calls.scope(sampler.serve(received));
    let (made, outcome) =
        on_training_thread(session, train, Watch::default(), move |stop, tell| training.run(stop, tell), sampling).await?;
    warn_of_scores(session, train, sampler.step_scorer.as_ref());
    Ok(Trained { made, outcome, origin })
}

/// Scores that are missing are no reason to fail, and are not passed over in silence.
fn warn_of_scores(session: &Session, train: &Train, scorer: Option<&StepScorer>) {
    if let Some((num_asked, num_unread)) = scorer.map(StepScorer::counts).filter(|(_, num_unread)| *num_unread > 0) {
        session.notices().warning(format!(
            "TRAIN {} {}: {num_unread} of {num_asked} steps have no score, because the model could not read them, or its verdict could not be read; they were \
             taken for what their trajectories are",
            train.method, train.model
        ));
    }
}
