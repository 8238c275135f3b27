//! Models that are asked through the journal: what one has answered is not asked for again.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::tree::TreeJournal;
use super::{Key, RunJournal};
use crate::agent::{Generated, PolicyClient, ProcessRewardModel, Prompt, Sampling};
use crate::error::Result;
use crate::models::count_kept_answers;
use crate::price::Price;

/// No cost that is known.
const UNKNOWN_COST: f64 = f64::NAN;

/// The answers for one tree.
#[derive(Clone)]
pub struct Memory {
    pub run: RunJournal,
    pub tree: Arc<TreeJournal>,
}

/// A policy or a judge.
pub struct JournaledPolicy {
    pub policy: Arc<dyn PolicyClient>,
    pub memory: Memory,
}

pub struct JournaledPrm {
    pub model: Arc<dyn ProcessRewardModel>,
    pub memory: Memory,
}

/// A completion as the journal has it: what is read back is what was written, bit by bit, which JSON does not promise of fractions.
#[derive(Serialize, Deserialize)]
struct Completion {
    text: String,
    stopped: bool,
    token_ids: Vec<u32>,
    logprob_bits: Vec<u32>,
    prompt_tokens: usize,
    cached_tokens: usize,
    generated_tokens: usize,
    cost_bits: Option<u64>,
    /// Where only a completion tells them.
    #[serde(default)]
    prompt_ids: Vec<u32>,
    /// As a cache of answers, a journal keeps none of these.
    #[serde(default)]
    is_unanswered: bool,
}

impl From<Generated> for Completion {
    fn from(generated: Generated) -> Self {
        let Generated { text, stopped, prompt_ids, token_ids, token_logprobs, .. } = generated;
        let Generated { prompt_tokens, cached_tokens, generated_tokens, cost, is_unanswered, .. } = generated;
        let prompt_ids = prompt_ids.to_vec();
        let logprob_bits = token_logprobs.into_iter().map(f32::to_bits).collect();
        let cost_bits = match cost {
            Price::None => None,
            Price::Known(cost) => Some(cost.to_bits()),
            Price::Unknown => Some(UNKNOWN_COST.to_bits()),
        };
        Self {
            text,
            stopped,
            token_ids,
            logprob_bits,
            prompt_tokens,
            cached_tokens,
            generated_tokens,
            cost_bits,
            prompt_ids,
            is_unanswered,
        }
    }
}

impl From<Completion> for Generated {
    fn from(completion: Completion) -> Self {
        let Completion { text, stopped, token_ids, logprob_bits, cost_bits, prompt_ids, .. } = completion;
        let Completion { prompt_tokens, cached_tokens, generated_tokens, is_unanswered, .. } = completion;
        let token_logprobs = logprob_bits.into_iter().map(f32::from_bits).collect();
        let cost = match cost_bits.map(f64::from_bits) {
            Some(cost) if cost.is_nan() => Price::Unknown,
            cost => cost.into(),
        };
        Self {
            text,
            stopped,
            prompt_ids: prompt_ids.into(),
            token_ids,
            token_logprobs,
            prompt_tokens,
            cached_tokens,
            generated_tokens,
            cost,
            is_unanswered,
        }
    }
}

impl Memory {
    /// What was answered under the key, or else what `ask` gives, which is kept then if it is an answer. `num_calls`: that it stands for.
    async fn recall<T>(
        &self,
        key: Key,
        num_calls: usize,
        ask: impl Future<Output = Result<T>> + Send,
        is_answer: impl Fn(&T) -> bool + Send,
    ) -> Result<T>
    where
        T: Serialize + DeserializeOwned + Send,
    {
        if let Some(answer) = self.tree.get(&key).and_then(|answer| serde_json::from_slice(&answer).ok()) {
            count_kept_answers(num_calls as u64);
            // Others get their turn, as while a model is asked.
            tokio::task::yield_now().await;
            return Ok(answer);
        }
        let answer = ask.await?;
        if is_answer(&answer) {
            self.run.keep(&self.tree, &key, &answer);
        }
        Ok(answer)
    }
}

