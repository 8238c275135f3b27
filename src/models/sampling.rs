//! From logits to a token: which tokens are left to choose from, the draw, the log-probability.

use std::collections::HashSet;

use super::random::CounterRng;
use super::scratch::Scratch;
use super::simd::{largest, position, softmax, sum_of_exps};
use crate::error::{Error, Result};

/// Tokens that are put in order first: a nucleus has few as a rule, and eight times as many come next.
const CANDIDATES: usize = 32;
/// Above it what a nucleus leaves out is within the rounding of sums of probabilities.
const TOP_P_SHARP: f32 = 0.999;

/// How a token is chosen. Each step works on what the one before it left, in the order of the fields after the first, as in transformers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// 0 takes the most probable token each time; larger is more random.
    pub temperature: f32,
    /// Divides the positive logits of tokens that the sequence has, and multiplies the negative ones (CTRL, arXiv:1909.05858); 1 does nothing.
    pub repetition_penalty: f32,
    /// The most probable tokens to keep; 0 keeps all.
    pub top_k: usize,
    /// In (0, 1]: keeps the smallest set of most probable tokens that have at least this share (arXiv:1904.09751); 1 keeps all.
    pub top_p: f32,
    /// In [0, 1]: keeps tokens at least this times as probable as the most probable one (arXiv:2407.01082); 0 keeps all.
    pub min_p: f32,
}

/// A chosen token and its log-probability under the model's own distribution (temperature 1, whole vocabulary).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampled {
    pub token: u32,
    pub logprob: f32,
}

impl Default for Sampler {
    /// Greedy.
    fn default() -> Self {
        Self { temperature: 0.0, repetition_penalty: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 }
    }
}

impl Sampler {
    /// # Errors
    /// [`Error::InvalidParameter`] for a number out of its range.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |name: &str, found: f32, expected: &str| {
            Err(Error::InvalidParameter { name: name.to_owned(), found: found.to_string(), expected: expected.to_owned() })
        };
        if !self.temperature.is_finite() || self.temperature < 0.0 {
            return refuse("temperature", self.temperature, "0 or more");
        }
        if !self.repetition_penalty.is_finite() || self.repetition_penalty <= 0.0 {
            return refuse("repetition_penalty", self.repetition_penalty, "more than 0");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refuse("top_p", self.top_p, "more than 0 and at most 1");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return refuse("min_p", self.min_p, "from 0 to 1");
        }
        Ok(())
    }

    /// Draws a token from `logits` `[V]` after `sequence`.
    ///
    /// Among equals the smallest id comes first. The draw is the number `index` of the stream `seed`, so it depends on nothing else that runs.
    pub fn sample(&self, logits: &[f32], sequence: &[u32], seed: u64, index: usize) -> Sampled {
        let penalised = self.penalised(logits, sequence);
        let token = if self.temperature == 0.0 {
            argmax(penalised.as_deref().unwrap_or(logits))
        } else {
            let mut probabilities = penalised.unwrap_or_else(|| Scratch::of(logits));
            probabilities.iter_mut().for_each(|logit| *logit /= self.temperature);
            softmax(&mut probabilities);
            let uniform = CounterRng::new(seed).uniform(index as u64);
            match self.kept(&probabilities) {
                Some(kept) => pick(kept.into_iter(), &probabilities, uniform),
                None => pick(0..probabilities.len(), &probabilities, uniform),
            }
        };
        Sampled { token: token as u32, logprob: log_probability(logits, token) }
    }

    pub(super) fn penalised(&self, logits: &[f32], sequence: &[u32]) -> Option<Scratch> {
        if self.repetition_penalty == 1.0 {
            return None;
        }
        let mut penalised = Scratch::of(logits);
        for token in sequence.iter().copied().collect::<HashSet<u32>>() {
            let logit = &mut penalised[token as usize];
            *logit = if *logit > 0.0 { *logit / self.repetition_penalty } else { *logit * self.repetition_penalty };
        }
        Some(penalised)
    }

    /// The tokens to choose from, the most probable first; `None` for all.
    pub(super) fn kept(&self, probabilities: &[f32]) -> Option<Vec<usize>> {
        let by_k = if self.top_k == 0 { probabilities.len() } else { self.top_k.min(probabilities.len()) };
        if by_k == probabilities.len() && self.top_p >= 1.0 && self.min_p == 0.0 {
            return None;
        }
        let candidates = self.candidates(probabilities);
        let by_k = by_k.min(candidates.len());
        // A nucleus is small as a rule: most of a large vocabulary need not be put in order.
        let mut num_ordered = if self.top_p < 1.0 || self.min_p > 0.0 { CANDIDATES.min(by_k) } else { by_k };
        loop {
            let ordered = most_probable(&candidates, probabilities, num_ordered);
            let is_all = num_ordered == by_k;
            // What is left of the probability after `top_k`: 1 unless that took something.
            let total = match self.top_k {
                0 => 1.0,
                _ => most_probable(&candidates, probabilities, by_k).iter().map(|token| probabilities[*token]).sum(),
            };
            // A sum of probabilities reaches the whole before its last terms, which are within its rounding.
            let nucleus = if self.top_p < 1.0 { nucleus(&ordered, probabilities, self.top_p * total) } else { ordered.len() };
            let floor = self.min_p * probabilities[ordered[0]];
            let above = ordered.iter().take_while(|token| probabilities[**token] >= floor).count();
            let kept = nucleus.min(above).max(1);
            if is_all || kept < ordered.len() {
                return Some(ordered[..kept].to_vec());
            }
            num_ordered = (num_ordered * 8).min(by_k);
        }
    }

    /// Tokens among which the kept ones are, by id. Those below the share `(1 - top_p) / V` have less than `1 - top_p` together, so none of them is in the
    /// nucleus of the whole distribution; half of that leaves room for rounding.
    fn candidates(&self, probabilities: &[f32]) -> Vec<usize> {
        let all = 0..probabilities.len();
        if self.top_k > 0 || self.top_p > TOP_P_SHARP {
            return all.collect();
        }
        let least = 0.5 * (1.0 - self.top_p) / probabilities.len() as f32;
        let near: Vec<usize> = all.clone().filter(|token| probabilities[*token] >= least).collect();
        // Of logits that are no numbers.
        if near.is_empty() { all.collect() } else { near }
    }
}

/// The `count` most probable of these tokens in order, the smaller id first among equals.
fn most_probable(tokens: &[usize], probabilities: &[f32], count: usize) -> Vec<usize> {
    let before = |a: &usize, b: &usize| probabilities[*b].total_cmp(&probabilities[*a]).then(a.cmp(b));
    let mut order = tokens.to_vec();
    if count < order.len() {
        order.select_nth_unstable_by(count, before);
        order.truncate(count);
    }
    order.sort_unstable_by(before);
    order
}

/// How many of the first tokens have at least the share `top_p`; at least one.
fn nucleus(ordered: &[usize], probabilities: &[f32], top_p: f32) -> usize {
    let mut sum = 0.0;
    let below = ordered.iter().take_while(|token| {
        let keep = sum < top_p;
        sum += probabilities[**token];
        keep
    });
    below.count().max(1)
}

/// The first of the largest; 0 if none is a number.
fn argmax(values: &[f32]) -> usize {
    position(values, largest(values)).unwrap_or(0)
}

/// The natural log of `softmax(logits)[token]`.
fn log_probability(logits: &[f32], token: usize) -> f32 {
    let largest = largest(logits);
    (f64::from(logits[token] - largest) - sum_of_exps(logits, largest).ln()) as f32
}

/// The token where the running sum of the probabilities passes `uniform` of their total.
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
