//! Sampling follows the distribution that it is asked for.

use crate::models::sampling::sample;

const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, -1.0];

fn frequencies(temperature: f32, top_p: f32) -> [f64; 4] {
    let mut counts = [0.0; 4];
    for seed in 0..20_000 {
        counts[sample(&LOGITS, temperature, top_p, seed, 3).token as usize] += 1.0 / 20_000.0;
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
    let cases: [(f32, f32, &[usize]); 4] = [(1.0, 1.0, &[0, 1, 2, 3]), (0.5, 1.0, &[0, 1, 2, 3]), (1.0, 0.8, &[1, 2]), (1.0, 0.1, &[1])];
    for (temperature, top_p, kept) in cases {
        let (found, expected) = (frequencies(temperature, top_p), probabilities(f64::from(temperature), kept));
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 0.015, "temperature {temperature}, top_p {top_p}: {found} instead of {expected}");
        }
    }
}

#[test]
fn the_log_probability_is_the_models_own() {
    let expected = probabilities(1.0, &[0, 1, 2, 3]);
    for (temperature, top_p) in [(0.0, 1.0), (0.3, 0.5), (2.0, 1.0)] {
        for seed in 0..20 {
            let sampled = sample(&LOGITS, temperature, top_p, seed, 0);
            assert!((f64::from(sampled.logprob).exp() - expected[sampled.token as usize]).abs() < 1e-6);
        }
    }
}

#[test]
fn greedy_takes_the_first_of_equals() {
    assert_eq!(sample(&[1.0, 3.0, 3.0], 0.0, 1.0, 9, 9).token, 1);
}

#[test]
fn a_draw_is_named_by_seed_and_index() {
    let draws = |seed| (0..50).map(|index| sample(&LOGITS, 1.0, 1.0, seed, index).token).collect::<Vec<_>>();
    assert_eq!(draws(1), draws(1));
    assert_ne!(draws(1), draws(2));
}
