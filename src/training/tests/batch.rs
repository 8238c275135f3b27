use super::*;
use crate::models::ops::Forest;
use crate::training::batch::Batch;
use crate::training::example::{Sequence, sft_sequences};

fn sft(prompt: &[u32], completion: &[u32], weight: f32) -> SftExample {
    SftExample { prompt: prompt.into(), completion: completion.into(), weight, mask: vec![] }
}

fn masked(prompt: &[u32], completion: &[u32], mask: &[bool]) -> SftExample {
    SftExample { mask: mask.iter().map(|counts| f32::from(u8::from(*counts))).collect(), ..sft(prompt, completion, 1.0) }
}

fn pair(prompt: &[u32], chosen: &[u32], rejected: &[u32]) -> DpoExample {
    DpoExample { prompt: prompt.into(), chosen: chosen.into(), rejected: rejected.into() }
}

fn run(max_length: usize, batch_tokens: usize) -> RunOptions {
    RunOptions { max_length, batch_tokens, ..RunOptions::default() }
}

#[test]
fn rows_predict_the_completion_only() {
    let examples = [sft(&[1, 2, 3], &[4, 5], 1.0), sft(&[6], &[7, 8, 9], 0.5)];
    let batch = Batch::pack(&sft_sequences(&examples, 0.0, &run(10, 20)).expect("they fit"));
    let expected = Batch {
        tokens: vec![1, 2, 3, 4, 6, 7, 8],
        layout: Forest::sequences(&[4, 3]),
        lengths: vec![4, 3],
        rows: vec![2, 3, 4, 5, 6],
        targets: vec![4, 5, 7, 8, 9],
        weights: vec![1.0, 1.0, 0.5, 0.5, 0.5],
        row_ranges: vec![0..2, 2..5],
    };
    assert_eq!(batch, expected);
}

#[test]
fn prompt_tokens_count_with_their_own_weight() {
    let examples = [sft(&[1, 2, 3], &[4, 5], 2.0)];
    let sequences = sft_sequences(&examples, 0.25, &run(10, 20)).expect("they fit");
    let batch = Batch::pack(&sequences);
    assert_eq!(batch.targets, [2, 3, 4, 5]);
    assert_eq!(batch.weights, [0.5, 0.5, 2.0, 2.0]);
    assert_eq!(sequences[0].total_weight(), batch.weights.iter().sum::<f64>());
}

#[test]
fn the_row_that_predicts_a_masked_token_goes() {
    let examples = [masked(&[1, 2], &[3, 4, 5, 6], &[true, false, true, false])];
    let sequences = sft_sequences(&examples, 0.0, &run(10, 20)).expect("they fit");
    let batch = Batch::pack(&sequences);
    assert_eq!(batch.tokens, [1, 2, 3, 4, 5], "masked tokens are read, so what follows them is the same");
    assert_eq!((batch.rows, batch.targets), (vec![1, 3], vec![3, 5]));
    assert_eq!((batch.weights.iter().sum::<f64>(), sequences[0].total_weight()), (2.0, 2.0));
}

#[test]
fn a_mask_leaves_the_weight_of_the_prompt() {
    let examples = [masked(&[1, 2], &[3, 4], &[false, true])];
    let sequences = sft_sequences(&examples, 0.5, &run(10, 20)).expect("they fit");
    let batch = Batch::pack(&sequences);
    assert_eq!((batch.targets, batch.weights), (vec![2, 4], vec![0.5, 1.0]));
    assert_eq!(sequences[0].total_weight(), 1.5);
}

#[test]
fn without_a_prompt_the_first_token_is_context() {
    let examples = [sft(&[], &[4, 5, 6], 1.0)];
    let sequences = sft_sequences(&examples, 0.5, &run(10, 20)).expect("they fit");
    let batch = Batch::pack(&sequences);
    assert_eq!((batch.tokens, batch.targets), (vec![4, 5], vec![5, 6]));
    assert_eq!(sequences[0].total_weight(), 2.0);
}

#[test]
fn a_long_prompt_loses_its_beginning() {
    let examples = [sft(&[1, 2, 3, 4, 5], &[6, 7], 1.0)];
    let sequences = sft_sequences(&examples, 0.0, &run(4, 20)).expect("the completion fits");
    assert_eq!((sequences[0].prompt, sequences[0].completion), (&[4, 5][..], &[6, 7][..]));
}

