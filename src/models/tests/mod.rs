//! Tests of the models: each fused operation against plain candle operations, each model against Hugging Face transformers.

mod adapted;
mod batching;
mod device_decoder;
mod encoded;
mod generation;
mod gguf;
mod goldens;
#[cfg(feature = "cuda")]
mod gpu;
mod hostile;
mod hostile_gguf;
mod kernel;
mod lora;
mod ops;
mod panels;
mod peers;
mod registry;
mod reward_model;
mod runtime;
mod sampling;
mod scorer;
mod speed;
mod threads;
mod tokenizer;
mod weights;

use std::sync::{Arc, LazyLock, Weak};
use std::time::Instant;

use tokio::sync::oneshot;

use super::config::{DecoderArchitecture, DecoderConfig, OutputHead, RopeConfig};
use super::decoder::Decoder;
use super::generation::{Completion, GenerateRequest};
use super::kv_budget::{KvBudget, KvShare};
use super::packed::PackedDecoder;
use super::scheduler::{Decode, Job, Scheduler};
use super::tokenizer::{Tokenizer, train_byte_level_bpe};
use crate::error::Result;

/// A small random policy with a tokenizer of its own.
pub(super) struct TinyPolicy {
    pub decoder: Decoder,
    pub packed: Arc<PackedDecoder>,
    pub tokenizer: Tokenizer,
}

pub(super) fn tiny_config() -> DecoderConfig {
    DecoderConfig {
        architecture: DecoderArchitecture::Qwen2,
        vocab_size: 300,
        hidden_size: 48,
        intermediate_size: 96,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 12,
        rms_norm_eps: 1e-6,
        rope: RopeConfig::plain(10_000.0),
        tie_word_embeddings: true,
        head: OutputHead::Vocabulary,
        max_position_embeddings: 512,
        eos_token_ids: vec![0],
    }
}

/// The same for all tests: training its tokenizer takes longer than most of them.
pub(super) fn tiny_policy() -> &'static TinyPolicy {
    static POLICY: LazyLock<TinyPolicy> = LazyLock::new(|| {
        let directory = tempfile::tempdir().unwrap();
        let texts: Vec<String> =
            (0..50).map(|i| format!("Question: who directed film {i}?\nThought: So the next query is film {i}")).collect();
        let tokenizer = train_byte_level_bpe(&texts, 300, directory.path()).unwrap();
        let decoder = Decoder::random(tiny_config(), 3).unwrap();
        let packed = Arc::new(PackedDecoder::new(&decoder).unwrap());
        TinyPolicy { decoder, packed, tokenizer }
    });
    &POLICY
}

/// Memory for many sequences in flight, and so many bytes for those that are finished.
pub(super) fn memory(kept_max: usize) -> KvShare {
    KvShare::new(&KvBudget::new(1 << 30, kept_max), &Arc::default())
}

/// Queues a request; where its result comes.
pub(super) fn add<D: Decode>(scheduler: &mut Scheduler<D>, request: GenerateRequest) -> oneshot::Receiver<Result<Completion>> {
    let (reply, result) = oneshot::channel();
    scheduler.add(Job { request, reply, arrived: Instant::now(), holder: Weak::new() });
    result
}

/// Runs requests that come together to their ends.
pub(super) fn run<D: Decode>(scheduler: &mut Scheduler<D>, requests: Vec<GenerateRequest>) -> Vec<Result<Completion>> {
    let results: Vec<_> = requests.into_iter().map(|request| add(scheduler, request)).collect();
    while !scheduler.is_idle() {
        scheduler.step();
    }
    results.into_iter().map(|mut result| result.try_recv().expect("a scheduler without work has answered everything")).collect()
}
