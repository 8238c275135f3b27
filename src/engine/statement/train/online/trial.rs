//! What a trajectory takes here: the base answers the questions of a first step, so that a dry run can say about how long all of them would take. Nothing is learned,
//! and no model is asked for a score.

use std::time::{Duration, Instant};

use candle_core::Device;

use super::super::on_thread;
use super::sampler::{Sampler, Sampling};
use super::task::OnlineTask;
use super::{Acting, Questions, completion_tokens_max};
use crate::agent::{Agent, answer_group};
use crate::engine::session::Session;
use crate::error::Result;
use crate::models::{Decoder, DecoderConfig, ModelInfo};
use crate::training::{Estimate, forward_flops_of};

/// The longest that the questions may take.
const TRIAL: Duration = Duration::from_secs(10);
/// Where that is too short, so many tokens of one group are timed.
const TOKENS: usize = 16;

/// Means over trajectories, as many at once as a step has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    pub seconds: f64,
    /// Floating-point operations of one forward pass over the calls.
    pub forward_flops: f64,
    /// Trajectories that were sampled to their ends. 0: that took too long, and the figures are those of trajectories of as many tokens as there may be.
    pub num_sampled: usize,
}

/// Samples with the base.
///
/// # Errors
/// Those of the agent; of the base's files.
pub async fn run(
    session: &Session,
    base: &ModelInfo,
    config: &DecoderConfig,
    task: &OnlineTask,
    acting: Acting,
    questions: Questions,
) -> Result<Trial> {
    let (policy, directory) = (session.database().shared.models.training_policy(base)?, base.directory.clone());
    let policy = on_thread(move |_| policy.with_weights(&Decoder::load(&directory, &Device::Cpu, false)?)).await?;
    let (protocol, _) = acting.environment.protocol()?;
    let sampler = Sampler {
        environment: acting.environment,
        protocol,
        reward: task.reward,
        step_scorer: None,
        questions,
        seed: task.options.run.seed,
        tokens_max: task.tokens_max(),
    };
    let sampling = Sampling { temperature: task.options.temperature, seed: 0 };
    let asked: Vec<_> = sampler.questions.learned.iter().take(task.options.batch_size).collect();
    let (group_size, started) = (task.options.group_size, Instant::now());
    let sampled = sampler.groups(policy.clone(), asked.clone(), group_size, sampling, None);
    if let Ok(groups) = tokio::time::timeout(TRIAL, sampled).await {
        let (groups, num_sampled) = (groups?, asked.len() * group_size);
        let share = 1.0 / num_sampled.max(1) as f64;
        let seconds = started.elapsed().as_secs_f64() * share;
        return Ok(Trial { seconds, forward_flops: forward_flops_of(&groups, config, &task.options.run) * share, num_sampled });
    }
    let agent = Agent { max_steps: 1, max_tokens: TOKENS, ..sampler.agent(policy, sampling)? };
    let started = Instant::now();
    let Some(first) = asked.first() else { return Ok(Trial { seconds: 0.0, forward_flops: 0.0, num_sampled: 0 }) };
    let trajectories = answer_group(&agent, &first.question, &first.id, group_size).await?;
    let num_tokens: usize = trajectories.iter().flat_map(|trajectory| &trajectory.steps).map(|step| step.token_ids.len()).sum();
    let seconds_per_token = started.elapsed().as_secs_f64() / num_tokens.max(1) as f64;
    let longest = vec![task.tokens_max(); acting.options.max_steps];
    Ok(Trial {
        seconds: seconds_per_token * completion_tokens_max(&acting.options) as f64,
        forward_flops: Estimate::forward_flops(config, &longest, None, &task.options.run),
        num_sampled: 0,
    })
}
