//! The decoder of candle's operations, on candle's CPU device in f32: the same code as on a GPU, held to transformers and to the packed decoder.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use candle_core::safetensors::load;
use candle_core::{DType, Device, Tensor};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::batching::architectures;
use super::goldens::{DECODERS, TOLERANCE, fixture, read_goldens};
use super::{add, memory, run, tiny_config, tiny_policy};
use crate::error::Error;
use crate::models::DecoderConfig;
use crate::models::decoder::{Decoder, EMBEDDING};
use crate::models::device_decoder::{BlockPool, DeviceDecoder};
use crate::models::generation::GenerateRequest;
use crate::models::kv_budget::{KvBudget, KvCounters, KvShare};
use crate::models::kv_cache::{BLOCK, BlockSource, KvCache};
use crate::models::owner::{LoadedPolicy, Owner};
use crate::models::packed::{PackedDecoder, Segment};
use crate::models::policy_decoder::PolicyDecoder;
use crate::models::random::CounterRng;
use crate::models::sampling::Sampler;
use crate::models::scheduler::{Decode, Job, Scheduler};

type Cache = KvCache<Arc<BlockPool>>;

#[derive(Deserialize)]
struct Goldens {
    tokens: Vec<Vec<u32>>,
    greedy: Vec<u32>,
}

fn on_cpu(decoder: &Decoder) -> DeviceDecoder {
    DeviceDecoder::of(decoder, &Device::Cpu, DType::F32).unwrap()
}

/// The logits after more tokens of one sequence.
fn next(decoder: &DeviceDecoder, cache: &mut Cache, tokens: &[u32]) -> Vec<f32> {
    decoder.forward(&mut [Segment { cache, tokens }]).unwrap()
}

/// The logits after more tokens of several sequences, in one forward.
fn next_of_all(decoder: &DeviceDecoder, caches: &mut [Cache], tokens: &[&[u32]]) -> Vec<Vec<f32>> {
    let mut segments: Vec<_> = caches.iter_mut().zip(tokens).map(|(cache, tokens)| Segment { cache, tokens }).collect();
    let logits = decoder.forward(&mut segments).unwrap();
    logits.chunks_exact(decoder.config().vocab_size).map(<[f32]>::to_vec).collect()
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    assert!(found.iter().chain(expected).all(|number| number.is_finite()), "{what}: a NaN would be no difference");
    let difference = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(difference < TOLERANCE, "{what} differs by {difference}");
}

fn best(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32
}

/// Prompts of lengths around the borders of blocks and of groups.
fn prompts(vocabulary: u64) -> Vec<Vec<u32>> {
    let lengths = [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 100, 150];
    let prompt = |(seed, len): (u64, usize)| (0..len as u64).map(|place| (CounterRng::new(seed).bits(place) % vocabulary) as u32).collect();
    (0..).zip(lengths).map(prompt).collect()
}

#[test]
fn logits_equal_transformers() {
    for name in DECODERS {
        let (directory, goldens) = (fixture(name), read_goldens::<Goldens>(&fixture(name)));
        let golden_tensors = load(directory.join("goldens.safetensors"), &Device::Cpu).unwrap();
        let decoder = DeviceDecoder::load(&directory, &Device::Cpu, DType::F32).unwrap();
        let tokens: Vec<&[u32]> = goldens.tokens.iter().map(Vec::as_slice).collect();
        let mut caches: Vec<Cache> = tokens.iter().map(|_| decoder.new_cache()).collect();
        let together = next_of_all(&decoder, &mut caches, &tokens);
        for (index, tokens) in tokens.iter().enumerate() {
            let expected = golden_tensors[&format!("last.{index}")].to_vec1::<f32>().unwrap();
            assert_close(&together[index], &expected, &format!("{name} {index}: the last logits, of all together"));
            assert_close(&next(&decoder, &mut decoder.new_cache(), tokens), &expected, &format!("{name} {index}: the last logits"));
            let mut cache = decoder.new_cache();
            let pieces: Vec<Vec<f32>> = tokens.chunks(37).map(|piece| next(&decoder, &mut cache, piece)).collect();
            assert_close(pieces.last().unwrap(), &expected, &format!("{name} {index}: the last logits, read in pieces"));
        }
        let (mut cache, mut tokens) = (decoder.new_cache(), goldens.tokens[1].clone());
        for expected in &goldens.greedy {
            let start = cache.len();
            let found = best(&next(&decoder, &mut cache, &tokens[start..]));
            assert_eq!(found, *expected, "{name}: greedy token {}", tokens.len() - goldens.tokens[1].len());
            tokens.push(found);
        }
    }
}

