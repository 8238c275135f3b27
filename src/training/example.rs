//! What one trains on, as token ids, and what happens to prompts that are too long.
//!
//! The completion is what is learned, so it stays whole; a prompt that is too long loses its beginning, because the newest
//! context stands at its end. (LLaMA-Factory cuts the end of the prompt instead and may cut the completion.) Where the question
//! stands at the beginning this loses it: who knows where the documents of a prompt are takes their beginning away instead
//! ([`room_for_prompt`]), and [`LongPrompts`] leaves such examples out, or refuses them.

use super::options::{LongPrompts, RunOptions};
use crate::error::{Error, Result};

/// A demonstration. The caller appends the end-of-text token to `completion` where the policy is to learn to stop.
#[derive(Debug, Clone, PartialEq)]
pub struct SftExample {
    pub prompt: Vec<u32>,
    pub completion: Vec<u32>,
    /// Factor of this example's tokens in the loss, >= 0; an example of weight 0 is left out.
    pub weight: f32,
    /// How much each token of `completion` counts, >= 0: 0 where it is read only, as passages are that the policy did not write. Empty: all count 1.
    pub mask: Vec<f32>,
}

/// A preference pair. The caller appends the end-of-text token to both completions.
#[derive(Debug, Clone, PartialEq)]
pub struct DpoExample {
    pub prompt: Vec<u32>,
    pub chosen: Vec<u32>,
    pub rejected: Vec<u32>,
}

/// A step that was judged. The caller appends what a reward model reads behind a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepExample {
    pub prompt: Vec<u32>,
    pub step: Vec<u32>,
    /// How good it is, from 0 to 1.
    pub label: f64,
}

/// Tokens that a prompt may have beside completions of these lengths: one, or the two of a pair.
pub fn room_for_prompt(completions: &[usize], run: &RunOptions) -> usize {
    let limit = if completions.len() > 1 { Limit::of_pair(run) } else { Limit::of_sequence(run) };
    limit.tokens_per_sequence().saturating_sub(completions.iter().copied().max().unwrap_or(0))
}

/// How many examples had a prompt that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// Examples that are trained on without the beginning of their prompt.
    pub num_truncated: usize,
    /// Examples that were left out.
    pub num_dropped: usize,
}

/// What [`keep_sft`] and [`sft_sequences`] say of examples that are all left out.
const NO_WEIGHT: &str = "at least one row must have a weight above 0; the query gives none";

/// Applies `run.long_prompts`, and checks every example under the number of its row. Examples of weight 0 stay and are not counted.
///
/// `prompt_weight`: of a prompt's tokens in the loss.
///
/// # Errors
/// [`Error::InvalidParameter`] as [`train_sft`](super::train_sft), and naming the row with a long prompt where these are refused;
/// [`Error::NotReady`] if all examples are dropped or have weight 0.
pub fn keep_sft(examples: Vec<SftExample>, prompt_weight: f64, run: &RunOptions) -> Result<(Vec<SftExample>, Kept)> {
    let (left, kept) = keep(examples, run, |index, example| {
        let kept = sft_prompt(index, example, prompt_weight, run)?;
        Ok(Fit {
            num_tokens: example.prompt.len(),
            num_kept: kept.map_or(example.prompt.len(), <[u32]>::len),
            limit: Limit::of_sequence(run),
        })
    })?;
    if !left.is_empty() && left.iter().all(|example| example.weight == 0.0) {
        return Err(if kept.num_dropped > 0 { all_dropped(left.len() + kept.num_dropped) } else { Error::NotReady(NO_WEIGHT.into()) });
    }
    Ok((left, kept))
}

/// As [`keep_sft`], for pairs. Reference log-probabilities belong to the pairs that are left: drop first, then compute these.
///
/// # Errors
/// [`Error::InvalidParameter`] as [`train_dpo`](super::train_dpo), and naming the row with a long prompt where these are refused;
/// [`Error::NotReady`] if all pairs are dropped.
pub fn keep_dpo(examples: Vec<DpoExample>, run: &RunOptions) -> Result<(Vec<DpoExample>, Kept)> {
    keep(examples, run, |index, example| {
        let kept = dpo_prompt(index, example, run)?;
        Ok(Fit { num_tokens: example.prompt.len(), num_kept: kept.len(), limit: Limit::of_pair(run) })
    })
}

