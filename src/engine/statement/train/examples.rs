//! From rows to token ids: the examples of a training, those of its validation, and what makes them these ones.

use std::cell::Cell;
use std::path::Path;

use super::checkpoints::Identity;
use super::documents;
use super::input::{Content, Given, Row};
use super::task::Method;
use crate::error::{Error, Result};
use crate::models::{DecoderConfig, ScoredText, Tokenizer};
use crate::training::{
    DpoExample, DpoOptions, Kept, LongPrompts, PrmExamples, PrmOptions, ReferenceLogps, RewardLoss, RunOptions, SftExample, StepExample,
    Stop, keep_dpo, keep_sft, keep_steps, room_for_prompt,
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
    /// For each pair the log-probabilities of the reference, where the query gave them.
    Dpo(Vec<DpoExample>, Vec<Option<Given>>),
    Prm(PrmExamples),
}

/// What became of examples whose prompts are too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// They lost their beginning.
    pub truncated: usize,
    /// They lost the beginning of the documents in them.
    pub documents: usize,
    /// They were left out.
    pub dropped: usize,
}

impl Cut {
    fn of(kept: Kept, documents: usize) -> Self {
        Self { truncated: kept.num_truncated, documents, dropped: kept.num_dropped }
    }
}

impl Examples {
    /// The examples of the rows, without those that `long_prompts` leaves out. No rows are no examples.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] naming the row of what cannot be learned; [`Error::NotReady`] if nothing is left; [`Error::Cancelled`].
    pub fn of(rows: &[Row], method: &Method, base: &BaseTokenizer, stop: &Stop) -> Result<(Self, Cut)> {
        let encoder = Encoder { tokenizer: &base.tokenizer, run: method.run(), num_documents: Cell::new(0), stop };
        let (examples, kept) = match method {
            Method::Sft(_) | Method::Rft(_) => {
                let (examples, kept) = keep_sft(sft_examples(rows, &encoder)?, method.prompt_weight(), method.run())?;
                (Self::Sft(examples), kept)
            }
            Method::Dpo(options) => pairs(rows, options, &encoder)?,
            Method::Prm(options) => {
                let (examples, kept) = scored(rows, options, &base.scored, &encoder)?;
                (Self::Prm(examples), kept)
            }
        };
        Ok((examples, Cut::of(kept, encoder.num_documents.get())))
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Sft(examples) => examples.len(),
            Self::Dpo(pairs, _) => pairs.len(),
            Self::Prm(examples) => examples.len(),
        }
    }

    /// Pairs for which the query gave what the reference says.
    pub fn num_references(&self) -> usize {
        match self {
            Self::Dpo(_, references) => references.iter().flatten().count(),
            Self::Sft(_) | Self::Prm(_) => 0,
        }
    }

    /// The pairs for which the reference's log-probabilities are computed; no others.
    pub fn without_references(&self) -> Self {
        let Self::Dpo(pairs, references) = self else { return Self::Dpo(vec![], vec![]) };
        let missing: Vec<DpoExample> =
            pairs.iter().zip(references).filter(|(_, given)| given.is_none()).map(|(pair, _)| pair.clone()).collect();
        let references = vec![None; missing.len()];
        Self::Dpo(missing, references)
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
                    identity.ids(&mask.iter().map(|weight| weight.to_bits()).collect::<Vec<_>>());
                }
            }
            Self::Dpo(pairs, reference) => {
                identify_pairs(pairs, identity);
                for (index, given) in reference.iter().enumerate() {
                    let Some(Given { logps: ReferenceLogps { chosen, rejected }, is_of_learned, .. }) = given else { continue };
                    let numbers = [index as u64, chosen.to_bits(), rejected.to_bits(), u64::from(*is_of_learned)];
                    numbers.into_iter().for_each(|number| identity.number(number));
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

/// Makes token ids of what rows have.
struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    run: &'a RunOptions,
    /// Prompts that have lost the beginning of their documents.
    num_documents: Cell<usize>,
    stop: &'a Stop,
}

impl Encoder<'_> {
    /// The tokens of a prompt beside completions of these lengths, and whether these are all that it has and fit. One that is too long loses the beginning of its
    /// documents here, if that is wanted and enough; what becomes of any other is for those who keep examples.
    fn prompt(&self, content: &Content, completions: &[usize]) -> Result<(Vec<u32>, bool)> {
        let ids = self.whole_prompt(content)?;
        let room = room_for_prompt(completions, self.run);
        if let (Content::Text(text), LongPrompts::Truncate, 1..) = (content, self.run.long_prompts, room)
            && let Some(left) = documents::without_beginning(&ids, text, room, self.tokenizer)?
        {
            self.num_documents.update(|num_documents| num_documents + 1);
            return Ok((left, false));
        }
        let is_whole = ids.len() <= room;
        Ok((ids, is_whole))
    }

    fn whole_prompt(&self, content: &Content) -> Result<Vec<u32>> {
        self.stop.check()?;
        match content {
            Content::Text(text) => self.tokenizer.encode_prompt(text),
            Content::Ids(ids, _) => Ok(ids.clone()),
            Content::Parts(_) | Content::Turn(_) => Err(Error::Internal("a prompt is a text or token ids".to_owned())),
        }
    }

    /// The tokens of a completion, and how much each counts; no such list: all count 1. A text ends with end-of-text: the policy learns to stop. Ids, and what a
    /// chat template has ended, are taken as they are.
    fn completion(&self, content: &Content) -> Result<(Vec<u32>, Vec<f32>)> {
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        match content {
            Content::Text(text) => {
                self.add(text, 1.0, &mut ids, &mut mask)?;
                self.end(1.0, &mut ids, &mut mask);
            }
            Content::Turn(text) => self.add(text, 1.0, &mut ids, &mut mask)?,
            Content::Parts(parts) => {
                // Each part alone, so that every token belongs to one part.
                for (text, weight) in parts {
                    self.add(text, weight.value(), &mut ids, &mut mask)?;
                }
                self.end(parts.last().map_or(0.0, |(_, weight)| weight.value()), &mut ids, &mut mask);
            }
            Content::Ids(given, weights) => {
                self.check_no_token_weights()?;
                ids.clone_from(given);
                mask = weights.iter().map(|weight| weight.value()).collect();
            }
        }
        if mask.iter().all(|weight| *weight == 1.0) {
            mask.clear();
        }
        Ok((ids, mask))
    }

    /// Adds a text whose tokens weigh `weight`, and those of `token_weights` so many times that.
    fn add(&self, text: &str, weight: f32, ids: &mut Vec<u32>, mask: &mut Vec<f32>) -> Result<()> {
        ids.extend(self.tokenizer.encode(text)?);
        let weights = &self.run.token_weights;
        if !weights.is_empty() && weight > 0.0 {
            let of_tokens = weights.of_tokens(text, &self.tokenizer.token_ranges(text)?);
            mask.extend(of_tokens.iter().map(|of_token| of_token * weight));
        }
        mask.resize(ids.len(), weight);
        Ok(())
    }

    fn end(&self, weight: f32, ids: &mut Vec<u32>, mask: &mut Vec<f32>) {
        ids.extend(self.tokenizer.eos_token_id());
        mask.resize(ids.len(), weight);
    }

    fn check_no_token_weights(&self) -> Result<()> {
        if self.run.token_weights.is_empty() {
            return Ok(());
        }
        Err(Error::InvalidParameter {
            name: "token_weights".to_owned(),
            found: self.run.token_weights.to_json().to_string(),
            expected: "completions that are texts; beside completion_ids it is mask that says how much each token counts".to_owned(),
        })
    }
}