/// One token at a time, of sequences of all lengths together, is as all at once.
#[test]
fn next_tokens_equal_the_differentiable_decoder() {
    for tested in architectures() {
        let decoder = on_cpu(&tested.decoder);
        let prompts = prompts(300);
        let expected: Vec<_> = prompts.iter().map(|prompt| tested.logits(prompt)).collect();
        let mut caches: Vec<Cache> = prompts.iter().map(|_| decoder.new_cache()).collect();
        // All but the last tokens first, in pieces of another size for each.
        for (index, (cache, prompt)) in caches.iter_mut().zip(&prompts).enumerate() {
            for piece in prompt[..prompt.len().saturating_sub(4)].chunks(5 + 9 * index) {
                let logits = next(&decoder, cache, piece);
                assert_close(&logits, &expected[index][cache.len() - 1], &format!("prompt {index} up to {}", cache.len()));
            }
        }
        for _ in 0..4 {
            let unread: Vec<usize> = (0..prompts.len()).filter(|index| caches[*index].len() < prompts[*index].len()).collect();
            let mut segments = Vec::new();
            for (cache, prompt) in caches.iter_mut().zip(&prompts).filter(|(cache, prompt)| cache.len() < prompt.len()) {
                let start = cache.len();
                segments.push(Segment { cache, tokens: &prompt[start..=start] });
            }
            let logits = decoder.forward(&mut segments).unwrap();
            for (index, logits) in unread.iter().zip(logits.chunks_exact(300)) {
                let position = caches[*index].len() - 1;
                assert_close(logits, &expected[*index][position], &format!("prompt {index}, position {position}"));
            }
        }
        assert!(caches.iter().zip(&prompts).all(|(cache, prompt)| cache.len() == prompt.len()));
    }
}

/// What is written to a copy changes neither the original nor other copies, and a copy of a copy that no forward has made yet is one of the original.
#[test]
fn prefixes_are_copies_and_shared_blocks_stay() {
    for tested in architectures() {
        let decoder = on_cpu(&tested.decoder);
        let prompt = prompts(300).pop().unwrap();
        let expected = tested.logits(&prompt);
        for cut in [1, BLOCK - 1, BLOCK, BLOCK + 1, prompt.len() - 1] {
            let mut original = decoder.new_cache();
            next(&decoder, &mut original, &prompt[..cut]);
            let copy = original.prefix(cut);
            let mut caches = [original, copy.prefix(cut), copy];
            let others = [[7_u32; 40], [8; 40]];
            let [first, second] = [0, 1].map(|index| [&prompt[..cut], others[index].as_slice()].concat());
            let found = next_of_all(&decoder, &mut caches, &[&prompt[cut..], &others[0], &others[1]]);
            assert_close(&found[0], expected.last().unwrap(), &format!("the original, cut at {cut}"));
            assert_close(&found[1], tested.logits(&first).last().unwrap(), &format!("a copy of a copy, cut at {cut}"));
            assert_close(&found[2], tested.logits(&second).last().unwrap(), &format!("a copy, cut at {cut}"));
            // Shorter than what is held: the rest of the copied block is written anew.
            let mut shorter = caches[0].prefix(cut.div_ceil(2));
            let found = next(&decoder, &mut shorter, &prompt[cut.div_ceil(2)..cut + 1]);
            assert_close(&found, &expected[cut], &format!("half of what was cut at {cut}"));
        }
        assert_eq!(decoder.pool().num_taken(), 0);
    }
}

/// Room for more sequences than there was: what was held moves with it.
#[test]
fn the_pool_grows_around_what_it_holds() {
    let policy = tiny_policy();
    let (decoder, prompt) = (on_cpu(&policy.decoder), prompts(300).pop().unwrap());
    let expected = policy.decoder.hidden(&prompt, &[prompt.len()]).unwrap().matmul(&policy.decoder.head_weight().t().unwrap()).unwrap();
    let expected = expected.to_vec2::<f32>().unwrap();
    let mut first = decoder.new_cache();
    next(&decoder, &mut first, &prompt[..100]);
    let mut others: Vec<Cache> = (0..40).map(|_| decoder.new_cache()).collect();
    let found = next_of_all(&decoder, &mut others, &[&prompt[..70]; 40]);
    assert!(decoder.pool().num_taken() >= 40 * 3);
    found.iter().for_each(|found| assert_close(found, &expected[69], "a sequence in new room"));
    assert_close(&next(&decoder, &mut first, &prompt[100..]), expected.last().unwrap(), "a sequence in old room");
}

