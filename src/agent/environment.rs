//! The environment: one policy call, its reading and, if it is a query, its retrieval.

use std::sync::Arc;
use std::time::Instant;

use super::client::{Generated, Passage, PolicyClient, Retriever};
use super::options::AgentOptions;
use super::prompts::{PromptRow, PromptSet};
use super::protocol::{Action, Context, Protocol, State, StopReason, Transition, protocol};
use super::sampling::{Sampling, SeedPath};
use crate::error::Result;

/// Policy, retriever, protocol and limits. Clones share the first three.
#[derive(Clone)]
pub struct Agent {
    pub policy: Arc<dyn PolicyClient>,
    pub retriever: Arc<dyn Retriever>,
    pub protocol: Arc<dyn Protocol>,
    pub prompts: Arc<PromptSet>,
    /// Passages per query.
    pub k: usize,
    /// Policy calls per trajectory, at least 1.
    pub max_steps: usize,
    /// Tokens per policy call.
    pub max_tokens: usize,
    pub temperature: f64,
    pub top_p: f64,
    pub seed: i64,
}

/// One policy call and what came of it.
#[derive(Clone, Debug)]
pub struct StepRecord {
    /// The state in which the policy was asked.
    pub state: State,
    pub action: Action,
    pub prompt: Arc<str>,
    /// As generated, up to and with the tag that is the action.
    pub response: Arc<str>,
    /// What a query found; None if there was no retrieval.
    pub passage_ids: Option<Vec<String>>,
    /// All sampled tokens, those after the action included.
    pub token_ids: Vec<u32>,
    pub token_logprobs: Vec<f32>,
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub generated_tokens: usize,
    pub seed: u64,
    /// Policy call and retrieval, waiting in a queue included.
    pub latency_ms: f64,
    pub next: Next,
}

/// What follows a step.
#[derive(Clone, Debug)]
pub enum Next {
    Step(Context),
    End(StopReason),
}

/// A sampled response that has not acted on the environment yet.
///
/// Tree search samples several and drops equal ones before any of them costs a retrieval.
pub(super) struct Sampled {
    pub prompt: Arc<str>,
    pub response: Arc<str>,
    pub action: Action,
    pub generated: Generated,
    pub seed: u64,
    pub latency_ms: f64,
}

impl Agent {
    /// An agent with the limits, the protocol and the prompt set that `options` name.
    ///
    /// # Errors
    /// Unknown protocol or prompt set; what [`PromptSet::from_rows`] finds wrong in `rows`.
    pub fn new(policy: Arc<dyn PolicyClient>, retriever: Arc<dyn Retriever>, rows: &[PromptRow], options: &AgentOptions) -> Result<Self> {
        let protocol = protocol(&options.protocol)?;
        let prompts = Arc::new(PromptSet::from_rows(&options.prompts, &*protocol, rows)?);
        let AgentOptions { k, max_steps, max_tokens, temperature, top_p, seed, .. } = *options;
        Ok(Self { policy, retriever, protocol, prompts, k, max_steps, max_tokens, temperature, top_p, seed })
    }

    /// The context of the first step.
    pub fn begin(&self, question: &str) -> Context {
        Context {
            question: question.into(),
            state: self.protocol.initial_state(self.max_steps),
            steps: 0,
            thoughts: Vec::new(),
            query: None,
            passages: Arc::new([]),
        }
    }

    /// One policy call from `context`, and the retrieval that it asks for.
    ///
    /// # Errors
    /// Those of the policy and of the retriever. What the policy writes is never an error.
    pub async fn step(&self, context: &Context, seed: u64) -> Result<StepRecord> {
        let sampled = self.sample(context, seed).await?;
        self.act(context, sampled).await
    }

