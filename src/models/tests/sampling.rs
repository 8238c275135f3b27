//! Sampling follows the distribution that it is asked for.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;

use crate::fixtures::fixture;
use crate::models::sampling::Sampler;
use crate::models::scratch::Scratch;
use crate::models::simd::softmax;

const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, -1.0];

const RANDOM: Sampler = Sampler { temperature: 1.0, repetition_penalty: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 };

fn frequencies(sampler: Sampler) -> [f64; 4] {
    let mut counts = [0.0; 4];
    for seed in 0..20_000 {
        counts[sampler.sample(&LOGITS, &[], seed, 3).token as usize] += 1.0 / 20_000.0;
    }
    counts
}

fn probabilities(temperature: f64, kept: &[usize]) -> [f64; 4] {
    let weight = |token: usize| if kept.contains(&token) { (f64::from(LOGITS[token]) / temperature).exp() } else { 0.0 };
    let total: f64 = (0..4).map(weight).sum();
    std::array::from_fn(|token| weight(token) / total)
}

#[test]
fn frequencies_match_probabilities() {
    let cases: [(Sampler, &[usize]); 8] = [
        (RANDOM, &[0, 1, 2, 3]),
        (Sampler { temperature: 0.5, ..RANDOM }, &[0, 1, 2, 3]),
        (Sampler { top_p: 0.8, ..RANDOM }, &[1, 2]),
        (Sampler { top_p: 0.1, ..RANDOM }, &[1]),
        (Sampler { top_k: 3, ..RANDOM }, &[0, 1, 2]),
        (Sampler { min_p: 0.2, ..RANDOM }, &[1, 2]),
        // Of the 0.73 and 0.27 that two tokens have between them, the first alone is enough; of all four it has only 0.64.
        (Sampler { top_k: 2, top_p: 0.7, ..RANDOM }, &[1]),
        (Sampler { top_p: 0.7, ..RANDOM }, &[1, 2]),
    ];
    for (sampler, kept) in cases {
        let (found, expected) = (frequencies(sampler), probabilities(f64::from(sampler.temperature), kept));
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 0.015, "{sampler:?}: {found} instead of {expected}");
        }
    }
}

/// What is left of the probabilities, for all settings at once: `tests/fixtures/make_decoding_goldens.py`.
#[test]
fn what_is_left_to_draw_from_equals_transformers() {
    #[derive(Deserialize)]
    struct Golden {
        temperature: f32,
        repetition_penalty: f32,
        top_k: usize,
        top_p: f32,
        min_p: f32,
        logits: Vec<f32>,
        sequence: Vec<u32>,
        kept: BTreeMap<usize, f64>,
    }
    let goldens: Vec<Golden> = serde_json::from_slice(&std::fs::read(fixture("models").join("sampling.json")).unwrap()).unwrap();
    assert!(goldens.len() >= 200);
    for golden in goldens {
        let Golden { temperature, repetition_penalty, top_k, top_p, min_p, .. } = golden;
        let sampler = Sampler { temperature, repetition_penalty, top_k, top_p, min_p };
        let mut probabilities = sampler.penalised(&golden.logits, &golden.sequence).unwrap_or_else(|| Scratch::of(&golden.logits));
        probabilities.iter_mut().for_each(|logit| *logit /= temperature);
        softmax(&mut probabilities);
        let mut kept = sampler.kept(&probabilities).unwrap_or_else(|| (0..probabilities.len()).collect());
        kept.sort_unstable();
        assert_eq!(kept, golden.kept.keys().copied().collect::<Vec<_>>(), "{sampler:?}");
        let total: f64 = kept.iter().map(|token| f64::from(probabilities[*token])).sum();
        for (token, expected) in &golden.kept {
            let found = f64::from(probabilities[*token]) / total;
            assert!((found - expected).abs() < 1e-5, "{sampler:?}: token {token} has {found}, expected {expected}");
        }
    }
}

