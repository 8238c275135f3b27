//! What one trains on, as token ids, and the truncation rule.
//!
//! The completion is what is learned, so it stays whole; a prompt that is too long loses its beginning, because the newest
//! context stands at its end. (LLaMA-Factory cuts the end of the prompt instead and may cut the completion.)

use super::options::RunOptions;
use crate::error::{Error, Result};

/// A demonstration. The caller appends the end-of-text token to `completion` where the policy is to learn to stop.
#[derive(Debug, Clone, PartialEq)]
pub struct SftExample {
    pub prompt: Vec<u32>,
    pub completion: Vec<u32>,
    /// Factor of this example's tokens in the loss, >= 0; an example of weight 0 is left out.
    pub weight: f32,
}

/// A preference pair. The caller appends the end-of-text token to both completions.
#[derive(Debug, Clone, PartialEq)]
pub struct DpoExample {
    pub prompt: Vec<u32>,
    pub chosen: Vec<u32>,
    pub rejected: Vec<u32>,
}

/// One sequence to run: a prompt, possibly shortened, and its completion, with the weight of a token of each in the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sequence<'a> {
    pub prompt: &'a [u32],
    pub completion: &'a [u32],
    pub prompt_weight: f64,
    pub completion_weight: f64,
}

impl Sequence<'_> {
    /// Tokens that go through the model: all but the last one, which predicts nothing.
    pub fn num_inputs(&self) -> usize {
        (self.prompt.len() + self.completion.len()).saturating_sub(1)
    }

    /// Σ of the weights of the predicted tokens. The first token of all is predicted from nothing and does not count.
    pub fn total_weight(&self) -> f64 {
        let num_prompt = self.prompt.len().saturating_sub(1);
        let num_completion = self.num_inputs() - num_prompt;
        num_prompt as f64 * self.prompt_weight + num_completion as f64 * self.completion_weight
    }
}

/// The sequences of the demonstrations of positive weight.
///
/// # Errors
/// [`Error::InvalidParameter`] naming the row whose completion is empty or does not fit, or whose weight is negative;
/// [`Error::NotReady`] if there is nothing to train on.
pub(crate) fn sft_sequences<'a>(examples: &'a [SftExample], prompt_weight: f64, run: &RunOptions) -> Result<Vec<Sequence<'a>>> {
    let mut sequences = Vec::with_capacity(examples.len());
    for (index, example) in examples.iter().enumerate() {
        let weight = f64::from(example.weight);
        if !(weight >= 0.0 && weight.is_finite()) {
            return Err(invalid(format!("weight of row {}", index + 1), weight, "a number >= 0"));
        }
        if weight == 0.0 {
            continue;
        }
        let prompt = shorten(index, &example.prompt, &[&example.completion], Limit::of_sequence(run))?;
        let completion = &example.completion;
        sequences.push(Sequence { prompt, completion, prompt_weight: weight * prompt_weight, completion_weight: weight });
    }
    if sequences.is_empty() {
        return Err(Error::NotReady("training needs at least one row with a weight above 0; the query gives none".into()));
    }
    Ok(sequences)
}

/// The two sequences of each pair, chosen first; both keep the same part of the prompt.
///
/// # Errors
/// As [`sft_sequences`].
pub(crate) fn dpo_sequences<'a>(examples: &'a [DpoExample], run: &RunOptions) -> Result<Vec<[Sequence<'a>; 2]>> {
    if examples.is_empty() {
        return Err(Error::NotReady("training needs at least one preference pair; the query gives none".into()));
    }
    let pair = |(index, example): (usize, &'a DpoExample)| {
        let completions: [&'a [u32]; 2] = [&example.chosen, &example.rejected];
        let prompt = shorten(index, &example.prompt, &completions, Limit::of_pair(run))?;
        Ok(completions.map(|completion| Sequence { prompt, completion, prompt_weight: 0.0, completion_weight: 1.0 }))
    };
    examples.iter().enumerate().map(pair).collect()
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