/// As [`keep_sft`], for steps.
///
/// # Errors
/// [`Error::InvalidParameter`] naming the row of a step that is empty or does not fit, of a label out of range, and of a long prompt where
/// these are refused; [`Error::NotReady`] if all steps are dropped.
pub fn keep_steps(examples: Vec<StepExample>, run: &RunOptions) -> Result<(Vec<StepExample>, Kept)> {
    keep(examples, run, |index, example| {
        let kept = step_prompt(index, example, run)?;
        Ok(Fit { num_tokens: example.prompt.len(), num_kept: kept.len(), limit: Limit::of_sequence(run) })
    })
}

/// How much of a prompt there is room for.
struct Fit {
    num_tokens: usize,
    num_kept: usize,
    limit: Limit,
}

fn keep<E>(examples: Vec<E>, run: &RunOptions, fit: impl Fn(usize, &E) -> Result<Fit>) -> Result<(Vec<E>, Kept)> {
    let num_examples = examples.len();
    let (mut left, mut kept) = (Vec::with_capacity(num_examples), Kept::default());
    for (index, example) in examples.into_iter().enumerate() {
        let fit = fit(index, &example)?;
        if fit.num_kept < fit.num_tokens {
            match run.long_prompts {
                LongPrompts::Truncate => kept.num_truncated += 1,
                LongPrompts::Drop => {
                    kept.num_dropped += 1;
                    continue;
                }
                LongPrompts::Error => return Err(fit.error(index + 1)),
            }
        }
        left.push(example);
    }
    if left.is_empty() && num_examples > 0 {
        return Err(all_dropped(num_examples));
    }
    Ok((left, kept))
}

fn all_dropped(num_examples: usize) -> Error {
    Error::NotReady(format!("long_prompts = 'drop' leaves none of {num_examples} examples; raise max_length and batch_tokens"))
}

impl Fit {
    fn error(&self, row: usize) -> Error {
        let expected = format!(
            "at most {}, which leaves room for its completion; raise {}, or set long_prompts to 'truncate' or 'drop'",
            self.num_kept, self.limit.option
        );
        invalid(format!("prompt of row {row}"), format!("{} tokens", self.num_tokens), expected)
    }
}

/// One sequence to run: a prompt, possibly shortened, and its completion, with the weight of a token of each in the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sequence<'a> {
    pub prompt: &'a [u32],
    pub completion: &'a [u32],
    /// How much each token of the completion counts, times `completion_weight`; empty: all count 1.
    pub mask: &'a [f32],
    pub prompt_weight: f64,
    pub completion_weight: f64,
}

impl Sequence<'_> {
    /// Prompt and completion.
    pub fn tokens(&self) -> impl Iterator<Item = u32> {
        self.prompt.iter().chain(self.completion).copied()
    }

    /// The tokens that go through the model: all but the last one, which predicts nothing.
    pub fn inputs(&self) -> impl Iterator<Item = u32> {
        self.tokens().take(self.num_inputs())
    }

    /// How many [`Self::inputs`] there are.
    pub fn num_inputs(&self) -> usize {
        (self.prompt.len() + self.completion.len()).saturating_sub(1)
    }

    /// The weight of predicting the token at `position`, counted from the beginning of the prompt.
    pub fn weight(&self, position: usize) -> f64 {
        match position.checked_sub(self.prompt.len()) {
            None => self.prompt_weight,
            Some(index) => self.completion_weight * self.share(index),
        }
    }

    /// Σ of the weights of the predicted tokens. The first token of all is predicted from nothing and does not count.
    pub fn total_weight(&self) -> f64 {
        let num_prompt = self.prompt.len().saturating_sub(1);
        let first = usize::from(self.prompt.is_empty());
        let completion: f64 = (first..self.completion.len()).map(|index| self.share(index)).sum();
        num_prompt as f64 * self.prompt_weight + completion * self.completion_weight
    }

    /// How much a token of the completion counts.
    fn share(&self, index: usize) -> f64 {
        self.mask.get(index).map_or(1.0, |weight| f64::from(*weight))
    }
}

/// The tokens of a sequence that go through the model.
pub(crate) trait Reads {
    fn read(&self) -> impl Iterator<Item = u32>;

    fn num_read(&self) -> usize;

    /// Tokens of its prompt.
    fn num_prompt(&self) -> usize;
}

impl Reads for Sequence<'_> {
    fn read(&self) -> impl Iterator<Item = u32> {
        self.inputs()
    }

    fn num_read(&self) -> usize {
        self.num_inputs()
    }

    fn num_prompt(&self) -> usize {
        self.prompt.len()
    }
}