/// A scheduler says what its caches may come to: 130 blocks here, and as many are needed.
#[test]
fn the_pool_grows_no_further_than_its_budget() {
    let policy = tiny_policy();
    let (decoder, prompt) = (Arc::new(on_cpu(&policy.decoder)), prompts(300).pop().unwrap());
    let block = decoder.block_source().block_bytes();
    let share = KvShare::new(&KvBudget::new(100 * block, 30 * block), &Arc::default());
    let _scheduler = Scheduler::new(Arc::clone(&decoder), policy.tokenizer.clone(), vec![0], share);
    let mut caches: Vec<Cache> = (0..25).map(|_| decoder.new_cache()).collect();
    next_of_all(&decoder, &mut caches, &[&prompt[..]; 25]);
    assert_eq!((decoder.pool().num_taken(), decoder.capacity()), (125, 128));
    let mut last = decoder.new_cache();
    next(&decoder, &mut last, &prompt);
    assert_eq!((decoder.pool().num_taken(), decoder.capacity()), (130, 144), "rounded up, and not half as many again");
}

/// The token whose embedding is NaN in [`broken_policy`].
const BROKEN: u32 = 299;

/// A policy whose logits are no numbers after [`BROKEN`], and after nothing else.
fn broken_policy() -> Decoder {
    let decoder = Decoder::random(DecoderConfig { tie_word_embeddings: false, ..tiny_config() }, 3).unwrap();
    let embedding = &decoder.parameters()[EMBEDDING];
    let mut rows = embedding.to_vec2::<f32>().unwrap();
    rows[BROKEN as usize].fill(f32::NAN);
    embedding.set(&Tensor::from_vec(rows.concat(), embedding.dims(), &Device::Cpu).unwrap()).unwrap();
    decoder
}

/// A weight of zero does not hide a NaN: blocks are as new for those who get them, and for copies behind what they share.
#[test]
fn what_is_no_number_goes_with_its_sequence() {
    let policy = broken_policy();
    let (decoder, prompt): (_, Vec<u32>) = (on_cpu(&policy), (0..80).collect());
    let expected = policy.hidden(&prompt, &[prompt.len()]).unwrap().matmul(&policy.head_weight().t().unwrap()).unwrap();
    let expected = expected.to_vec2::<f32>().unwrap();
    let broken = next(&decoder, &mut decoder.new_cache(), &[BROKEN; 3 * BLOCK]);
    assert!(broken.iter().all(|logit| logit.is_nan()));
    let mut cache = decoder.new_cache();
    for piece in prompt.chunks(10) {
        assert_close(&next(&decoder, &mut cache, piece), &expected[cache.len() - 1], &format!("in a used block, up to {}", cache.len()));
    }
    let mut original = decoder.new_cache();
    next(&decoder, &mut original, &prompt[..40]);
    next(&decoder, &mut original, &[BROKEN; 20]);
    // The first is copied by the forward that reads it, the second one before that.
    let mut copy = original.prefix(40);
    assert_close(&next(&decoder, &mut copy, &prompt[40..50]), &expected[49], "a copy");
    let mut copy = original.prefix(40);
    next(&decoder, &mut decoder.new_cache(), &prompt[..1]);
    assert_close(&next(&decoder, &mut copy, &prompt[40..50]), &expected[49], "an earlier copy");
}

#[test]
fn a_sequence_that_fails_leaves_nothing_to_others() {
    let (policy, tokenizer) = (broken_policy(), &tiny_policy().tokenizer);
    let shared: Vec<u32> = (1..=40).collect();
    let requests: Vec<GenerateRequest> = [[BROKEN, 1], [1, 2]]
        .map(|end| GenerateRequest {
            prompt: [&shared[..], end.as_slice()].concat(),
            max_new_tokens: 5,
            sampler: Sampler::default(),
            seed: 0,
            stop: Vec::new(),
        })
        .into();
    let decoder = Arc::new(on_cpu(&policy));
    let mut ours = Scheduler::new(Arc::clone(&decoder), tokenizer.clone(), Vec::new(), memory(64 << 20));
    let mut packed = Scheduler::new(Arc::new(PackedDecoder::new(&policy).unwrap()), tokenizer.clone(), Vec::new(), memory(0));
    let [found, expected] = [run(&mut ours, requests.clone()), run(&mut packed, requests)];
    assert!(found[0].is_err() && expected[0].is_err());
    let [found, expected] = [&found, &expected].map(|results| results[1].as_ref().expect("its tokens are sound"));
    assert_eq!(found.token_ids, expected.token_ids);
    assert_close(&found.token_logprobs, &expected.token_logprobs, "log-probabilities");
}

