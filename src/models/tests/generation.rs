//! Generation: the packed decoder equals the differentiable one, and a result does not depend on what else runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{add, memory, run, tiny_policy};
use crate::error::Error;
use crate::models::decoder::Decoder;
use crate::models::generation::{Finish, GenerateRequest};
use crate::models::kv_budget::{KvBudget, KvCounters, KvShare};
use crate::models::kv_cache::BLOCK;
use crate::models::packed::{PackedDecoder, Segment};
use crate::models::random::CounterRng;
use crate::models::sampling::Sampler;
use crate::models::scheduler::Scheduler;

fn request(prompt: &[u32], seed: u64) -> GenerateRequest {
    let sampler = Sampler { temperature: 1.0, top_p: 0.95, ..Sampler::default() };
    GenerateRequest { prompt: prompt.to_vec(), max_new_tokens: 24, sampler, seed, stop: Vec::new() }
}

/// Prompts of different lengths; some share their beginning.
fn prompts(count: usize, vocab: u64) -> Vec<Vec<u32>> {
    let token = |seed: u64, i: u64| (CounterRng::new(seed).bits(i) % vocab) as u32;
    let prompt = |n: u64| {
        let shared = (0..40).map(|i| token(n / 5, i));
        let own = (0..n * 7 % 90).map(|i| token(1000 + n, i));
        shared.chain(own).collect()
    };
    (0..count as u64).map(prompt).collect()
}

fn scheduler(policy: &super::TinyPolicy) -> Scheduler {
    Scheduler::new(Arc::clone(&policy.packed), policy.tokenizer.clone(), vec![0], memory(64 << 20))
}

