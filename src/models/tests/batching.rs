//! A sequence alone, in batches, in pieces, and after what another one began with: the same logits, and the same texts.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use candle_core::{Device, Tensor};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{add, memory, run, tiny_config, tiny_policy};
use crate::models::config::{DecoderArchitecture, DecoderConfig, RopeConfig, RopeScaling};
use crate::models::decoder::Decoder;
use crate::models::generation::{Completion, GenerateRequest};
use crate::models::kv_budget::{KvBudget, KvCounters, KvShare};
use crate::models::packed::{PackedDecoder, Segment};
use crate::models::prefix_tree::shared_prefix;
use crate::models::random::CounterRng;
use crate::models::sampling::Sampler;
use crate::models::scheduler::Scheduler;

const VOCABULARY: usize = 300;
/// What prompts may have in common, in tokens.
const TRUNK: usize = 80;
const PROMPTS_MAX: usize = 4;
/// Steps after which the last request has come.
const STEPS: usize = 12;
/// Far beyond what all of them take one after the other.
const STEPS_MAX: usize = 10_000;
const LOGIT_ERROR_MAX: f32 = 1e-4;

/// A small random policy of one architecture.
pub(super) struct Tested {
    pub decoder: Decoder,
    pub packed: Arc<PackedDecoder>,
}

impl Tested {
    fn new(config: DecoderConfig) -> Self {
        let decoder = Decoder::random(config, 5).unwrap();
        randomise(&decoder);
        let packed = Arc::new(PackedDecoder::new(&decoder).unwrap());
        Self { decoder, packed }
    }

    /// Logits after each token of a prompt, by the decoder that training uses, which has no cache.
    pub fn logits(&self, prompt: &[u32]) -> Vec<Vec<f32>> {
        let hidden = self.decoder.hidden(prompt, &[prompt.len()]).unwrap();
        hidden.matmul(&self.decoder.head_weight().t().unwrap()).unwrap().to_vec2().unwrap()
    }

    /// One that keeps at most so many blocks of finished sequences.
    fn scheduler(&self, blocks: usize) -> Scheduler {
        self.scheduler_with(memory(blocks * self.packed.kv_shape().block_bytes()))
    }

    fn scheduler_with(&self, memory: KvShare) -> Scheduler {
        Scheduler::new(Arc::clone(&self.packed), tiny_policy().tokenizer.clone(), vec![0], memory)
    }
}

/// Every architecture, once.
pub(super) fn architectures() -> &'static [Tested] {
    static TESTED: LazyLock<Vec<Tested>> = LazyLock::new(|| {
        let scaling = RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_positions: 64.0 };
        let llama_rope = RopeConfig { theta: 10_000.0, scaling };
        [
            tiny_config(),
            DecoderConfig { architecture: DecoderArchitecture::Qwen3, head_dim: 16, ..tiny_config() },
            DecoderConfig { architecture: DecoderArchitecture::Llama, rope: llama_rope, tie_word_embeddings: false, ..tiny_config() },
        ]
        .map(Tested::new)
        .into()
    });
    &TESTED
}

/// Initial weights are so small that all tokens get the same attention, and biases are zero.
fn randomise(decoder: &Decoder) {
    for (index, (name, parameter)) in decoder.parameters().iter().enumerate() {
        let (mean, deviation) = match name {
            name if name.ends_with("norm.weight") => (1.0, 0.2),
            name if name.ends_with(".bias") => (0.0, 0.2),
            _ => (0.0, 0.1),
        };
        let rng = CounterRng::new(7).stream(index as u64);
        let values: Vec<f32> = (0..parameter.elem_count() as u64).map(|place| (mean + deviation * rng.normal(place)) as f32).collect();
        parameter.set(&Tensor::from_vec(values, parameter.dims(), &Device::Cpu).unwrap()).unwrap();
    }
}

/// Prompts of which each has some of a common beginning and something of its own.
fn prompts() -> impl Strategy<Value = Vec<Vec<u32>>> {
    let trunk = |place: u64| (CounterRng::new(11).bits(place) % VOCABULARY as u64) as u32;
    let prompt = (0..=TRUNK as u64, vec(0..VOCABULARY as u32, 1..40));
    vec(prompt.prop_map(move |(shared, own)| (0..shared).map(trunk).chain(own).collect::<Vec<u32>>()), 1..=PROMPTS_MAX)
}

/// A request for each prompt, with numbers of its own.
fn requests(prompts: &[Vec<u32>], max_new_tokens: usize, seed: u64, is_greedy: bool) -> Vec<GenerateRequest> {
    let sampled = Sampler { temperature: 1.0, top_p: 0.95, repetition_penalty: 1.1, ..Sampler::default() };
    let sampler = if is_greedy { Sampler::default() } else { sampled };
    let request = |(index, prompt): (u64, &Vec<u32>)| GenerateRequest {
        prompt: prompt.clone(),
        max_new_tokens,
        sampler,
        seed: seed.wrapping_add(index),
        stop: vec!["no such text".to_owned()],
    };
    (0..).zip(prompts).map(request).collect()
}

