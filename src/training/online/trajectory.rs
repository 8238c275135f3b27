//! What online training learns from, and who samples it.

use crate::error::Result;
use crate::models::Decoder;
use crate::training::stop::Stop;

/// One call of the policy: what it read, and what it wrote. What was retrieved is in what it read, and is never learned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyCall {
    /// Token ids, at least one.
    pub prompt: Vec<u32>,
    /// The sampled token ids, at least one, with those that ended the text.
    pub completion: Vec<u32>,
    /// Natural-log probabilities of `completion` when it was sampled, at temperature 1. They are reported, and not learned from: training computes its own.
    pub logprobs: Vec<f32>,
    /// Of the step, as a process reward model or a judge says; None without one, and where it has nothing to say.
    pub score: Option<f64>,
}

/// A whole path from a question to its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SampledTrajectory {
    /// In order; none if the policy could not read the question.
    pub calls: Vec<PolicyCall>,
    /// For the outcome, finite.
    pub reward: f64,
    /// Of the answer, 0 to 1; 0 without one.
    pub exact_match: f64,
    pub f1: f64,
    pub is_answered: bool,
    /// Whether it follows its protocol.
    pub is_well_formed: bool,
}

/// What is to be sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw<'a> {
    /// The optimiser step, from 0: with the seed, the question and the place in the group it decides all randomness.
    pub step: usize,
    /// Indices of questions, below [`RolloutSource::num_questions`].
    pub questions: &'a [usize],
    pub group_size: usize,
    /// > 0; nothing else shapes the distribution.
    pub temperature: f64,
}

/// Samples trajectories with the weights of the moment, and knows what they earn. Training knows no question, agent or reward beside it.
///
/// The same weights and the same draw give the same trajectories: that a run goes on where it was ended hangs on it.
pub trait RolloutSource: Sync {
    /// To learn from, at least one.
    fn num_questions(&self) -> usize;

    /// That are only measured; may be 0.
    fn num_validation_questions(&self) -> usize;

    /// Tokens that all calls of a trajectory can write together.
    fn completion_tokens_max(&self) -> usize;

    /// `draw.group_size` trajectories of each of `draw.questions`, in order. `policy`: with its adapters.
    ///
    /// # Errors
    /// Of what is asked; [`Error::Cancelled`](crate::error::Error::Cancelled) soon after `stop` is set.
    fn sample(&self, policy: &Decoder, draw: &Draw<'_>, stop: &Stop) -> Result<Vec<Vec<SampledTrajectory>>>;

    /// The most probable trajectory of each question that is only measured, without scores of its steps.
    ///
    /// # Errors
    /// As [`RolloutSource::sample`].
    fn measure(&self, policy: &Decoder, stop: &Stop) -> Result<Vec<SampledTrajectory>>;
}

impl SampledTrajectory {
    /// That the policy wrote.
    pub fn num_tokens(&self) -> usize {
        self.calls.iter().map(|call| call.completion.len()).sum()
    }
}