fn sft_examples(rows: &[Row], encoder: &Encoder<'_>) -> Result<Vec<SftExample>> {
    let example = |row: &Row| {
        let (completion, mask) = encoder.completion(content_of(row, 0)?)?;
        // A row of no weight is left out, and loses nothing.
        let prompt = match row.weight == 0.0 {
            true => encoder.whole_prompt(&row.prompt)?,
            false => encoder.prompt(&row.prompt, &[completion.len()])?.0,
        };
        Ok(SftExample { prompt, completion, weight: row.weight, mask })
    };
    rows.iter().map(example).collect()
}

fn pairs(rows: &[Row], options: &DpoOptions, encoder: &Encoder<'_>) -> Result<(Examples, Kept)> {
    let (mut all, mut references, mut num_cut) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()), 0);
    for row in rows {
        let [(chosen, _), (rejected, _)] = [encoder.completion(content_of(row, 0)?)?, encoder.completion(content_of(row, 1)?)?];
        let (prompt, is_whole) = encoder.prompt(&row.prompt, &[chosen.len(), rejected.len()])?;
        let pair = DpoExample { prompt, chosen, rejected };
        references.push(row.reference.as_ref().and_then(|given| given.of(&pair, is_whole)));
        num_cut += usize::from(!is_whole && row.reference.as_ref().is_some_and(|given| !given.is_of_base));
        all.push(pair);
    }
    if num_cut > 0 && options.run.long_prompts == LongPrompts::Truncate && options.preference.loss.needs_reference() {
        // The reference read whole prompts, and the policy would read parts of them.
        return Err(Error::InvalidParameter {
            name: "prompts".to_owned(),
            found: format!("{num_cut} that are cut to fit"),
            expected: "whole ones beside reference columns; leave these columns out, raise max_length or batch_tokens, or set long_prompts = 'drop'"
                .to_owned(),
        });
    }
    let (kept, counts) = keep_dpo(all.clone(), &options.run)?;
    let references = of_kept(&all, &kept, &references)?;
    Ok((Examples::Dpo(kept, references), counts))
}

