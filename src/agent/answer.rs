//! Answering: trajectories from a question to their ends.

use std::time::Instant;

use futures::{Stream, StreamExt};

use super::environment::{Agent, StepRecord};
use super::protocol::StopReason;
use super::sampling::SeedPath;
use crate::error::{Error, Result};
use crate::price::Price;

/// A whole path from a question to its end.
#[derive(Clone, Debug)]
pub struct Trajectory {
    /// Every policy call, in order.
    pub steps: Vec<StepRecord>,
    /// Some exactly if `stop_reason` is [`StopReason::Answered`].
    pub answer: Option<String>,
    pub stop_reason: StopReason,
    pub retrieval_count: usize,
    /// Sum over the steps, cached ones included.
    pub prompt_tokens: usize,
    pub generated_tokens: usize,
    /// Of all policy calls.
    pub cost: Price,
    /// From the question to the end of the last policy call.
    pub latency_ms: f64,
}

/// Runs the agent on a question until it answers or is stopped.
///
/// `question_key` (an id, or the question itself) and the agent's seed decide all sampling. A question that is NULL or blank
/// ends at once with [`StopReason::EmptyQuestion`], one whose prompt the policy cannot read with [`StopReason::ContextFull`]; the policy is not called.
///
/// # Errors
/// Those of the policy and of the retriever.
pub async fn answer(agent: &Agent, question: Option<&str>, question_key: &str) -> Result<Trajectory> {
    let place = SeedPath::question(agent.seed.cast_unsigned(), question_key);
    let trajectory = trajectories(agent, question, &[place]).await?.pop();
    trajectory.ok_or_else(|| Error::Internal("an agent gave no trajectory".to_owned()))
}

/// `group_size` trajectories of a question, each sampled for itself: those that the tree search keeps with the method `sample`, before equal beginnings
/// become one. A trajectory depends on the agent's seed, on `question_key` and on its place in the group.
///
/// # Errors
/// As [`answer`].
pub async fn answer_group(agent: &Agent, question: &str, question_key: &str, group_size: usize) -> Result<Vec<Trajectory>> {
    let place = SeedPath::question(agent.seed.cast_unsigned(), question_key);
    let places: Vec<SeedPath> = (0..group_size as u64).map(|index| place.rollout(index)).collect();
    trajectories(agent, Some(question), &places).await
}

/// A trajectory for each place.
async fn trajectories(agent: &Agent, question: Option<&str>, places: &[SeedPath]) -> Result<Vec<Trajectory>> {
    let start = Instant::now();
    let ended = |stop_reason| vec![Trajectory::of(Vec::new(), stop_reason, start.elapsed().as_secs_f64() * 1e3); places.len()];
    let Some(question) = question.filter(|question| !question.trim().is_empty()) else { return Ok(ended(StopReason::EmptyQuestion)) };
    let context = agent.open(question).await?;
    if !agent.can_read(&context)? {
        return Ok(ended(StopReason::ContextFull));
    }
    let all = agent.run_all(&context, places).await?;
    let trajectory = |steps: Vec<StepRecord>| {
        let stop_reason = match steps.last() {
            Some(last) => last.stop_reason().unwrap_or(StopReason::MaxSteps),
            None => StopReason::ContextFull,
        };
        Trajectory::of(steps, stop_reason, start.elapsed().as_secs_f64() * 1e3)
    };
    Ok(all.into_iter().map(trajectory).collect())
}

/// Answers a stream of `(question_key, question)` with up to `concurrency` in flight; trajectories come in the stream's order.
pub fn answer_many<S>(agent: Agent, questions: S, concurrency: usize) -> impl Stream<Item = Result<Trajectory>> + Send
where
    S: Stream<Item = (String, Option<String>)> + Send,
{
    questions
        .map(move |(key, question)| {
            let agent = agent.clone();
            async move { answer(&agent, question.as_deref(), &key).await }
        })
        .buffered(concurrency.max(1))
}

impl Trajectory {
    fn of(steps: Vec<StepRecord>, stop_reason: StopReason, latency_ms: f64) -> Self {
        Self {
            answer: steps.last().and_then(|step| step.action.answer()).map(str::to_owned),
            stop_reason,
            retrieval_count: steps.iter().map(|step| step.retrieval_count).sum(),
            prompt_tokens: steps.iter().map(|step| step.prompt_tokens).sum(),
            generated_tokens: steps.iter().map(|step| step.generated_tokens).sum(),
            cost: steps.iter().map(|step| step.cost).sum(),
            latency_ms,
            steps,
        }
    }

    /// Ids of all retrieved passages, each once, in the order of their first retrieval.
    pub fn passage_ids(&self) -> Vec<&str> {
        let mut ids = Vec::new();
        for id in self.steps.iter().flat_map(|step| step.passage_ids.iter().flatten()) {
            if !ids.contains(&id.as_str()) {
                ids.push(id.as_str());
            }
        }
        ids
    }
}