/// That completions are those of requests that run alone.
fn check_as_alone(tested: &Tested, requests: &[GenerateRequest], found: Vec<Completion>) -> Result<(), TestCaseError> {
    for (request, found) in requests.iter().zip(found) {
        let alone = run(&mut tested.scheduler(0), vec![request.clone()]).remove(0).unwrap();
        prop_assert_eq!((&alone.token_ids, &alone.text, alone.finish), (&found.token_ids, &found.text, found.finish));
        prop_assert!(difference(&alone.token_logprobs, &found.token_logprobs) < LOGIT_ERROR_MAX);
    }
    Ok(())
}

/// Runs requests each of which comes at its step.
fn run_arriving(scheduler: &mut Scheduler, requests: &[GenerateRequest], arrivals: &[usize]) -> Vec<Completion> {
    let mut results: Vec<_> = requests.iter().map(|_| None).collect();
    for step in 0.. {
        for (index, request) in requests.iter().enumerate().filter(|(index, _)| arrivals[*index] == step) {
            results[index] = Some(add(scheduler, request.clone()));
        }
        if step >= STEPS && scheduler.is_idle() {
            break;
        }
        scheduler.step();
        assert!(step < STEPS_MAX, "requests hinder each other for ever");
    }
    results.into_iter().map(|result| result.unwrap().try_recv().unwrap().unwrap()).collect()
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().chain(b).all(|number| number.is_finite()), "a NaN would be no difference");
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each forward reads pieces of some of the sequences, and a sequence begins with at most `taken` tokens that another one has read.
    #[test]
    fn logits_depend_on_the_sequence_alone(
        prompts in prompts(),
        pieces in vec(0..40_usize, 8..16),
        taken in vec(0..100_usize, PROMPTS_MAX),
    ) {
        for tested in architectures() {
            let expected: Vec<_> = prompts.iter().map(|prompt| tested.logits(prompt)).collect();
            let mut caches: Vec<_> = prompts.iter().map(|_| tested.packed.new_cache()).collect();
            let mut pieces = pieces.iter().copied().cycle();
            while let Some(unread) = (0..prompts.len()).find(|index| caches[*index].len() < prompts[*index].len()) {
                let mut counts: Vec<usize> = prompts.iter().map(|_| pieces.next().unwrap()).collect();
                counts[unread] = counts[unread].max(1);
                for (index, prompt) in prompts.iter().enumerate() {
                    if counts[index] > 0 && caches[index].is_empty() {
                        let held = |other: usize| shared_prefix(&prompts[other], prompt).min(caches[other].len());
                        let (other, len) = (0..prompts.len()).map(|other| (other, held(other))).max_by_key(|(_, len)| *len).unwrap();
                        let known = caches[other].prefix(len.min(prompt.len() - 1).min(taken[index]));
                        caches[index] = known;
                    }
                    counts[index] = counts[index].min(prompt.len() - caches[index].len());
                }
                let mut segments = Vec::new();
                for ((cache, prompt), count) in caches.iter_mut().zip(&prompts).zip(&counts).filter(|(_, count)| **count > 0) {
                    let start = cache.len();
                    segments.push(Segment { cache, tokens: &prompt[start..start + count] });
                }
                let logits = tested.packed.forward(&mut segments);
                let read = (0..prompts.len()).filter(|index| counts[*index] > 0);
                for (index, logits) in read.zip(logits.chunks_exact(VOCABULARY)) {
                    let position = caches[index].len() - 1;
                    let difference = difference(logits, &expected[index][position]);
                    let architecture = tested.packed.config().architecture;
                    prop_assert!(difference < LOGIT_ERROR_MAX, "{architecture:?}, prompt {index}, position {position}: {difference}");
                }
            }
        }
    }

    /// Whatever runs beside a request and before it, and whether much, little or nothing of that is kept.
    #[test]
    fn texts_depend_on_the_request_alone(
        prompts in prompts(),
        arrivals in vec(0..STEPS, PROMPTS_MAX),
        blocks in prop_oneof![Just(0), 1..6_usize, Just(1000)],
        seed in any::<u64>(),
        is_greedy in any::<bool>(),
    ) {
        let requests = requests(&prompts, 6, seed, is_greedy);
        for tested in architectures() {
            let together = run_arriving(&mut tested.scheduler(blocks), &requests, &arrivals);
            check_as_alone(tested, &requests, together)?;
        }
    }

    /// However little memory there is, each request comes to its end, whether it gave way to others or not. A prompt and its completion take up to six blocks.
    #[test]
    fn texts_do_not_depend_on_the_memory(
        prompts in prompts(),
        arrivals in vec(0..STEPS, PROMPTS_MAX),
        running in 1..12_usize,
        kept in prop_oneof![Just(0), 1..8_usize],
        seed in any::<u64>(),
        is_greedy in any::<bool>(),
    ) {
        let requests = requests(&prompts, 50, seed, is_greedy);
        for tested in architectures() {
            let block = tested.packed.kv_shape().block_bytes();
            let counters = Arc::<KvCounters>::default();
            let mut scheduler = tested.scheduler_with(KvShare::new(&KvBudget::new(running * block, kept * block), &counters));
            let found = run_arriving(&mut scheduler, &requests, &arrivals);
            check_as_alone(tested, &requests, found)?;
            prop_assert!(counters.kept_bytes.load(Ordering::Relaxed) <= kept * block);
            // Each time for a block of another one.
            prop_assert!(counters.preemptions.load(Ordering::Relaxed) <= 3 * PROMPTS_MAX * PROMPTS_MAX);
        }
    }
}
