//! From rows to token ids: the examples of a training, those of its validation, and what makes them these ones.

use std::path::Path;

use super::checkpoints::Identity;
use super::input::{Content, Row};
use super::task::Method;
use crate::error::{Error, Result};
use crate::models::{DecoderConfig, ScoredText, Tokenizer};
use crate::training::{
    DpoExample, DpoOptions, Kept, PrmExamples, PrmOptions, ReferenceLogps, RewardLoss, SftExample, StepExample, Stop, keep_dpo, keep_sft,
    keep_steps,
};

/// The tokenizer of a base, and how a reward model that is made of the base reads texts.
pub struct BaseTokenizer {
    pub tokenizer: Tokenizer,
    pub scored: ScoredText,
}

impl BaseTokenizer {
    /// # Errors
    /// Of files that cannot be read.
    pub fn load(directory: &Path) -> Result<Self> {
        let tokenizer = Tokenizer::load(directory)?;
        let scored = ScoredText::of_base(&DecoderConfig::load(directory)?, &tokenizer);
        Ok(Self { tokenizer, scored })
    }
}

/// What is learned from, or measured on.
pub enum Examples {
    Sft(Vec<SftExample>),
    /// Reference log-probabilities that the query gave, one for each pair.
    Dpo(Vec<DpoExample>, Option<Vec<ReferenceLogps>>),
    Prm(PrmExamples),
}

impl Examples {
    /// The examples of the rows, without those that `long_prompts` leaves out. No rows are no examples.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] naming the row of what cannot be learned; [`Error::NotReady`] if nothing is left; [`Error::Cancelled`].
    pub fn of(rows: &[Row], method: &Method, base: &BaseTokenizer, stop: &Stop) -> Result<(Self, Kept)> {
        let tokenizer = &base.tokenizer;
        match method {
            Method::Sft(_) | Method::Rft(_) => {
                let (examples, kept) = keep_sft(sft_examples(rows, tokenizer, stop)?, method.prompt_weight(), method.run())?;
                Ok((Self::Sft(examples), kept))
            }
            Method::Dpo(options) => pairs(rows, options, tokenizer, stop),
            Method::Prm(options) => {
                let (examples, kept) = scored(rows, options, base, stop)?;
                Ok((Self::Prm(examples), kept))
            }
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Sft(examples) => examples.len(),
            Self::Dpo(pairs, _) => pairs.len(),
            Self::Prm(examples) => examples.len(),
        }
    }

    /// All that a training reads of them.
    pub fn identify(&self, identity: &mut Identity) {
        match self {
            Self::Sft(examples) => {
                identity.number(examples.len() as u64);
                for SftExample { prompt, completion, weight, mask } in examples {
                    identity.ids(prompt);
                    identity.ids(completion);
                    identity.number(u64::from(weight.to_bits()));
                    identity.ids(&mask.iter().map(|counts| u32::from(*counts)).collect::<Vec<_>>());
                }
            }
            Self::Dpo(pairs, reference) => {
                identify_pairs(pairs, identity);
                for ReferenceLogps { chosen, rejected } in reference.iter().flatten() {
                    identity.number(chosen.to_bits());
                    identity.number(rejected.to_bits());
                }
            }
            Self::Prm(PrmExamples::Pairs(pairs)) => {
                identity.number(2);
                identify_pairs(pairs, identity);
            }
            Self::Prm(PrmExamples::Steps(steps)) => {
                identity.number(1);
                identity.number(steps.len() as u64);
                for StepExample { prompt, step, label } in steps {
                    identity.ids(prompt);
                    identity.ids(step);
                    identity.number(label.to_bits());
                }
            }
        }
    }
}

fn identify_pairs(pairs: &[DpoExample], identity: &mut Identity) {
    identity.number(pairs.len() as u64);
    for DpoExample { prompt, chosen, rejected } in pairs {
        identity.ids(prompt);
        identity.ids(chosen);
        identity.ids(rejected);
    }
}

fn sft_examples(rows: &[Row], tokenizer: &Tokenizer, stop: &Stop) -> Result<Vec<SftExample>> {
    let example = |row: &Row| {
        stop.check()?;
        let (completion, mask) = completion(tokenizer, content_of(row, 0)?)?;
        Ok(SftExample { prompt: prompt(tokenizer, &row.prompt)?, completion, weight: row.weight, mask })
    };
    rows.iter().map(example).collect()
}