fn requests(sampler: Sampler) -> Vec<GenerateRequest> {
    let shared = prompts(300).pop().unwrap();
    let branches = [0, 3, BLOCK, 70].map(|len| [&shared[..len], [9, 8, 7].as_slice()].concat());
    let prompts = prompts(300).into_iter().chain(branches);
    (0..).zip(prompts).map(|(seed, prompt)| GenerateRequest { prompt, max_new_tokens: 40, sampler, seed, stop: Vec::new() }).collect()
}

#[test]
fn texts_equal_those_of_the_packed_decoder() {
    let sampled = Sampler { temperature: 1.0, top_p: 0.95, repetition_penalty: 1.1, ..Sampler::default() };
    for tested in architectures() {
        for (sampler, kept) in [(Sampler::default(), 64 << 20), (Sampler::default(), 0), (sampled, 64 << 20)] {
            let (tokenizer, decoder) = (&tiny_policy().tokenizer, Arc::new(on_cpu(&tested.decoder)));
            let mut ours = Scheduler::new(Arc::clone(&decoder), tokenizer.clone(), vec![0], memory(kept));
            let mut packed = Scheduler::new(Arc::clone(&tested.packed), tokenizer.clone(), vec![0], memory(kept));
            // The second time from what was kept of the first.
            for _ in 0..2 {
                let found = run(&mut ours, requests(sampler));
                for (found, expected) in found.into_iter().zip(run(&mut packed, requests(sampler))) {
                    let (found, expected) = (found.unwrap(), expected.unwrap());
                    assert_eq!((&found.token_ids, &found.text, found.finish), (&expected.token_ids, &expected.text, expected.finish));
                    assert_eq!(found.cached_tokens, expected.cached_tokens);
                    assert_close(&found.token_logprobs, &expected.token_logprobs, "log-probabilities");
                }
            }
            assert_eq!(decoder.pool().num_taken() > 0, kept > 0, "kept prefixes hold blocks, and nothing else does");
            drop(ours);
            assert_eq!(decoder.pool().num_taken(), 0);
        }
    }
}

/// With little room: blocks are let go and given out again, cancelled sequences give theirs back, and the budgets hold.
#[test]
fn all_blocks_come_back() {
    let decoder = Arc::new(on_cpu(&tiny_policy().decoder));
    let block = decoder.block_source().block_bytes();
    let counters = Arc::<KvCounters>::default();
    let share = KvShare::new(&KvBudget::new(12 * block, 3 * block), &counters);
    let mut scheduler = Scheduler::new(Arc::clone(&decoder), tiny_policy().tokenizer.clone(), Vec::new(), share);
    let mut results: Vec<_> = requests(Sampler::default()).into_iter().map(|request| Some(add(&mut scheduler, request))).collect();
    let mut steps = 0;
    while !scheduler.is_idle() {
        scheduler.step();
        // The longest sequence has as many as may be in flight.
        assert!(decoder.pool().num_taken() <= 12 + 3, "{} blocks after {steps} steps", decoder.pool().num_taken());
        steps += 1;
        if steps % 7 == 0 {
            // Its caller goes away.
            drop(results.iter_mut().find_map(Option::take));
        }
    }
    assert!(decoder.pool().num_taken() <= 3, "{} blocks are kept, 3 may be", decoder.pool().num_taken());
    assert_eq!(decoder.pool().num_taken() * block, counters.kept_bytes.load(Ordering::Relaxed));
    drop(scheduler);
    assert_eq!(decoder.pool().num_taken(), 0);
}