#[test]
fn both_sequences_of_a_pair_keep_the_same_prompt() {
    let examples = [pair(&[1, 2, 3, 4, 5], &[6], &[7, 8, 9])];
    let kept = |run: &RunOptions| dpo_sequences(&examples, run).expect("the completions fit")[0].map(|sequence| sequence.prompt.len());
    assert_eq!(kept(&run(5, 100)), [2, 2], "the longer completion decides");
    assert_eq!(kept(&run(100, 14)), [4, 4], "a pair must fit in batch_tokens together");
}

fn message(examples: &[SftExample], run: &RunOptions) -> String {
    let sequences: Result<Vec<Sequence>> = sft_sequences(examples, 0.0, run);
    sequences.expect_err("the example does not fit").to_string()
}

#[test]
fn an_example_that_does_not_fit_names_its_row() {
    let fits = sft(&[1], &[2], 1.0);
    let long = sft(&[1, 2], &[3, 4, 5, 6], 1.0);
    let found = message(&[fits.clone(), long.clone()], &run(4, 20));
    assert_eq!(found, "max_length = 4: expected at least 5, because the completion of row 2 has 4 tokens");
    let found = message(&[fits.clone(), fits.clone(), long], &run(10, 4));
    assert_eq!(found, "batch_tokens = 4: expected at least 5, because the completion of row 3 has 4 tokens");
    let found = message(&[fits.clone(), sft(&[1], &[], 1.0)], &run(10, 20));
    assert_eq!(found, "completion of row 2 = 0 tokens: expected at least one token that follows another");
    let found = message(&[fits, sft(&[1], &[2], -1.0)], &run(10, 20));
    assert_eq!(found, "weight of row 2 = -1: expected a number >= 0");
}

#[test]
fn a_mask_that_does_not_fit_names_its_row() {
    let found = message(&[sft(&[1], &[2], 1.0), masked(&[1], &[2, 3], &[true])], &run(10, 20));
    assert_eq!(found, "mask of row 2 = 1 values: expected 2, one for each token of the completion");
    let nothing = "mask of row 1 = none: expected at least one token that is learned; filter such rows out with WHERE";
    assert_eq!(message(&[masked(&[1], &[2, 3], &[false, false])], &run(10, 20)), nothing);
    assert_eq!(message(&[masked(&[], &[2, 3], &[true, false])], &run(10, 20)), nothing, "the first token is predicted from nothing");
}

#[test]
fn a_row_whose_prompt_alone_is_learned_is_one() {
    let nothing = |prompt: &[u32]| masked(prompt, &[3, 4], &[false, false]);
    let examples = [nothing(&[1, 2])];
    let sequences = sft_sequences(&examples, 0.5, &run(10, 20)).expect("the second token of the prompt is learned");
    let batch = Batch::pack(&sequences);
    assert_eq!((batch.targets, batch.weights), (vec![2], vec![0.5]));
    assert_eq!(keep_sft(examples.to_vec(), 0.5, &run(10, 20)).expect("as above").0, examples);
    assert!(keep_sft(examples.to_vec(), 0.0, &run(10, 20)).is_err());
    assert!(keep_sft(vec![nothing(&[1])], 0.5, &run(10, 20)).is_err(), "its only token is predicted from nothing");
    assert!(keep_sft(examples.to_vec(), 0.5, &run(3, 20)).is_err(), "one token is left of the prompt");
}

#[test]
fn a_pair_of_equal_completions_names_its_row() {
    let pairs = [pair(&[1], &[2, 3], &[2]), pair(&[1], &[2, 3], &[2, 3])];
    let expected = "rejected of row 2 = the same tokens: expected another completion than chosen; filter such rows out with \
                    WHERE chosen <> rejected";
    assert_eq!(dpo_sequences(&pairs, &run(10, 20)).expect_err("they are equal").to_string(), expected);
    assert_eq!(keep_dpo(pairs.to_vec(), &run(10, 20)).expect_err("they are equal").to_string(), expected);
}

/// Prompts of 3, 4 and 5 tokens, of which 4 have room.
fn three_prompts() -> Vec<SftExample> {
    let prompt: Vec<u32> = (1..=5).collect();
    [3, 4, 5].map(|length| sft(&prompt[..length], &[6, 7], 1.0)).into()
}

fn long_prompts(long_prompts: LongPrompts) -> RunOptions {
    RunOptions { long_prompts, ..run(6, 100) }
}