#[test]
fn the_log_probability_is_the_models_own() {
    let expected = probabilities(1.0, &[0, 1, 2, 3]);
    let samplers = [Sampler::default(), Sampler { temperature: 0.3, top_p: 0.5, ..RANDOM }, Sampler { repetition_penalty: 3.0, ..RANDOM }];
    for sampler in samplers {
        for seed in 0..20 {
            let sampled = sampler.sample(&LOGITS, &[1], seed, 0);
            assert!((f64::from(sampled.logprob).exp() - expected[sampled.token as usize]).abs() < 1e-6);
        }
    }
}

#[test]
fn greedy_takes_the_first_of_equals() {
    assert_eq!(Sampler::default().sample(&[1.0, 3.0, 3.0], &[], 9, 9).token, 1);
}

#[test]
fn a_repeated_token_is_less_probable_whatever_its_sign() {
    let greedy = Sampler { repetition_penalty: 2.0, ..Sampler::default() };
    assert_eq!(greedy.sample(&[1.5, 2.0], &[1, 1], 0, 0).token, 0, "1 instead of 2, once");
    assert_eq!(greedy.sample(&[-1.5, -1.0], &[1], 0, 0).token, 0, "-2 instead of -1");
    assert_eq!(greedy.sample(&[1.5, 2.0], &[0], 0, 0).token, 1);
}

#[test]
fn a_draw_is_named_by_seed_and_index() {
    let draws = |seed| (0..50).map(|index| RANDOM.sample(&LOGITS, &[], seed, index).token).collect::<Vec<_>>();
    assert_eq!(draws(1), draws(1));
    assert_ne!(draws(1), draws(2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// A large vocabulary is not put in order as a whole; the choice is that of one that is.
    #[test]
    fn a_nucleus_is_the_same_from_any_number_of_candidates(
        seed: u64, size in 1_usize..3000, spread in 0.0_f32..8.0, top_p in 0.01_f32..1.0, top_k in 0_usize..600, min_p in 0.0_f32..0.5,
    ) {
        let rng = crate::models::random::CounterRng::new(seed);
        // Rounded, so that there are equals.
        let logits: Vec<f32> = (0..size as u64).map(|i| (rng.normal(i) as f32 * spread * 4.0).round() / 4.0).collect();
        let sampler = Sampler { top_p, top_k, min_p, ..RANDOM };
        let largest = logits.iter().copied().fold(f32::MIN, f32::max);
        let mut order: Vec<usize> = (0..size).collect();
        order.sort_by(|a, b| logits[*b].partial_cmp(&logits[*a]).unwrap());
        order.truncate(if top_k == 0 { size } else { top_k });
        let weight = |token: usize| f64::from(logits[token] - largest).exp();
        let total: f64 = order.iter().map(|token| weight(*token)).sum();
        let mut before = 0.0;
        // Near the border rounding decides: both answers are right.
        let mut allowed = Vec::new();
        for token in order {
            if before / total < f64::from(top_p) + 1e-4 && weight(token) > f64::from(min_p) - 1e-6 || allowed.is_empty() {
                allowed.push(token);
            }
            before += weight(token);
        }
        for draw in 0..20 {
            let token = sampler.sample(&logits, &[], seed, draw).token as usize;
            prop_assert!(allowed.contains(&token), "{sampler:?} chose {token} of {size}");
        }
    }
}

#[test]
fn a_number_is_found_where_it_is_first() {
    use crate::models::simd::position;
    for len in [0, 1, 63, 64, 65, 200] {
        let row: Vec<f32> = (0..len).map(|index| (index / 2) as f32).collect();
        for index in 0..len {
            assert_eq!(position(&row, row[index]), Some(index / 2 * 2), "{index} of {len}");
        }
        assert_eq!(position(&row, -1.0), None);
        assert_eq!(position(&row, f32::NAN), None);
    }
}
