use super::*;
use crate::training::plan::{Plan, StepPlan};

fn in_order(batch_tokens: usize, gradient_accumulation: usize) -> RunOptions {
    RunOptions { shuffle: false, batch_tokens, gradient_accumulation, ..RunOptions::default() }
}

fn steps(costs: &[usize], run: &RunOptions, batch_size: Option<usize>) -> Vec<StepPlan> {
    let plan = Plan::new(costs, run, batch_size);
    let num_steps = plan.num_steps();
    let steps: Vec<_> = plan.take(num_steps).collect();
    assert_eq!(steps.len(), num_steps);
    steps
}

#[test]
fn batches_fill_up_to_the_token_budget() {
    let steps = steps(&[3, 4, 2, 9, 1], &in_order(9, 1), None);
    assert_eq!(steps, [vec![vec![0, 1, 2]], vec![vec![3]], vec![vec![4]]]);
}

#[test]
fn gradient_accumulation_joins_batches() {
    assert_eq!(steps(&[3, 4, 2, 9, 1], &in_order(9, 2), None), [vec![vec![0, 1, 2], vec![3]], vec![vec![4]]]);
}

#[test]
fn batch_size_decides_the_step_and_the_token_budget_only_cuts_it() {
    let costs = [5, 5, 5, 5, 5];
    assert_eq!(steps(&costs, &in_order(5, 1), Some(2)), [vec![vec![0], vec![1]], vec![vec![2], vec![3]], vec![vec![4]]]);
    assert_eq!(steps(&costs, &in_order(100, 2), Some(2)), [vec![vec![0, 1, 2, 3]], vec![vec![4]]]);
}

#[test]
fn step_tokens_decides_the_step_whatever_the_batches_are() {
    let costs = [3, 4, 2, 9, 1];
    for (batch_size, gradient_accumulation) in [(None, 1), (None, 3), (Some(1), 2), (Some(5), 1)] {
        let run = RunOptions { step_tokens: Some(7), ..in_order(9, gradient_accumulation) };
        assert_eq!(steps(&costs, &run, batch_size), [vec![vec![0, 1]], vec![vec![2], vec![3]], vec![vec![4]]]);
    }
    let all = RunOptions { step_tokens: Some(usize::MAX), epochs: 2.0, ..in_order(100, 1) };
    assert_eq!(steps(&costs, &all, None), [vec![vec![0, 1, 2, 3, 4]], vec![vec![0, 1, 2, 3, 4]]], "no step reaches over an epoch");
}

#[test]
fn a_plan_that_skips_steps_goes_on_where_it_would_be() {
    let run = RunOptions { epochs: 3.0, batch_tokens: 4, seed: 7, ..RunOptions::default() };
    let whole = steps(&[1; 10], &run, None);
    let rest: Vec<StepPlan> = Plan::new(&[1; 10], &run, None).skip(5).collect();
    assert_eq!(rest, whole[5..]);
}

#[test]
fn epochs_may_be_fractions_and_max_steps_cuts() {
    let mut run = in_order(1, 1);
    run.epochs = 2.5;
    assert_eq!(steps(&[1, 1], &run, None).concat().concat(), [0, 1, 0, 1, 0]);
    run.max_steps = Some(3);
    assert_eq!(steps(&[1, 1], &run, None).concat().concat(), [0, 1, 0]);
    run.epochs = 0.001;
    assert_eq!(steps(&[1, 1], &run, None).concat().concat(), [0]);
}

#[test]
fn shuffling_repeats_with_its_seed_and_differs_between_epochs() {
    let run = RunOptions { epochs: 2.0, batch_tokens: 1, seed: 7, ..RunOptions::default() };
    let order = steps(&[1; 50], &run, None).concat().concat();
    assert_eq!(order, steps(&[1; 50], &run, None).concat().concat());
    assert_ne!(order, steps(&[1; 50], &RunOptions { seed: 8, ..run.clone() }, None).concat().concat());
    let (first, second) = order.split_at(50);
    assert_ne!(first, second);
    for epoch in [first, second] {
        let mut sorted = epoch.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>(), "every example comes once in an epoch");
    }
}
