//! The environment: one policy call, its reading, and the retrieval that the protocol wants after it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use futures::future::try_join_all;

use super::client::{Generated, Passage, PolicyClient, Prompt, Retriever};
use super::options::AgentOptions;
use super::prompts::{PromptRow, PromptSet};
use super::protocol::{Action, Context, EarlierStep, Protocol, Retrieved, State, StopReason, Transition, protocol};
use super::sampling::{Sampling, SeedPath};
use crate::error::{Error, Result};
use crate::price::Price;

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
    pub top_k: usize,
    pub min_p: f64,
    pub repetition_penalty: f64,
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
    /// What was retrieved with after the step, or before the first one; None if there was no retrieval.
    pub retrieved_with: Option<Arc<str>>,
    /// What was found, each passage once: after the step, and at the first step also what the protocol retrieved before it. None if
    /// there was no retrieval.
    pub passage_ids: Option<Vec<String>>,
    /// Retrievals behind `passage_ids`.
    pub retrieval_count: usize,
    /// Tokens of the prompt as it was read; empty if the policy does not tell.
    pub prompt_ids: Arc<[u32]>,
    /// All sampled tokens, those after the action included.
    pub token_ids: Vec<u32>,
    /// How many of them, from the first, wrote the response; None if it is a part of what was written and the policy does not tell.
    pub num_response_tokens: Option<usize>,
    pub token_logprobs: Vec<f32>,
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub generated_tokens: usize,
    /// Of the policy call.
    pub cost: Price,
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
    pub num_response_tokens: Option<usize>,
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
        let AgentOptions { k, max_steps, max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, seed, .. } = *options;
        Ok(Self {
            policy,
            retriever,
            protocol,
            prompts,
            k,
            max_steps,
            max_tokens,
            temperature,
            top_p,
            top_k,
            min_p,
            repetition_penalty,
            seed,
        })
    }

    /// The context of the first step, without what is retrieved before it.
    pub fn begin(&self, question: &str) -> Context {
        Context::new(&self.policy.plain(question), self.protocol.initial_state(self.max_steps))
    }

    /// The context of the first step, with what the protocol retrieves before it.
    ///
    /// # Errors
    /// Those of the retriever.
    pub async fn open(&self, question: &str) -> Result<Context> {
        let context = self.begin(question);
        match self.protocol.opening_query(question) {
            Some(query) => Ok(context.opened(self.retrieve(&query).await?)),
            None => Ok(context),
        }
    }

    /// One policy call from `context`, and the retrieval that follows it.
    ///
    /// # Errors
    /// Those of the policy and of the retriever. What the policy writes is never an error.
    pub async fn step(&self, context: &Context, seed: u64) -> Result<StepRecord> {
        match self.sample_together(context, &[seed]).await?.pop() {
            Some(sampled) => self.act(context, sampled).await,
            None => Err(too_few(0, 1)),
        }
    }

    /// Steps from `context` to the end of a trajectory, for each place; the last one's `next` is [`Next::End`]. There are none if the policy cannot read
    /// the first prompt. First steps are asked for by as few calls as the policy allows.
    ///
    /// # Errors
    /// As [`Agent::step`].
    pub(super) async fn run_all(&self, context: &Context, seeds: &[SeedPath]) -> Result<Vec<Vec<StepRecord>>> {
        let calls = seeds.chunks(self.samples_per_call()).map(|seeds| self.run_together(context, seeds));
        Ok(try_join_all(calls).await?.into_iter().flatten().collect())
    }

    async fn run_together(&self, context: &Context, seeds: &[SeedPath]) -> Result<Vec<Vec<StepRecord>>> {
        let first_seeds: Vec<u64> = seeds.iter().map(|seeds| seeds.child(0).seed()).collect();
        let sampled = match self.sample_together(context, &first_seeds).await {
            Err(Error::ContextFull(_)) => return Ok(vec![Vec::new(); seeds.len()]),
            sampled => sampled?,
        };
        let go_on = |(sampled, seeds): (Sampled, SeedPath)| async move { self.run_on(self.act(context, sampled).await?, seeds).await };
        try_join_all(sampled.into_iter().zip(seeds.iter().copied()).map(go_on)).await
    }

    /// From the first step to the end of the trajectory.
    async fn run_on(&self, first: StepRecord, seeds: SeedPath) -> Result<Vec<StepRecord>> {
        let mut steps = vec![first];
        for index in 1.. {
            let Some(last) = steps.last_mut() else { break };
            let Next::Step(context) = last.next.clone() else { break };
            match self.step(&context, seeds.child(index).seed()).await {
                Ok(step) => steps.push(step),
                Err(Error::ContextFull(_)) => last.next = Next::End(StopReason::ContextFull),
                Err(error) => return Err(error),
            }
        }
        Ok(steps)
    }

    /// A response for each seed, by as few calls as the policy allows.
    pub(super) async fn sample_all(&self, context: &Context, seeds: &[u64]) -> Result<Vec<Sampled>> {
        let calls = seeds.chunks(self.samples_per_call()).map(|seeds| self.sample_together(context, seeds));
        Ok(try_join_all(calls).await?.into_iter().flatten().collect())
    }

    /// Samples that share a call.
    pub(super) fn samples_per_call(&self) -> usize {
        self.policy.samples_per_call().max(1)
    }

    /// A response for each seed, by one call.
    async fn sample_together(&self, context: &Context, seeds: &[u64]) -> Result<Vec<Sampled>> {
        let start = Instant::now();
        let prompt: Arc<str> = self.prompt(context)?.into();
        let sampling = self.sampling(context.state, seeds.first().copied().unwrap_or_default());
        let turns = if self.protocol.is_transcript() { context.turns() } else { Vec::new() };
        let generated = self.policy.generate_in_turns(Prompt { text: &prompt, turns: &turns }, &sampling, seeds).await?;
        if generated.len() != seeds.len() {
            return Err(too_few(generated.len(), seeds.len()));
        }
        let latency_ms = milliseconds_since(start);
        let read = |(generated, seed)| self.read(context, Arc::clone(&prompt), generated, seed, latency_ms);
        Ok(generated.into_iter().zip(seeds.iter().copied()).map(read).collect())
    }

    /// What the policy has written, up to the end of its action.
    fn read(&self, context: &Context, prompt: Arc<str>, mut generated: Generated, seed: u64, latency_ms: f64) -> Sampled {
        if let Some(stop) = self.protocol.cut_by_stop(context.state, &generated.text).filter(|_| generated.stopped) {
            generated.text.push_str(stop);
        }
        let parsed = self.protocol.parse(context.state, &generated.text);
        let response = generated.text[..parsed.end].into();
        let num_response_tokens = match parsed.end == generated.text.len() {
            true => Some(generated.token_ids.len()),
            false => self.policy.num_tokens_of(&generated, parsed.end),
        };
        Sampled { prompt, response, action: parsed.action, generated, num_response_tokens, seed, latency_ms }
    }

    pub(super) async fn act(&self, context: &Context, sampled: Sampled) -> Result<StepRecord> {
        let start = Instant::now();
        let steps_left = self.max_steps.saturating_sub(context.steps + 1);
        let (next, retrieved) = match self.protocol.transition(context, &sampled.action, steps_left) {
            Transition::End(reason) => (Next::End(reason), None),
            Transition::To(state) => (Next::Step(follow(context, &sampled, None, state)), None),
            Transition::Retrieve { query, next } => {
                let retrieved = self.retrieve(&query).await?;
                (Next::Step(follow(context, &sampled, Some(retrieved.clone()), next)), Some(retrieved))
            }
        };
        let next = self.within_context(next)?;
        let opening = context.opening.iter().filter(|_| context.steps == 0);
        let retrievals: Vec<&Retrieved> = opening.chain(&retrieved).collect();
        let Sampled { prompt, response, action, generated, num_response_tokens, seed, latency_ms } = sampled;
        Ok(StepRecord {
            state: context.state,
            action,
            prompt,
            response,
            retrieved_with: retrievals.last().map(|latest| Arc::clone(&latest.query)),
            passage_ids: (!retrievals.is_empty()).then(|| distinct_ids(&retrievals)),
            retrieval_count: retrievals.len(),
            prompt_ids: generated.prompt_ids,
            token_ids: generated.token_ids,
            num_response_tokens,
            token_logprobs: generated.token_logprobs,
            prompt_tokens: generated.prompt_tokens,
            cached_tokens: generated.cached_tokens,
            generated_tokens: generated.generated_tokens,
            cost: generated.cost,
            seed,
            latency_ms: latency_ms + milliseconds_since(start),
            next,
        })
    }

    async fn retrieve(&self, query: &str) -> Result<Retrieved> {
        let passages = self.retriever.search(query, self.k).await?;
        let passages = if passages.len() > self.k { passages[..self.k].into() } else { passages };
        Ok(Retrieved { query: query.into(), passages: self.plain(passages) })
    }

    /// Passages as they may stand in prompts of the policy.
    fn plain(&self, passages: Arc<[Passage]>) -> Arc<[Passage]> {
        let is_plain = |text: &str| matches!(self.policy.plain(text), Cow::Borrowed(_));
        if passages.iter().all(|passage| is_plain(&passage.contents) && passage.title.as_deref().is_none_or(is_plain)) {
            return passages;
        }
        let plain = |text: &str| self.policy.plain(text).into_owned();
        let copy = |passage: &Passage| Passage {
            id: passage.id.clone(),
            title: passage.title.as_deref().map(plain),
            contents: plain(&passage.contents),
        };
        passages.iter().map(copy).collect()
    }

    /// A next step whose prompt the policy cannot read is the end.
    fn within_context(&self, next: Next) -> Result<Next> {
        match &next {
            Next::Step(context) if !self.can_read(context)? => Ok(Next::End(StopReason::ContextFull)),
            _ => Ok(next),
        }
    }

    /// Whether the policy can read the prompt of this context.
    ///
    /// # Errors
    /// If the prompt cannot be written.
    pub(super) fn can_read(&self, context: &Context) -> Result<bool> {
        Ok(self.policy.fits(&self.prompt(context)?))
    }

    /// What the policy reads. A transcript that goes on is in the policy's form already.
    fn prompt(&self, context: &Context) -> Result<String> {
        let mut prompt = self.protocol.prompt(&self.prompts, context)?;
        if context.transcript().is_some_and(|transcript| prompt.starts_with(&transcript)) {
            return Ok(prompt);
        }
        let begun = prompt.split_off(self.protocol.turn_start(&prompt));
        Ok(self.policy.written(prompt)? + &begun)
    }

    fn sampling(&self, state: State, seed: u64) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            max_tokens: self.max_tokens,
            seed,
            stop: self.protocol.stop(state).iter().map(|stop| (*stop).to_owned()).collect(),
        }
    }
}

