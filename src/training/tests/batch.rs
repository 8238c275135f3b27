use super::*;
use crate::training::batch::Batch;
use crate::training::example::{Sequence, sft_sequences};

fn sft(prompt: &[u32], completion: &[u32], weight: f32) -> SftExample {
    SftExample { prompt: prompt.into(), completion: completion.into(), weight }
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
    let examples = [DpoExample { prompt: vec![1, 2, 3, 4, 5], chosen: vec![6], rejected: vec![7, 8, 9] }];
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
fn examples_of_weight_zero_are_left_out() {
    let examples = [sft(&[1], &[], 0.0), sft(&[1], &[2], 1.0)];
    assert_eq!(sft_sequences(&examples, 0.0, &run(10, 20)).expect("one is left").len(), 1);
    assert!(matches!(sft_sequences(&examples[..1], 0.0, &run(10, 20)), Err(Error::NotReady(_))));
    assert!(matches!(dpo_sequences(&[], &run(10, 20)), Err(Error::NotReady(_))));
}