fn pairs(rows: &[Row], options: &DpoOptions, tokenizer: &Tokenizer, stop: &Stop) -> Result<(Examples, Kept)> {
    let pair = |row: &Row| {
        stop.check()?;
        let (chosen, _) = completion(tokenizer, content_of(row, 0)?)?;
        let (rejected, _) = completion(tokenizer, content_of(row, 1)?)?;
        Ok(DpoExample { prompt: prompt(tokenizer, &row.prompt)?, chosen, rejected })
    };
    let all = rows.iter().map(pair).collect::<Result<Vec<_>>>()?;
    // The columns are there for all rows or for none.
    let Some(reference) = rows.iter().map(|row| row.reference).collect::<Option<Vec<_>>>().filter(|reference| !reference.is_empty()) else {
        let (kept, counts) = keep_dpo(all, &options.run)?;
        return Ok((Examples::Dpo(kept, None), counts));
    };
    let (kept, counts) = keep_dpo(all.clone(), &options.run)?;
    if counts.num_truncated > 0 && options.preference.loss.needs_reference() {
        // The reference read whole prompts, and the policy would read parts of them.
        return Err(Error::InvalidParameter {
            name: "prompts".to_owned(),
            found: format!("{} that are cut to fit", counts.num_truncated),
            expected: "whole ones beside reference columns; leave these columns out, raise max_length or batch_tokens, or set long_prompts = 'drop'"
                .to_owned(),
        });
    }
    let reference = of_kept(&all, &kept, &reference)?;
    Ok((Examples::Dpo(kept, Some(reference)), counts))
}

/// What a reward model learns from: pairs if its loss compares them, and steps with labels otherwise.
fn scored(rows: &[Row], options: &PrmOptions, base: &BaseTokenizer, stop: &Stop) -> Result<(PrmExamples, Kept)> {
    let BaseTokenizer { tokenizer, scored } = base;
    let step = |row: &Row, index: usize| match content_of(row, index)? {
        Content::Text(text) => scored.step(tokenizer, text),
        _ => Err(Error::Internal("a reward model reads texts".to_owned())),
    };
    if options.loss.is_some_and(RewardLoss::needs_pairs) {
        let pair = |row: &Row| {
            stop.check()?;
            Ok(DpoExample { prompt: prompt(tokenizer, &row.prompt)?, chosen: step(row, 0)?, rejected: step(row, 1)? })
        };
        let (pairs, kept) = keep_dpo(rows.iter().map(pair).collect::<Result<_>>()?, &options.run)?;
        return Ok((PrmExamples::Pairs(pairs), kept));
    }
    let example = |row: &Row| {
        stop.check()?;
        Ok(StepExample { prompt: prompt(tokenizer, &row.prompt)?, step: step(row, 0)?, label: row.label })
    };
    let (steps, kept) = keep_steps(rows.iter().map(example).collect::<Result<_>>()?, &options.run)?;
    Ok((PrmExamples::Steps(steps), kept))
}

/// The values that belong to the pairs that are kept. Whether a pair is kept hangs on its tokens alone, so the first one that is equal is the one.
fn of_kept<T: Copy>(all: &[DpoExample], kept: &[DpoExample], values: &[T]) -> Result<Vec<T>> {
    let mut left = kept.iter().peekable();
    let mut found = Vec::with_capacity(kept.len());
    for (pair, value) in all.iter().zip(values) {
        if left.next_if(|next| *next == pair).is_some() {
            found.push(*value);
        }
    }
    if found.len() == kept.len() {
        Ok(found)
    } else {
        Err(Error::Internal("a pair that was kept is none of those that there were".to_owned()))
    }
}

fn content_of(row: &Row, index: usize) -> Result<&Content> {
    row.completions.get(index).ok_or_else(|| Error::Internal("a row has too few completions".to_owned()))
}

fn prompt(tokenizer: &Tokenizer, content: &Content) -> Result<Vec<u32>> {
    match content {
        Content::Text(text) => tokenizer.encode_prompt(text),
        Content::Ids(ids, _) => Ok(ids.clone()),
        Content::Parts(_) | Content::Turn(_) => Err(Error::Internal("a prompt is a text or token ids".to_owned())),
    }
}