/// Six sequences begin with a block each and come to three, which is more than there is room for, with what is for kept ones too.
#[test]
fn sequences_that_give_way_leave_their_blocks() {
    let policy = tiny_policy();
    let decoder = Arc::new(on_cpu(&policy.decoder));
    let block = decoder.block_source().block_bytes();
    let requests: Vec<GenerateRequest> = (1..=6)
        .map(|token| GenerateRequest {
            prompt: vec![token; 20],
            max_new_tokens: 60,
            sampler: Sampler { temperature: 1.0, ..Sampler::default() },
            seed: 0,
            stop: Vec::new(),
        })
        .collect();
    let mut packed = Scheduler::new(Arc::clone(&policy.packed), policy.tokenizer.clone(), Vec::new(), memory(0));
    let expected = run(&mut packed, requests.clone());
    for kept in [0, 3] {
        let counters = Arc::<KvCounters>::default();
        let share = KvShare::new(&KvBudget::new(12 * block, kept * block), &counters);
        let mut scheduler = Scheduler::new(Arc::clone(&decoder), policy.tokenizer.clone(), Vec::new(), share);
        let mut results: Vec<_> = requests.iter().map(|request| add(&mut scheduler, request.clone())).collect();
        while !scheduler.is_idle() {
            scheduler.step();
            assert!(decoder.pool().num_taken() <= 12 + kept, "{} blocks, of which {kept} may be kept", decoder.pool().num_taken());
        }
        assert!(counters.preemptions.load(Ordering::Relaxed) > 0, "all had room");
        for (found, expected) in results.iter_mut().zip(&expected) {
            let (found, expected) = (found.try_recv().unwrap().unwrap(), expected.as_ref().unwrap());
            assert_eq!(found.token_ids, expected.token_ids);
            assert_close(&found.token_logprobs, &expected.token_logprobs, "log-probabilities");
        }
        drop(scheduler);
        assert_eq!(decoder.pool().num_taken(), 0);
    }
}

/// Memory is there as long as something is held in it.
#[test]
fn memory_goes_back_when_nothing_is_held() {
    for kept in [0, 64 << 20] {
        let decoder = Arc::new(on_cpu(&tiny_policy().decoder));
        let mut scheduler = Scheduler::new(Arc::clone(&decoder), tiny_policy().tokenizer.clone(), Vec::new(), memory(kept));
        let mut results: Vec<_> = requests(Sampler::default()).into_iter().map(|request| add(&mut scheduler, request)).collect();
        scheduler.step();
        assert!(decoder.capacity() > 0);
        while !scheduler.is_idle() {
            scheduler.step();
        }
        assert!(results.iter_mut().all(|result| result.try_recv().unwrap().is_ok()));
        assert_eq!(decoder.capacity() > 0, kept > 0, "{kept} bytes may be kept");
    }
}

/// Those in flight are told, all memory goes back, and the next ones run.
#[test]
fn a_device_without_room_says_so() {
    let policy = tiny_policy();
    let decoder = Arc::new(on_cpu(&policy.decoder));
    let mut scheduler = Scheduler::new(Arc::clone(&decoder), policy.tokenizer.clone(), Vec::new(), memory(64 << 20));
    // Kept of a short one, on a device that has room for no more.
    assert!(run(&mut scheduler, requests(Sampler::default()).split_off(11)).remove(0).is_ok());
    assert!(decoder.pool().num_taken() > 0);
    decoder.set_blocks_max(decoder.capacity());
    let many = || requests(Sampler::default()).into_iter().take(8);
    let mut results: Vec<_> = many().map(|request| add(&mut scheduler, request)).collect();
    scheduler.step();
    for result in &mut results {
        let error = result.try_recv().expect("all were in flight").unwrap_err();
        assert!(matches!(&error, Error::OutOfMemory(message) if message.contains("fewer sequences")), "{error:?}");
    }
    assert!(scheduler.is_idle());
    assert_eq!((decoder.pool().num_taken(), decoder.capacity()), (0, 0));
    decoder.set_blocks_max(usize::MAX);
    let mut packed = Scheduler::new(Arc::clone(&policy.packed), policy.tokenizer.clone(), Vec::new(), memory(0));
    for (found, expected) in run(&mut scheduler, many().collect()).into_iter().zip(run(&mut packed, many().collect())) {
        assert_eq!(found.unwrap().token_ids, expected.unwrap().token_ids);
    }
}

/// From the model thread, as a runtime that has a GPU does it.
#[tokio::test]
async fn the_model_thread_runs_it() {
    let policy = tiny_policy();
    let loaded = Arc::new(LoadedPolicy {
        decoder: PolicyDecoder::Device(Arc::new(on_cpu(&policy.decoder))),
        tokenizer: policy.tokenizer.clone(),
        chat_template: Ok(None),
        eos_token_ids: vec![0],
        kv_budget: KvBudget::new(1 << 30, 1 << 20),
        kv_counters: Arc::default(),
    });
    let request = requests(Sampler::default()).pop().unwrap();
    let (reply, result) = oneshot::channel();
    Owner::get().unwrap().generate(loaded, Job { request: request.clone(), reply, arrived: Instant::now(), holder: Weak::new() }).unwrap();
    let found = result.await.unwrap().unwrap();
    let mut packed = Scheduler::new(Arc::clone(&policy.packed), policy.tokenizer.clone(), vec![0], memory(0));
    assert_eq!(found.token_ids, run(&mut packed, vec![request]).remove(0).unwrap().token_ids);
}