/// One sequence to score: a prompt, possibly shortened, and what follows it. All of it is read, and the score stands at its last token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ScoredSequence<'a> {
    pub prompt: &'a [u32],
    pub completion: &'a [u32],
}

impl Reads for ScoredSequence<'_> {
    fn read(&self) -> impl Iterator<Item = u32> {
        self.prompt.iter().chain(self.completion).copied()
    }

    fn num_read(&self) -> usize {
        self.prompt.len() + self.completion.len()
    }

    fn num_prompt(&self) -> usize {
        self.prompt.len()
    }
}

/// The sequences of the demonstrations of positive weight.
///
/// # Errors
/// [`Error::InvalidParameter`] naming the row whose completion is empty or does not fit, whose weight is negative, or whose mask
/// leaves nothing to learn; [`Error::NotReady`] if there is nothing to train on.
pub(crate) fn sft_sequences<'a>(examples: &'a [SftExample], prompt_weight: f64, run: &RunOptions) -> Result<Vec<Sequence<'a>>> {
    let mut sequences = Vec::with_capacity(examples.len());
    for (index, example) in examples.iter().enumerate() {
        let Some(prompt) = sft_prompt(index, example, prompt_weight, run)? else { continue };
        let weight = f64::from(example.weight);
        sequences.push(Sequence {
            prompt,
            completion: &example.completion,
            mask: &example.mask,
            prompt_weight: weight * prompt_weight,
            completion_weight: weight,
        });
    }
    if sequences.is_empty() {
        return Err(Error::NotReady(NO_WEIGHT.into()));
    }
    Ok(sequences)
}

/// The two sequences of each pair, chosen first; both keep the same part of the prompt.
///
/// # Errors
/// As [`sft_sequences`], and [`Error::InvalidParameter`] naming the row whose completions are the same.
pub(crate) fn dpo_sequences<'a>(examples: &'a [DpoExample], run: &RunOptions) -> Result<Vec<[Sequence<'a>; 2]>> {
    if examples.is_empty() {
        return Err(Error::NotReady("training needs at least one preference pair; the query gives none".into()));
    }
    let pair = |(index, example): (usize, &'a DpoExample)| {
        let prompt = dpo_prompt(index, example, run)?;
        let completions: [&'a [u32]; 2] = [&example.chosen, &example.rejected];
        Ok(completions.map(|completion| Sequence { prompt, completion, mask: &[], prompt_weight: 0.0, completion_weight: 1.0 }))
    };
    examples.iter().enumerate().map(pair).collect()
}

/// The two sequences of each pair to score, chosen first; both keep the same part of the prompt.
///
/// # Errors
/// As [`dpo_sequences`].
pub(crate) fn scored_pairs<'a>(examples: &'a [DpoExample], run: &RunOptions) -> Result<Vec<[ScoredSequence<'a>; 2]>> {
    let pairs = dpo_sequences(examples, run)?;
    let scored = |Sequence { prompt, completion, .. }: Sequence<'a>| ScoredSequence { prompt, completion };
    Ok(pairs.into_iter().map(|pair| pair.map(scored)).collect())
}

/// The sequences of the steps.
///
/// # Errors
/// As [`keep_steps`]; [`Error::NotReady`] if there are none.
pub(crate) fn scored_steps<'a>(examples: &'a [StepExample], run: &RunOptions) -> Result<Vec<ScoredSequence<'a>>> {
    if examples.is_empty() {
        return Err(Error::NotReady("training needs at least one labelled step; the query gives none".into()));
    }
    let step = |(index, example): (usize, &'a StepExample)| {
        Ok(ScoredSequence { prompt: step_prompt(index, example, run)?, completion: &example.step })
    };
    examples.iter().enumerate().map(step).collect()
}

/// What fits of the prompt of a step.
fn step_prompt<'a>(index: usize, example: &'a StepExample, run: &RunOptions) -> Result<&'a [u32]> {
    if !(0.0..=1.0).contains(&example.label) {
        return Err(invalid(format!("label of row {}", index + 1), example.label, "a number from 0 to 1"));
    }
    shorten(index, &example.prompt, &[&example.step], Limit::of_sequence(run))
}