/// What a reward model learns from: pairs if its loss compares them, and steps with labels otherwise.
fn scored(rows: &[Row], options: &PrmOptions, scored: &ScoredText, encoder: &Encoder<'_>) -> Result<(PrmExamples, Kept)> {
    let step = |row: &Row, index: usize| match content_of(row, index)? {
        Content::Text(text) => scored.step(encoder.tokenizer, text),
        _ => Err(Error::Internal("a reward model reads texts".to_owned())),
    };
    if options.loss.is_some_and(RewardLoss::needs_pairs) {
        let pair = |row: &Row| {
            let (chosen, rejected) = (step(row, 0)?, step(row, 1)?);
            Ok(DpoExample { prompt: encoder.prompt(&row.prompt, &[chosen.len(), rejected.len()])?.0, chosen, rejected })
        };
        let (pairs, kept) = keep_dpo(rows.iter().map(pair).collect::<Result<_>>()?, &options.run)?;
        return Ok((PrmExamples::Pairs(pairs), kept));
    }
    let example = |row: &Row| {
        let step = step(row, 0)?;
        Ok(StepExample { prompt: encoder.prompt(&row.prompt, &[step.len()])?.0, step, label: row.label })
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

#[cfg(test)]
mod tests {
    use super::super::input::{GivenReference, Weight};
    use super::*;
    use crate::fixtures::fixture;
    use crate::training::{Preference, PreferenceLoss, SftOptions};
    use crate::value::Value;

    #[test]
    fn parts_that_were_put_in_are_read_and_not_learned() {
        let tokenizer = &tokenizer();
        let (run, stop) = (RunOptions::default(), Stop::default());
        let encoder = Encoder { tokenizer, run: &run, num_documents: Cell::new(0), stop: &stop };
        let completion = |content: &Content| encoder.completion(content).expect("it is encoded");
        let parts = [("<search>a film</search>", true), ("a passage", false), ("so it is", true)];
        let weight = |is_learned| if is_learned { Weight::of(1.0) } else { Weight::of(0.0) };
        let (ids, mask) = completion(&Content::Parts(parts.map(|(text, is_learned)| (text.to_owned(), weight(is_learned))).into()));
        let lengths = parts.map(|(text, _)| tokenizer.encode(text).expect("it is encoded").len());
        let end = usize::from(tokenizer.eos_token_id().is_some());
        let expected = [vec![1.0; lengths[0]], vec![0.0; lengths[1]], vec![1.0; lengths[2] + end]].concat();
        assert_eq!(mask, expected);
        assert_eq!(ids.len(), mask.len());
        let all = Content::Parts(vec![("a film".to_owned(), Weight::of(1.0))]);
        assert_eq!(completion(&all), completion(&Content::Text("a film".to_owned())));
        let half = Content::Parts(vec![("a film".to_owned(), Weight::of(0.5))]);
        let (ids, mask) = completion(&half);
        assert_eq!(mask, vec![0.5; ids.len()], "the end of the text counts as what is before it");
    }

    #[test]
    fn tags_weigh_more_than_what_is_between_them() {
        let tokenizer = &tokenizer();
        let mut options = SftOptions::default();
        options.set("token_weights", &Value::Text("prorag".to_owned())).expect("it is known");
        let stop = Stop::default();
        let encoder = Encoder { tokenizer, run: &options.run, num_documents: Cell::new(0), stop: &stop };
        let text = "so it is <answer>a film</answer>";
        let (ids, mask) = encoder.completion(&Content::Text(text.to_owned())).expect("it is encoded");
        let (tag, end) = (text.find('<').expect("it is there"), usize::from(tokenizer.eos_token_id().is_some()));
        assert_eq!(ids.len(), tokenizer.encode(text).expect("it is encoded").len() + end, "the tokens are those of the text");
        let ranges = tokenizer.token_ranges(text).expect("it is encoded");
        for (range, weight) in ranges.iter().zip(&mask) {
            let is_tag = range.end > tag && (range.start < tag + "<answer>".len() || range.end > text.len() - "</answer>".len());
            assert_eq!(*weight, if is_tag { 5.0 } else { 1.0 }, "{}", &text[range.clone()]);
        }
        assert_eq!(mask.last(), Some(&1.0), "the end of the text is no tag");
        let put_in = Content::Parts(vec![("<answer>".to_owned(), Weight::of(0.0)), ("</answer>".to_owned(), Weight::of(2.0))]);
        let (_, mask) = encoder.completion(&put_in).expect("it is encoded");
        assert!(mask.contains(&0.0) && mask.contains(&10.0) && !mask.contains(&5.0), "{mask:?}");
        assert!(encoder.completion(&Content::Ids(vec![1], vec![])).is_err(), "ids have no text");
    }

    #[test]
    fn prompts_that_are_too_long_lose_documents_before_anything_else() {
        let base = BaseTokenizer::load(&fixture("../../src/models/builtin/tinyhop")).expect("the built-in model has one");
        let documents = "[1] The film was directed by one man\n[2] The man was born in a town\n";
        let row = |prompt: String| Row { prompt: Content::Text(prompt), ..row("", None) };
        let of = |rows: &[Row], long_prompts| {
            let run = RunOptions { max_length: 24, long_prompts, ..RunOptions::default() };
            Examples::of(rows, &Method::Sft(SftOptions { run, ..SftOptions::default() }), &base, &Stop::default())
        };
        let rows = [row(format!("Question: who?\n{documents}Answer:")), row("a film ".repeat(40)), row("a film".to_owned())];
        let (Examples::Sft(examples), cut) = of(&rows, LongPrompts::Truncate).expect("they are cut") else { panic!("demonstrations") };
        assert_eq!(cut, Cut { truncated: 1, documents: 1, dropped: 0 });
        let left = base.tokenizer.decode(&examples[0].prompt).expect("it is decoded");
        assert!(left.trim_start().starts_with("Question: who?") && left.ends_with("Answer:"), "{left}");
        assert_eq!(examples[0].prompt.len() + examples[0].completion.len(), 24);
        let (examples, cut) = of(&rows, LongPrompts::Drop).expect("one fits");
        assert_eq!((examples.len(), cut), (1, Cut { dropped: 2, ..Cut::default() }));
        assert!(of(&rows, LongPrompts::Error).is_err());
    }

    fn tokenizer() -> Tokenizer {
        Tokenizer::load(&fixture("../../src/models/builtin/tinyhop")).expect("the built-in model has one")
    }

    fn row(prompt: &str, reference: Option<GivenReference>) -> Row {
        Row {
            prompt: Content::Text(prompt.to_owned()),
            completions: ["yes", "no"].map(|text| Content::Text(text.to_owned())).into(),
            weight: 1.0,
            reward: 0.0,
            score: 0.0,
            label: 0.0,
            reference,
        }
    }

    fn dpo(loss: PreferenceLoss, long_prompts: LongPrompts) -> Method {
        let run = RunOptions { max_length: 20, long_prompts, ..RunOptions::default() };
        Method::Dpo(DpoOptions { run, preference: Preference { loss, ..Preference::sigmoid(0.3) }, ..DpoOptions::default() })
    }

    const SIGMOID: PreferenceLoss = PreferenceLoss::Sigmoid { label_smoothing: 0.0 };
    const LOGPS: ReferenceLogps = ReferenceLogps { chosen: -1.0, rejected: -2.0 };

    #[test]
    fn reference_log_probabilities_are_of_whole_prompts() {
        let base = BaseTokenizer::load(&fixture("../../src/models/builtin/tinyhop")).expect("the built-in model has one");
        let kept = |reference: Option<GivenReference>, long_prompts, loss| {
            let rows = [row("a film", reference.clone()), row(&"a film ".repeat(40), reference)];
            Examples::of(&rows, &dpo(loss, long_prompts), &base, &Stop::default()).map(|(examples, _)| examples.len())
        };
        let logps = || Some(LOGPS.into());
        let refused = kept(logps(), LongPrompts::Truncate, SIGMOID);
        assert!(matches!(&refused, Err(Error::InvalidParameter { found, .. }) if found.starts_with("1 that")), "{refused:?}");
        assert_eq!(kept(logps(), LongPrompts::Drop, SIGMOID).expect("the other one is whole"), 1);
        assert_eq!(kept(None, LongPrompts::Truncate, SIGMOID).expect("the reference reads the same parts"), 2);
        assert_eq!(kept(logps(), LongPrompts::Truncate, PreferenceLoss::Orpo).expect("it has no reference"), 2);
    }

    /// Where they are the base's they can be computed.
    #[test]
    fn log_probabilities_of_the_base_are_taken_for_the_tokens_that_are_learned() {
        let base = BaseTokenizer::load(&fixture("../../src/models/builtin/tinyhop")).expect("the built-in model has one");
        let learned = ["yes", "no"]
            .map(|text| [base.tokenizer.encode(text).expect("it is encoded"), vec![base.tokenizer.eos_token_id().expect("one")]].concat());
        let given = |ids| Some(GivenReference { is_of_base: true, ids: Some(ids), ..LOGPS.into() });
        let stopped = learned.clone().map(|ids| ids[..ids.len() - 1].to_vec());
        let rows = [
            row("a film", given(learned.clone())),
            row("a man", given(stopped)),
            row(&"a film ".repeat(40), given(learned)),
            row("a town", None),
        ];
        let (examples, _) = Examples::of(&rows, &dpo(SIGMOID, LongPrompts::Truncate), &base, &Stop::default()).expect("none is refused");
        let Examples::Dpo(pairs, references) = examples else { panic!("pairs") };
        assert_eq!(
            (pairs.len(), references),
            (4, vec![Some(Given { logps: LOGPS, is_of_base: true, is_of_learned: true }), None, None, None])
        );
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