/// The tokens of a completion, and which of them are learned; no such list: all. A text ends with end-of-text: the policy learns to stop. Ids, and what a
/// chat template has ended, are taken as they are.
fn completion(tokenizer: &Tokenizer, content: &Content) -> Result<(Vec<u32>, Vec<bool>)> {
    let (mut ids, mut mask) = (Vec::new(), Vec::new());
    match content {
        Content::Text(text) => {
            ids = tokenizer.encode(text)?;
            ids.extend(tokenizer.eos_token_id());
        }
        Content::Turn(text) => ids = tokenizer.encode(text)?,
        Content::Parts(parts) => {
            // Each part alone, so that every token belongs to one part.
            for (text, is_learned) in parts {
                ids.extend(tokenizer.encode(text)?);
                mask.resize(ids.len(), *is_learned);
            }
            ids.extend(tokenizer.eos_token_id());
            mask.resize(ids.len(), parts.last().is_some_and(|(_, is_learned)| *is_learned));
        }
        Content::Ids(given, flags) => {
            ids.clone_from(given);
            mask.clone_from(flags);
        }
    }
    if !mask.contains(&false) {
        mask.clear();
    }
    Ok((ids, mask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::fixture;
    use crate::training::{LongPrompts, Preference, PreferenceLoss, RunOptions};

    #[test]
    fn parts_that_were_put_in_are_read_and_not_learned() {
        let tokenizer = Tokenizer::load(&fixture("../../src/models/builtin/tinyhop")).expect("the built-in model has one");
        let parts = [("<search>a film</search>", true), ("a passage", false), ("so it is", true)];
        let content = Content::Parts(parts.map(|(text, is_learned)| (text.to_owned(), is_learned)).into());
        let (ids, mask) = completion(&tokenizer, &content).expect("it is encoded");
        let lengths = parts.map(|(text, _)| tokenizer.encode(text).expect("it is encoded").len());
        let end = usize::from(tokenizer.eos_token_id().is_some());
        let expected = [vec![true; lengths[0]], vec![false; lengths[1]], vec![true; lengths[2] + end]].concat();
        assert_eq!(mask, expected);
        assert_eq!(ids.len(), mask.len());
        let all = Content::Parts(vec![("a film".to_owned(), true)]);
        let text = Content::Text("a film".to_owned());
        assert_eq!(completion(&tokenizer, &all).expect("it is encoded"), completion(&tokenizer, &text).expect("it is encoded"));
    }

    #[test]
    fn reference_log_probabilities_are_of_whole_prompts() {
        let base = BaseTokenizer::load(&fixture("../../src/models/builtin/tinyhop")).expect("the built-in model has one");
        let row = |prompt: &str, reference| Row {
            prompt: Content::Text(prompt.to_owned()),
            completions: ["yes", "no"].map(|text| Content::Text(text.to_owned())).into(),
            weight: 1.0,
            reward: 0.0,
            score: 0.0,
            label: 0.0,
            reference,
        };
        let kept = |reference, long_prompts, loss| {
            let run = RunOptions { max_length: 20, long_prompts, ..RunOptions::default() };
            let method =
                Method::Dpo(DpoOptions { run, preference: Preference { loss, ..Preference::sigmoid(0.3) }, ..DpoOptions::default() });
            let rows = [row("a film", reference), row(&"a film ".repeat(40), reference)];
            Examples::of(&rows, &method, &base, &Stop::default()).map(|(examples, _)| examples.len())
        };
        let logps = Some(ReferenceLogps { chosen: -1.0, rejected: -2.0 });
        let sigmoid = PreferenceLoss::Sigmoid { label_smoothing: 0.0 };
        let refused = kept(logps, LongPrompts::Truncate, sigmoid);
        assert!(matches!(&refused, Err(Error::InvalidParameter { found, .. }) if found.starts_with("1 that")), "{refused:?}");
        assert_eq!(kept(logps, LongPrompts::Drop, sigmoid).expect("the other one is whole"), 1);
        assert_eq!(kept(None, LongPrompts::Truncate, sigmoid).expect("the reference reads the same parts"), 2);
        assert_eq!(kept(logps, LongPrompts::Truncate, PreferenceLoss::Orpo).expect("it has no reference"), 2);
    }

    #[test]
    fn reference_log_probabilities_stay_with_their_pairs() {
        let pair = |prompt: &[u32]| DpoExample { prompt: prompt.to_vec(), chosen: vec![1], rejected: vec![2] };
        let all = [pair(&[1]), pair(&[1, 2, 3]), pair(&[2]), pair(&[1])];
        let kept = [pair(&[1]), pair(&[2]), pair(&[1])];
        assert_eq!(of_kept(&all, &kept, &['a', 'b', 'c', 'd']).expect("they are some of all"), ['a', 'c', 'd']);
        assert!(of_kept(&all, &[pair(&[9])], &['a', 'b', 'c', 'd']).is_err());
    }
}