impl StepRecord {
    /// The query of the policy, or else what the protocol retrieved with.
    pub fn query(&self) -> Option<&str> {
        self.action.query().or(self.retrieved_with.as_deref())
    }

    /// Whether it searched and found nothing: what `empty_searches` of `trajectories()` counts.
    pub fn found_nothing(&self) -> bool {
        self.passage_ids.as_ref().is_some_and(Vec::is_empty)
    }

    /// Why the trajectory ends here; None if it goes on.
    pub fn stop_reason(&self) -> Option<StopReason> {
        match self.next {
            Next::Step(_) => None,
            Next::End(reason) => Some(reason),
        }
    }

    /// For each of the sampled tokens 1 if the response is of it, and 0 if it was written after the action; None if the policy does not tell.
    pub fn token_mask(&self) -> Option<Vec<u32>> {
        let num_response_tokens = self.num_response_tokens.filter(|_| !self.token_ids.is_empty())?;
        Some((0..self.token_ids.len()).map(|at| u32::from(at < num_response_tokens)).collect())
    }

    /// The tokens of the prompt; None if the policy does not tell.
    pub fn known_prompt_ids(&self) -> Option<&[u32]> {
        (!self.prompt_ids.is_empty()).then_some(&*self.prompt_ids)
    }

    /// Log-probability of the response: the sum over its tokens. None if the policy does not tell.
    pub fn logprob(&self) -> Option<f64> {
        (!self.token_logprobs.is_empty()).then(|| self.token_logprobs.iter().map(|logprob| f64::from(*logprob)).sum())
    }
}

/// The context of the step in `state` that follows `sampled`.
fn follow(context: &Context, sampled: &Sampled, retrieved: Option<Retrieved>, state: State) -> Context {
    let (prompt, response) = (Arc::clone(&sampled.prompt), Arc::clone(&sampled.response));
    context.followed(EarlierStep { prompt, response, action: sampled.action.clone(), retrieved }, state)
}

fn too_few(found: usize, wanted: usize) -> Error {
    Error::Internal(format!("a policy gave {found} completions for {wanted} seeds"))
}

/// Ids of the passages, each once, in order.
fn distinct_ids(retrievals: &[&Retrieved]) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for passage in retrievals.iter().flat_map(|retrieved| retrieved.passages.iter()) {
        if !ids.contains(&passage.id) {
            ids.push(passage.id.clone());
        }
    }
    ids
}

fn milliseconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