    /// Steps from `context` to the end of the trajectory; the last one's `next` is [`Next::End`].
    ///
    /// # Errors
    /// As [`Agent::step`].
    pub async fn run(&self, mut context: Context, seeds: SeedPath) -> Result<Vec<StepRecord>> {
        let mut steps = Vec::new();
        for index in 0.. {
            let step = self.step(&context, seeds.child(index).seed()).await?;
            let next = step.next.clone();
            steps.push(step);
            match next {
                Next::Step(next) => context = next,
                Next::End(_) => break,
            }
        }
        Ok(steps)
    }

    pub(super) async fn sample(&self, context: &Context, seed: u64) -> Result<Sampled> {
        let start = Instant::now();
        let prompt: Arc<str> = self.protocol.prompt(&self.prompts, context)?.into();
        let mut generated = self.policy.generate(&prompt, &self.sampling(context.state, seed)).await?;
        if let Some(stop) = self.protocol.cut_by_stop(context.state, &generated.text).filter(|_| generated.stopped) {
            generated.text.push_str(stop);
        }
        let parsed = self.protocol.parse(context.state, &generated.text);
        let response = generated.text[..parsed.end].into();
        Ok(Sampled { prompt, response, action: parsed.action, generated, seed, latency_ms: milliseconds_since(start) })
    }

    pub(super) async fn act(&self, context: &Context, sampled: Sampled) -> Result<StepRecord> {
        let start = Instant::now();
        let steps_left = self.max_steps.saturating_sub(context.steps + 1);
        let transition = self.protocol.transition(context.state, &sampled.action, steps_left);
        let passages = self.retrieve(&sampled.action, transition).await?;
        let passage_ids = passages.as_ref().map(|passages| passages.iter().map(|passage| passage.id.clone()).collect());
        let next = match transition {
            Transition::To(state) => Next::Step(follow(context, state, &sampled, passages)),
            Transition::End(reason) => Next::End(reason),
        };
        let Sampled { prompt, response, action, generated, seed, latency_ms } = sampled;
        Ok(StepRecord {
            state: context.state,
            action,
            prompt,
            response,
            passage_ids,
            token_ids: generated.token_ids,
            token_logprobs: generated.token_logprobs,
            prompt_tokens: generated.prompt_tokens,
            cached_tokens: generated.cached_tokens,
            generated_tokens: generated.generated_tokens,
            seed,
            latency_ms: latency_ms + milliseconds_since(start),
            next,
        })
    }

    /// Retrieves for a query whose passages will be read; at the step limit nobody would read them.
    async fn retrieve(&self, action: &Action, transition: Transition) -> Result<Option<Vec<Passage>>> {
        match (action.query(), transition) {
            (Some(query), Transition::To(State::EvidenceExtraction)) => {
                let mut passages = self.retriever.search(query, self.k).await?;
                passages.truncate(self.k);
                Ok(Some(passages))
            }
            _ => Ok(None),
        }
    }

    fn sampling(&self, state: State, seed: u64) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            max_tokens: self.max_tokens,
            seed,
            stop: self.protocol.stop(state).iter().map(|stop| (*stop).to_owned()).collect(),
        }
    }
}

impl StepRecord {
    /// Why the trajectory ends here; None if it goes on.
    pub fn stop_reason(&self) -> Option<StopReason> {
        match self.next {
            Next::Step(_) => None,
            Next::End(reason) => Some(reason),
        }
    }

    /// Log-probability of the response: the sum over its tokens. None if the policy does not tell.
    pub fn logprob(&self) -> Option<f64> {
        (!self.token_logprobs.is_empty()).then(|| self.token_logprobs.iter().map(|logprob| f64::from(*logprob)).sum())
    }
}

/// The context after `sampled`: its response is a thought, and a retrieval replaces query and passages.
fn follow(context: &Context, state: State, sampled: &Sampled, passages: Option<Vec<Passage>>) -> Context {
    let mut next = context.clone();
    next.state = state;
    next.steps += 1;
    let thought = sampled.response.trim();
    if !thought.is_empty() {
        next.thoughts.push(thought.into());
    }
    if let Some(passages) = passages {
        next.query = sampled.action.query().map(Into::into);
        next.passages = passages.into();
    }
    next
}

fn milliseconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
