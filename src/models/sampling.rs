//! From logits to a token: temperature, nucleus, log-probability.

use super::random::CounterRng;
use super::simd::softmax;

/// A chosen token and its log-probability under the model's own distribution (temperature 1, whole vocabulary).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampled {
    pub token: u32,
    pub logprob: f32,
}

/// Draws a token from `logits` `[V]`.
///
/// `temperature` 0 takes the most probable token (the smallest id among equals). `top_p` in (0, 1] keeps the smallest set of
/// most probable tokens whose probabilities sum to at least `top_p` (Holtzman et al. 2020, arXiv:1904.09751). The draw is the
/// number `index` of the stream `seed`, so it depends on nothing else that runs.
pub fn sample(logits: &[f32], temperature: f32, top_p: f32, seed: u64, index: usize) -> Sampled {
    let token = if temperature == 0.0 {
        argmax(logits)
    } else {
        let mut probabilities: Vec<f32> = logits.iter().map(|logit| logit / temperature).collect();
        softmax(&mut probabilities);
        draw(&probabilities, top_p, CounterRng::new(seed).uniform(index as u64))
    };
    Sampled { token: token as u32, logprob: log_probability(logits, token) }
}

fn argmax(values: &[f32]) -> usize {
    let larger = |best: usize, index: usize| if values[index] > values[best] { index } else { best };
    (0..values.len()).fold(0, larger)
}

/// The natural log of `softmax(logits)[token]`.
fn log_probability(logits: &[f32], token: usize) -> f32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(super::simd::exp(logit - largest))).sum();
    (f64::from(logits[token] - largest) - sum.ln()) as f32
}

/// The token where the running sum of the kept probabilities passes `uniform` of their total.
fn draw(probabilities: &[f32], top_p: f32, uniform: f64) -> usize {
    if top_p >= 1.0 {
        return pick(0..probabilities.len(), probabilities, uniform);
    }
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    let mut sum = 0.0;
    let below = order.iter().take_while(|token| {
        let keep = sum < top_p;
        sum += probabilities[**token];
        keep
    });
    let kept = below.count().max(1);
    pick(order[..kept].iter().copied(), probabilities, uniform)
}

fn pick(tokens: impl Iterator<Item = usize> + Clone, probabilities: &[f32], uniform: f64) -> usize {
    let total: f64 = tokens.clone().map(|token| f64::from(probabilities[token])).sum();
    let mut rest = uniform * total;
    let mut last = 0;
    for token in tokens {
        rest -= f64::from(probabilities[token]);
        last = token;
        if rest < 0.0 {
            break;
        }
    }
    last
}