#[test]
fn packed_logits_equal_the_differentiable_decoder() {
    let policy = tiny_policy();
    for prompt in prompts(6, 300) {
        let hidden = policy.decoder.hidden(&prompt, &[prompt.len()]).unwrap();
        let expected = hidden.matmul(&policy.decoder.head_weight().t().unwrap()).unwrap().to_vec2::<f32>().unwrap();
        let mut cache = policy.packed.new_cache();
        for (position, token) in prompt.iter().enumerate() {
            let logits = policy.packed.forward(&mut [Segment { cache: &mut cache, tokens: &[*token] }]);
            assert!(logits.iter().chain(&expected[position]).all(|logit| logit.is_finite()), "a NaN would be no difference");
            let difference = logits.iter().zip(&expected[position]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(difference < 1e-4, "position {position}: logits differ by {difference}");
        }
    }
}

#[test]
fn a_prompt_in_pieces_gives_the_same_bits() {
    let policy = tiny_policy();
    let prompt = &prompts(40, 300)[37];
    let mut whole = policy.packed.new_cache();
    let expected = policy.packed.forward(&mut [Segment { cache: &mut whole, tokens: prompt }]);
    for cut in [1, 31, 32, 33, prompt.len() - 1] {
        let mut cache = whole.prefix(cut);
        assert_eq!(policy.packed.forward(&mut [Segment { cache: &mut cache, tokens: &prompt[cut..] }]), expected, "cut at {cut}");
    }
}

/// Rows over blocks that several sequences have are multiplied together, with one row each or several.
#[test]
fn sequences_that_share_blocks_give_the_bits_that_they_give_alone() {
    let policy = tiny_policy();
    let prompt = &prompts(40, 300)[37];
    let mut trunk = policy.packed.new_cache();
    policy.packed.forward(&mut [Segment { cache: &mut trunk, tokens: prompt }]);
    // Of the same beginning the third has one block, the last none; 2 * BLOCK + 5 tokens end within a block.
    let begun = [prompt.len(), 2 * BLOCK + 5, BLOCK + 1, 2 * BLOCK, 3];
    for len in [1, 2, 5, 60] {
        let tokens: Vec<Vec<u32>> =
            (0..begun.len() as u32).map(|index| (0..len).map(|place| (7 * place + 31 * index) % 300).collect()).collect();
        let mut caches = begun.map(|len| trunk.prefix(len));
        for _ in 0..3 {
            let mut alone = Vec::new();
            for (cache, tokens) in caches.iter().zip(&tokens) {
                let mut cache = cache.clone();
                alone.extend(policy.packed.forward(&mut [Segment { cache: &mut cache, tokens }]));
            }
            let mut segments: Vec<Segment<'_>> = caches.iter_mut().zip(&tokens).map(|(cache, tokens)| Segment { cache, tokens }).collect();
            assert_eq!(policy.packed.forward(&mut segments), alone, "{len} tokens each");
        }
    }
}

#[test]
fn alone_equals_batched() {
    let policy = tiny_policy();
    let requests: Vec<GenerateRequest> = prompts(40, 300).iter().enumerate().map(|(i, prompt)| request(prompt, i as u64)).collect();
    let together = run(&mut scheduler(policy), requests.clone());
    for (request, together) in requests.into_iter().zip(together) {
        let (alone, together) = (run(&mut scheduler(policy), vec![request]).remove(0).unwrap(), together.unwrap());
        assert_eq!(alone.token_ids, together.token_ids);
        assert_eq!(alone.token_logprobs, together.token_logprobs);
        assert_eq!((alone.text, alone.finish), (together.text, together.finish));
    }
}

#[test]
fn siblings_read_their_prompt_once() {
    let policy = tiny_policy();
    let prompt = &prompts(40, 300)[39];
    let mut scheduler = scheduler(policy);
    let siblings = run(&mut scheduler, (0..8).map(|seed| request(prompt, seed)).collect());
    let cached: Vec<usize> = siblings.iter().map(|sibling| sibling.as_ref().unwrap().cached_tokens).collect();
    assert_eq!(cached[0], 0);
    assert!(cached[1..].iter().all(|cached| *cached == prompt.len() - 1), "{cached:?}");
    let distinct: std::collections::BTreeSet<_> = siblings.iter().map(|sibling| sibling.as_ref().unwrap().token_ids.clone()).collect();
    assert!(distinct.len() > 1, "the seed has no effect");

    let longer: Vec<u32> = prompt.iter().copied().chain([5, 6, 7]).collect();
    let extended = run(&mut scheduler, vec![request(&longer, 0)]).remove(0).unwrap();
    assert_eq!(extended.cached_tokens, prompt.len());
    let fresh = run(&mut self::scheduler(policy), vec![request(&longer, 0)]).remove(0).unwrap();
    assert_eq!(extended.token_logprobs, fresh.token_logprobs);
}

#[test]
fn stop_texts_end_a_completion_across_token_borders() {
    let policy = tiny_policy();
    let readable = |pair: &[char]| pair.iter().all(|c| c.is_ascii_graphic());
    // A random policy writes mostly broken bytes: take the first sample with two neighbouring readable characters, of two tokens.
    let (sampled, whole, stop) = (0..200)
        .find_map(|seed| {
            let request = request(&prompts(4, 300)[3], seed);
            let whole = run(&mut scheduler(policy), vec![request.clone()]).remove(0).unwrap();
            let characters: Vec<char> = whole.text.chars().collect();
            let pair: String = characters[..characters.len() / 2].windows(2).find(|pair| readable(pair))?.iter().collect();
            let in_one_token = |id: &u32| policy.tokenizer.decode(&[*id]).unwrap().contains(&pair);
            let in_two = !whole.token_ids.iter().any(in_one_token);
            in_two.then_some((request, whole, pair))
        })
        .unwrap();
    let stopped = run(&mut scheduler(policy), vec![GenerateRequest { stop: vec![stop.clone()], ..sampled }]).remove(0).unwrap();
    assert_eq!(stopped.finish, Finish::Stop);
    assert!(!stopped.text.contains(&stop) && whole.text.starts_with(&stopped.text));
    assert!(whole.token_ids.starts_with(&stopped.token_ids) && stopped.token_ids.len() < whole.token_ids.len());
}

#[test]
fn a_caller_that_goes_away_is_dropped() {
    let policy = tiny_policy();
    let mut scheduler = scheduler(policy);
    let result = add(&mut scheduler, request(&[1, 2, 3], 0));
    scheduler.step();
    assert!(!scheduler.is_idle());
    drop(result);
    scheduler.step();
    assert!(scheduler.is_idle());
}

#[test]
fn what_a_sibling_has_of_a_cancelled_sequence_stays_counted() {
    let policy = tiny_policy();
    let block = policy.packed.kv_shape().block_bytes();
    let counters = Arc::<KvCounters>::default();
    let memory = KvShare::new(&KvBudget::new(1 << 30, block), &counters);
    let mut scheduler = Scheduler::new(Arc::clone(&policy.packed), policy.tokenizer.clone(), Vec::new(), memory);
    let prompt = [7; 2 * BLOCK + 1];
    let first = add(&mut scheduler, request(&prompt, 0));
    scheduler.step();
    let mut second = add(&mut scheduler, request(&prompt, 1));
    scheduler.step();
    drop(first);
    scheduler.step();
    assert_eq!(counters.kept_bytes.load(Ordering::Relaxed), 2 * block, "more than its part, since the second one has them");
    while !scheduler.is_idle() {
        scheduler.step();
    }
    assert_eq!(second.try_recv().unwrap().unwrap().cached_tokens, 2 * BLOCK);
    assert_eq!(counters.kept_bytes.load(Ordering::Relaxed), block);
}

#[test]
fn a_request_without_room_holds_up_those_behind_it_until_it_goes_away() {
    let policy = tiny_policy();
    let block = policy.packed.kv_shape().block_bytes();
    for goes_away in [false, true] {
        // Each request writes 24 tokens: the first and the last one take two blocks each, the one between them three.
        let memory = KvShare::new(&KvBudget::new(4 * block, 0), &Arc::default());
        let mut scheduler = Scheduler::new(Arc::clone(&policy.packed), policy.tokenizer.clone(), Vec::new(), memory);
        let [mut first, long, mut last] = [10, 2 * BLOCK + 1, 10].map(|len| add(&mut scheduler, request(&vec![7; len], 0)));
        scheduler.step();
        let mut long = (!goes_away).then_some(long);
        (0..24).for_each(|_| scheduler.step());
        assert!(first.try_recv().is_ok());
        assert_eq!(last.try_recv().is_ok(), goes_away);
        while !scheduler.is_idle() {
            scheduler.step();
        }
        assert!(long.as_mut().is_none_or(|long| long.try_recv().is_ok()));
        assert!(goes_away || last.try_recv().is_ok());
    }
}

/// Each comes to four blocks, and there are five: both begin, and the one that came last gives way.
#[test]
fn the_last_gives_way_and_goes_on_later() {
    let policy = tiny_policy();
    let block = policy.packed.kv_shape().block_bytes();
    let requests = [1, 2].map(|token| GenerateRequest { max_new_tokens: 60, ..request(&[token; 40], 7) });
    let new = |memory| Scheduler::new(Arc::clone(&policy.packed), policy.tokenizer.clone(), Vec::new(), memory);
    for kept in [0, 2] {
        let counters = Arc::<KvCounters>::default();
        let mut scheduler = new(KvShare::new(&KvBudget::new(5 * block, kept * block), &counters));
        let [mut first, mut last] = requests.clone().map(|request| add(&mut scheduler, request));
        scheduler.step();
        assert_eq!(scheduler.num_running(), 2);
        let first = loop {
            scheduler.step();
            assert!(last.try_recv().is_err(), "the last one is not done first");
            if let Ok(first) = first.try_recv() {
                break first.unwrap();
            }
        };
        let preemptions = counters.preemptions.load(Ordering::Relaxed);
        assert!((1..=2).contains(&preemptions), "{preemptions}");
        while !scheduler.is_idle() {
            scheduler.step();
        }
        let last = last.try_recv().unwrap().unwrap();
        for (found, request) in [first, last].into_iter().zip(requests.clone()) {
            let alone = run(&mut new(memory(0)), vec![request]).remove(0).unwrap();
            assert_eq!((found.token_ids, found.token_logprobs, found.text), (alone.token_ids, alone.token_logprobs, alone.text));
            assert_eq!((found.prompt_tokens, found.cached_tokens), (40, 0));
        }
        assert_eq!(counters.preemptions.load(Ordering::Relaxed), preemptions, "nothing was in its way any more");
    }
}

#[test]
fn requests_that_cannot_run_are_refused() {
    let policy = tiny_policy();
    let good = request(&[1, 2], 0);
    let with = |sampler| GenerateRequest { sampler, ..good.clone() };
    let bad = [
        GenerateRequest { prompt: vec![], ..good.clone() },
        GenerateRequest { prompt: vec![300], ..good.clone() },
        GenerateRequest { prompt: vec![1; 512], ..good.clone() },
        GenerateRequest { max_new_tokens: 0, ..good.clone() },
        with(Sampler { temperature: f32::NAN, ..good.sampler }),
        with(Sampler { temperature: -1.0, ..good.sampler }),
        with(Sampler { repetition_penalty: 0.0, ..good.sampler }),
        with(Sampler { top_p: 0.0, ..good.sampler }),
        with(Sampler { top_p: 1.5, ..good.sampler }),
        with(Sampler { min_p: 1.1, ..good.sampler }),
    ];
    for request in bad {
        let result = run(&mut scheduler(policy), vec![request.clone()]).remove(0);
        assert!(matches!(result, Err(Error::InvalidParameter { .. })), "{request:?} gave {result:?}");
    }
    let at_the_limit =
        run(&mut scheduler(policy), vec![GenerateRequest { prompt: vec![1; 500], max_new_tokens: 100, ..good }]).remove(0).unwrap();
    assert_eq!((at_the_limit.finish, at_the_limit.token_ids.len()), (Finish::Length, 12));
}

#[test]
fn broken_weights_are_an_error() {
    let policy = tiny_policy();
    let decoder = Decoder::random(policy.decoder.config().clone(), 3).unwrap();
    let norm = &decoder.parameters()["model.norm.weight"];
    norm.set(&(norm.as_tensor() * f64::NAN).unwrap()).unwrap();
    let packed = Arc::new(PackedDecoder::new(&decoder).unwrap());
    let mut scheduler = Scheduler::new(packed, policy.tokenizer.clone(), vec![0], memory(0));
    let result = run(&mut scheduler, vec![request(&[1, 2, 3], 0)]).remove(0);
    assert!(matches!(result, Err(Error::BrokenWeights)), "{result:?}");
}

#[test]
fn greedy_equals_the_decoder_run_again_from_the_start() {
    let policy = tiny_policy();
    let reloaded = PackedDecoder::new(&Decoder::random(policy.decoder.config().clone(), 3).unwrap()).unwrap();
    let prompt = &prompts(9, 300)[8];
    let greedy =
        run(&mut scheduler(policy), vec![GenerateRequest { sampler: Sampler::default(), ..request(prompt, 0) }]).remove(0).unwrap();
    let mut tokens = prompt.clone();
    for expected in greedy.token_ids {
        let mut cache = reloaded.new_cache();
        let logits = reloaded.forward(&mut [Segment { cache: &mut cache, tokens: &tokens }]);
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32;
        assert_eq!(best, expected);
        tokens.push(best);
    }
}
