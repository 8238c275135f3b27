//! Reward models: a score of a prompt and what follows it, learned from preference pairs (Bradley-Terry, as ProRAG's process reward model, arXiv:2601.21912)
//! or from steps that were labelled.
//!
//! The decoder has a score in the place of its vocabulary head ([`Decoder::load_with_score`]); the losses are in `losses/reward.rs`.

use candle_core::Tensor;

use super::batch::Batch;
use super::example::{DpoExample, Reads, ScoredSequence, StepExample, scored_pairs, scored_steps};
use super::head::HeadGradients;
use super::losses::{RewardLoss, RewardTerm, ScoreTerm, bradley_terry, step_cross_entropy, step_squared_error};
use super::options::{PrmOptions, RunOptions};
use super::score_head::ScoreHead;
use super::sharing::Sharing;
use super::trainer::{Metrics, Objective, StepMetrics, Trained, train};
use crate::error::{Error, Result};
use crate::models::Decoder;

/// What a reward model learns from, or is measured on.
#[derive(Debug, Clone, PartialEq)]
pub enum PrmExamples {
    /// The chosen completion shall have the larger score.
    Pairs(Vec<DpoExample>),
    Steps(Vec<StepExample>),
}

impl PrmExamples {
    pub fn len(&self) -> usize {
        match self {
            Self::Pairs(pairs) => pairs.len(),
            Self::Steps(steps) => steps.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tokens of each pair or step that go through the model, after its prompt is cut; none of no examples.
    ///
    /// # Errors
    /// As [`train_prm_validated`] for its examples.
    pub fn costs(&self, run: &RunOptions) -> Result<Vec<usize>> {
        match self {
            _ if self.is_empty() => Ok(Vec::new()),
            Self::Pairs(pairs) => Ok(scored_pairs(pairs, run)?.iter().map(num_read).collect()),
            Self::Steps(steps) => Ok(scored_steps(steps, run)?.iter().map(Reads::num_read).collect()),
        }
    }

    /// What the examples share, if `run` asks for that.
    ///
    /// # Errors
    /// As [`train_prm_validated`] for its examples.
    pub fn sharing(&self, run: &RunOptions) -> Result<Option<Sharing>> {
        match self {
            _ if self.is_empty() || !Sharing::is_asked_for(run) => Ok(None),
            Self::Pairs(pairs) => Ok(Some(sharing_of_pairs(&scored_pairs(pairs, run)?))),
            Self::Steps(steps) => Ok(Some(sharing_of_steps(&scored_steps(steps, run)?))),
        }
    }
}

/// Trains `decoder`, in place, to score what follows a prompt.
///
/// The loss of a step is the mean over all its pairs or labelled steps; that of `validation`, which may be empty and else is of the same kind, over all of it.
/// The observer sees each optimiser step; its error ends the run. If this function returns an error, `decoder` holds the weights of an unfinished run: drop it.
///
/// # Errors
/// [`Error::InvalidParameter`] for a loss of other examples, for an example that does not fit, whose completions are the same or whose label is out of range,
/// naming its row, and for early stopping without evaluations; [`Error::NotReady`] without an example; [`Error::Internal`] for a decoder without a score, or a
/// validation of another kind; [`Error::Diverged`]; [`Error::Cancelled`]; [`Error::Io`] for a checkpoint that cannot be written.
pub fn train_prm_validated(
    decoder: &mut Decoder,
    examples: &PrmExamples,
    validation: &PrmExamples,
    options: &PrmOptions,
    observer: &mut dyn FnMut(&StepMetrics) -> Result<()>,
) -> Result<Trained> {
    options.run.check_early_stopping(!validation.is_empty())?;
    let (run, batch_size) = (&options.run, Some(options.batch_size));
    match (examples, validation) {
        (PrmExamples::Pairs(pairs), PrmExamples::Pairs(validation)) => {
            let objective = PairScores::new(pairs, options)?;
            let validation = if validation.is_empty() { None } else { Some(PairScores::new(validation, options)?) };
            train(decoder, &objective, validation.as_ref(), run, batch_size, observer)
        }
        (PrmExamples::Steps(steps), PrmExamples::Steps(validation)) => {
            let objective = StepScores::new(steps, options)?;
            let validation = if validation.is_empty() { None } else { Some(StepScores::new(validation, options)?) };
            train(decoder, &objective, validation.as_ref(), run, batch_size, observer)
        }
        _ => Err(Error::Internal("pairs and labelled steps have no loss in common".into())),
    }
}

/// The scores of pairs.
pub(crate) struct PairScores<'a> {
    /// Chosen and rejected.
    pub pairs: Vec<[ScoredSequence<'a>; 2]>,
    pub margin: f64,
    /// See [`RunOptions::tree_packing`].
    pub tree_packing: bool,
}

/// The scores of steps that have a label.
pub(crate) struct StepScores<'a> {
    pub steps: Vec<ScoredSequence<'a>>,
    /// By step, 0 to 1.
    pub labels: Vec<f64>,
    pub is_squared_error: bool,
    /// See [`RunOptions::tree_packing`].
    pub tree_packing: bool,
}

impl<'a> PairScores<'a> {
    pub fn new(pairs: &'a [DpoExample], options: &PrmOptions) -> Result<Self> {
        options.loss_of(true)?;
        Ok(Self { pairs: scored_pairs(pairs, &options.run)?, margin: options.margin, tree_packing: options.run.tree_packing })
    }