#[test]
fn long_prompts_are_cut_and_counted() {
    let kept = keep_sft(three_prompts(), 0.0, &long_prompts(LongPrompts::Truncate)).expect("the completions fit");
    assert_eq!(kept, (three_prompts(), Kept { num_truncated: 1, num_dropped: 0 }));
    let sequences = sft_sequences(&kept.0, 0.0, &run(6, 100)).expect("the completions fit");
    assert_eq!(sequences.iter().map(|sequence| sequence.prompt).collect::<Vec<_>>(), [&[1, 2, 3][..], &[1, 2, 3, 4], &[2, 3, 4, 5]]);
}

#[test]
fn examples_with_long_prompts_are_dropped_and_counted() {
    let run = long_prompts(LongPrompts::Drop);
    let kept = keep_sft(three_prompts(), 0.0, &run).expect("two fit");
    assert_eq!(kept, (three_prompts()[..2].to_vec(), Kept { num_truncated: 0, num_dropped: 1 }));
    assert!(matches!(keep_sft(three_prompts()[2..].to_vec(), 0.0, &run), Err(Error::NotReady(_))));
    assert_eq!(keep_sft(vec![], 0.0, &run).expect("nothing to keep"), (vec![], Kept::default()));

    let pairs = vec![pair(&[1, 2, 3, 4, 5], &[6], &[7, 8]), pair(&[1, 2, 3, 4, 5], &[6], &[7])];
    let kept = keep_dpo(pairs.clone(), &run).expect("one fits");
    assert_eq!(kept, (pairs[1..].to_vec(), Kept { num_truncated: 0, num_dropped: 1 }), "the longer completion decides");
}

#[test]
fn long_prompts_are_refused_by_the_row() {
    let mut run = long_prompts(LongPrompts::Error);
    assert_eq!(keep_sft(three_prompts()[..2].to_vec(), 0.0, &run).expect("both fit").1, Kept::default());
    let expected = "prompt of row 3 = 5 tokens: expected at most 4, which leaves room for its completion; raise max_length, or set \
                    long_prompts to 'truncate' or 'drop'";
    assert_eq!(keep_sft(three_prompts(), 0.0, &run).expect_err("one is too long").to_string(), expected);
    (run.max_length, run.batch_tokens) = (100, 12);
    let error = keep_dpo(vec![pair(&[1, 2, 3, 4, 5], &[6], &[7, 8])], &run).expect_err("it is too long").to_string();
    assert!(error.starts_with("prompt of row 1 = 5 tokens: expected at most 4,") && error.contains("raise batch_tokens"), "{error}");
}

/// A completion is never cut, so `long_prompts` says nothing about one that does not fit.
#[test]
fn rows_are_checked_before_any_is_dropped() {
    let run = long_prompts(LongPrompts::Drop);
    let too_long = sft(&[1], &[1, 2, 3, 4, 5, 6], 1.0);
    let examples = vec![sft(&[1, 2, 3, 4, 5], &[6, 7], 1.0), sft(&[1], &[2], 1.0), too_long];
    let found = keep_sft(examples, 0.0, &run).expect_err("the completion is too long").to_string();
    assert_eq!(found, "max_length = 6: expected at least 7, because the completion of row 3 has 6 tokens");
    let left_out = vec![sft(&[1], &[], 0.0), sft(&[1], &[2], 1.0)];
    assert_eq!(keep_sft(left_out.clone(), 0.0, &run).expect("the weight of the first one is 0"), (left_out, Kept::default()));
}

#[test]
fn examples_of_weight_zero_are_left_out() {
    let examples = [sft(&[1], &[], 0.0), sft(&[1], &[2], 1.0)];
    assert_eq!(sft_sequences(&examples, 0.0, &run(10, 20)).expect("one is left").len(), 1);
    assert!(matches!(sft_sequences(&examples[..1], 0.0, &run(10, 20)), Err(Error::NotReady(_))));
    let refused = |examples: &[SftExample]| {
        let error = keep_sft(examples.to_vec(), 0.0, &long_prompts(LongPrompts::Drop)).expect_err("nothing is left to learn");
        assert!(matches!(error, Error::NotReady(_)), "{error}");
        error.to_string()
    };
    assert!(refused(&examples[..1]).contains("weight above 0"));
    let long = sft(&[1, 2, 3, 4, 5], &[6, 7], 1.0);
    assert!(refused(&[examples[0].clone(), long]).starts_with("long_prompts = 'drop' leaves none of 2 examples"));
    assert!(matches!(dpo_sequences(&[], &run(10, 20)), Err(Error::NotReady(_))));
}
