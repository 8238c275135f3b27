//! Online training against PyTorch and TRL, on a small world whose best answers are known, and over checkpoints.

mod golden;
mod golden_updates;
mod gradients;
mod learning;
mod options;
mod resume;

use super::calls::Passes;
use super::*;
use crate::error::{Error, Result};
use crate::models::packed::{PackedDecoder, Segment};
use crate::models::random::CounterRng;
use crate::models::{Decoder, Sampler};
use crate::training::tests::{checkpoint, fixture, relative_error, tiny_decoder, weights};
use crate::training::thread::with_deep_stack;
use crate::training::{Metrics, RunOptions, StepMetrics, Stop, Trained};

/// Size of the vocabulary of the world below.
const VOCAB: usize = 24;
/// Ends every question.
const SEPARATOR: u32 = 1;
/// Stands between the two calls of a trajectory, as a passage does.
const PASSAGE: u32 = 2;

/// Questions to which every second token is a right answer. A trajectory writes one token, is shown a passage, and writes its answer.
struct Parity {
    num_questions: usize,
    num_validation_questions: usize,
}

impl Parity {
    fn prompt(question: usize) -> Vec<u32> {
        vec![3 + question as u32, SEPARATOR]
    }

    fn is_right(token: u32) -> bool {
        token.is_multiple_of(2)
    }

    /// As one policy call does it; `seed`: none is greedy.
    fn call(policy: &PackedDecoder, prompt: Vec<u32>, seed: Option<u64>, temperature: f64) -> PolicyCall {
        let logits = logits(policy, &prompt);
        let temperature = if seed.is_some() { temperature as f32 } else { 0.0 };
        let sampled = Sampler { temperature, ..Sampler::default() }.sample(&logits, &prompt, seed.unwrap_or_default(), 0);
        PolicyCall { prompt, completion: vec![sampled.token], logprobs: vec![sampled.logprob], score: None }
    }

    fn trajectory(policy: &PackedDecoder, question: usize, seed: Option<u64>, temperature: f64) -> SampledTrajectory {
        let first = Self::call(policy, Self::prompt(question), seed, temperature);
        let shown = [&first.prompt[..], &first.completion, &[PASSAGE]].concat();
        let last = Self::call(policy, shown, seed.map(|seed| seed.wrapping_add(1)), temperature);
        let reward = f64::from(u8::from(Self::is_right(last.completion[0])));
        // The first call earns by itself what it does for the answer: nothing.
        let first = PolicyCall { score: Some(0.0), ..first };
        let last = PolicyCall { score: Some(reward), ..last };
        SampledTrajectory { calls: vec![first, last], reward, exact_match: reward, f1: reward, is_answered: true, is_well_formed: true }
    }
}

impl RolloutSource for Parity {
    fn num_questions(&self) -> usize {
        self.num_questions
    }

    fn num_validation_questions(&self) -> usize {
        self.num_validation_questions
    }

    fn completion_tokens_max(&self) -> usize {
        2
    }

    fn sample(&self, policy: &Decoder, draw: &Draw<'_>, stop: &Stop) -> Result<Vec<Vec<SampledTrajectory>>> {
        stop.check()?;
        let policy = PackedDecoder::new(policy)?;
        let group = |question: &usize| {
            let places = CounterRng::new(7).stream(draw.step as u64).stream(*question as u64);
            let trajectory = |index| Self::trajectory(&policy, *question, Some(places.bits(index)), draw.temperature);
            (0..draw.group_size as u64).map(trajectory).collect()
        };
        Ok(draw.questions.iter().map(group).collect())
    }

    fn measure(&self, policy: &Decoder, stop: &Stop) -> Result<Vec<SampledTrajectory>> {
        stop.check()?;
        let policy = PackedDecoder::new(policy)?;
        Ok((0..self.num_validation_questions).map(|question| Self::trajectory(&policy, question, None, 0.0)).collect())
    }
}

/// The same questions, and nothing is paid for any answer.
struct Flat;

impl RolloutSource for Flat {
    fn num_questions(&self) -> usize {
        2
    }

    fn num_validation_questions(&self) -> usize {
        0
    }

    fn completion_tokens_max(&self) -> usize {
        2
    }

    fn sample(&self, policy: &Decoder, draw: &Draw<'_>, stop: &Stop) -> Result<Vec<Vec<SampledTrajectory>>> {
        let mut groups = Parity { num_questions: 2, num_validation_questions: 0 }.sample(policy, draw, stop)?;
        for trajectory in groups.iter_mut().flatten() {
            trajectory.reward = 0.5;
            trajectory.calls.iter_mut().for_each(|call| call.score = None);
        }
        Ok(groups)
    }

    fn measure(&self, _: &Decoder, _: &Stop) -> Result<Vec<SampledTrajectory>> {
        Ok(vec![])
    }
}

/// After the last token.
fn logits(policy: &PackedDecoder, tokens: &[u32]) -> Vec<f32> {
    let mut cache = policy.new_cache();
    policy.forward(&mut [Segment { cache: &mut cache, tokens }])
}

/// Runs what needs a deep stack.
fn deep<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    with_deep_stack(|_: &mut dyn FnMut(()) -> Result<()>| work(), &mut |()| Ok(()))
}