/// What fits of the prompt of a demonstration; `None` if its weight is 0.
fn sft_prompt<'a>(index: usize, example: &'a SftExample, prompt_weight: f64, run: &RunOptions) -> Result<Option<&'a [u32]>> {
    let weight = f64::from(example.weight);
    if !(weight >= 0.0 && weight.is_finite()) {
        return Err(invalid(format!("weight of row {}", index + 1), weight, "a number >= 0"));
    }
    if weight == 0.0 {
        return Ok(None);
    }
    let prompt = shorten(index, &example.prompt, &[&example.completion], Limit::of_sequence(run))?;
    // The first token of a prompt is predicted from nothing.
    let learns_prompt = prompt_weight > 0.0 && prompt.len() > 1;
    check_mask(index + 1, example, learns_prompt)?;
    Ok(Some(prompt))
}

/// A mask has a value for each token. Where the prompt is not learned, it leaves one that is: predicted from something, and not masked out.
fn check_mask(row: usize, example: &SftExample, learns_prompt: bool) -> Result<()> {
    let (mask, num_tokens) = (&example.mask, example.completion.len());
    if mask.is_empty() {
        return Ok(());
    }
    if mask.len() != num_tokens {
        let expected = format!("{num_tokens}, one for each token of the completion");
        return Err(invalid(format!("mask of row {row}"), format!("{} values", mask.len()), expected));
    }
    if let Some(weight) = mask.iter().find(|weight| !(**weight >= 0.0 && weight.is_finite())) {
        return Err(invalid(format!("mask of row {row}"), weight, "numbers >= 0"));
    }
    let first = usize::from(example.prompt.is_empty());
    if !learns_prompt && mask[first..].iter().all(|weight| *weight == 0.0) {
        let expected = "at least one token that is learned; filter such rows out with WHERE";
        return Err(invalid(format!("mask of row {row}"), "none", expected));
    }
    Ok(())
}

/// What fits of the prompt of a pair.
fn dpo_prompt<'a>(index: usize, example: &'a DpoExample, run: &RunOptions) -> Result<&'a [u32]> {
    let prompt = shorten(index, &example.prompt, &[&example.chosen, &example.rejected], Limit::of_pair(run))?;
    if example.chosen == example.rejected {
        // Such a pair has the same loss whatever the policy is, and teaches nothing.
        let expected = "another completion than chosen; filter such rows out with WHERE chosen <> rejected";
        return Err(invalid(format!("rejected of row {}", index + 1), "the same tokens", expected));
    }
    Ok(prompt)
}

/// The option that bounds the tokens of one sequence, and its value.
#[derive(Clone, Copy)]
struct Limit {
    option: &'static str,
    value: usize,
    /// Sequences that must fit in `value` together.
    num_sequences: usize,
}

impl Limit {
    fn of_sequence(run: &RunOptions) -> Self {
        Self::smaller(run, 1)
    }

    /// Chosen and rejected go through the model together.
    fn of_pair(run: &RunOptions) -> Self {
        Self::smaller(run, 2)
    }

    fn smaller(run: &RunOptions, num_sequences: usize) -> Self {
        if run.batch_tokens / num_sequences < run.max_length {
            Self { option: "batch_tokens", value: run.batch_tokens, num_sequences }
        } else {
            Self { option: "max_length", value: run.max_length, num_sequences: 1 }
        }
    }

    fn tokens_per_sequence(&self) -> usize {
        self.value / self.num_sequences
    }
}

/// The end of `prompt` that fits beside the longest of `completions`. At least one token of a prompt stays, so that the
/// completion's first token is predicted from something.
fn shorten<'a>(index: usize, prompt: &'a [u32], completions: &[&[u32]], limit: Limit) -> Result<&'a [u32]> {
    let row = index + 1;
    let num_context = prompt.len().min(1);
    let shortest = completions.iter().map(|completion| completion.len()).min().unwrap_or(0);
    if shortest == 0 || shortest + num_context < 2 {
        let expected = "at least one token that follows another";
        return Err(invalid(format!("completion of row {row}"), format!("{shortest} tokens"), expected));
    }
    let longest = completions.iter().map(|completion| completion.len()).max().unwrap_or(0);
    if longest + num_context > limit.tokens_per_sequence() {
        let needed = (longest + num_context) * limit.num_sequences;
        let expected = format!("at least {needed}, because the completion of row {row} has {longest} tokens");
        return Err(invalid(limit.option.into(), limit.value, expected));
    }
    let kept = prompt.len().min(limit.tokens_per_sequence() - longest);
    Ok(&prompt[prompt.len() - kept..])
}

fn invalid(name: String, found: impl ToString, expected: impl Into<String>) -> Error {
    Error::InvalidParameter { name, found: found.to_string(), expected: expected.into() }
}
