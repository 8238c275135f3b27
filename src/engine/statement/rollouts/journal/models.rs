//! Models that are asked through the journal: what one has answered is not asked for again.

use std::sync::Arc;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::tree::TreeJournal;
use super::{Key, RunJournal};
use crate::agent::{Generated, PolicyClient, ProcessRewardModel, Prompt, Sampling};
use crate::error::Result;
use crate::models::count_kept_answers;

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
}

impl From<Generated> for Completion {
    fn from(generated: Generated) -> Self {
        let Generated { text, stopped, token_ids, token_logprobs, prompt_tokens, cached_tokens, generated_tokens, cost } = generated;
        let logprob_bits = token_logprobs.into_iter().map(f32::to_bits).collect();
        let cost_bits = cost.map(f64::to_bits);
        Self { text, stopped, token_ids, logprob_bits, prompt_tokens, cached_tokens, generated_tokens, cost_bits }
    }
}

impl From<Completion> for Generated {
    fn from(completion: Completion) -> Self {
        let Completion { text, stopped, token_ids, logprob_bits, prompt_tokens, cached_tokens, generated_tokens, cost_bits } = completion;
        let token_logprobs = logprob_bits.into_iter().map(f32::from_bits).collect();
        let cost = cost_bits.map(f64::from_bits);
        Self { text, stopped, token_ids, token_logprobs, prompt_tokens, cached_tokens, generated_tokens, cost }
    }
}

impl Memory {
    /// What was answered under the key, or else what `ask` gives, which is kept then. `num_calls`: that it stands for.
    async fn recall<T>(&self, key: Key, num_calls: usize, ask: impl Future<Output = Result<T>> + Send) -> Result<T>
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
        self.run.keep(&self.tree, &key, &answer);
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
}

#[async_trait]
impl PolicyClient for JournaledPolicy {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        let ask = async { self.policy.generate(prompt, sampling).await.map(Completion::from) };
        let key = self.key(Prompt { text: prompt, turns: &[] }, sampling, &[]);
        self.memory.recall(key, 1, ask).await.map(Generated::from)
    }

    fn samples_per_call(&self) -> usize {
        self.policy.samples_per_call()
    }

    async fn generate_together(&self, prompt: &str, sampling: &Sampling, seeds: &[u64]) -> Result<Vec<Generated>> {
        self.generate_in_turns(Prompt { text: prompt, turns: &[] }, sampling, seeds).await
    }

    async fn generate_in_turns(&self, prompt: Prompt<'_>, sampling: &Sampling, seeds: &[u64]) -> Result<Vec<Generated>> {
        let written = |generated: Vec<Generated>| generated.into_iter().map(Completion::from).collect::<Vec<_>>();
        let ask = async { self.policy.generate_in_turns(prompt, sampling, seeds).await.map(written) };
        let completions = self.memory.recall(self.key(prompt, sampling, seeds), seeds.len(), ask).await?;
        Ok(completions.into_iter().map(Generated::from).collect())
    }

    fn keeps_answers(&self) -> bool {
        true
    }

    fn written(&self, prompt: String) -> Result<String> {
        self.policy.written(prompt)
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
        let bits = self.memory.recall(self.memory.run.key(&["prm", prompt, step]), 1, ask).await?;
        Ok(bits.map(f64::from_bits))
    }
}