impl JournaledPolicy {
    /// A new version of the program may print a sampling in another way, and then asks again.
    fn key(&self, prompt: Prompt<'_>, sampling: &Sampling, seeds: &[u64]) -> Key {
        let (name, version) = self.policy.reference();
        let Prompt { text, turns } = prompt;
        self.memory.run.key(&["policy", &format!("{name}@{version}"), &format!("{sampling:?} {seeds:?} {turns:?}"), text])
    }

    /// As it is kept: without the tokens of a prompt that the policy knows at any time.
    fn kept(&self, prompt: &str, generated: Generated) -> Completion {
        let is_known = self.policy.prompt_ids(prompt).is_some();
        Completion::from(if is_known { Generated { prompt_ids: Arc::default(), ..generated } } else { generated })
    }

    fn recalled(&self, prompt: &str, completion: Completion) -> Generated {
        let generated = Generated::from(completion);
        match self.policy.prompt_ids(prompt) {
            Some(prompt_ids) => Generated { prompt_ids, ..generated },
            None => generated,
        }
    }
}

#[async_trait]
impl PolicyClient for JournaledPolicy {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        let ask = async { self.policy.generate(prompt, sampling).await.map(|generated| self.kept(prompt, generated)) };
        let key = self.key(Prompt { text: prompt, turns: &[] }, sampling, &[]);
        let is_answer = |completion: &Completion| !completion.is_unanswered;
        self.memory.recall(key, 1, ask, is_answer).await.map(|completion| self.recalled(prompt, completion))
    }

    fn samples_per_call(&self) -> usize {
        self.policy.samples_per_call()
    }

    async fn generate_together(&self, prompt: &str, sampling: &Sampling, seeds: &[u64]) -> Result<Vec<Generated>> {
        self.generate_in_turns(Prompt { text: prompt, turns: &[] }, sampling, seeds).await
    }

    async fn generate_in_turns(&self, prompt: Prompt<'_>, sampling: &Sampling, seeds: &[u64]) -> Result<Vec<Generated>> {
        let kept = |all: Vec<Generated>| all.into_iter().map(|generated| self.kept(prompt.text, generated)).collect::<Vec<_>>();
        let ask = async { self.policy.generate_in_turns(prompt, sampling, seeds).await.map(kept) };
        let are_answers = |all: &Vec<Completion>| all.iter().all(|completion| !completion.is_unanswered);
        let completions = self.memory.recall(self.key(prompt, sampling, seeds), seeds.len(), ask, are_answers).await?;
        Ok(completions.into_iter().map(|completion| self.recalled(prompt.text, completion)).collect())
    }

    fn keeps_answers(&self) -> bool {
        true
    }

    fn written(&self, prompt: String) -> Result<String> {
        self.policy.written(prompt)
    }

    fn plain<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.policy.plain(text)
    }

    fn prompt_ids(&self, prompt: &str) -> Option<Arc<[u32]>> {
        self.policy.prompt_ids(prompt)
    }

    fn num_tokens_of(&self, generated: &Generated, num_bytes: usize) -> Option<usize> {
        self.policy.num_tokens_of(generated, num_bytes)
    }

    fn fits(&self, prompt: &str) -> bool {
        self.policy.fits(prompt)
    }

    fn reference(&self) -> (String, u32) {
        self.policy.reference()
    }
}

#[async_trait]
impl ProcessRewardModel for JournaledPrm {
    async fn value(&self, prompt: &str, step: &str) -> Result<Option<f64>> {
        let ask = async { self.model.value(prompt, step).await.map(|value| value.map(f64::to_bits)) };
        // Which model it is, the options of the run say.
        let bits = self.memory.recall(self.memory.run.key(&["prm", prompt, step]), 1, ask, |_| true).await?;
        Ok(bits.map(f64::from_bits))
    }
}