    /// `scores`: chosen and rejected of each pair.
    fn terms(&self, scores: &[f64]) -> Vec<RewardTerm> {
        scores.chunks_exact(2).map(|pair| bradley_terry(pair[0], pair[1], self.margin)).collect()
    }
}

impl<'a> StepScores<'a> {
    pub fn new(steps: &'a [StepExample], options: &PrmOptions) -> Result<Self> {
        Ok(Self {
            is_squared_error: options.loss_of(false)? == RewardLoss::SquaredError,
            labels: steps.iter().map(|step| step.label).collect(),
            steps: scored_steps(steps, &options.run)?,
            tree_packing: options.run.tree_packing,
        })
    }

    fn terms(&self, scores: &[f64], examples: &[usize]) -> Vec<ScoreTerm> {
        let term = if self.is_squared_error { step_squared_error } else { step_cross_entropy };
        scores.iter().zip(examples).map(|(score, &example)| term(*score, self.labels[example])).collect()
    }

    /// Shares of the means over `num_steps`. A step is judged rightly if score and label are on the same side of the middle.
    fn metrics(&self, scores: &[f64], terms: &[ScoreTerm], examples: &[usize], num_steps: f64) -> Metrics {
        let middle = if self.is_squared_error { 0.5 } else { 0.0 };
        let is_right = |(score, &example): (&f64, &usize)| (*score >= middle) == (self.labels[example] >= 0.5);
        let num_right = scores.iter().zip(examples).filter(|pair| is_right(*pair)).count();
        vec![
            ("loss", terms.iter().map(|term| term.loss).sum::<f64>() / num_steps),
            ("accuracy", num_right as f64 / num_steps),
            ("mean_score", scores.iter().sum::<f64>() / num_steps),
        ]
    }
}

impl Objective for PairScores<'_> {
    type Head = ScoreHead;

    fn costs(&self) -> Vec<usize> {
        self.pairs.iter().map(num_read).collect()
    }

    fn sharing(&self) -> Option<Sharing> {
        Some(sharing_of_pairs(&self.pairs))
    }

    fn batch(&self, examples: &[usize]) -> Batch {
        Batch::of_scored(examples.iter().flat_map(|&example| &self.pairs[example]), self.tree_packing)
    }

    fn normalizer(&self, examples: &[usize]) -> f64 {
        examples.len() as f64
    }

    fn differentiate(
        &self,
        head: &ScoreHead,
        hidden: &Tensor,
        _batch: &Batch,
        _examples: &[usize],
        normalizer: f64,
    ) -> Result<(HeadGradients, Metrics)> {
        let scores = head.scores(hidden)?;
        let terms = self.terms(&scores);
        let d_scores: Vec<f64> = terms.iter().flat_map(|term| [term.d_chosen / normalizer, term.d_rejected / normalizer]).collect();
        Ok((head.gradients(hidden, &d_scores)?, metrics_of_pairs(&scores, &terms, normalizer)))
    }

    fn measure(&self, head: &ScoreHead, hidden: &Tensor, _batch: &Batch, _examples: &[usize], normalizer: f64) -> Result<Metrics> {
        let scores = head.scores(hidden)?;
        Ok(metrics_of_pairs(&scores, &self.terms(&scores), normalizer))
    }
}

impl Objective for StepScores<'_> {
    type Head = ScoreHead;

    fn costs(&self) -> Vec<usize> {
        self.steps.iter().map(Reads::num_read).collect()
    }

    fn sharing(&self) -> Option<Sharing> {
        Some(sharing_of_steps(&self.steps))
    }

    fn batch(&self, examples: &[usize]) -> Batch {
        Batch::of_scored(examples.iter().map(|&example| &self.steps[example]), self.tree_packing)
    }

    fn normalizer(&self, examples: &[usize]) -> f64 {
        examples.len() as f64
    }

    fn differentiate(
        &self,
        head: &ScoreHead,
        hidden: &Tensor,
        _batch: &Batch,
        examples: &[usize],
        normalizer: f64,
    ) -> Result<(HeadGradients, Metrics)> {
        let scores = head.scores(hidden)?;
        let terms = self.terms(&scores, examples);
        let d_scores: Vec<f64> = terms.iter().map(|term| term.d_score / normalizer).collect();
        Ok((head.gradients(hidden, &d_scores)?, self.metrics(&scores, &terms, examples, normalizer)))
    }

    fn measure(&self, head: &ScoreHead, hidden: &Tensor, _batch: &Batch, examples: &[usize], normalizer: f64) -> Result<Metrics> {
        let scores = head.scores(hidden)?;
        Ok(self.metrics(&scores, &self.terms(&scores, examples), examples, normalizer))
    }
}

/// Shares of the means over `num_pairs`. `scores`: chosen and rejected of each pair.
fn metrics_of_pairs(scores: &[f64], terms: &[RewardTerm], num_pairs: f64) -> Metrics {
    let mean = |value: fn(&[f64]) -> f64| scores.chunks_exact(2).map(value).sum::<f64>() / num_pairs;
    vec![
        ("loss", terms.iter().map(|term| term.loss).sum::<f64>() / num_pairs),
        ("reward_margin", mean(|pair| pair[0] - pair[1])),
        ("reward_accuracy", mean(|pair| f64::from(u8::from(pair[0] > pair[1])))),
        ("chosen_reward", mean(|pair| pair[0])),
        ("rejected_reward", mean(|pair| pair[1])),
        ("mean_score", mean(|pair| 0.5 * (pair[0] + pair[1]))),
    ]
}

fn num_read(pair: &[ScoredSequence<'_>; 2]) -> usize {
    pair.iter().map(Reads::num_read).sum()
}

fn sharing_of_pairs(pairs: &[[ScoredSequence<'_>; 2]]) -> Sharing {
    Sharing::new(pairs.iter().map(<[ScoredSequence<'_>; 2]>::as_slice))
}

fn sharing_of_steps(steps: &[ScoredSequence<'_>]) -> Sharing {
    Sharing::new(steps.iter().map(std::slice::from_ref))
}
